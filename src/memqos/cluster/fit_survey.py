"""Which nodes of a cluster a pod fits, what is scarce, and the best node for it."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import add
from typing import Final, NamedTuple

import msgspec

from memqos.cluster.fit import REPORTS_UNRESOLVABLE, NodeScores, node_scores, resource_needs
from memqos.cluster.fit_demand import PODS_RESOURCE, NodeInfo, SchedulingDemand, encode_key
from memqos.cluster.fit_scores import (
    DEFAULT_PROFILE,
    NodeLoads,
    SchedulerProfile,
    balance_scores,
    balance_upper_bounds,
    least_allocated,
    node_loads,
)
from memqos.release import Release

BATCH: Final = 64
"""Pods that are surveyed together."""


class Scarcity(NamedTuple):
    """How many nodes are short of a resource, and how little the nearest of all nodes lacks."""

    nodes: int
    unresolvable: int
    lacking: int
    """0 or less where some node has enough of it."""


class FitSurvey(msgspec.Struct, frozen=True):
    """One pod against all nodes."""

    nodes: int
    fitting: int
    scarce: dict[str, Scarcity]
    best: str | None
    """Of the nodes that fit, the one with the highest LeastAllocated + balance, as by default."""
    scores: NodeScores | None


def survey_fit(
    demands: Iterable[SchedulingDemand],
    nodes: Sequence[NodeInfo],
    release: Release,
    profile: SchedulerProfile = DEFAULT_PROFILE,
) -> Iterator[FitSurvey]:
    """Each pod on its own against all nodes, in time linear in either.

    Pods with equal demands are surveyed once.
    """
    cluster = _Cluster(nodes, profile)
    surveys: dict[bytes, FitSurvey] = {}
    ahead = iter(demands)
    while batch := [(encode_key(demand), demand) for demand in islice(ahead, BATCH)]:
        unknown = {key: demand for key, demand in batch if key not in surveys}
        found = _survey_batch(list(unknown.values()), cluster, release, profile)
        surveys.update(zip(unknown, found, strict=True))
        for key, _ in batch:
            yield surveys[key]


class _Cluster:
    """All nodes, resource by resource; sorted once for all pods."""

    def __init__(self, rooms: Sequence[NodeInfo], profile: SchedulerProfile) -> None:
        self.nodes = rooms
        self.groups = node_loads(rooms, profile)
        self._free: dict[str, list[list[int]]] = {}
        self._sorted: dict[str, tuple[list[int], list[int]]] = {}

    def free(self, resource: str) -> list[list[int]]:
        """What is free on each node of each group."""
        if resource not in self._free:
            self._free[resource] = [
                [node.free(resource) for node in group.nodes] for group in self.groups
            ]
        return self._free[resource]

    def scarcity(self, resource: str, amount: int, *, too_small: bool) -> Scarcity | None:
        """How scarce a resource is; None where every node has that much."""
        if resource not in self._sorted:
            sizes = sorted([node.allocatable.get(resource, 0) for node in self.nodes])
            self._sorted[resource] = sorted(chain(*self.free(resource))), sizes
        free, sizes = self._sorted[resource]
        short = bisect_left(free, amount)
        if not short:
            return None
        unresolvable = bisect_left(sizes, amount) if too_small and resource != PODS_RESOURCE else 0
        return Scarcity(short, unresolvable, amount - free[-1])


class _PodSurvey:
    """The survey of one pod so far."""

    def __init__(
        self,
        demand: SchedulingDemand,
        cluster: _Cluster,
        release: Release,
        profile: SchedulerProfile,
    ):
        too_small = REPORTS_UNRESOLVABLE.at(release.minor)
        self.demand = demand
        self.scarce: dict[str, Scarcity] = {}
        self.needs: list[tuple[list[list[int]], int]] = []
        for resource, amount in resource_needs(demand, release, profile):
            scarcity = cluster.scarcity(resource, amount, too_small=too_small)
            if scarcity is not None:
                self.scarce[resource] = scarcity
                self.needs.append((cluster.free(resource), amount))
        self.fitting = 0
        self.best: NodeInfo | None = None
        self.highest = -1

    def add(
        self, index: int, group: NodeLoads, release: Release, profile: SchedulerProfile
    ) -> None:
        """Take one group of nodes into account."""
        fitting: Sequence[int] = range(len(group.nodes))
        for free, amount in self.needs:
            of_group = free[index]
            fitting = [node for node in fitting if of_group[node] >= amount]
        if fitting:
            self.fitting += len(fitting)
            node, score = _best_node(self.demand, group, fitting, release, profile)
            if score > self.highest:
                self.best, self.highest = node, score


def _survey_batch(
    demands: Sequence[SchedulingDemand],
    cluster: _Cluster,
    release: Release,
    profile: SchedulerProfile,
) -> Iterator[FitSurvey]:
    """All pods against one group of nodes, then against the next, while it is in the cache."""
    pods = [_PodSurvey(demand, cluster, release, profile) for demand in demands]
    for index, group in enumerate(cluster.groups):
        for pod in pods:
            pod.add(index, group, release, profile)
    for pod in pods:
        best = pod.best
        yield FitSurvey(
            nodes=len(cluster.nodes),
            fitting=pod.fitting,
            scarce=pod.scarce,
            best=None if best is None else best.name,
            scores=None if best is None else node_scores(pod.demand, best, release, profile),
        )


def _best_node(
    demand: SchedulingDemand,
    group: NodeLoads,
    fitting: Sequence[int],
    release: Release,
    profile: SchedulerProfile,
) -> tuple[NodeInfo, int]:
    """The node with the highest LeastAllocated + balance, and that sum.

    Balance costs more to score, so only nodes that may beat the most promising one are scored.
    """
    least = least_allocated(demand, group)
    at_most = list(map(add, least, balance_upper_bounds(demand, group, profile, release)))

    def total_scores(nodes: Sequence[int]) -> list[int]:
        even = balance_scores(demand, group.select(nodes), profile, release) or [0] * len(nodes)
        return [least[node] + score for node, score in zip(nodes, even, strict=True)]

    promising = max(fitting, key=at_most.__getitem__)
    (to_beat,) = total_scores([promising])
    rivals = [node for node in fitting if at_most[node] > to_beat]
    if rivals:
        scores = total_scores(rivals)
        if max(scores) > to_beat:
            to_beat = max(scores)
            promising = rivals[scores.index(to_beat)]
    return group.nodes[promising], to_beat
