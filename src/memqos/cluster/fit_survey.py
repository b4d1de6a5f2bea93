"""Which nodes of a cluster a pod fits, what is scarce, and where it would best go."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import add
from typing import Final, NamedTuple

import msgspec

from memqos.cluster.fit import TELLS_TOO_SMALL, Scores, needs_of, scores_of
from memqos.cluster.fit_demand import PODS, Demand, Room, key_of
from memqos.cluster.fit_scores import (
    DEFAULT_PROFILE,
    Loads,
    Profile,
    balanced,
    balanced_at_most,
    least_allocated,
    loads_of,
)
from memqos.release import Release

BATCH: Final = 64
"""Pods that are looked at together."""


class Scarcity(NamedTuple):
    """How many nodes are short of a resource, and how little the nearest of all nodes lacks."""

    nodes: int
    unresolvable: int
    lacking: int
    """0 or less where some node has enough of it."""


class Survey(msgspec.Struct, frozen=True):
    """One pod against all nodes."""

    nodes: int
    fitting: int
    scarce: dict[str, Scarcity]
    best: str | None
    """Of the nodes that fit, the one with the highest LeastAllocated + balance, as by default."""
    scores: Scores | None


def survey(
    demands: Iterable[Demand],
    rooms: Sequence[Room],
    release: Release,
    profile: Profile = DEFAULT_PROFILE,
) -> Iterator[Survey]:
    """Each pod on its own against all nodes, in time linear in either.

    Pods that ask for the same are judged once.
    """
    cluster = _Cluster(rooms, profile)
    known: dict[bytes, Survey] = {}
    ahead = iter(demands)
    while batch := [(key_of(demand), demand) for demand in islice(ahead, BATCH)]:
        unknown = {key: demand for key, demand in batch if key not in known}
        found = _surveyed(list(unknown.values()), cluster, release, profile)
        known.update(zip(unknown, found, strict=True))
        for key, _ in batch:
            yield known[key]


class _Cluster:
    """All nodes, resource by resource; what is sorted out once serves every pod."""

    def __init__(self, rooms: Sequence[Room], profile: Profile) -> None:
        self.rooms = rooms
        self.groups = loads_of(rooms, profile)
        self._free: dict[str, list[list[int]]] = {}
        self._sorted: dict[str, tuple[list[int], list[int]]] = {}

    def free(self, resource: str) -> list[list[int]]:
        """What is free on each node of each group."""
        if resource not in self._free:
            self._free[resource] = [
                [room.free(resource) for room in group.rooms] for group in self.groups
            ]
        return self._free[resource]

    def scarcity(self, resource: str, amount: int, *, too_small: bool) -> Scarcity | None:
        """How scarce a resource is; None where every node has that much."""
        if resource not in self._sorted:
            sizes = sorted([room.allocatable.get(resource, 0) for room in self.rooms])
            self._sorted[resource] = sorted(chain(*self.free(resource))), sizes
        free, sizes = self._sorted[resource]
        short = bisect_left(free, amount)
        if not short:
            return None
        unresolvable = bisect_left(sizes, amount) if too_small and resource != PODS else 0
        return Scarcity(short, unresolvable, amount - free[-1])


class _Tally:
    """What is known of one pod so far."""

    def __init__(self, demand: Demand, cluster: _Cluster, release: Release, profile: Profile):
        too_small = TELLS_TOO_SMALL.at(release.minor)
        self.demand = demand
        self.scarce: dict[str, Scarcity] = {}
        self.needs: list[tuple[list[list[int]], int]] = []
        for resource, amount in needs_of(demand, release, profile):
            scarcity = cluster.scarcity(resource, amount, too_small=too_small)
            if scarcity is not None:
                self.scarce[resource] = scarcity
                self.needs.append((cluster.free(resource), amount))
        self.fitting = 0
        self.best: Room | None = None
        self.highest = -1

    def add(self, index: int, group: Loads, release: Release, profile: Profile) -> None:
        """Take one group of nodes into account."""
        fitting: Sequence[int] = range(len(group.rooms))
        for free, amount in self.needs:
            of_group = free[index]
            fitting = [node for node in fitting if of_group[node] >= amount]
        if fitting:
            self.fitting += len(fitting)
            room, liked = _best(self.demand, group, fitting, release, profile)
            if liked > self.highest:
                self.best, self.highest = room, liked


def _surveyed(
    demands: Sequence[Demand], cluster: _Cluster, release: Release, profile: Profile
) -> Iterator[Survey]:
    """All pods against one group of nodes, then against the next, while it is in the cache."""
    tallies = [_Tally(demand, cluster, release, profile) for demand in demands]
    for index, group in enumerate(cluster.groups):
        for tally in tallies:
            tally.add(index, group, release, profile)
    for tally in tallies:
        best = tally.best
        yield Survey(
            nodes=len(cluster.rooms),
            fitting=tally.fitting,
            scarce=tally.scarce,
            best=None if best is None else best.name,
            scores=None if best is None else scores_of(tally.demand, best, release, profile),
        )


def _best(
    demand: Demand, group: Loads, fitting: Sequence[int], release: Release, profile: Profile
) -> tuple[Room, int]:
    """The node with the highest LeastAllocated + balance, and that sum.

    Balance costs more to score, so only nodes that may beat the most promising one are scored.
    """
    least = least_allocated(demand, group)
    at_most = list(map(add, least, balanced_at_most(demand, group, profile, release)))

    def liked(nodes: Sequence[int]) -> list[int]:
        even = balanced(demand, group.only(nodes), profile, release) or [0] * len(nodes)
        return [least[node] + score for node, score in zip(nodes, even, strict=True)]

    promising = max(fitting, key=at_most.__getitem__)
    (to_beat,) = liked([promising])
    rivals = [node for node in fitting if at_most[node] > to_beat]
    if rivals:
        scores = liked(rivals)
        if max(scores) > to_beat:
            to_beat = max(scores)
            promising = rivals[scores.index(to_beat)]
    return group.rooms[promising], to_beat
