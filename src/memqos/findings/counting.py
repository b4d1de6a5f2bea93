"""Count pods into tallies, with what nodes of their size make of them and what they use."""

from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

from memqos.errors import InputError
from memqos.findings.cases import Cases, Numbers, OnNodes
from memqos.findings.census import CRITICAL, ENDED, Census, Place, Row
from memqos.findings.others import Used
from memqos.findings.tallies import (
    KEPT,
    First,
    Group,
    GroupTally,
    Kin,
    NodeTally,
    SpaceTally,
    Tallies,
    Usage,
    is_worse,
    keep,
)
from memqos.findings.thresholds import (
    BIG,
    FAR_ABOVE,
    IDLE,
    TOGETHER,
    TOGETHER_SHARE,
)
from memqos.kube.pod import QosClass

_KIN: Final[dict[QosClass, Kin]] = {
    "Guaranteed": "guaranteed",
    "Burstable": "burstable",
    "BestEffort": "besteffort",
}


class Sizes(msgspec.Struct, frozen=True):
    """How much memory the nodes have, by name: all, and what is not reserved."""

    nodes: dict[str, tuple[int, int]]
    page_size: int


def tally(
    census: Census,
    cases: Cases,
    sizes: Sizes,
    usage: dict[str, Used],
    dropped: dict[Place, str],
    *,
    before: Cases | None = None,
    row: Callable[[Row, Numbers, Used | None], bytes] | None = None,
) -> Tallies:
    """Add up the pods of a census but those `dropped`.

    `before` are the same cases under other terms, `row` writes a pod as JSON.
    """
    found = Tallies()
    counter = _Counter(found, cases, sizes, before)
    for place, each in census.rows.items():
        if place in dropped:
            continue
        used = None
        if usage:
            name = f"{each.namespace}/{each.name}"
            used = usage.get(name)
            if used is not None:
                found.matched.add(name)
        if each.flags & ENDED:
            found.ended += 1
            continue
        numbers = counter.numbers(each)
        if not isinstance(numbers, Numbers):
            name = f"{each.namespace}/{each.name}"
            found.unreadable.append((place, name, numbers.what, numbers.field))
            continue
        counter.add(each, numbers, used)
        if row is not None:
            found.pods.append((f"{each.namespace}/{each.name}", row(each, numbers, used)))
    return found


class _Counter:
    """Adds pods to tallies, and knows what nodes of their size make of them."""

    def __init__(self, found: Tallies, cases: Cases, sizes: Sizes, before: Cases | None) -> None:
        self._found = found
        self._cases = cases
        self._sizes = sizes
        self._before = before
        self._on: dict[str, OnNodes] = {}
        # Pods of one workload are seldom on one node: what holds for it alone is not worth keeping.
        self._alike = Counter(sizes.nodes.values())

    def numbers(self, each: Row) -> Numbers | InputError:
        """What becomes of a pod on its node."""
        on = self._on.get(each.node)
        if on is None:
            on = self._on[each.node] = self._cases.on(
                *self._size(each.node), keep=self._is_shared(each.node)
            )
            self._found.nodes[each.node] = NodeTally()
        return on[each.like]

    def add(self, each: Row, numbers: Numbers, used: Used | None) -> None:
        """Count a pod."""
        found = self._found
        node, space = found.nodes[each.node], found.spaces.get(each.namespace)
        if space is None:
            space = found.spaces[each.namespace] = SpaceTally()
        _add(node, space, numbers)
        case = numbers.case
        if case.errors or case.unrequesting or case.unlimited:
            _by_spec(found.groups, space, each, numbers)
        if used is not None:
            found.measured += 1
            _by_usage(found.groups, node, space, each, numbers, used, self._sizes.page_size)
        _rank(node, each, numbers, used, self._size(each.node)[0])
        if self._before is not None and self._differs(each, numbers):
            node.changed += 1

    def _size(self, node: str) -> tuple[int | None, int | None]:
        return self._sizes.nodes.get(node, _UNKNOWN)

    def _is_shared(self, node: str) -> bool:
        """Whether the memory of a node is that of others too, or not known at all."""
        size = self._sizes.nodes.get(node)
        return size is None or self._alike[size] > 1

    def _differs(self, each: Row, numbers: Numbers) -> bool:
        assert self._before is not None
        size, keep = self._size(each.node), self._is_shared(each.node)
        other = self._before.on(*size, keep=keep)[each.like]
        return isinstance(other, Numbers) and other.brief != numbers.brief


_UNKNOWN: Final = (None, None)


def _add(node: NodeTally, space: SpaceTally, numbers: Numbers) -> None:
    case, brief = numbers.case, numbers.brief
    node.pods += 1
    node.containers += len(brief.containers)
    node.held += case.held
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


def _by_spec(
    groups: dict[Group, GroupTally], space: SpaceTally, each: Row, numbers: Numbers
) -> None:
    """What is found without knowing what a pod uses."""
    case = numbers.case
    if case.errors:
        _found(groups, "pod/invalid", each, 0, case.errors[0])
    if case.unrequesting:
        space.unrequesting += 1
        _found(groups, "pod/no-request", each, 0, _named(each, case.unrequesting))
    if case.unlimited:
        space.unlimited += 1
        _found(groups, "pod/no-limit", each, 0, _named(each, case.unlimited))


def _by_usage(
    groups: dict[Group, GroupTally],
    node: NodeTally,
    space: SpaceTally,
    each: Row,
    numbers: Numbers,
    used: Used,
    page: int,
) -> None:
    brief, total = numbers.brief, used.total
    node.measured += 1
    node.usage += total
    space.usage += total
    _claimed(node, each, numbers, total // page, page)
    past = [
        (number, amount - high)
        for number, high in numbers.highs
        if (amount := used.containers.get(each.containers[number], 0)) > high
    ]
    if past:
        node.throttled += len(past)
        names = _named(each, tuple([number for number, _ in past]))
        _found(groups, "pod/throttled", each, sum([over for _, over in past]), names)
    if total * 1000 > numbers.case.ranked:
        node.over_request += 1
        if brief.request:
            _found(groups, "pod/above-request", each, total - brief.request)
    elif brief.request >= IDLE * total and brief.request - total >= BIG:
        _found(groups, "pod/idle-request", each, brief.request - total)
    if brief.limit >= max(FAR_ABOVE * total, total + BIG, brief.request + 1):
        _found(groups, "pod/high-limit", each, brief.limit - total)
    if used.samples > 1 and len(used.containers) > 1:
        gain = sum(used.containers.values()) - total
        if gain >= TOGETHER and gain >= TOGETHER_SHARE * total:
            _found(groups, "pod/pod-level", each, gain)


def _claimed(node: NodeTally, each: Row, numbers: Numbers, pages: int, page: int) -> None:
    """What a pod uses, and what of it is claimed, for the sums that protection depends on."""
    kin = _KIN[numbers.brief.qos]
    usage = node.by_class.get(kin)
    if usage is None:
        usage = node.by_class[kin] = Usage()
    usage.pages += pages
    minimum, low = min(numbers.min // page, pages), min(numbers.low // page, pages)
    usage.min_asked += minimum
    usage.low_asked += low
    _rank_claim(usage.min_first, minimum - pages, each)
    _rank_claim(usage.low_first, low - pages, each)


def _rank(
    node: NodeTally,
    each: Row,
    numbers: Numbers,
    used: Used | None,
    capacity: int | None,
) -> None:
    if used is not None and not each.flags & CRITICAL:
        excess = used.total * 1000 - numbers.case.ranked
        evicted = node.evicted
        if len(evicted) < KEPT or (excess <= 0, each.priority, -excess) <= evicted[-1][:3]:
            full = f"{each.namespace}/{each.name}"
            keep(evicted, (excess <= 0, each.priority, -excess, full))
    if numbers.worst is None:
        return
    score, number = numbers.worst
    points = score
    if used is not None and capacity is not None:
        points = used.containers.get(each.containers[number], 0) + score * capacity // 1000
    killed = node.killed
    if len(killed) < KEPT or -points <= killed[-1][0]:  # type: ignore[operator]
        full = f"{each.namespace}/{each.name} {each.containers[number]}"
        keep(killed, (-points, score, full))


def _rank_claim(first: list[First], rank: int, each: Row) -> None:
    if not rank or (len(first) == KEPT and rank > first[-1][0]):  # type: ignore[operator]
        return
    keep(first, (rank, f"{each.namespace}/{each.name}"))


def _found(
    groups: dict[Group, GroupTally], rule: str, each: Row, amount: int, says: str = ""
) -> None:
    key = (rule, each.namespace, each.family)
    group = groups.get(key)
    if group is None:
        groups[key] = GroupTally(1, amount, (amount, each.name), says)
        return
    group.pods += 1
    group.amount += amount
    if is_worse((amount, each.name), group.worst):
        group.worst, group.says = (amount, each.name), says


def _named(each: Row, numbers: tuple[int, ...]) -> str:
    return ", ".join([each.containers[number] for number in numbers])
