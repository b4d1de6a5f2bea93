"""Which of the changes that are due may be written now."""

from collections.abc import Sequence
from typing import Final

import msgspec

from memqos.agent.core.drift import DriftTracker
from memqos.agent.core.node_intent import NodeIntent
from memqos.agent.core.observed import ObservedCgroups
from memqos.agent.core.schedule import Schedule, next_ramp_value
from memqos.plan.changes import Change, magnitude
from memqos.plan.cpuset import MEMS
from memqos.plan.tree import Cgroup

_FAST_MIGRATION: Final = 16 << 20
"""Bytes that move to other NUMA nodes so fast that no process has to wait."""


class ChangeSelection(msgspec.Struct, frozen=True):
    """What is written now, and what has to wait for it."""

    changes: tuple[Change, ...] = ()
    waiting: frozenset[str] = frozenset()
    """Pods whose memory.min waits until others have given theirs up."""


def select_changes(
    changes: Sequence[Change],
    node_intent: NodeIntent,
    cgroups: ObservedCgroups,
    schedule: Schedule,
    drift: DriftTracker,
    now: float,
) -> ChangeSelection:
    """Skip what is only observed, fought over, failing, or has to go step by step."""
    waiting = _pods_waiting(changes, node_intent, cgroups)
    chosen: list[Change] = []
    is_steep = False
    for change in changes:
        pod = cgroups.pod_of(change.path)
        if (
            not node_intent.is_enforced(Cgroup(change.path, change.level, {}), pod)
            or drift.must_wait(change, now)
            or schedule.backoff.is_waiting(change.path, now)
            or (change.file == "memory.min" and pod in waiting)
        ):
            continue
        if change.file == MEMS and cgroups.number(change.path, "memory.current") > _FAST_MIGRATION:
            # A write of cpuset.mems waits until the memory has migrated: one a pass, as below.
            if is_steep and pod is not None:
                schedule.schedule_pod(pod, now)
                continue
            is_steep = True
        if change.file != "memory.high" or change.raises:
            chosen.append(change)
            continue
        lowered = _ramp_down(change, node_intent, cgroups, schedule, now)
        if lowered is None:
            continue
        if magnitude(lowered.new) < cgroups.number(change.path, "memory.current"):
            # Below usage the write reclaims before it returns: one a pass, others would wait.
            if is_steep:
                schedule.schedule_ramp(change.path, pod, now)
                continue
            is_steep = True
        chosen.append(lowered)
    return ChangeSelection(tuple(chosen), waiting)


def _ramp_down(
    change: Change,
    node_intent: NodeIntent,
    cgroups: ObservedCgroups,
    schedule: Schedule,
    now: float,
) -> Change | None:
    """A step down for memory.high; None where it is too early for one."""
    if schedule.ramps.get(change.path, now) > now:
        return None
    ramp = node_intent.configuration.ramp
    usage = cgroups.number(change.path, "memory.current")
    value = next_ramp_value(change, usage, ramp, node_intent.planner.page_size)
    if value is None:
        schedule.schedule_ramp(change.path, cgroups.pod_of(change.path), now + ramp.interval)
        return None
    return msgspec.structs.replace(change, new=value)


def _pods_waiting(
    changes: Sequence[Change], node_intent: NodeIntent, cgroups: ObservedCgroups
) -> frozenset[str]:
    """Pods that do not fit into the budget yet: the sum of memory.min counts as it stands."""
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
        more = magnitude(change.new) - magnitude(change.old)
        if total + more > node_intent.reservable:
            waiting.add(change.path)
        else:
            total += more
    return frozenset(waiting)
