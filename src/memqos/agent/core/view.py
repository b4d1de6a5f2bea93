"""A node as its agent sees it at the end of a turn, as values that never change.

Those who answer scrapes and requests for the state run in another thread than the core. They read
such a view, which is whole, while the core continues.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from memqos.agent.configuration import AgentConfiguration
from memqos.agent.core.observed import Drift
from memqos.agent.core.pod_intent import AgentSettings, Notice, PodIntent
from memqos.agent.core.report import ReportCounts
from memqos.plan.changes import Change
from memqos.plan.tree import Cgroup

if TYPE_CHECKING:
    from memqos.agent.core.numa_assigners import Assignments
    from memqos.agent.core.numa_bindings import NumaBindings
    from memqos.agent.core.reconciler import Reconciler


class PodView(NamedTuple):
    """One pod, and how its cgroups should be."""

    intent: PodIntent
    cgroups: tuple[Cgroup, ...]
    """As the guard, the NUMA bindings and the reservations change the intent."""
    notices: tuple[Notice, ...]
    is_unreserved: bool
    """Whether its memory.min is not reserved."""


class ContestedValue(NamedTuple):
    """A value that is no longer restored."""

    drift: Drift
    cgroup: Cgroup | None
    """The pod's cgroup that it is in; None above pods."""


class NumaResource(NamedTuple):
    """Memory, or huge pages of one size, of one NUMA node."""

    name: str
    allocatable: int
    free: int


class NumaView(msgspec.Struct, frozen=True, kw_only=True):
    """What is assigned of the NUMA nodes."""

    assignments: "Mapping[str, Assignments]"
    """By the paths of pods."""
    faults: tuple[str, ...]
    resources: Mapping[int, tuple[NumaResource, ...]]
    """By the number of the NUMA node."""


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """All that is shown of a node. Nothing in it is changed once it is made."""

    configuration: AgentConfiguration
    node_settings: AgentSettings
    polls: bool
    """Whether passes run every second, whatever happens."""
    unconfirmed_since: float | None
    """Since when the kubelet may be configured otherwise."""
    reservable: int
    """The most that all memory.min may come to."""
    parents: tuple[Cgroup, ...]
    """The cgroups above the pods, as they should be."""
    reserved: tuple[Cgroup, ...]
    """The reserved cgroups that memqos writes to."""
    pods: tuple[PodView, ...]
    pods_by_uid: Mapping[str, PodView]
    """The same by the UIDs that cgroups have."""
    observed_pods: tuple[str, ...]
    """Paths of the pods whose cgroups exist, known to the source or not."""
    files: Mapping[str, Mapping[str, str]]
    """Path of a cgroup that exists → its files as last seen or written."""
    pending: tuple[Change, ...]
    """What is not as planned."""
    is_converged: bool
    """Whether nothing of that is to be written."""
    ramps: Mapping[str, float]
    """Path → when memory.high is lowered further."""
    backoff: Mapping[str, float]
    """Path → when a write that failed is tried again."""
    drifts: tuple[Drift, ...]
    """The last change by others of each file."""
    contested: tuple[ContestedValue, ...]
    counts: ReportCounts
    numa: NumaView | None
    """None where containers are not bound to NUMA nodes."""

    def observed_cgroups(self) -> Iterator[Cgroup]:
        """The cgroups of pods that exist, as they should be."""
        by_path = {pod.intent.path: pod for pod in self.pods}
        for path in self.observed_pods:
            pod = by_path.get(path)
            for cgroup in () if pod is None else pod.cgroups:
                if cgroup.path in self.files:
                    yield cgroup


def node_view(core: "Reconciler") -> NodeView:
    """The view of now. It is made each turn: it copies containers, and works out nothing."""
    node_intent, observed = core.node_intent, core.observed
    pods = {uid: _pod_view(core, intent) for uid, intent in node_intent.intents.items()}
    pending = tuple([change for changes in core.pending.values() for change in changes])
    return NodeView(
        configuration=core.configuration,
        node_settings=core.planner.node_settings,
        polls=core.schedule.polls,
        unconfirmed_since=core.drift.unconfirmed_since,
        reservable=node_intent.reservable,
        parents=node_intent.last_parent_cgroups,
        reserved=tuple(
            [each for each in node_intent.reserved if node_intent.is_enforced(each, None)]
        ),
        pods=tuple(pods.values()),
        pods_by_uid=pods,
        observed_pods=tuple(observed.pods),
        files={path: each.files for path, each in observed.by_path.items()},
        pending=pending,
        is_converged=not any(_is_to_be_written(core, change) for change in pending),
        ramps=dict(core.schedule.ramps),
        backoff=dict(core.schedule.backoff.until),
        drifts=tuple(core.drift.drifts.values()),
        contested=tuple(
            [_contested_value(core, drift) for drift in core.drift.fights.contested.values()]
        ),
        counts=core.report.counts(),
        numa=None if core.bindings is None else _numa_view(core.bindings),
    )


def _pod_view(core: "Reconciler", intent: PodIntent) -> PodView:
    path, node_intent = intent.path, core.node_intent
    if path is None:
        return PodView(intent, (), (), is_unreserved=False)
    return PodView(
        intent,
        node_intent.cgroups_of(path),
        node_intent.notices_of(path),
        path in node_intent.unreserved,
    )


def _is_to_be_written(core: "Reconciler", change: Change) -> bool:
    """Not at a pod that is only observed, unless all are."""
    intent = core.node_intent.intent_of(core.observed.pod_of(change.path))
    return core.configuration.mode == "observe" or intent is None or intent.mode == "enforce"


def _contested_value(core: "Reconciler", drift: Drift) -> ContestedValue:
    pod = core.observed.pod_of(drift.path)
    cgroups = () if pod is None else core.node_intent.cgroups_of(pod)
    return ContestedValue(drift, next((each for each in cgroups if each.path == drift.path), None))


def _numa_view(bindings: "NumaBindings") -> NumaView:
    state = bindings.assigner.state
    return NumaView(
        assignments=dict(bindings.assignments),
        faults=tuple(bindings.faults.values()),
        resources={
            number: tuple(
                NumaResource(name, table.allocatable, table.free)
                for name, table in node.memory.items()
            )
            for number, node in ({} if state is None else state.nodes).items()
        },
    )
