"""Pods of a census added up to totals, with what is found about each of them."""

from collections import Counter
from typing import Final

import msgspec

from memqos.audit.census import (
    CRITICAL_FLAG,
    ENDED_FLAG,
    BlockPosition,
    Census,
    MeasuredUsage,
    PodRow,
)
from memqos.audit.deaths import PodDeaths
from memqos.audit.node_memory import NodeMemory
from memqos.audit.pod_rows import PodRowEncoder
from memqos.audit.pod_specs import NodeSizeSpecs, SpecCache, SpecMemory, without_cgroups
from memqos.audit.totals import (
    TOP_COUNT,
    ClassUsage,
    ClusterTotals,
    FindingKey,
    NamespaceTotals,
    NodeTotals,
    QosKey,
    RankedEntry,
    WorkloadTotals,
    insert_ranked,
    is_worse,
)
from memqos.cluster.node_admission import (
    LINUX,
    AdmittingNode,
    knows_pod_level,
    kubelet_release,
    refuse_on_node,
)
from memqos.errors import InputError
from memqos.findings.catalogue import (
    POD_ABOVE_REQUEST,
    POD_DOWNGRADE,
    POD_HIGH_LIMIT,
    POD_HPA,
    POD_IDLE_REQUEST,
    POD_INVALID,
    POD_NO_LIMIT,
    POD_NO_REQUEST,
    POD_NODE_REFUSES,
    POD_OOM_KILLED,
    POD_POD_LEVEL,
    POD_THROTTLED,
    POD_TMPFS,
)
from memqos.kube.aggregate import has_pod_level
from memqos.kube.node import WINDOWS
from memqos.kube.pod import Pod, QosClass
from memqos.kube.shape import shape_of
from memqos.release import Release
from memqos.settings.settings import Settings
from memqos.units import format_bytes

_LARGE_AMOUNT: Final = 256 << 20
"""Bytes: a smaller excess of a request or limit is not reported."""
_HIGH_LIMIT_FACTOR: Final = 4
"""A limit so many times the usage does not protect other pods."""
_IDLE_REQUEST_FACTOR: Final = 4
"""A request so many times the usage keeps other pods off the node."""
_POD_LEVEL_SAVING: Final = 64 << 20
"""Bytes that containers which peak at different times could share."""
_POD_LEVEL_SAVING_SHARE: Final = 0.2

_QOS_KEY: Final[dict[QosClass, QosKey]] = {
    "Guaranteed": "guaranteed",
    "Burstable": "burstable",
    "BestEffort": "besteffort",
}


class CountRequest(msgspec.Struct, frozen=True, kw_only=True):
    """How pods are to be counted."""

    settings: Settings
    nodes: dict[str, NodeMemory]
    usage: dict[str, MeasuredUsage] = {}
    """By namespace/name."""
    duplicates: dict[BlockPosition, str] = {}
    """Pods that are not counted, with their UID, which another one has."""
    before: Settings | None = None
    """Settings to compare with: pods are counted whose values differ."""
    with_rows: bool = False
    """Whether every pod is written as JSON, too."""
    downgrade: Release | None = None
    """What kubelets are to be downgraded to: pods that use what it lacks are found."""


def count_pods(census: Census, request: CountRequest) -> ClusterTotals:
    """Add up the pods of a census."""
    found = ClusterTotals()
    counter = _PodCounter(found, census, request)
    encoder = PodRowEncoder() if request.with_rows else None
    usage, duplicates = request.usage, request.duplicates
    for place, each in census.rows.items():
        if place in duplicates:
            continue
        used = None
        if usage:
            name = f"{each.namespace}/{each.name}"
            used = usage.get(name)
            if used is not None:
                found.matched.add(name)
        if each.flags & ENDED_FLAG:
            found.ended += 1
            if each.deaths is not None:
                _add_deaths(found.workloads, each, each.deaths, None)
            continue
        memory = counter.memory_of(each)
        if not isinstance(memory, SpecMemory):
            name = f"{each.namespace}/{each.name}"
            found.unreadable.append((place, name, memory.what, memory.field))
            continue
        counter.add(each, memory, used)
        if encoder is not None:
            row = encoder.encode(each, memory, used)
            found.pod_rows.append((f"{each.namespace}/{each.name}", row))
    return found


class _PodCounter:
    """Adds pods to totals, with the values they have on nodes of their node's size."""

    def __init__(self, found: ClusterTotals, census: Census, request: CountRequest) -> None:
        texts, before = census.spec_texts, request.before
        self._found = found
        self._specs = SpecCache(texts, request.settings)
        self._before = None if before is None else SpecCache(texts, before)
        self._page_size = request.settings.page_size
        self._release = request.settings.release
        self._downgrade = request.downgrade
        self._nodes = request.nodes
        self._windows_nodes = {name for name, each in request.nodes.items() if each.os == WINDOWS}
        self._sizes = {name: memory.size for name, memory in request.nodes.items()}
        self._by_node: dict[str, NodeSizeSpecs] = {}
        # Pods of one workload are seldom on one node: memory by spec and node is not worth caching.
        self._nodes_per_size = Counter(self._sizes.values())

    def memory_of(self, each: PodRow) -> SpecMemory | InputError:
        """The values of a pod on its node."""
        specs = self._by_node.get(each.node)
        if specs is None:
            specs = self._by_node[each.node] = self._specs.on_nodes(
                *self._size(each.node), keep=self._is_shared(each.node)
            )
            self._found.nodes[each.node] = NodeTotals()
        found = specs[each.spec_number]
        if each.node in self._windows_nodes and isinstance(found, SpecMemory):
            return without_cgroups(found) if found.has_cgroups else found
        return found

    def add(self, each: PodRow, memory: SpecMemory, used: MeasuredUsage | None) -> None:
        """Count a pod."""
        found = self._found
        node, namespace = found.nodes[each.node], found.namespaces.get(each.namespace)
        if namespace is None:
            namespace = found.namespaces[each.namespace] = NamespaceTotals()
        _add_pod(node, namespace, memory)
        spec = memory.spec
        if each.deaths is not None:
            _add_deaths(found.workloads, each, each.deaths, memory)
        if spec.errors or spec.unrequesting or spec.unlimited or spec.tmpfs or not spec.autoscaled:
            _add_spec_findings(found.workloads, namespace, each, memory)
        if spec.judged_by_nodes is not None:
            self._add_admission_findings(each, spec.judged_by_nodes)
        if used is not None:
            found.measured += 1
            node.measured += 1
            node.usage += used.total
            namespace.usage += used.total
            _add_claims(node, each, memory, used.total // self._page_size, self._page_size)
            _add_usage_findings(found.workloads, node, each, memory, used)
        _rank_victims(node, each, memory, used, self._size(each.node)[0])
        if self._before is not None and self._differs(each, memory):
            node.changed += 1

    def _add_admission_findings(self, each: PodRow, pod: Pod) -> None:
        """What the kubelet of its node, or one after a downgrade, would not run."""
        groups, node = self._found.workloads, self._nodes.get(each.node)
        if node is not None:
            admitting = AdmittingNode(name=each.node, os=node.os or LINUX, allocatable={})
            kubelet = kubelet_release(node.version, self._release)
            refused = refuse_on_node(pod, admitting, kubelet)
            if refused is not None:
                detail = f"kubelet {kubelet} on {each.node}: {refused.words}"
                _add_finding(groups, POD_NODE_REFUSES.id, each, 0, detail)
        target, release = self._downgrade, self._release
        if target is None or target.is_enabled("PodLevelResources"):
            return
        if has_pod_level(shape_of(pod, release), release):
            _add_finding(groups, POD_DOWNGRADE.id, each, 0, _after_downgrade(target))

    def _size(self, node: str) -> tuple[int | None, int | None]:
        return self._sizes.get(node, _UNKNOWN_SIZE)

    def _is_shared(self, node: str) -> bool:
        """Whether other nodes have as much memory as this one, or it is not known at all."""
        size = self._sizes.get(node)
        return size is None or self._nodes_per_size[size] > 1

    def _differs(self, each: PodRow, memory: SpecMemory) -> bool:
        assert self._before is not None
        size, keep = self._size(each.node), self._is_shared(each.node)
        other = self._before.on_nodes(*size, keep=keep)[each.spec_number]
        return isinstance(other, SpecMemory) and other.summary != memory.summary


_UNKNOWN_SIZE: Final = (None, None)


def _after_downgrade(kubelet: Release) -> str:
    if knows_pod_level(kubelet):
        return f"kubelet {kubelet} refuses pods that replace it: PodLevelResources is off"
    return f"kubelet {kubelet} ignores pod-level resources of pods that replace it"


def _add_pod(node: NodeTotals, namespace: NamespaceTotals, memory: SpecMemory) -> None:
    spec, summary = memory.spec, memory.summary
    node.pods += 1
    node.containers += len(summary.containers)
    node.charged += spec.charged
    node.high += len(memory.highs)
    namespace.pods += 1
    namespace.request += summary.request
    if summary.qos == "Guaranteed":
        node.guaranteed += 1
        node.guaranteed_request += summary.request if memory.has_cgroups else 0
    elif summary.qos == "Burstable":
        node.burstable += 1
        node.burstable_request += summary.request if memory.has_cgroups else 0
    else:
        node.besteffort += 1
    if spec.unlimited:
        node.unlimited += 1
    else:
        node.limit += summary.limit


def _add_spec_findings(
    groups: dict[FindingKey, WorkloadTotals],
    namespace: NamespaceTotals,
    each: PodRow,
    memory: SpecMemory,
) -> None:
    """What is found without knowing what a pod uses."""
    spec = memory.spec
    if spec.errors:
        _add_finding(groups, POD_INVALID.id, each, 0, spec.errors[0])
    if spec.unrequesting:
        namespace.unrequesting += 1
        _add_finding(groups, POD_NO_REQUEST.id, each, 0, _container_list(each, spec.unrequesting))
    if spec.unlimited:
        namespace.unlimited += 1
        _add_finding(groups, POD_NO_LIMIT.id, each, 0, _container_list(each, spec.unlimited))
    if spec.tmpfs:
        _add_finding(groups, POD_TMPFS.id, each, 0, spec.tmpfs)
    if not spec.autoscaled:
        _add_finding(groups, POD_HPA.id, each, 0, _container_list(each, spec.unrequesting))


def _add_deaths(
    groups: dict[FindingKey, WorkloadTotals],
    each: PodRow,
    deaths: PodDeaths,
    memory: SpecMemory | None,
) -> None:
    detail = _describe_deaths(deaths, memory, each.containers)
    _add_finding(groups, deaths.rule, each, deaths.count, detail)


def _describe_deaths(
    deaths: PodDeaths, memory: SpecMemory | None, containers: tuple[str, ...]
) -> str:
    """The last death and its likely cause; `memory` is None for a pod that has ended."""
    last = f"{deaths.container}: {deaths.last}" if deaths.container else deaths.last
    cause = None
    if deaths.rule == POD_OOM_KILLED.id and memory is not None:
        cause = _likely_cause(deaths.container, memory, containers)
    return last if cause is None else f"{last}, {cause}"


def _likely_cause(container: str, memory: SpecMemory, containers: tuple[str, ...]) -> str | None:
    if container not in containers:
        return None
    limit = memory.summary.containers[containers.index(container)].limit
    if limit:
        return f"likely at its limit of {format_bytes(limit)}"
    if isinstance(memory.summary.max, int):
        return f"likely at the pod's limit of {format_bytes(memory.summary.max)}"
    return "likely because the node ran out of memory: it has no limit"


def _add_usage_findings(
    groups: dict[FindingKey, WorkloadTotals],
    node: NodeTotals,
    each: PodRow,
    memory: SpecMemory,
    used: MeasuredUsage,
) -> None:
    summary, total = memory.summary, used.total
    past = [
        (number, amount - high)
        for number, high in memory.highs
        if (amount := used.containers.get(each.containers[number], 0)) > high
    ]
    if past:
        node.throttled += len(past)
        names = _container_list(each, tuple([number for number, _ in past]))
        _add_finding(groups, POD_THROTTLED.id, each, sum([over for _, over in past]), names)
    if total * 1000 > memory.spec.eviction_request:
        node.over_request += 1
        if summary.request:
            _add_finding(groups, POD_ABOVE_REQUEST.id, each, total - summary.request)
    else:
        idle = summary.request - total
        if summary.request >= _IDLE_REQUEST_FACTOR * total and idle >= _LARGE_AMOUNT:
            _add_finding(groups, POD_IDLE_REQUEST.id, each, idle)
    if summary.limit >= max(_HIGH_LIMIT_FACTOR * total, total + _LARGE_AMOUNT, summary.request + 1):
        _add_finding(groups, POD_HIGH_LIMIT.id, each, summary.limit - total)
    if used.samples > 1 and len(used.containers) > 1:
        gain = sum(used.containers.values()) - total
        if gain >= _POD_LEVEL_SAVING and gain >= _POD_LEVEL_SAVING_SHARE * total:
            _add_finding(groups, POD_POD_LEVEL.id, each, gain)


def _add_claims(node: NodeTotals, each: PodRow, memory: SpecMemory, pages: int, page: int) -> None:
    """What a pod uses, and what of it is claimed, for the sums that protection depends on."""
    qos = _QOS_KEY[memory.summary.qos]
    usage = node.by_class.get(qos)
    if usage is None:
        usage = node.by_class[qos] = ClassUsage()
    usage.pages += pages
    minimum, low = min(memory.min // page, pages), min(memory.low // page, pages)
    usage.min_claimed += minimum
    usage.low_claimed += low
    _rank_claim(usage.min_unclaimed_top, minimum - pages, each)
    _rank_claim(usage.low_unclaimed_top, low - pages, each)


def _rank_victims(
    node: NodeTotals,
    each: PodRow,
    memory: SpecMemory,
    used: MeasuredUsage | None,
    capacity: int | None,
) -> None:
    if used is not None and not each.flags & CRITICAL_FLAG:
        excess = used.total * 1000 - memory.spec.eviction_request
        evicted = node.evicted_first
        if len(evicted) < TOP_COUNT or (excess <= 0, each.priority, -excess) <= evicted[-1][:3]:
            full = f"{each.namespace}/{each.name}"
            insert_ranked(evicted, (excess <= 0, each.priority, -excess, full))
    if memory.highest_oom_score is None:
        return
    score, number = memory.highest_oom_score
    points = score
    if used is not None and capacity is not None:
        # oom_badness(), mm/oom_kill.c: memory in use plus oom_score_adj thousandths of all memory.
        # Of a container the sum of its processes is known, so this is an upper bound.
        points = used.containers.get(each.containers[number], 0) + score * capacity // 1000
    killed = node.killed_first
    if len(killed) < TOP_COUNT or -points <= killed[-1][0]:  # type: ignore[operator] # numbers
        full = f"{each.namespace}/{each.name} {each.containers[number]}"
        insert_ranked(killed, (-points, score, full))


def _rank_claim(first: list[RankedEntry], rank: int, each: PodRow) -> None:
    if not rank or (len(first) == TOP_COUNT and rank > first[-1][0]):  # type: ignore[operator] # numbers
        return
    insert_ranked(first, (rank, f"{each.namespace}/{each.name}"))


def _add_finding(
    groups: dict[FindingKey, WorkloadTotals], rule: str, each: PodRow, amount: int, detail: str = ""
) -> None:
    key = (rule, each.namespace, each.workload)
    group = groups.get(key)
    if group is None:
        groups[key] = WorkloadTotals(1, amount, (amount, each.name), detail)
        return
    group.pods += 1
    group.amount += amount
    if is_worse((amount, each.name), group.worst):
        group.worst, group.detail = (amount, each.name), detail


def _container_list(each: PodRow, numbers: tuple[int, ...]) -> str:
    return ", ".join([each.containers[number] for number in numbers])
