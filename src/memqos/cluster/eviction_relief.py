"""What evictions free, and where the order by QoS class would mislead."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from memqos.cluster.eviction_rank import EVICTION_KEYS, EvictionKey, RankedPod
from memqos.kube.pod import QosClass

DOCUMENTED_CLASS_ORDER: Final[Mapping[QosClass, int]] = {
    "BestEffort": 0,
    "Burstable": 1,
    "Guaranteed": 2,
}
"""The order in which the documentation says that classes are evicted."""


class FreedMemory(NamedTuple):
    """One place in the order: what evicting up to it frees, in bytes."""

    ranked: RankedPod
    frees: int
    """Its usage; nothing where the pod is never evicted or nobody knows."""
    freed: int
    """With all that went before."""


class QosInversion(NamedTuple):
    """A pod that goes before one of a class that is said to go first, and what decided it."""

    first: RankedPod
    then: RankedPod
    because: EvictionKey


def memory_freed(order: Sequence[RankedPod]) -> Iterator[FreedMemory]:
    """Every place of the order."""
    freed = 0
    for ranked in order:
        frees = 0 if ranked.critical else ranked.usage or 0
        freed += frees
        yield FreedMemory(ranked, frees, freed)


def evictions_needed(order: Sequence[RankedPod], need: int) -> int | None:
    """How many pods are evicted until so much is free; None where all of them are not enough."""
    gone = 0
    for relief in memory_freed(order):
        gone += not relief.ranked.critical
        if relief.freed >= need and not relief.ranked.critical:
            return gone
    return None


def qos_inversions(
    order: Sequence[RankedPod], classes: Sequence[QosClass]
) -> Iterator[QosInversion]:
    """Each pod with the next one behind it that is said to go first; `classes` are the pods'."""
    for index, first in enumerate(order):
        if first.critical:
            continue
        because: EvictionKey = "input order"
        for behind in range(index + 1, len(order)):
            because = _stronger_key(because, order[behind - 1].ahead_by)
            then = order[behind]
            is_lower = (
                DOCUMENTED_CLASS_ORDER[classes[behind]] < DOCUMENTED_CLASS_ORDER[classes[index]]
            )
            if is_lower and not then.critical:
                yield QosInversion(first, then, because)
                break


def _stronger_key(one: EvictionKey, other: EvictionKey | None) -> EvictionKey:
    """Of the keys that tell neighbours apart, the first in rank tells the outermost apart."""
    ranks = (*EVICTION_KEYS, "input order")
    return min(one, other or "input order", key=ranks.index)
