"""From where on the audit thinks something worth telling."""

from collections import Counter
from collections.abc import Callable
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
from memqos.audit.pod_specs import NodeSizeSpecs, SpecCache, SpecMemory
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
from memqos.errors import InputError
from memqos.findings.catalogue import (
    POD_ABOVE_REQUEST,
    POD_HIGH_LIMIT,
    POD_IDLE_REQUEST,
    POD_INVALID,
    POD_NO_LIMIT,
    POD_NO_REQUEST,
    POD_POD_LEVEL,
    POD_THROTTLED,
)
from memqos.kube.pod import QosClass

LARGE_AMOUNT: Final = 256 << 20
"""Bytes below which nobody minds what is given away."""
HIGH_LIMIT_FACTOR: Final = 4
"""A limit so many times what is in use protects nobody from anything."""
IDLE_REQUEST_FACTOR: Final = 4
"""A request so many times what is in use keeps others out."""
POD_LEVEL_SAVING: Final = 64 << 20
"""Bytes that containers which peak at different times could share."""
POD_LEVEL_SAVING_SHARE: Final = 0.2
HARD_PROTECTION_SHARE: Final = 0.9
"""Of a node's memory: with so much never reclaimed, the rest is killed instead."""
FULL_NODE_SHARE: Final = 0.95
"""Of what a node offers to pods, in use."""
LIMITS_FACTOR: Final = 2.0
"""Limits together, beside what a node offers to pods."""
UNREQUESTED_SHARE: Final = 0.05
"""Of a node's memory, protected for pods that never asked."""
QUOTA_HEADROOM_SHARE: Final = 0.1
"""Of a quota, left."""


_QOS_KEY: Final[dict[QosClass, QosKey]] = {
    "Guaranteed": "guaranteed",
    "Burstable": "burstable",
    "BestEffort": "besteffort",
}


class NodeSizes(msgspec.Struct, frozen=True):
    """How much memory the nodes have, by name: all, and what is not reserved."""

    nodes: dict[str, tuple[int, int]]
    page_size: int


def count_pods(
    census: Census,
    specs: SpecCache,
    sizes: NodeSizes,
    usage: dict[str, MeasuredUsage],
    dropped: dict[BlockPosition, str],
    *,
    before: SpecCache | None = None,
    row: Callable[[PodRow, SpecMemory, MeasuredUsage | None], bytes] | None = None,
) -> ClusterTotals:
    """Add up the pods of a census but those `dropped`.

    `before` are the same cases under other terms, `row` writes a pod as JSON.
    """
    found = ClusterTotals()
    counter = _PodCounter(found, specs, sizes, before)
    for place, each in census.rows.items():
        if place in dropped:
            continue
        used = None
        if usage:
            name = f"{each.namespace}/{each.name}"
            used = usage.get(name)
            if used is not None:
                found.matched.add(name)
        if each.flags & ENDED_FLAG:
            found.ended += 1
            continue
        numbers = counter.memory_of(each)
        if not isinstance(numbers, SpecMemory):
            name = f"{each.namespace}/{each.name}"
            found.unreadable.append((place, name, numbers.what, numbers.field))
            continue
        counter.add(each, numbers, used)
        if row is not None:
            found.pod_rows.append((f"{each.namespace}/{each.name}", row(each, numbers, used)))
    return found


class _PodCounter:
    """Adds pods to tallies, and knows what nodes of their size make of them."""

    def __init__(
        self, found: ClusterTotals, cases: SpecCache, sizes: NodeSizes, before: SpecCache | None
    ) -> None:
        self._found = found
        self._specs = cases
        self._sizes = sizes
        self._before = before
        self._by_node: dict[str, NodeSizeSpecs] = {}
        # Pods of one workload are seldom on one node: memory by spec and node is not worth caching.
        self._nodes_per_size = Counter(sizes.nodes.values())

    def memory_of(self, each: PodRow) -> SpecMemory | InputError:
        """What becomes of a pod on its node."""
        on = self._by_node.get(each.node)
        if on is None:
            on = self._by_node[each.node] = self._specs.on_nodes(
                *self._size(each.node), keep=self._is_shared(each.node)
            )
            self._found.nodes[each.node] = NodeTotals()
        return on[each.spec_number]

    def add(self, each: PodRow, numbers: SpecMemory, used: MeasuredUsage | None) -> None:
        """Count a pod."""
        found = self._found
        node, space = found.nodes[each.node], found.namespaces.get(each.namespace)
        if space is None:
            space = found.namespaces[each.namespace] = NamespaceTotals()
        _add_pod(node, space, numbers)
        case = numbers.spec
        if case.errors or case.unrequesting or case.unlimited:
            _add_spec_findings(found.workloads, space, each, numbers)
        if used is not None:
            found.measured += 1
            _add_usage_findings(
                found.workloads, node, space, each, numbers, used, self._sizes.page_size
            )
        _rank_victims(node, each, numbers, used, self._size(each.node)[0])
        if self._before is not None and self._differs(each, numbers):
            node.changed += 1

    def _size(self, node: str) -> tuple[int | None, int | None]:
        return self._sizes.nodes.get(node, _UNKNOWN_SIZE)

    def _is_shared(self, node: str) -> bool:
        """Whether the memory of a node is that of others too, or not known at all."""
        size = self._sizes.nodes.get(node)
        return size is None or self._nodes_per_size[size] > 1

    def _differs(self, each: PodRow, numbers: SpecMemory) -> bool:
        assert self._before is not None
        size, keep = self._size(each.node), self._is_shared(each.node)
        other = self._before.on_nodes(*size, keep=keep)[each.spec_number]
        return isinstance(other, SpecMemory) and other.brief != numbers.brief


_UNKNOWN_SIZE: Final = (None, None)


def _add_pod(node: NodeTotals, space: NamespaceTotals, numbers: SpecMemory) -> None:
    case, brief = numbers.spec, numbers.brief
    node.pods += 1
    node.containers += len(brief.containers)
    node.charged += case.held
    node.high += len(numbers.highs)
    space.pods += 1
    space.request += brief.request
    if brief.qos == "Guaranteed":
        node.guaranteed += 1
        node.guaranteed_request += brief.request
    elif brief.qos == "Burstable":
        node.burstable += 1
        node.burstable_request += brief.request
    else:
        node.besteffort += 1
    if case.unlimited:
        node.unlimited += 1
    else:
        node.limit += brief.limit


def _add_spec_findings(
    groups: dict[FindingKey, WorkloadTotals],
    space: NamespaceTotals,
    each: PodRow,
    numbers: SpecMemory,
) -> None:
    """What is found without knowing what a pod uses."""
    case = numbers.spec
    if case.errors:
        _add_finding(groups, POD_INVALID.id, each, 0, case.errors[0])
    if case.unrequesting:
        space.unrequesting += 1
        _add_finding(groups, POD_NO_REQUEST.id, each, 0, _container_list(each, case.unrequesting))
    if case.unlimited:
        space.unlimited += 1
        _add_finding(groups, POD_NO_LIMIT.id, each, 0, _container_list(each, case.unlimited))


def _add_usage_findings(
    groups: dict[FindingKey, WorkloadTotals],
    node: NodeTotals,
    space: NamespaceTotals,
    each: PodRow,
    numbers: SpecMemory,
    used: MeasuredUsage,
    page: int,
) -> None:
    brief, total = numbers.brief, used.total
    node.measured += 1
    node.usage += total
    space.usage += total
    _add_claims(node, each, numbers, total // page, page)
    past = [
        (number, amount - high)
        for number, high in numbers.highs
        if (amount := used.containers.get(each.containers[number], 0)) > high
    ]
    if past:
        node.throttled += len(past)
        names = _container_list(each, tuple([number for number, _ in past]))
        _add_finding(groups, POD_THROTTLED.id, each, sum([over for _, over in past]), names)
    if total * 1000 > numbers.spec.ranked:
        node.over_request += 1
        if brief.request:
            _add_finding(groups, POD_ABOVE_REQUEST.id, each, total - brief.request)
    elif brief.request >= IDLE_REQUEST_FACTOR * total and brief.request - total >= LARGE_AMOUNT:
        _add_finding(groups, POD_IDLE_REQUEST.id, each, brief.request - total)
    if brief.limit >= max(HIGH_LIMIT_FACTOR * total, total + LARGE_AMOUNT, brief.request + 1):
        _add_finding(groups, POD_HIGH_LIMIT.id, each, brief.limit - total)
    if used.samples > 1 and len(used.containers) > 1:
        gain = sum(used.containers.values()) - total
        if gain >= POD_LEVEL_SAVING and gain >= POD_LEVEL_SAVING_SHARE * total:
            _add_finding(groups, POD_POD_LEVEL.id, each, gain)


def _add_claims(node: NodeTotals, each: PodRow, numbers: SpecMemory, pages: int, page: int) -> None:
    """What a pod uses, and what of it is claimed, for the sums that protection depends on."""
    kin = _QOS_KEY[numbers.brief.qos]
    usage = node.by_class.get(kin)
    if usage is None:
        usage = node.by_class[kin] = ClassUsage()
    usage.pages += pages
    minimum, low = min(numbers.min // page, pages), min(numbers.low // page, pages)
    usage.min_claimed += minimum
    usage.low_claimed += low
    _rank_claim(usage.min_unclaimed_top, minimum - pages, each)
    _rank_claim(usage.low_unclaimed_top, low - pages, each)


def _rank_victims(
    node: NodeTotals,
    each: PodRow,
    numbers: SpecMemory,
    used: MeasuredUsage | None,
    capacity: int | None,
) -> None:
    if used is not None and not each.flags & CRITICAL_FLAG:
        excess = used.total * 1000 - numbers.spec.ranked
        evicted = node.evicted_first
        if len(evicted) < TOP_COUNT or (excess <= 0, each.priority, -excess) <= evicted[-1][:3]:
            full = f"{each.namespace}/{each.name}"
            insert_ranked(evicted, (excess <= 0, each.priority, -excess, full))
    if numbers.highest_oom_score is None:
        return
    score, number = numbers.highest_oom_score
    points = score
    if used is not None and capacity is not None:
        # oom_badness(), mm/oom_kill.c: memory in use plus oom_score_adj thousandths of all memory.
        # Of a container the sum of its processes is known, so this is an upper bound.
        points = used.containers.get(each.containers[number], 0) + score * capacity // 1000
    killed = node.killed_first
    if len(killed) < TOP_COUNT or -points <= killed[-1][0]:  # type: ignore[operator]
        full = f"{each.namespace}/{each.name} {each.containers[number]}"
        insert_ranked(killed, (-points, score, full))


def _rank_claim(first: list[RankedEntry], rank: int, each: PodRow) -> None:
    if not rank or (len(first) == TOP_COUNT and rank > first[-1][0]):  # type: ignore[operator]
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
