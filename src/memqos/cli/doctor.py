"""`memqos doctor`: what is wrong with a node, what tells so, and what helps."""

import time
from typing import Any

import click
import msgspec

from memqos.cli.node_plan import (
    agent_data,
    agent_line,
    agent_notes,
    agent_options,
    agent_paths,
    follows_agent,
    no_agent_option,
)
from memqos.cli.options import SecondsType
from memqos.cli.output import OutputFormat, complain, emit, output_option, print_lines
from memqos.cli.plan import load_observation, node_options, observe_node, plan_options_from
from memqos.converge.node_plan import PLAN_FILES, NodePlan, plan_observation
from memqos.converge.observation import ObservedNode, with_agent
from memqos.draw.text.findings import findings_data, findings_text
from memqos.errors import InputError, UnsupportedRelease
from memqos.findings.facts import NodeFacts, PlanFacts, SecondReading
from memqos.findings.node import judge_node
from memqos.host.cgroups import read_tree
from memqos.kube.kubelet import CgroupDriver
from memqos.manifests.documents import read_documents
from memqos.plan.names import cgroup_names

_ERROR = 1
_FINDINGS = 2

_OVERRIDES = ("kubelet", "release", "gates", "pods", "numa", "state")
_SAMPLED_FILES = ("memory.events", "memory.events.local", "memory.pressure")
_FILES = (
    *PLAN_FILES,
    *_SAMPLED_FILES,
    "memory.stat",
    "memory.swap.max",
    "cgroup.controllers",
    "cgroup.subtree_control",
)


@click.command()
@node_options
@click.option("--snapshot", metavar="FILE", help="Judge the node of a snapshot, not this one.")
@click.option(
    "--seconds",
    type=SecondsType(0.1, 3600),
    default=3,
    help="How long to watch who is throttled.  [default: 3]",
)
@agent_options
@no_agent_option
@output_option()
def command(
    snapshot: str | None,
    seconds: float,
    output: OutputFormat,
    **options: Any,
) -> int:
    """Judge this node, or that of a snapshot: whether Memory QoS works here, and for whom not.

    Where an agent of memqos enforces, the values it manages are compared with its own plan. With
    --no-agent, or with options such as --policy that ask for another plan, Kubernetes' is taken.

    Exit code 0: nothing above info, 2: warnings or errors were found, 1: error.
    """
    if snapshot is None:
        root = options["cgroup_root"]
        observation = with_agent(observe_node(options, _FILES), root, *agent_paths(options))
        later = _sample_again(observation, root, seconds)
    else:
        observation, later = load_observation(snapshot, options), None
    facts, plan = _facts(observation, later, options)
    findings = judge_node(facts)
    notes = [*observation.notes, *agent_notes(observation.agent)]
    if observation.agent is not None and plan is not None and plan.managed:
        notes.append(f"values are compared {agent_line(observation.agent)}")
    if output == "table":
        for note in notes:
            complain(f"note: {note}")
        print_lines(findings_text(findings))
    else:
        data = {
            "node": observation.origin,
            "findings": findings_data(findings),
            "notes": [*observation.faults, *notes],
            "agent": agent_data(plan, observation),
        }
        emit(data, output)
    for fault in observation.faults:
        complain(fault)
    if observation.faults:
        complain("some pods could not be read, so this is not all – see above")
        return _ERROR
    return _FINDINGS if any(finding.severity != "info" for finding in findings) else 0


def _sample_again(observation: ObservedNode, root: str, seconds: float) -> SecondReading | None:
    """The counters once more, where there is anything that counts."""
    if not any("memory.events" in files for files in observation.cgroups.values()):
        return None
    start = time.monotonic()
    time.sleep(seconds)
    tree = read_tree(root, _SAMPLED_FILES)
    same = {
        path: files
        for path, files in tree.cgroups.items()
        if tree.identities[path] == observation.identities.get(path)
    }
    return SecondReading(time.monotonic() - start, same)


def _facts(
    observation: ObservedNode, later: SecondReading | None, options: dict[str, Any]
) -> tuple[NodeFacts, NodePlan | None]:
    plan, refused = None, None
    asked = msgspec.structs.replace(plan_options_from(**options), agent=follows_agent(options))
    if observation.machine.layout in ("v2", None):
        try:
            plan = plan_observation(observation, asked)
        except (InputError, UnsupportedRelease) as error:
            # What was given is refused; what was found on the node is a finding.
            if any(options[given] for given in _OVERRIDES):
                raise
            refused = str(error)
    agent = observation.agent
    managed_pods = 0 if agent is None or plan is None or not plan.managed else len(agent.pods)
    facts = NodeFacts(
        machine=observation.machine,
        cgroups=observation.cgroups,
        later=later,
        configured_driver=_driver_in_configuration(observation) if plan else None,
        planned=None if plan is None else _plan_facts(plan),
        not_planned=refused,
        pods=len(observation.pods) or managed_pods,
        agent=agent,
        own_values=observation.own_values,
    )
    return facts, plan


def _plan_facts(plan: NodePlan) -> PlanFacts:
    return PlanFacts(
        names=cgroup_names(plan.config.driver, plan.config.cgroup_root),
        tree=plan.tree,
        comparison=plan.comparison,
        memory_qos=plan.settings.release.is_enabled("MemoryQoS") if plan.doubt is None else None,
        unaligned=plan.unaligned,
        doubt=plan.doubt,
        managed=plan.managed,
    )


def _driver_in_configuration(observation: ObservedNode) -> CgroupDriver | None:
    """What the configuration itself says: the plan goes by the names of the cgroups instead."""
    if observation.configuration is None:
        return None
    document = next(
        iter(read_documents(observation.configuration.data, observation.configuration.name))
    )
    if isinstance(document, InputError):
        raise document
    driver = document.data.get("cgroupDriver")
    return driver if driver in ("cgroupfs", "systemd") else None
