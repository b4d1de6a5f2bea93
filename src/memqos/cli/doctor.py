"""`memqos doctor`: problems of a node, the evidence, and fixes."""

import time

import click
import msgspec

from memqos.cli.help_sections import SectionedCommand
from memqos.cli.node_agent import (
    agent_data,
    agent_line,
    agent_notes,
    agent_options,
    agent_paths,
    no_agent_option,
)
from memqos.cli.node_plan import NodeOptions, load_observation, node_options, observe_node
from memqos.cli.options import SecondsType, collect_options
from memqos.cli.output import OutputFormat, complain, emit, output_option, print_lines
from memqos.cli.own_rules import load_rules, rules_option
from memqos.converge.node_plan import PLAN_FILES, NodePlan, PlanOptions, plan_observation
from memqos.converge.observation import ObservedNode, with_agent
from memqos.draw.text.findings import findings_data, findings_text
from memqos.errors import InputError, MemqosError, UnsupportedRelease
from memqos.findings.facts import NodeFacts, PlanFacts, SecondReading
from memqos.findings.node import judge_node
from memqos.host.cgroups import SYSTEM_ROOT, read_tree
from memqos.host.owner_discovery import read_nri
from memqos.kube.kubelet import CgroupDriver
from memqos.kube.quantity import Quantity
from memqos.kube.resources import MEMORY
from memqos.plan.names import cgroup_names, names_of
from memqos.settings.resolver import configuration_document

_ERROR = 1
_FINDINGS = 2

_SAMPLED_FILES = (
    "memory.events",
    "memory.events.local",
    "memory.pressure",
    "memory.stat",
    "cpu.stat",
)
_FILES = (
    *PLAN_FILES,
    *_SAMPLED_FILES,
    "cgroup.controllers",
    "cgroup.subtree_control",
)


@click.command(cls=SectionedCommand)
@node_options
@click.option(
    "--snapshot", metavar="FILE", help="Diagnose the node of a snapshot instead of this one."
)
@click.option(
    "--seconds",
    type=SecondsType(0.1, 3600),
    metavar="SECONDS",
    default=3,
    help="Time between the two readings of throttling counters.  [default: 3]",
)
@click.option(
    "--reserved",
    is_flag=True,
    help="Recommend kubeReserved and systemReserved from the memory that the node's daemons use.",
)
@rules_option
@agent_options
@no_agent_option
@output_option()
@collect_options(NodeOptions)
def command(
    options: NodeOptions,
    *,
    snapshot: str | None,
    seconds: float,
    reserved: bool,
    packages: tuple[str, ...],
    output: OutputFormat,
    agent: str | None,
    journal: str | None,
    no_agent: bool,
) -> int:
    """Diagnose this node, or that of a snapshot: problems, evidence, fixes.

    If an agent of memqos enforces on the node, the values it manages are compared with its own
    plan. With --no-agent, or with options such as --policy, Kubernetes' plan is used.

    With --reserved it recommends kubeReserved and systemReserved for the node's daemons instead.

    Exit code 0: nothing above info, 2: warnings or errors were found, 1: error.
    """
    own_rules = load_rules(packages, "node")
    if snapshot is None:
        root = options.cgroup_root
        observation = with_agent(
            observe_node(options, _FILES), root, *agent_paths(root, agent, journal)
        )
        later = None if reserved else _sample_again(observation, root, seconds)
    else:
        observation, later = load_observation(snapshot, options), None
    plan_options = options.plan_options(agent=not no_agent and not options.overrides_plan)
    plan, refusal = _plan(observation, plan_options, is_given=_overrides_observation(options))
    if reserved:
        return _recommend_reserved(observation, plan, refusal, output)
    facts = _facts(observation, later, plan, refusal)
    if snapshot is None and options.cgroup_root == SYSTEM_ROOT:
        facts = msgspec.structs.replace(facts, nri=read_nri())
    findings = judge_node(facts, own_rules)
    notes = [*observation.notes, *agent_notes(observation.agent)]
    if observation.agent is not None and plan is not None and plan.managed:
        notes.append(f"values are compared {agent_line(observation.agent)}")
    if output == "table":
        for note in notes:
            complain(f"note: {note}")
        header = [] if plan is None else [str(plan.enablement), ""]
        print_lines([*header, *findings_text(findings)])
    else:
        data = {
            "node": observation.origin,
            "enablement": None if plan is None else plan.enablement.data,
            "findings": findings_data(findings),
            "notes": [*observation.faults, *notes],
            "agent": agent_data(plan, observation),
        }
        emit(data, output)
    for fault in observation.faults:
        complain(fault)
    if observation.faults:
        complain("some pods could not be read, so this is incomplete – see above")
        return _ERROR
    return _FINDINGS if any(finding.severity != "info" for finding in findings) else 0


def _recommend_reserved(
    observation: ObservedNode, plan: NodePlan | None, refusal: str | None, output: OutputFormat
) -> int:
    from memqos.draw.text.findings import reserved_data, reserved_text
    from memqos.findings.reserved import reserved_advice
    from memqos.kube.kubelet.reservations import read_reservations

    if plan is None:
        raise InputError(
            "the current reservation is unknown",
            hint=refusal or "give the kubelet configuration with --kubelet",
        )
    configured = read_reservations(plan.config, plan.settings.release.minor)
    nothing = Quantity.of(0)
    advice = reserved_advice(
        observation.cgroups,
        names_of(plan.config).kubepods,
        {
            "kubeReserved": configured.kube.get(MEMORY, nothing).value,
            "systemReserved": configured.system.get(MEMORY, nothing).value,
        },
    )
    if not any(each.slices for each in advice):
        raise InputError(
            "no cgroup outside kubepods is known", hint="run it on the node, where systemd runs"
        )
    if output == "table":
        print_lines(reserved_text(advice))
    else:
        emit({"node": observation.origin, "reserved": reserved_data(advice)}, output)
    return _FINDINGS if any(each.configured < each.recommended for each in advice) else 0


def _sample_again(observation: ObservedNode, root: str, seconds: float) -> SecondReading | None:
    """The counters after some seconds; None where no cgroup has any."""
    if not any("memory.events" in files for files in observation.cgroups.values()):
        return None
    start = time.monotonic()
    time.sleep(seconds)
    tree = read_tree(root, _SAMPLED_FILES)
    unreplaced = {
        path: files
        for path, files in tree.cgroups.items()
        if tree.identities[path] == observation.identities.get(path)
    }
    return SecondReading(time.monotonic() - start, unreplaced)


def _overrides_observation(options: NodeOptions) -> bool:
    """Whether anything that a plan may be refused for was given, and not found on the node."""
    return any(
        (
            options.kubelet,
            options.release,
            options.gates,
            options.pods,
            options.numa,
            options.state,
        )
    )


def _plan(
    observation: ObservedNode, plan_options: PlanOptions, *, is_given: bool
) -> tuple[NodePlan | None, str | None]:
    """The plan, or why there is none: what was given is refused, what was found is a finding."""
    if observation.machine.layout not in ("v2", None):
        return None, None
    try:
        return plan_observation(observation, plan_options), None
    except (InputError, UnsupportedRelease) as error:
        if is_given:
            raise
        return None, str(error)


def _facts(
    observation: ObservedNode,
    later: SecondReading | None,
    plan: NodePlan | None,
    refusal: str | None,
) -> NodeFacts:
    agent = observation.agent
    managed_pods = 0 if agent is None or plan is None or not plan.managed else len(agent.pods)
    return NodeFacts(
        machine=observation.machine,
        cgroups=observation.cgroups,
        later=later,
        configured_driver=_driver_in_configuration(observation) if plan else None,
        planned=None if plan is None else _plan_facts(plan),
        not_planned=refusal,
        pods=len(observation.pods) or managed_pods,
        agent=agent,
        own_values=observation.own_values,
    )


def _plan_facts(plan: NodePlan) -> PlanFacts:
    return PlanFacts(
        names=cgroup_names(plan.config.driver, plan.config.cgroup_root),
        tree=plan.tree,
        comparison=plan.comparison,
        release=plan.settings.release,
        memory_qos=plan.settings.release.is_enabled("MemoryQoS") if plan.doubt is None else None,
        unaligned=plan.unaligned,
        doubt=plan.doubt,
        managed=plan.managed,
    )


def _driver_in_configuration(observation: ObservedNode) -> CgroupDriver | None:
    """The driver that is configured: the plan goes by the names of the cgroups instead."""
    if observation.configuration is None:
        return None
    try:
        document = configuration_document(observation.configuration)
    except MemqosError:
        return None  # the plan goes by the defaults, and has a note
    driver = document.data.get("cgroupDriver")
    return driver if driver in ("cgroupfs", "systemd") else None
