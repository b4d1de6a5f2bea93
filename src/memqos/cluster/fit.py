"""Whether a pod fits a node: what is short there, by how much, and how the node scores."""

from typing import Final, Literal, NamedTuple

import msgspec

from memqos.cluster.fit_demand import PODS, STORAGE, Demand, Room
from memqos.cluster.fit_scores import (
    DEFAULT_PROFILE,
    Profile,
    balanced,
    least_allocated,
    loads_of,
    most_allocated,
)
from memqos.kube.resources import CPU, MEMORY, is_extended
from memqos.release import Release, Since

FilterCode = Literal["Success", "Unschedulable", "UnschedulableAndUnresolvable"]

_BASIC: Final = (CPU, MEMORY, STORAGE)


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


class Scores(NamedTuple):
    """0 to 100 each; balanced is None where the scheduler leaves that score out."""

    least_allocated: int
    most_allocated: int
    balanced: int | None


class Verdict(msgspec.Struct, frozen=True):
    """One pod against one node."""

    node: str
    shortages: tuple[Shortage, ...]
    scores: Scores

    @property
    def code(self) -> FilterCode:
        if not self.shortages:
            return "Success"
        if any(shortage.unresolvable for shortage in self.shortages):
            return "UnschedulableAndUnresolvable"
        return "Unschedulable"


def judge(
    demand: Demand, room: Room, release: Release, profile: Profile = DEFAULT_PROFILE
) -> Verdict:
    """What a node lacks for a pod, and the scores it would get all the same."""
    too_small = TELLS_TOO_SMALL.at(release.minor)
    shortages = []
    for resource, amount in needs_of(demand, release, profile):
        free = room.free(resource)
        if amount <= free:
            continue
        capacity = room.allocatable.get(resource, 0)
        unresolvable = too_small and resource != PODS and amount > capacity
        shortages.append(Shortage(resource, amount, capacity - free, capacity, unresolvable))
    return Verdict(room.name, tuple(shortages), scores_of(demand, room, release, profile))


def scores_of(
    demand: Demand, room: Room, release: Release, profile: Profile = DEFAULT_PROFILE
) -> Scores:
    """How much the scheduler likes one node for a pod."""
    (loads,) = loads_of([room], profile)
    even = balanced(demand, loads, profile, release)
    return Scores(
        least_allocated(demand, loads)[0],
        most_allocated(demand, loads)[0],
        None if even is None else even[0],
    )


def needs_of(
    demand: Demand, release: Release, profile: Profile = DEFAULT_PROFILE
) -> list[tuple[str, int]]:
    """What must be free on a node, resource by resource, and one place for the pod itself."""
    asked = demand.filtered
    needs = [(PODS, 1)]
    if any(asked.get(resource) for resource in _BASIC) or asked.keys() - _BASIC:
        least = _LEAST_CHECKED.at(release.minor)
        needs += [(name, asked.get(name, 0)) for name in _BASIC if asked.get(name, 0) >= least]
    needs += [
        (name, asked[name])
        for name in sorted(asked.keys() - _BASIC)
        if asked[name] > 0 and not _is_ignored(name, profile)
    ]
    return needs


_LEAST_CHECKED: Final = Since({22: 0, 28: 1})
"""Until 1.27 a node that is overcommitted refused pods that ask for none of what it lacks."""
TELLS_TOO_SMALL: Final = Since({22: False, 34: True})
"""Whether the filter tells nodes that could never fit from those that are merely full."""


def _is_ignored(name: str, profile: Profile) -> bool:
    if not profile.ignored_resources and not profile.ignored_groups:
        return False
    return is_extended(name) and (
        name in profile.ignored_resources or name.partition("/")[0] in profile.ignored_groups
    )
