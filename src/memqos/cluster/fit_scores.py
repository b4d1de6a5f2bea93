"""How much the scheduler likes nodes for a pod: LeastAllocated, MostAllocated, balance.

Nodes are scored side by side, column by column: a cluster has thousands of them.
"""

import math
from collections.abc import Callable, Sequence
from operator import add, floordiv
from typing import Final, NamedTuple

import msgspec

from memqos.cluster.fit_demand import Demand, Room, is_scalar
from memqos.kube.resources import CPU, MEMORY
from memqos.release import Release, Since

BEST: Final = 100
BLOCK: Final = 2048
"""Nodes that are scored together: no more than a processor's cache holds."""


_LARGEST_SIZE: Final = 10**300
"""Of a node, where it becomes a floating point number: what no scheduler can hold is all alike."""


class Profile(msgspec.Struct, frozen=True):
    """How the scheduler is configured: its resource plugins' arguments."""

    weights: tuple[tuple[str, int], ...] = ((CPU, 1), (MEMORY, 1))
    ignored_resources: frozenset[str] = frozenset()
    ignored_groups: frozenset[str] = frozenset()


DEFAULT_PROFILE: Final = Profile()


class Load(NamedTuple):
    """One scored resource of several nodes, all of which have some of it."""

    resource: str
    weight: int
    capacity: list[int]
    left_non_zero: list[int]
    """A hundred times what is left, with defaults for containers that ask for nothing."""
    used: list[int]
    size: list[float]
    """The capacity once more: fractions are those of double precision."""


class Loads:
    """Nodes that have the same of the scored resources; the others are passed over."""

    def __init__(self, rooms: list[Room], columns: list[Load]) -> None:
        self.rooms = rooms
        self.columns = columns
        self._known: dict[tuple[str | int, ...], list[int]] = {}

    def once(self, key: tuple[str | int, ...], work: Callable[[], list[int]]) -> list[int]:
        """Scores that are the same for many pods, worked out once."""
        if key not in self._known:
            self._known[key] = work()
        return self._known[key]

    def only(self, nodes: Sequence[int]) -> "Loads":
        """Some of the nodes, by their places."""
        columns = [
            Load(
                load.resource,
                load.weight,
                [load.capacity[node] for node in nodes],
                [load.left_non_zero[node] for node in nodes],
                [load.used[node] for node in nodes],
                [load.size[node] for node in nodes],
            )
            for load in self.columns
        ]
        return Loads([self.rooms[node] for node in nodes], columns)


def loads_of(rooms: Sequence[Room], profile: Profile) -> list[Loads]:
    """What scoring looks at."""
    alike: dict[tuple[tuple[str, int], ...], list[Room]] = {}
    for room in rooms:
        scored = tuple([term for term in profile.weights if room.allocatable.get(term[0])])
        alike.setdefault(scored, []).append(room)
    return [
        Loads(block, [_load(resource, weight, block) for resource, weight in scored])
        for scored, group in alike.items()
        for block in [group[start : start + BLOCK] for start in range(0, len(group), BLOCK)]
    ]


def least_allocated(demand: Demand, loads: Loads) -> list[int]:
    """The mean of what would be left of each resource, in percent."""
    columns = []
    for load in _asked(demand.spread, loads):
        request = demand.spread.get(load.resource, 0) * BEST
        left = [amount - request for amount in load.left_non_zero]
        columns.append((load.weight, _percent(left, load.capacity)))
    return _weighted_mean(columns, len(loads.rooms))


def most_allocated(demand: Demand, loads: Loads) -> list[int]:
    """The mean of what would be used of each resource, in percent."""
    columns = []
    for load in _asked(demand.spread, loads):
        request = demand.spread.get(load.resource, 0) * BEST
        pairs = zip(load.left_non_zero, load.capacity, strict=True)
        used = [capacity * BEST - left + request for left, capacity in pairs]
        columns.append((load.weight, _percent(used, load.capacity)))
    return _weighted_mean(columns, len(loads.rooms))


def balanced(demand: Demand, loads: Loads, profile: Profile, release: Release) -> list[int] | None:
    """How evenly resources are used; None where the scheduler leaves this score out."""
    if _is_left_out(demand, profile, release):
        return None
    asked = _asked(demand.held, loads)
    fractions = [_fractions(load, demand.held.get(load.resource, 0)) for load in asked]
    evenness = _evenness(fractions, len(loads.rooms))
    return _BALANCED.at(release.minor)(evenness, asked, loads)


def balanced_at_most(demand: Demand, loads: Loads, profile: Profile, release: Release) -> list[int]:
    """What `balanced` cannot exceed, whatever the pod asks for of these resources."""
    if _is_left_out(demand, profile, release):
        return [0] * len(loads.rooms)
    asked = _asked(demand.held, loads)
    perfect = [BEST] * len(loads.rooms)
    return loads.once(
        (release.minor, *_resources(asked)),
        lambda: _BALANCED.at(release.minor)(perfect, asked, loads),
    )


def _is_left_out(demand: Demand, profile: Profile, release: Release) -> bool:
    """A pod that asks for none of the scored resources is not scored for balance."""
    asks_nothing = not any([demand.held.get(resource) for resource, _ in profile.weights])
    return asks_nothing and _LEAVES_OUT_EMPTY.at(release.minor)


def _load(resource: str, weight: int, rooms: list[Room]) -> Load:
    capacity = [room.allocatable[resource] for room in rooms]
    used = [room.requested.get(resource, 0) for room in rooms]
    left = [room.left_non_zero(resource) * BEST for room in rooms]
    size = [float(min(amount, _LARGEST_SIZE)) for amount in capacity]
    return Load(resource, weight, capacity, left, used, size)


def _asked(requests: dict[str, int], loads: Loads) -> list[Load]:
    """Resources counted by name are scored only for pods that ask for them."""
    return [
        load
        for load in loads.columns
        if requests.get(load.resource) or not is_scalar(load.resource)
    ]


def _resources(asked: list[Load]) -> tuple[str, ...]:
    return tuple([load.resource for load in asked])


def _percent(hundredfold: list[int], capacity: list[int]) -> list[int]:
    percent = list(map(floordiv, hundredfold, capacity))
    if min(percent) >= 0 and max(percent) <= BEST:
        return percent
    return [0 if value < 0 else BEST if value > BEST else value for value in percent]


def _weighted_mean(columns: list[tuple[int, list[int]]], nodes: int) -> list[int]:
    if not columns:
        return [0] * nodes
    total: list[int] | None = None
    for weight, percent in columns:
        weighted = percent if weight == 1 else [value * weight for value in percent]
        total = weighted if total is None else list(map(add, total, weighted))
    assert total is not None
    weights = sum([weight for weight, _ in columns])
    return [value // weights for value in total]


def _fractions(load: Load, request: int) -> list[float]:
    return [
        total / size if (total := used + request) < size else 1.0
        for used, size in zip(load.used, load.size, strict=True)
    ]


def _evenness(columns: list[list[float]], nodes: int) -> list[int]:
    """100 where all resources are used to the same fraction, less the wider they spread."""
    if len(columns) < 2:
        return [BEST] * nodes
    if len(columns) == 2:
        pairs = zip(*columns, strict=True)
        return [int((1 - abs((one - other) / 2)) * BEST) for one, other in pairs]
    return [int((1 - _deviation(fractions)) * BEST) for fractions in zip(*columns, strict=True)]


def _deviation(fractions: tuple[float, ...]) -> float:
    # Added one by one: sum() carries more precision than the scheduler does.
    total = squares = 0.0
    for fraction in fractions:
        total += fraction
    mean = total / len(fractions)
    for fraction in fractions:
        squares += (fraction - mean) * (fraction - mean)
    return math.sqrt(squares / len(fractions))


def _as_it_becomes(with_pod: list[int], asked: list[Load], loads: Loads) -> list[int]:
    return with_pod


def _as_it_changes(with_pod: list[int], asked: list[Load], loads: Loads) -> list[int]:
    """75 where the pod changes nothing, up to 100 where it evens the node out."""
    half = BEST // 2
    idle = loads.once(
        _resources(asked),
        lambda: _evenness([_fractions(load, 0) for load in asked], len(loads.rooms)),
    )
    pairs = zip(with_pod, idle, strict=True)
    return [half + (half + after - before) // 2 for after, before in pairs]


_BALANCED: Final[Since[Callable[[list[int], list[Load], Loads], list[int]]]] = Since(
    {22: _as_it_becomes, 36: _as_it_changes}
)
_LEAVES_OUT_EMPTY: Final = Since({22: False, 33: True})
