"""The scheduler's scores of nodes for a pod: LeastAllocated, MostAllocated, balance.

Nodes are scored side by side, column by column: a cluster has thousands of them.
"""

import math
from collections.abc import Callable, Sequence
from operator import add, floordiv
from typing import Final, NamedTuple

import msgspec

from memqos.cluster.fit_demand import NodeInfo, SchedulingDemand, is_scalar_resource
from memqos.kube.resources import CPU, MEMORY
from memqos.release import Release, Since

MAX_NODE_SCORE: Final = 100
NODE_BLOCK: Final = 2048
"""Nodes that are scored together: no more than fit into a processor's cache."""


_LARGEST_SIZE: Final = 10**300
"""Of a node, where it becomes a floating point number: more does not fit into an int64."""


class SchedulerProfile(msgspec.Struct, frozen=True):
    """How the scheduler is configured: its resource plugins' arguments."""

    weights: tuple[tuple[str, int], ...] = ((CPU, 1), (MEMORY, 1))
    ignored_resources: frozenset[str] = frozenset()
    ignored_groups: frozenset[str] = frozenset()


DEFAULT_PROFILE: Final = SchedulerProfile()


class ResourceLoad(NamedTuple):
    """One scored resource of several nodes, all of which have some of it."""

    resource: str
    weight: int
    capacity: list[int]
    left_non_zero: list[int]
    """A hundred times what is left, with defaults for containers without requests."""
    used: list[int]
    size: list[float]
    """The capacity once more: fractions are those of double precision."""


class NodeLoads:
    """Nodes that have the same set of scored resources; other resources are skipped."""

    def __init__(self, rooms: list[NodeInfo], columns: list[ResourceLoad]) -> None:
        self.nodes = rooms
        self.columns = columns
        self._computed: dict[tuple[str | int, ...], list[int]] = {}

    def get_or_compute(
        self, key: tuple[str | int, ...], work: Callable[[], list[int]]
    ) -> list[int]:
        """Scores that are the same for many pods, computed once."""
        if key not in self._computed:
            self._computed[key] = work()
        return self._computed[key]

    def select(self, nodes: Sequence[int]) -> "NodeLoads":
        """Some of the nodes, by their places."""
        columns = [
            ResourceLoad(
                load.resource,
                load.weight,
                [load.capacity[node] for node in nodes],
                [load.left_non_zero[node] for node in nodes],
                [load.used[node] for node in nodes],
                [load.size[node] for node in nodes],
            )
            for load in self.columns
        ]
        return NodeLoads([self.nodes[node] for node in nodes], columns)


def node_loads(nodes: Sequence[NodeInfo], profile: SchedulerProfile) -> list[NodeLoads]:
    """The nodes in groups, as columns of numbers."""
    alike: dict[tuple[tuple[str, int], ...], list[NodeInfo]] = {}
    for node in nodes:
        scored = tuple([term for term in profile.weights if node.allocatable.get(term[0])])
        alike.setdefault(scored, []).append(node)
    return [
        NodeLoads(block, [_resource_load(resource, weight, block) for resource, weight in scored])
        for scored, group in alike.items()
        for block in [
            group[start : start + NODE_BLOCK] for start in range(0, len(group), NODE_BLOCK)
        ]
    ]


def least_allocated(demand: SchedulingDemand, loads: NodeLoads) -> list[int]:
    """The mean of what would be left of each resource, in percent."""
    columns = []
    for load in _loads_to_score(demand.spread, loads):
        request = demand.spread.get(load.resource, 0) * MAX_NODE_SCORE
        left = [amount - request for amount in load.left_non_zero]
        columns.append((load.weight, _percent(left, load.capacity)))
    return _mean_by_weight(columns, len(loads.nodes))


def most_allocated(demand: SchedulingDemand, loads: NodeLoads) -> list[int]:
    """The mean of what would be used of each resource, in percent."""
    columns = []
    for load in _loads_to_score(demand.spread, loads):
        request = demand.spread.get(load.resource, 0) * MAX_NODE_SCORE
        pairs = zip(load.left_non_zero, load.capacity, strict=True)
        used = [capacity * MAX_NODE_SCORE - left + request for left, capacity in pairs]
        columns.append((load.weight, _percent(used, load.capacity)))
    return _mean_by_weight(columns, len(loads.nodes))


def balance_scores(
    demand: SchedulingDemand, loads: NodeLoads, profile: SchedulerProfile, release: Release
) -> list[int] | None:
    """How evenly resources are used; None where the scheduler skips this score."""
    if _skips_balance(demand, profile, release):
        return None
    scored_loads = _loads_to_score(demand.charged, loads)
    fractions = [_fractions(load, demand.charged.get(load.resource, 0)) for load in scored_loads]
    evenness = _evenness(fractions, len(loads.nodes))
    return _BALANCED.at(release.minor)(evenness, scored_loads, loads)


def balance_upper_bounds(
    demand: SchedulingDemand, loads: NodeLoads, profile: SchedulerProfile, release: Release
) -> list[int]:
    """What `balance_scores` cannot exceed, whatever the pod requests of these resources."""
    if _skips_balance(demand, profile, release):
        return [0] * len(loads.nodes)
    scored_loads = _loads_to_score(demand.charged, loads)
    perfect = [MAX_NODE_SCORE] * len(loads.nodes)
    return loads.get_or_compute(
        (release.minor, *_resources(scored_loads)),
        lambda: _BALANCED.at(release.minor)(perfect, scored_loads, loads),
    )


def _skips_balance(demand: SchedulingDemand, profile: SchedulerProfile, release: Release) -> bool:
    """A pod that requests none of the scored resources is not scored for balance."""
    is_empty = not any([demand.charged.get(resource) for resource, _ in profile.weights])
    return is_empty and _SKIPS_EMPTY_REQUESTS.at(release.minor)


def _resource_load(resource: str, weight: int, nodes: list[NodeInfo]) -> ResourceLoad:
    capacity = [node.allocatable[resource] for node in nodes]
    used = [node.requested.get(resource, 0) for node in nodes]
    left = [node.free_non_zero(resource) * MAX_NODE_SCORE for node in nodes]
    size = [float(min(amount, _LARGEST_SIZE)) for amount in capacity]
    return ResourceLoad(resource, weight, capacity, left, used, size)


def _loads_to_score(requests: dict[str, int], loads: NodeLoads) -> list[ResourceLoad]:
    """Resources counted by name are scored only for pods that request them."""
    return [
        load
        for load in loads.columns
        if requests.get(load.resource) or not is_scalar_resource(load.resource)
    ]


def _resources(scored_loads: list[ResourceLoad]) -> tuple[str, ...]:
    return tuple([load.resource for load in scored_loads])


def _percent(hundredfold: list[int], capacity: list[int]) -> list[int]:
    percent = list(map(floordiv, hundredfold, capacity))
    if min(percent) >= 0 and max(percent) <= MAX_NODE_SCORE:
        return percent
    return [
        0 if value < 0 else MAX_NODE_SCORE if value > MAX_NODE_SCORE else value for value in percent
    ]


def _mean_by_weight(columns: list[tuple[int, list[int]]], nodes: int) -> list[int]:
    weights = sum([weight for weight, _ in columns])
    if not weights:
        return [0] * nodes
    total: list[int] | None = None
    for weight, percent in columns:
        weighted = percent if weight == 1 else [value * weight for value in percent]
        total = weighted if total is None else list(map(add, total, weighted))
    assert total is not None
    return [value // weights for value in total]


def _fractions(load: ResourceLoad, request: int) -> list[float]:
    return [
        total / size if (total := used + request) < size else 1.0
        for used, size in zip(load.used, load.size, strict=True)
    ]


def _evenness(columns: list[list[float]], nodes: int) -> list[int]:
    """100 where all resources are used to the same fraction, less the wider they spread."""
    if len(columns) < 2:
        return [MAX_NODE_SCORE] * nodes
    if len(columns) == 2:
        pairs = zip(*columns, strict=True)
        return [int((1 - abs((one - other) / 2)) * MAX_NODE_SCORE) for one, other in pairs]
    return [
        int((1 - _deviation(fractions)) * MAX_NODE_SCORE)
        for fractions in zip(*columns, strict=True)
    ]


def _deviation(fractions: tuple[float, ...]) -> float:
    # Added one by one as in Go: since Python 3.12 sum() of floats compensates rounding errors.
    total = squares = 0.0
    for fraction in fractions:
        total += fraction
    mean = total / len(fractions)
    for fraction in fractions:
        squares += (fraction - mean) * (fraction - mean)
    return math.sqrt(squares / len(fractions))


def _final_balance(
    with_pod: list[int], scored_loads: list[ResourceLoad], loads: NodeLoads
) -> list[int]:
    return with_pod


def _balance_change(
    with_pod: list[int], scored_loads: list[ResourceLoad], loads: NodeLoads
) -> list[int]:
    """75 where the pod changes nothing, up to 100 where it evens the node out."""
    half = MAX_NODE_SCORE // 2
    idle = loads.get_or_compute(
        _resources(scored_loads),
        lambda: _evenness([_fractions(load, 0) for load in scored_loads], len(loads.nodes)),
    )
    pairs = zip(with_pod, idle, strict=True)
    return [half + (half + after - before) // 2 for after, before in pairs]


# NodeResourcesBalancedAllocation: 1.36 scores how far the pod changes the balance of a node, not
# the balance it leads to; since 1.33 PreScore() skips pods without requests, which all went to
# the one best balanced node (kubernetes#129138).
_BALANCED: Final[Since[Callable[[list[int], list[ResourceLoad], NodeLoads], list[int]]]] = Since(
    {22: _final_balance, 36: _balance_change}
)
_SKIPS_EMPTY_REQUESTS: Final = Since({22: False, 33: True})
