"""How commands plan a node: its options, what is observed, the plan and its caveats."""

import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click
import msgspec

from memqos.cli.help_sections import help_section
from memqos.cli.options import (
    DEFAULT_RELEASE,
    PodSourceOptions,
    cgroup_root_option,
    parse_gates,
    pod_source_from,
    pod_source_options,
    release_options,
)
from memqos.cli.output import complain
from memqos.cli.settings import FactorType, placement_option
from memqos.converge.node_plan import PLAN_FILES, NodePlan, PlanOptions, plan_observation
from memqos.converge.observation import ObservedNode, load_kubelet_config, observe_live
from memqos.converge.running_kubelet import KubeletSources, kubelet_of_source
from memqos.draw.text.changes import gaps_text
from memqos.errors import InputError
from memqos.host.cgroups import SYSTEM_ROOT
from memqos.host.machine import Roots, read_machine
from memqos.host.versions import kubelet_version, runtime_version
from memqos.numa.requests import alignment_texts
from memqos.settings.settings import Numa, Placement, Policy

if TYPE_CHECKING:
    from memqos.converge.pod_sources import PodSource

_F = TypeVar("_F", bound=Callable[..., Any])


@help_section("Settings")
def node_options(command: _F) -> _F:
    """The options of `NodeOptions`."""
    for option in (
        click.option(
            "--state",
            metavar="FILE",
            help="The kubelet's memory_manager_state file, for --numa state.  [default: the "
            "node's]",
        ),
        click.option(
            "--numa",
            type=click.Choice(get_args(Numa)),
            help="Bind containers to NUMA nodes (cpuset.mems): from the kubelet's state, or "
            "allocated by memqos where the kubelet allocates none.  [default: off]",
        ),
        click.option(
            "--allow-old-kernel",
            is_flag=True,
            help="Write memory.high even on a kernel before 5.9.",
        ),
        click.option(
            "--factor",
            type=FactorType(),
            help="memoryThrottlingFactor.  [default: the kubelet's, else the release's]",
        ),
        click.option(
            "--policy",
            type=click.Choice(get_args(Policy)),
            help="memoryReservationPolicy.  [default: the kubelet's, else None]",
        ),
        placement_option,
        click.option(
            "--kubelet",
            metavar="FILE",
            help="A KubeletConfiguration.  [default: the running kubelet's]",
        ),
        pod_source_options,
        cgroup_root_option,
        partial(
            release_options,
            default="the running kubelet's; if it is unknown, plan assumes "
            f"{DEFAULT_RELEASE}, and apply writes nothing",
        ),
    ):
        command = option(command)
    return command


class NodeOptions(PodSourceOptions, frozen=True, kw_only=True):
    """Which node is observed, and with which settings it is planned."""

    cgroup_root: str
    release: str | None
    gates: tuple[str, ...]
    kubelet: str | None
    placement: Placement | None
    policy: Policy | None
    factor: float | None
    numa: Numa | None
    state: str | None
    allow_old_kernel: bool

    @property
    def overrides_plan(self) -> bool:
        """Whether they call for another plan than the one an agent on the node enforces."""
        return any(
            (
                self.release,
                self.gates,
                self.policy,
                self.factor,
                self.placement,
                self.numa,
                self.state,
                self.kubelet,
            )
        )

    def plan_options(self, *, agent: bool = False) -> PlanOptions:
        """The options of the plan; with `agent`, what an agent manages is planned as it does."""
        return PlanOptions(
            release=self.release,
            gates=parse_gates(self.gates),
            policy=self.policy,
            factor=self.factor,
            numa=self._numa_mode(),
            placement=self.placement or "containers",
            agent=agent,
            allow_old_kernel=self.allow_old_kernel,
        )

    def _numa_mode(self) -> Numa:
        if self.state is None:
            return self.numa or "off"
        if self.numa not in ("state", None):
            raise click.UsageError(f"--state cannot be combined with --numa {self.numa}")
        return "state"


def require_pods(options: NodeOptions) -> None:
    """Planned without its pods, a node would lose all its protection."""
    if options.pods is None:
        raise click.UsageError("no pods given: name their source with --pods")


def observe_node(
    options: NodeOptions, files: Iterable[str] = PLAN_FILES, source: "PodSource | None" = None
) -> ObservedNode:
    """This machine, and its pods from the source that the options name, if it is not given."""
    roots = Roots(cgroup=options.cgroup_root)
    if roots.cgroup != SYSTEM_ROOT and not os.path.isdir(roots.cgroup):
        raise InputError(
            "there is no such folder",
            file=roots.cgroup,
            hint="set --cgroup-root to the cgroup mount",
        )
    if source is None:
        source = pod_source_from(options)
    stated = load_kubelet_config(options.kubelet)
    node, endpoint = kubelet_of_source(source)
    kubelet = KubeletSources(roots).read_facts(node, endpoint, configuration=stated is None)
    machine = msgspec.structs.replace(
        read_machine(roots),
        runtime=runtime_version(),
        kubelet_on_path=kubelet_version() if kubelet.version is None else None,
    )
    observation = observe_live(
        source,
        files,
        roots=roots,
        configuration=stated,
        machine=machine,
        kubelet=kubelet,
        node=node,
    )
    return _with_state_file(observation, options.state)


def load_observation(file: str, options: NodeOptions) -> ObservedNode:
    """The node of a snapshot, with another configuration or state if one is given."""
    from memqos.converge.snapshots import observe_snapshot_file

    options.require_no_source(file)
    return with_given_files(observe_snapshot_file(file), options)


def with_given_files(observation: ObservedNode, options: NodeOptions) -> ObservedNode:
    """A node with the configuration and the state of the options, where they name files."""
    configuration = load_kubelet_config(options.kubelet) or observation.configuration
    observation = msgspec.structs.replace(observation, configuration=configuration)
    return _with_state_file(observation, options.state)


def _with_state_file(observation: ObservedNode, file: str | None) -> ObservedNode:
    if file is None:
        return observation
    from memqos.cli.numa.node_source import read_state_text
    from memqos.numa.checkpoint import load_checkpoint

    text = read_state_text(file)
    load_checkpoint(text, file)
    return msgspec.structs.replace(observation, memory_manager_state=text)


def make_plan(observation: ObservedNode, plan_options: PlanOptions) -> NodePlan:
    """The plan, with a note where options are of no effect since MemoryQoS is off."""
    plan = plan_observation(observation, plan_options)
    given = [
        f"--{name}" for name in ("policy", "factor") if getattr(plan_options, name) is not None
    ]
    if (
        not given
        or "MemoryQoS" in plan_options.gates
        or plan.settings.release.is_enabled("MemoryQoS")
    ):
        return plan
    on = msgspec.structs.replace(plan_options, gates={**plan_options.gates, "MemoryQoS": True})
    count = len(plan_observation(observation, on).comparison.changes)
    verb = "is" if len(given) == 1 else "are"
    note = (
        f"MemoryQoS is off on this node, so {' and '.join(given)} {verb} of no effect: with "
        f"--gate MemoryQoS=true, {count} change{'s' if count != 1 else ''} would be pending"
    )
    return msgspec.structs.replace(plan, notes=(*plan.notes, note))


def plan_caveats(plan: NodePlan) -> list[str]:
    """What a person should know before believing a plan."""
    comparison = plan.comparison
    doubt = [] if plan.doubt is None else [f"memqos apply refuses this plan: {plan.doubt}"]
    gaps = gaps_text(plan.tree.unresolved, comparison.orphans, comparison.missing)
    unaligned, _ = alignment_texts(plan.settings.release)
    withheld = [] if plan.high_withheld is None else [old_kernel_warning(plan.high_withheld)]
    notes = [*plan.notes, *doubt, *(f"{pod}: {unaligned}" for pod in plan.unaligned)]
    return [*withheld, *(f"note: {note}" for note in notes), *gaps]


def old_kernel_warning(risk: str) -> str:
    """What is said at start where memory.high is not written."""
    return (
        f"warning: {risk}: memory.high is neither set nor reset – run 5.9 or newer, or give "
        "--allow-old-kernel"
    )


def require_writable(plan: NodePlan) -> None:
    """Refuse a plan of a node that was read in part only, and one that rests on a guess."""
    for fault in plan.faults:
        complain(fault)
    if plan.faults:
        raise InputError(
            "some pods could not be read, so the plan is not applied", hint="see above"
        )
    if plan.unread:
        raise InputError(
            f"{plan.unread[0]} cannot be read, so the plan is not applied",
            hint="run as root",
        )
    if plan.doubt is not None:
        raise InputError(f"nothing is written, as the plan is a guess: {plan.doubt}")
