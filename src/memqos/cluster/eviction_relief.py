"""What evictions free, and where the order by QoS class would mislead."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from memqos.cluster.eviction_rank import KEYS, Key, Ranked
from memqos.kube.pod import QosClass

DOCUMENTED: Final[Mapping[QosClass, int]] = {"BestEffort": 0, "Burstable": 1, "Guaranteed": 2}
"""The order in which the documentation says that classes are evicted."""


class Relief(NamedTuple):
    """One place in the order: what evicting up to it frees, in bytes."""

    ranked: Ranked
    frees: int
    """Its usage; nothing where the pod is never evicted or nobody knows."""
    freed: int
    """With all that went before."""


class Misled(NamedTuple):
    """A pod that goes before one of a class that is said to go first, and what decided it."""

    first: Ranked
    then: Ranked
    because: Key


def reliefs(order: Sequence[Ranked]) -> Iterator[Relief]:
    """Every place of the order."""
    freed = 0
    for ranked in order:
        frees = 0 if ranked.critical else ranked.usage or 0
        freed += frees
        yield Relief(ranked, frees, freed)


def enough(order: Sequence[Ranked], need: int) -> int | None:
    """How many pods are evicted until so much is free; None where all of them are not enough."""
    gone = 0
    for relief in reliefs(order):
        gone += not relief.ranked.critical
        if relief.freed >= need and not relief.ranked.critical:
            return gone
    return None


def misled(order: Sequence[Ranked], classes: Sequence[QosClass]) -> Iterator[Misled]:
    """Each pod with the next one behind it that is said to go first; `classes` are the pods'."""
    for index, first in enumerate(order):
        if first.critical:
            continue
        because: Key = "input order"
        for behind in range(index + 1, len(order)):
            because = _stronger(because, order[behind - 1].ahead_by)
            then = order[behind]
            is_lower = DOCUMENTED[classes[behind]] < DOCUMENTED[classes[index]]
            if is_lower and not then.critical:
                yield Misled(first, then, because)
                break


def _stronger(one: Key, other: Key | None) -> Key:
    """Of the keys that tell neighbours apart, the first in rank tells the outermost apart."""
    ranks = (*KEYS, "input order")
    return min(one, other or "input order", key=ranks.index)
