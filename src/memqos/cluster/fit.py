"""Whether a pod fits a node: what is short there, by how much, and how the node scores."""

from typing import Final, Literal, NamedTuple

import msgspec

from memqos.cluster.fit_demand import EPHEMERAL_STORAGE, PODS_RESOURCE, NodeInfo, SchedulingDemand
from memqos.cluster.fit_scores import (
    DEFAULT_PROFILE,
    SchedulerProfile,
    balance_scores,
    least_allocated,
    most_allocated,
    node_loads,
)
from memqos.kube.resources import CPU, MEMORY, is_extended
from memqos.release import Release, Since

FilterCode = Literal["Success", "Unschedulable", "UnschedulableAndUnresolvable"]

_BASIC: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)


class Shortage(NamedTuple):
    """A resource a node has too little of."""

    resource: str
    requested: int
    used: int
    capacity: int
    unresolvable: bool
    """Whether the node would be too small even when empty."""

    @property
    def lacking(self) -> int:
        """How much more would have to be free."""
        return self.requested - (self.capacity - self.used)


class NodeScores(NamedTuple):
    """0 to 100 each; balanced is None where the scheduler skips that score."""

    least_allocated: int
    most_allocated: int
    balanced: int | None


class FitVerdict(msgspec.Struct, frozen=True):
    """One pod against one node."""

    node: str
    shortages: tuple[Shortage, ...]
    scores: NodeScores

    @property
    def code(self) -> FilterCode:
        if not self.shortages:
            return "Success"
        if any(shortage.unresolvable for shortage in self.shortages):
            return "UnschedulableAndUnresolvable"
        return "Unschedulable"


def judge_fit(
    demand: SchedulingDemand,
    node: NodeInfo,
    release: Release,
    profile: SchedulerProfile = DEFAULT_PROFILE,
) -> FitVerdict:
    """What a node lacks for a pod, and the scores it would get all the same."""
    return FitVerdict(
        node.name,
        shortages(demand, node, release, profile),
        node_scores(demand, node, release, profile),
    )


def shortages(
    demand: SchedulingDemand,
    node: NodeInfo,
    release: Release,
    profile: SchedulerProfile = DEFAULT_PROFILE,
) -> tuple[Shortage, ...]:
    """What a node lacks for a pod."""
    too_small = REPORTS_UNRESOLVABLE.at(release.minor)
    found = []
    for resource, amount in resource_needs(demand, release, profile):
        free = node.free(resource)
        if amount <= free:
            continue
        capacity = node.allocatable.get(resource, 0)
        unresolvable = too_small and resource != PODS_RESOURCE and amount > capacity
        found.append(Shortage(resource, amount, capacity - free, capacity, unresolvable))
    return tuple(found)


def node_scores(
    demand: SchedulingDemand,
    node: NodeInfo,
    release: Release,
    profile: SchedulerProfile = DEFAULT_PROFILE,
) -> NodeScores:
    """The scores of one node for a pod."""
    (loads,) = node_loads([node], profile)
    even = balance_scores(demand, loads, profile, release)
    return NodeScores(
        least_allocated(demand, loads)[0],
        most_allocated(demand, loads)[0],
        None if even is None else even[0],
    )


def resource_needs(
    demand: SchedulingDemand, release: Release, profile: SchedulerProfile = DEFAULT_PROFILE
) -> list[tuple[str, int]]:
    """What must be free on a node, resource by resource, and one place for the pod itself."""
    requested = demand.filtered
    needs = [(PODS_RESOURCE, 1)]
    if any(requested.get(resource) for resource in _BASIC) or requested.keys() - _BASIC:
        least = _SMALLEST_CHECKED.at(release.minor)
        needs += [
            (name, requested.get(name, 0)) for name in _BASIC if requested.get(name, 0) >= least
        ]
    needs += [
        (name, requested[name])
        for name in sorted(requested.keys() - _BASIC)
        if requested[name] > 0 and not _is_ignored(name, profile)
    ]
    return needs


_SMALLEST_CHECKED: Final = Since({22: 0, 28: 1})
"""Until 1.27 an overcommitted node refused pods that request none of what it lacks: fitsRequest()
compared a request of 0 with a negative rest (scheduler noderesources/fit.go)."""
REPORTS_UNRESOLVABLE: Final = Since({22: False, 34: True})
"""Whether the filter separates nodes that could never fit from those that are full: since 1.34
InsufficientResource.Unresolvable keeps preemption from trying those (noderesources/fit.go)."""


def _is_ignored(name: str, profile: SchedulerProfile) -> bool:
    if not profile.ignored_resources and not profile.ignored_groups:
        return False
    return is_extended(name) and (
        name in profile.ignored_resources or name.partition("/")[0] in profile.ignored_groups
    )
