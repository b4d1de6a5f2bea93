"""Sums over pods: by node, by namespace, and by what was found about a workload.

The totals of two parts of a cluster add up to those of the whole, so it does not matter which
process counted which pods.
"""

from typing import Final, Literal, NamedTuple

import msgspec

from memqos.audit.census import BlockPosition
from memqos.plan.effective import Knob
from memqos.plan.levels import Levels
from memqos.plan.setting import FileSettings

TOP_COUNT: Final = 3
"""How many pods are named of those evicted, killed or protected first."""

QosKey = Literal["guaranteed", "burstable", "besteffort"]

RankedEntry = tuple[int | bool | str, ...]
"""What ranks a pod, and its name last: the smallest is first."""


class ClassUsage(msgspec.Struct):
    """What pods of one class use on a node, and claim of it, in pages."""

    pages: int = 0
    min_claimed: int = 0
    low_claimed: int = 0
    min_unclaimed_top: list[RankedEntry] = []
    """The pods with the most pages not claimed: (minus the pages, name)."""
    low_unclaimed_top: list[RankedEntry] = []


class NodeTotals(msgspec.Struct, kw_only=True):
    """The pods of one node; amounts in bytes."""

    pods: int = 0
    guaranteed: int = 0
    burstable: int = 0
    besteffort: int = 0
    containers: int = 0
    charged: int = 0
    """Requests that the scheduler has charged the node with."""
    guaranteed_request: int = 0
    burstable_request: int = 0
    limit: int = 0
    """Of the pods that have one."""
    unlimited: int = 0
    high: int = 0
    """Containers that would have a memory.high."""
    throttled: int = 0
    """Containers past the memory.high they would have."""
    measured: int = 0
    """Pods whose usage is known."""
    usage: int = 0
    over_request: int = 0
    changed: int = 0
    """Pods with other values than under the settings they are compared with."""
    by_class: dict[QosKey, ClassUsage] = {}
    evicted_first: list[RankedEntry] = []
    """(not over its request, priority, minus the excess, name)."""
    killed_first: list[RankedEntry] = []
    """(minus the points, score, name)."""


class NamespaceTotals(msgspec.Struct):
    """The pods of one namespace; amounts in bytes."""

    pods: int = 0
    unrequesting: int = 0
    """Pods with a container that requests no memory."""
    unlimited: int = 0
    request: int = 0
    usage: int = 0


class WorkloadTotals(msgspec.Struct):
    """Pods of one workload about which the same was found."""

    pods: int = 0
    amount: int = 0
    """Bytes, over all of them."""
    worst: tuple[int, str] = (-1, "")
    """Bytes, and the name of the pod."""
    detail: str = ""
    """What was found, of the worst."""


FindingKey = tuple[str, str, str]
"""Rule, namespace, workload."""


class ClusterTotals(msgspec.Struct, kw_only=True):
    """All sums."""

    nodes: dict[str, NodeTotals] = {}
    namespaces: dict[str, NamespaceTotals] = {}
    workloads: dict[FindingKey, WorkloadTotals] = {}
    ended: int = 0
    unreadable: list[tuple[BlockPosition, str, str, str | None]] = []
    """Pods with a quantity that cannot be read: place, name, what, field."""
    measured: int = 0
    matched: set[str] = set()
    """Pods that were read and whose usage is known, by namespace/name."""
    pod_rows: list[tuple[str, bytes]] = []
    """Namespace and name, and the pod as JSON; only where rows are requested."""


def merge_totals(one: ClusterTotals, other: ClusterTotals) -> ClusterTotals:
    """Add the second to the first."""
    for name, node in other.nodes.items():
        if name in one.nodes:
            _add_node(one.nodes[name], node)
        else:
            one.nodes[name] = node
    for name, space in other.namespaces.items():
        if name in one.namespaces:
            _add_namespace(one.namespaces[name], space)
        else:
            one.namespaces[name] = space
    for key, group in other.workloads.items():
        known = one.workloads.get(key)
        if known is None:
            one.workloads[key] = group
            continue
        known.pods += group.pods
        known.amount += group.amount
        if is_worse(group.worst, known.worst):
            known.worst, known.detail = group.worst, group.detail
    one.ended += other.ended
    one.measured += other.measured
    one.matched |= other.matched
    one.unreadable += other.unreadable
    one.pod_rows += other.pod_rows
    return one


def is_worse(one: tuple[int, str], other: tuple[int, str]) -> bool:
    """Of two that are as bad, the first by name stands for both."""
    return one[0] > other[0] or (one[0] == other[0] and one[1] < other[1])


def insert_ranked(first: list[RankedEntry], entry: RankedEntry) -> None:
    """Insert an entry in its order, and keep only the first few."""
    first.append(entry)
    first.sort()
    del first[TOP_COUNT:]


def _add_node(one: NodeTotals, other: NodeTotals) -> None:
    one.pods += other.pods
    one.guaranteed += other.guaranteed
    one.burstable += other.burstable
    one.besteffort += other.besteffort
    one.containers += other.containers
    one.charged += other.charged
    one.guaranteed_request += other.guaranteed_request
    one.burstable_request += other.burstable_request
    one.limit += other.limit
    one.unlimited += other.unlimited
    one.high += other.high
    one.throttled += other.throttled
    one.measured += other.measured
    one.usage += other.usage
    one.over_request += other.over_request
    one.changed += other.changed
    for qos, usage in other.by_class.items():
        known = one.by_class.get(qos)
        if known is None:
            one.by_class[qos] = usage
        else:
            _add_usage(known, usage)
    one.evicted_first = _merge_ranked(one.evicted_first, other.evicted_first)
    one.killed_first = _merge_ranked(one.killed_first, other.killed_first)


def _add_usage(one: ClassUsage, other: ClassUsage) -> None:
    one.pages += other.pages
    one.min_claimed += other.min_claimed
    one.low_claimed += other.low_claimed
    one.min_unclaimed_top = _merge_ranked(one.min_unclaimed_top, other.min_unclaimed_top)
    one.low_unclaimed_top = _merge_ranked(one.low_unclaimed_top, other.low_unclaimed_top)


def _add_namespace(one: NamespaceTotals, other: NamespaceTotals) -> None:
    one.pods += other.pods
    one.unrequesting += other.unrequesting
    one.unlimited += other.unlimited
    one.request += other.request
    one.usage += other.usage


def _merge_ranked(one: list[RankedEntry], other: list[RankedEntry]) -> list[RankedEntry]:
    return sorted(one + other)[:TOP_COUNT]


_NO_USAGE: Final = ClassUsage()


class UnrequestedProtection(NamedTuple):
    """Protection that pods get without requesting it, in bytes, and those that get most."""

    total: int
    most: tuple[tuple[str, int], ...]


NO_UNREQUESTED_PROTECTION: Final = UnrequestedProtection(0, ())


class _Leftover(NamedTuple):
    """The protection of a cgroup beyond its children's claims, and their usage without a claim."""

    pages: int
    unclaimed: int

    def share(self, pages: int) -> int:
        """The part of a child that uses so many pages without a claim."""
        return self.pages * pages // self.unclaimed if self.unclaimed > 0 else 0


def unrequested_protection(
    node: NodeTotals, levels: Levels, knob: Knob, page: int
) -> UnrequestedProtection:
    """What would be protected on a node for pods that did not request it."""
    if not node.measured:
        return NO_UNREQUESTED_PROTECTION
    used = {qos: _used_and_claimed(node.by_class.get(qos, _NO_USAGE), knob) for qos in _QOS_KEYS}
    total_used = sum(pages for pages, _ in used.values())
    burstable = min(setting_bytes(levels.burstable, knob) // page, used["burstable"][0])
    claimed = {"guaranteed": used["guaranteed"][1], "burstable": burstable, "besteffort": 0}
    # As effective_protection() of the kernel with memory_recursiveprot; see `plan.effective`.
    protected, total_claimed = setting_bytes(levels.kubepods, knob) // page, sum(claimed.values())
    here = _leftover(protected, total_claimed, total_used)
    below: dict[QosKey, _Leftover] = {"guaranteed": here}
    for qos in ("burstable", "besteffort"):
        pages, claimed_below = used[qos]
        granted = claimed[qos]
        if total_claimed > protected:
            granted = claimed[qos] * protected // total_claimed
        below[qos] = _leftover(granted + here.share(pages - claimed[qos]), claimed_below, pages)
    total = 0
    most: list[tuple[int, str]] = []
    for qos, left in below.items():
        usage = node.by_class.get(qos, _NO_USAGE)
        total += left.share(used[qos][0] - used[qos][1])
        first = usage.min_unclaimed_top if knob == "min" else usage.low_unclaimed_top
        most += [(left.share(-int(rank)), str(name)) for rank, name in first]
    most = sorted([each for each in most if each[0]], key=lambda each: (-each[0], each[1]))
    return UnrequestedProtection(
        total * page, tuple((name, pages * page) for pages, name in most[:TOP_COUNT])
    )


_QOS_KEYS: Final[tuple[QosKey, ...]] = ("guaranteed", "burstable", "besteffort")


def _leftover(protected: int, claimed: int, used: int) -> _Leftover:
    return _Leftover(max(0, protected - claimed), used - claimed)


def _used_and_claimed(usage: ClassUsage, knob: Knob) -> tuple[int, int]:
    return usage.pages, usage.min_claimed if knob == "min" else usage.low_claimed


def setting_bytes(settings: FileSettings, knob: Knob) -> int:
    """memory.min or memory.low of a cgroup; 0 where it is not set."""
    setting = settings.get(f"memory.{knob}")
    value = None if setting is None else setting.value
    return value if isinstance(value, int) else 0
