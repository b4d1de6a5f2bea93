"""Which of the changes that are due may be written now."""

from collections.abc import Sequence
from typing import Final

import msgspec

from memqos.agent.core.foreign import Foreign
from memqos.agent.core.node_intent import Aims
from memqos.agent.core.observed import Cgroups
from memqos.agent.core.pacing import rung
from memqos.agent.core.schedule import Schedule
from memqos.plan.changes import Change, number
from memqos.plan.cpuset import MEMS
from memqos.plan.tree import Cgroup

_MOVED_AT_ONCE: Final = 16 << 20
"""Bytes that move to other NUMA nodes so fast that nobody has to wait."""


class Choice(msgspec.Struct, frozen=True):
    """What is written now, and what has to wait for it."""

    changes: tuple[Change, ...] = ()
    waiting: frozenset[str] = frozenset()
    """Pods whose memory.min waits until others have given theirs up."""


def choose(
    changes: Sequence[Change],
    aims: Aims,
    cgroups: Cgroups,
    schedule: Schedule,
    foreign: Foreign,
    now: float,
) -> Choice:
    """Leave out what is only observed, fought over, failing, or has to go step by step."""
    waiting = _waiting(changes, aims, cgroups)
    chosen: list[Change] = []
    is_steep = False
    for change in changes:
        pod = cgroups.pod_of(change.path)
        if (
            not aims.is_enforced(Cgroup(change.path, change.level, {}), pod)
            or foreign.waits(change, now)
            or schedule.backoff.holds(change.path, now)
            or (change.file == "memory.min" and pod in waiting)
        ):
            continue
        if change.file == MEMS and cgroups.number(change.path, "memory.current") > _MOVED_AT_ONCE:
            # So is one that waits until its memory has moved.
            if is_steep and pod is not None:
                schedule.look_at(pod, now)
                continue
            is_steep = True
        if change.file != "memory.high" or change.raises:
            chosen.append(change)
            continue
        lowered = _lowered(change, aims, cgroups, schedule, now)
        if lowered is None:
            continue
        if number(lowered.new) < cgroups.number(change.path, "memory.current"):
            # One that makes its writer reclaim is enough at a time: others may be waiting.
            if is_steep:
                schedule.ramp(change.path, pod, now)
                continue
            is_steep = True
        chosen.append(lowered)
    return Choice(tuple(chosen), waiting)


def _lowered(
    change: Change, aims: Aims, cgroups: Cgroups, schedule: Schedule, now: float
) -> Change | None:
    """A step down for memory.high; None where it is too early for one."""
    if schedule.ramps.get(change.path, now) > now:
        return None
    ramp = aims.configuration.ramp
    usage = cgroups.number(change.path, "memory.current")
    value = rung(change, usage, ramp, aims.desires.page_size)
    if value is None:
        schedule.ramp(change.path, cgroups.pod_of(change.path), now + ramp.interval)
        return None
    return msgspec.structs.replace(change, new=value)


def _waiting(changes: Sequence[Change], aims: Aims, cgroups: Cgroups) -> frozenset[str]:
    """Pods for which there is no room yet: the sum of memory.min counts as it stands."""
    raised = [
        change
        for change in changes
        if change.level == "pod" and change.file == "memory.min" and change.raises
    ]
    if not raised:
        return frozenset()
    total = sum([cgroups.number(path, "memory.min") for path in cgroups.pods])
    waiting = set()
    for change in raised:
        more = number(change.new) - number(change.old)
        if total + more > aims.limit:
            waiting.add(change.path)
        else:
            total += more
    return frozenset(waiting)
