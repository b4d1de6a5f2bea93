"""`memqos doctor`: what is wrong with a node, what tells so, and what helps."""

import time
from typing import Any

import click

from memqos.api.kubelet import Driver
from memqos.api.manifests.documents import read
from memqos.cli.amounts import Seconds
from memqos.cli.output import Form, complain, emit, output_option, print_lines
from memqos.cli.plan import node_options, observed, of_snapshot, wanted
from memqos.converge.observing import Observation
from memqos.converge.planning import FILES, plan_of
from memqos.draw.findings import findings_data, findings_text
from memqos.errors import InputError, UnsupportedRelease
from memqos.findings.facts import Facts, Later, Planned
from memqos.findings.node import judge
from memqos.host.tree import read_tree
from memqos.plan.names import cgroup_names

ERROR = 1
FINDINGS = 2

_GIVEN = ("kubelet", "release", "gates", "pods", "numa", "state")
_SAMPLED = ("memory.events", "memory.events.local", "memory.pressure")
_FILES = (
    *FILES,
    *_SAMPLED,
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
    type=Seconds(0.1, 3600),
    default=3,
    help="How long to watch who is throttled.  [default: 3]",
)
@output_option()
def command(
    snapshot: str | None,
    seconds: float,
    output: Form,
    **options: Any,
) -> int:
    """Judge this node, or that of a snapshot: whether Memory QoS works here, and for whom not.

    Exit code 0: nothing above info, 2: warnings or errors were found, 1: error.
    """
    if snapshot is None:
        observation = observed(options, _FILES)
        later = _later(observation, options["cgroup_root"], seconds)
    else:
        observation, later = of_snapshot(snapshot, options), None
    findings = judge(_facts(observation, later, options))
    if output == "table":
        for note in observation.notes:
            complain(f"note: {note}")
        print_lines(findings_text(findings))
    else:
        data = {
            "node": observation.origin,
            "findings": findings_data(findings),
            "notes": [*observation.faults, *observation.notes],
        }
        emit(data, output)
    for fault in observation.faults:
        complain(fault)
    if observation.faults:
        complain("some pods could not be read, so this is not all – see above")
        return ERROR
    return FINDINGS if any(finding.severity != "info" for finding in findings) else 0


def _later(observation: Observation, root: str, seconds: float) -> Later | None:
    """The counters once more, where there is anything that counts."""
    if not any("memory.events" in files for files in observation.cgroups.values()):
        return None
    start = time.monotonic()
    time.sleep(seconds)
    tree = read_tree(root, _SAMPLED)
    same = {
        path: files
        for path, files in tree.cgroups.items()
        if tree.identities[path] == observation.identities.get(path)
    }
    return Later(time.monotonic() - start, same)


def _facts(observation: Observation, later: Later | None, options: dict[str, Any]) -> Facts:
    planned, refused = None, None
    if observation.machine.layout in ("v2", None):
        try:
            planned = _planned(observation, options)
        except (InputError, UnsupportedRelease) as error:
            # What was given is refused; what was found on the node is a finding.
            if any(options[given] for given in _GIVEN):
                raise
            refused = str(error)
    return Facts(
        machine=observation.machine,
        cgroups=observation.cgroups,
        later=later,
        configured_driver=_configured_driver(observation) if planned else None,
        planned=planned,
        not_planned=refused,
        pods=len(observation.pods),
    )


def _planned(observation: Observation, options: dict[str, Any]) -> Planned:
    plan = plan_of(observation, wanted(**options))
    return Planned(
        cgroup_names(plan.config.driver, plan.config.cgroup_root),
        plan.tree,
        plan.comparison,
        plan.terms.release.enabled("MemoryQoS") if plan.doubt is None else None,
        plan.unaligned,
        plan.doubt,
    )


def _configured_driver(observation: Observation) -> Driver | None:
    """What the configuration itself says: the plan goes by the names of the cgroups instead."""
    if observation.configuration is None:
        return None
    document = next(iter(read(observation.configuration.data, observation.configuration.name)))
    if isinstance(document, InputError):
        raise document
    driver = document.data.get("cgroupDriver")
    return driver if driver in ("cgroupfs", "systemd") else None
