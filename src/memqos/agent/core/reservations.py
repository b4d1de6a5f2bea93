"""Who may claim protection, and what the cgroups above the pods hold for them.

The sum of memory.min stays within a share of the node's memory: where it would not, pods are left
out, those of the lowest priority first, then the youngest, then the last by UID. What is above
the pods holds exactly the sum of what is claimed below.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from memqos.agent.core.pod_intent import PodIntent
from memqos.plan.names import CgroupNames
from memqos.plan.rules import MIN_NOT_RESERVED, SUM_OF_RESERVATIONS
from memqos.plan.setting import FileSettings, Setting
from memqos.plan.tree import Cgroup, cgroup_uid


class PodReservations(NamedTuple):
    """Protection that a pod's cgroup has or should have, in bytes."""

    min: int
    low: int


NO_RESERVATIONS: Final = PodReservations(0, 0)


def pods_without_reservation(
    intents: Iterable[PodIntent], taken: int, limit: int
) -> frozenset[str]:
    """The pods, by path, whose memory.min does not fit beside what is taken already."""
    out = set()
    for intent in sorted(
        (intent for intent in intents if intent.reservation[0]), key=_reservation_order
    ):
        claim = intent.reservation[0]
        assert intent.path is not None
        if taken + claim > limit:
            out.add(intent.path)
        else:
            taken += claim
    return frozenset(out)


def without_reservation(cgroup: Cgroup, claim: int, limit: int) -> Cgroup:
    """A cgroup of a pod whose memory.min is not reserved."""
    instead = {"memory.min": Setting(0, MIN_NOT_RESERVED, (claim, limit))}
    return msgspec.structs.replace(cgroup, settings=cgroup.settings | instead)


def level_cgroups(claims: Mapping[str, PodReservations], names: CgroupNames) -> tuple[Cgroup, ...]:
    """What the three cgroups above the pods should hold, given the pods' claims by path."""
    sums = {path: [0, 0, 0] for path in names.levels}
    for path, (minimum, low) in claims.items():
        above = path.rpartition("/")[0]
        for level in {above, names.kubepods} if above in sums else ():
            found = sums[level]
            found[0] += minimum
            found[1] += low
            found[2] += 1
    return tuple(
        Cgroup(path, "kubepods" if path == names.kubepods else "qos", _sum_settings(*found))
        for path, found in sums.items()
    )


def _sum_settings(minimum: int, low: int, pods: int) -> FileSettings:
    return {
        "memory.min": Setting(minimum, SUM_OF_RESERVATIONS, (minimum, pods)),
        "memory.low": Setting(low, SUM_OF_RESERVATIONS, (low, pods)),
    }


def _reservation_order(intent: PodIntent) -> tuple[int, bool, str, str]:
    """The first are served first. Times are written so that earlier sorts first."""
    made = intent.pod.metadata.creation_timestamp
    return -(intent.pod.spec.priority or 0), made is None, made or "", cgroup_uid(intent.pod) or ""
