"""The audit of a cluster: what every node and namespace comes to, computed from totals."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from memqos.audit.node_memory import NodeMemory
from memqos.audit.preflight import NodeSystem
from memqos.audit.totals import (
    NO_UNREQUESTED_PROTECTION,
    ClusterTotals,
    NamespaceTotals,
    NodeTotals,
    UnrequestedProtection,
    WorkloadTotals,
    setting_bytes,
    unrequested_protection,
)
from memqos.cluster.autoscaling import HorizontalPodAutoscaler
from memqos.cluster.limit_range import LimitRange, complete_limit_range, limit_range_amounts
from memqos.cluster.quota import ResourceQuota
from memqos.errors import InputError
from memqos.kube.pod import QosClass
from memqos.kube.quantity import MAX_INT64
from memqos.kube.resources import MEMORY, Amounts
from memqos.kube.shape import amounts_of
from memqos.plan.levels import ClassDemand, plan_levels
from memqos.settings.settings import Settings

_QUOTA_RESOURCES: Final = ("requests.memory", "memory", "limits.memory")


class EvictionCandidate(msgspec.Struct, frozen=True):
    """A pod that would be evicted, by what it uses above its request, in bytes."""

    pod: str
    priority: int
    excess: int


class KillCandidate(msgspec.Struct, frozen=True):
    """A container that would be killed, by its oom_score_adj."""

    container: str
    oom_score_adj: int


class NodeAudit(msgspec.Struct, frozen=True, kw_only=True):
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
    """The part of it that has no effect, as the cgroup above claims less."""
    high: int
    """Containers that would have a memory.high."""
    throttled: int
    measured: int
    usage: int
    over_request: int
    unrequested_min: UnrequestedProtection = msgspec.field(
        default=NO_UNREQUESTED_PROTECTION, name="unasked_min"
    )
    unrequested_low: UnrequestedProtection = msgspec.field(
        default=NO_UNREQUESTED_PROTECTION, name="unasked_low"
    )
    evicted_first: tuple[EvictionCandidate, ...] = ()
    killed_first: tuple[KillCandidate, ...] = ()
    system: NodeSystem | None = None

    def share(self, amount: int) -> float | None:
        """An amount as a share of what all its pods may use; None where that is not known."""
        if self.memory is None or not self.memory.enforced:
            return None
        return amount / self.memory.enforced


class QuotaHeadroom(msgspec.Struct, frozen=True):
    """What a quota leaves of one resource, in bytes."""

    quota: str
    resource: str
    hard: int
    used: int


class NamespaceAudit(msgspec.Struct, frozen=True, kw_only=True):
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


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """A whole cluster under one set of settings."""

    settings: Settings
    nodes: tuple[NodeAudit, ...]
    unscheduled: NodeAudit | None
    """The pods that are bound to no node."""
    namespaces: tuple[NamespaceAudit, ...]
    workloads: tuple[tuple[tuple[str, str, str], WorkloadTotals], ...]
    """What was found about pods, by rule, namespace and workload."""
    ended: int
    measured: int
    """Pods whose usage is known."""
    autoscalers: tuple[HorizontalPodAutoscaler, ...] = ()
    server: int | None = None
    """The minor version of the API server, where it is known."""

    @property
    def everywhere(self) -> tuple[NodeAudit, ...]:
        """All nodes, and the pods without one as if they shared a node."""
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


def audit_totals(
    totals: ClusterTotals,
    settings: Settings,
    nodes: Mapping[str, NodeMemory],
    limit_ranges: Iterable[LimitRange],
    quotas: Iterable[ResourceQuota],
    *,
    systems: Mapping[str, NodeSystem | None] | None = None,
    autoscalers: Iterable[HorizontalPodAutoscaler] = (),
    server: int | None = None,
) -> tuple[Audit, list[InputError]]:
    """The audit, and what is wrong with limit ranges and quotas."""
    systems = systems or {}
    faults: list[InputError] = []
    bound = totals.nodes
    names = sorted({*nodes, *bound} - {""})
    audit = Audit(
        settings=settings,
        nodes=tuple(
            _audit_node(
                name, bound.get(name, NodeTotals()), nodes.get(name), settings, systems.get(name)
            )
            for name in names
        ),
        unscheduled=_audit_node("", bound[""], None, settings) if "" in bound else None,
        namespaces=_audit_namespaces(totals.namespaces, limit_ranges, quotas, faults),
        workloads=tuple(sorted(totals.workloads.items(), key=lambda group: group[0])),
        ended=totals.ended,
        measured=totals.measured,
        autoscalers=tuple(autoscalers),
        server=server,
    )
    return audit, faults


def _audit_node(
    name: str,
    totals: NodeTotals,
    memory: NodeMemory | None,
    settings: Settings,
    system: NodeSystem | None = None,
) -> NodeAudit:
    demand = ClassDemand(totals.guaranteed_request, totals.burstable_request)
    levels = plan_levels(demand, settings)
    page = settings.page_size
    above, below = (setting_bytes(each, "low") for each in (levels.kubepods, levels.burstable))
    return NodeAudit(
        name=name,
        memory=memory,
        pods=totals.pods,
        classes={
            "Guaranteed": totals.guaranteed,
            "Burstable": totals.burstable,
            "BestEffort": totals.besteffort,
        },
        containers=totals.containers,
        requested=totals.charged,
        limits=totals.limit,
        unlimited=totals.unlimited,
        min=setting_bytes(levels.kubepods, "min"),
        low=max(above, below),
        lost_low=max(0, below - above),
        high=totals.high,
        throttled=totals.throttled,
        measured=totals.measured,
        usage=totals.usage,
        over_request=totals.over_request,
        unrequested_min=unrequested_protection(totals, levels, "min", page),
        unrequested_low=unrequested_protection(totals, levels, "low", page),
        evicted_first=tuple(
            EvictionCandidate(str(pod), int(priority), -(int(headroom) // 1000))
            for _, priority, headroom, pod in totals.evicted_first
        ),
        killed_first=tuple(
            KillCandidate(str(container), int(score)) for _, score, container in totals.killed_first
        ),
        system=system,
    )


def _audit_namespaces(
    totals: Mapping[str, NamespaceTotals],
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
    headrooms: dict[str, list[QuotaHeadroom]] = {}
    for quota in quotas:
        try:
            found = _quota_headrooms(quota)
            headrooms.setdefault(quota.metadata.namespace or "default", []).extend(found)
        except InputError as error:
            faults.append(_error_about("resourcequota", quota, error))
    return tuple(
        NamespaceAudit(
            name=name,
            pods=each.pods,
            unrequesting=each.unrequesting,
            unlimited=each.unlimited,
            request=each.request,
            usage=each.usage,
            defaults_request=name in defaulting,
            quotas=tuple(
                sorted(headrooms.get(name, ()), key=lambda left: (left.quota, left.resource))
            ),
        )
        for name, each in sorted(totals.items())
    )


def _defaults_request(limits: LimitRange) -> bool:
    return any(
        bounds.type == "Container" and bounds.default_request.get(MEMORY)
        for bounds in complete_limit_range(limit_range_amounts(limits)).bounds
    )


def _quota_headrooms(quota: ResourceQuota) -> list[QuotaHeadroom]:
    status = quota.status
    given = (status.hard, "status.hard") if status.hard else (quota.spec.hard, "spec.hard")
    hard: Amounts = amounts_of(*given)
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
