"""The audit of a cluster: what every node and namespace comes to, out of what was added up."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from memqos.audit.pod_counter import NodeSizes
from memqos.audit.totals import (
    NO_UNREQUESTED_PROTECTION,
    ClusterTotals,
    NamespaceTotals,
    NodeTotals,
    UnrequestedProtection,
    WorkloadTotals,
    unrequested_protection,
)
from memqos.cluster.limit_range import LimitRange, complete_limit_range, limit_range_amounts
from memqos.cluster.quota import ResourceQuota
from memqos.errors import InputError
from memqos.kube.kubelet import KubeletConfiguration
from memqos.kube.kubelet.thresholds import MEMORY_AVAILABLE, read_thresholds
from memqos.kube.node import Node, allocatable, amount_in, capacity_of
from memqos.kube.pod import QosClass
from memqos.kube.quantity import MAX_INT64
from memqos.kube.resources import MEMORY, Amounts, is_hugepages
from memqos.kube.shape import amounts_of
from memqos.plan.levels import ClassDemand, plan_levels
from memqos.plan.setting import FileSettings
from memqos.settings.settings import Settings

_QUOTA_RESOURCES: Final = ("requests.memory", "memory", "limits.memory")


class NodeMemory(msgspec.Struct, frozen=True):
    """What a node has, in bytes."""

    capacity: int
    enforced: int
    """Not reserved for the system: what all pods together may use."""
    published: int
    """What the scheduler gives away."""
    version: str | None = None


class EvictionCandidate(msgspec.Struct, frozen=True):
    """A pod that would be evicted, by what it uses above its request, in bytes."""

    pod: str
    priority: int
    excess: int


class KillCandidate(msgspec.Struct, frozen=True):
    """A container that would be killed, by its oom_score_adj."""

    container: str
    oom_score_adj: int


class NodeAudit(msgspec.Struct, frozen=True):
    """One node; amounts in bytes. What depends on its memory is None where it is not known."""

    name: str
    memory: NodeMemory | None
    pods: int
    classes: dict[QosClass, int]
    containers: int
    requested: int
    limits: int
    unlimited: int
    """Pods without a limit."""
    min: int
    """memory.min of all pods together: never reclaimed."""
    low: int
    """memory.low of all pods together: reclaimed last."""
    lost_low: int
    """What of it is claimed for nothing, as the cgroup above claims less."""
    high: int
    """Containers that would have a memory.high."""
    throttled: int
    measured: int
    usage: int
    over_request: int
    unasked_min: UnrequestedProtection = NO_UNREQUESTED_PROTECTION
    unasked_low: UnrequestedProtection = NO_UNREQUESTED_PROTECTION
    evicted_first: tuple[EvictionCandidate, ...] = ()
    killed_first: tuple[KillCandidate, ...] = ()

    def share(self, amount: int) -> float | None:
        """Of what all its pods may use."""
        if self.memory is None or not self.memory.enforced:
            return None
        return amount / self.memory.enforced


class QuotaHeadroom(msgspec.Struct, frozen=True):
    """What a quota leaves of one resource, in bytes."""

    quota: str
    resource: str
    hard: int
    used: int


class NamespaceAudit(msgspec.Struct, frozen=True):
    """One namespace; amounts in bytes."""

    name: str
    pods: int
    unrequesting: int
    unlimited: int
    request: int
    usage: int
    defaults_request: bool
    """Whether a LimitRange gives containers a memory request."""
    quotas: tuple[QuotaHeadroom, ...] = ()


class Audit(msgspec.Struct, frozen=True):
    """A whole cluster under one set of terms."""

    terms: Settings
    nodes: tuple[NodeAudit, ...]
    unscheduled: NodeAudit | None
    """The pods that are bound to no node."""
    spaces: tuple[NamespaceAudit, ...]
    workloads: tuple[tuple[tuple[str, str, str], WorkloadTotals], ...]
    """What was found about pods, by rule, namespace and workload."""
    ended: int
    measured: int
    """Pods whose usage is known."""

    @property
    def everywhere(self) -> tuple[NodeAudit, ...]:
        """All nodes, and the place of pods that have none."""
        return self.nodes if self.unscheduled is None else (*self.nodes, self.unscheduled)

    @property
    def pods(self) -> int:
        return sum(node.pods for node in self.everywhere)

    @property
    def classes(self) -> dict[QosClass, int]:
        total: Counter[QosClass] = Counter()
        for node in self.everywhere:
            total.update(node.classes)
        return dict(total)


class NodeMemoryEstimator:
    """What nodes have, by what they say and what their kubelets keep back.

    `exact` says that the configuration is the nodes' own: what they reserve then follows from it.
    """

    def __init__(self, config: KubeletConfiguration, terms: Settings, *, exact: bool) -> None:
        self._config = config
        self._release = terms.release
        self._is_exact = exact
        thresholds = read_thresholds(config.eviction_hard).thresholds
        self._threshold = next((t for t in thresholds if t.signal == MEMORY_AVAILABLE), None)

    def memory_of(self, node: Node) -> NodeMemory:
        """What a Node has; raise InputError where it does not say."""
        info = node.status.node_info
        version = None if info is None else info.kubelet_version
        if self._is_exact:
            capacity = capacity_of(node)
            left = allocatable(capacity, self._config, self._release)
            return NodeMemory(capacity.memory, left.enforced_memory, left.published_memory, version)
        stated = node.status.capacity or {}
        if MEMORY not in stated:
            capacity_of(node)
        has = amount_in(stated, MEMORY, "capacity").value
        offered = node.status.allocatable or stated
        published = amount_in(offered, MEMORY, "allocatable").value if MEMORY in offered else has
        # allocatable of a Node lacks the hard eviction threshold and hugepages as well (kubelet
        # cm/node_container_manager_linux.go, nodestatus/setters.go); memory.high counts them.
        before = published + self._reserve(has)
        before += sum(
            amount_in(stated, name, "capacity").value for name in stated if is_hugepages(name)
        )
        return NodeMemory(has, min(has, before), published, version)

    def _reserve(self, capacity: int) -> int:
        return 0 if self._threshold is None else self._threshold.limit(capacity).value


def node_sizes(nodes: Mapping[str, NodeMemory], page_size: int) -> NodeSizes:
    """What counting needs to know of the nodes."""
    return NodeSizes(
        {name: (each.capacity, each.enforced) for name, each in nodes.items()}, page_size
    )


def audit_cluster(
    tallies: ClusterTotals,
    terms: Settings,
    nodes: Mapping[str, NodeMemory],
    limit_ranges: Iterable[LimitRange],
    quotas: Iterable[ResourceQuota],
) -> tuple[Audit, list[InputError]]:
    """The audit, and what of limit ranges and quotas could not be read."""
    faults: list[InputError] = []
    bound = tallies.nodes
    names = sorted({*nodes, *bound} - {""})
    return (
        Audit(
            terms,
            tuple(
                _audit_node(name, bound.get(name, NodeTotals()), nodes.get(name), terms)
                for name in names
            ),
            _audit_node("", bound[""], None, terms) if "" in bound else None,
            _audit_namespaces(tallies.namespaces, limit_ranges, quotas, faults),
            tuple(sorted(tallies.workloads.items(), key=lambda group: group[0])),
            tallies.ended,
            tallies.measured,
        ),
        faults,
    )


def _audit_node(
    name: str, tally: NodeTotals, memory: NodeMemory | None, terms: Settings
) -> NodeAudit:
    levels = plan_levels(ClassDemand(tally.guaranteed_request, tally.burstable_request), terms)
    page = terms.page_size
    above, below = (
        _setting_bytes(each, "memory.low") for each in (levels.kubepods, levels.burstable)
    )
    return NodeAudit(
        name,
        memory,
        tally.pods,
        {
            "Guaranteed": tally.guaranteed,
            "Burstable": tally.burstable,
            "BestEffort": tally.besteffort,
        },
        tally.containers,
        requested=tally.charged,
        limits=tally.limit,
        unlimited=tally.unlimited,
        min=_setting_bytes(levels.kubepods, "memory.min"),
        low=max(above, below),
        lost_low=max(0, below - above),
        high=tally.high,
        throttled=tally.throttled,
        measured=tally.measured,
        usage=tally.usage,
        over_request=tally.over_request,
        unasked_min=unrequested_protection(tally, levels, "min", page),
        unasked_low=unrequested_protection(tally, levels, "low", page),
        evicted_first=tuple(
            EvictionCandidate(str(pod), int(priority), -(int(below) // 1000))
            for _, priority, below, pod in tally.evicted_first
        ),
        killed_first=tuple(
            KillCandidate(str(who), int(score)) for _, score, who in tally.killed_first
        ),
    )


def _audit_namespaces(
    tallies: Mapping[str, NamespaceTotals],
    limit_ranges: Iterable[LimitRange],
    quotas: Iterable[ResourceQuota],
    faults: list[InputError],
) -> tuple[NamespaceAudit, ...]:
    defaulting: set[str] = set()
    for limits in limit_ranges:
        try:
            if _defaults_request(limits):
                defaulting.add(limits.metadata.namespace or "default")
        except InputError as error:
            faults.append(_error_about("limitrange", limits, error))
    bounds: dict[str, list[QuotaHeadroom]] = {}
    for quota in quotas:
        try:
            rooms = _quota_headrooms(quota)
            bounds.setdefault(quota.metadata.namespace or "default", []).extend(rooms)
        except InputError as error:
            faults.append(_error_about("resourcequota", quota, error))
    return tuple(
        NamespaceAudit(
            name,
            tally.pods,
            tally.unrequesting,
            tally.unlimited,
            tally.request,
            tally.usage,
            name in defaulting,
            tuple(sorted(bounds.get(name, ()), key=lambda room: (room.quota, room.resource))),
        )
        for name, tally in sorted(tallies.items())
    )


def _defaults_request(limits: LimitRange) -> bool:
    return any(
        bounds.type == "Container" and bounds.default_request.get(MEMORY)
        for bounds in complete_limit_range(limit_range_amounts(limits)).bounds
    )


def _quota_headrooms(quota: ResourceQuota) -> list[QuotaHeadroom]:
    status = quota.status
    hard: Amounts = amounts_of(status.hard or quota.spec.hard, "status.hard")
    used: Amounts = amounts_of(status.used, "status.used")
    return [
        QuotaHeadroom(
            quota.metadata.name or "?",
            name,
            _clamp_to_int64(hard[name] // 1000),
            _clamp_to_int64(used.get(name, 0) // 1000),
        )
        for name in _QUOTA_RESOURCES
        if name in hard
    ]


def _clamp_to_int64(amount: int) -> int:
    """An amount that shares can be taken of."""
    return max(0, min(amount, MAX_INT64))


def _error_about(kind: str, each: LimitRange | ResourceQuota, error: InputError) -> InputError:
    name = f"{kind} {each.metadata.namespace or 'default'}/{each.metadata.name or '?'}"
    return InputError(f"{name}: {error.what}", field=error.field, hint=error.hint)


def _setting_bytes(settings: FileSettings, file: str) -> int:
    setting = settings.get(file)
    value = None if setting is None else setting.value
    return value if isinstance(value, int) else 0
