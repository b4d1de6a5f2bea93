"""Rules about throttling: cgroups past memory.high, and those that stay there.

A task past memory.high reclaims, then sleeps for up to two seconds, whenever it has charged memory.
Where nothing can be reclaimed it makes no progress, and is not killed either.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from memqos.findings.catalogue import (
    THROTTLING_BEFORE,
    THROTTLING_LIVELOCK,
    THROTTLING_NOW,
    THROTTLING_UNRECLAIMABLE,
)
from memqos.findings.facts import NodeFacts, file_number
from memqos.findings.finding import Finding
from memqos.kernel.file_formats import Stall, parse_keyed, stall_of
from memqos.kernel.machine import old_kernel_risk
from memqos.plan.changes import Files
from memqos.units import format_exact_bytes

_STUCK_EVENT_RATE: Final = 5.0
"""Events a second. A task that reclaims in vain tries 16 times (MAX_RECLAIM_RETRIES), with an event
each, then sleeps up to 2 s (mm/memcontrol.c, MEMCG_MAX_HIGH_DELAY_JIFFIES): about 8 a second."""
_STUCK_STALL_PERCENT: Final = 50.0
"""Percent of the time in which no task of a cgroup made progress."""
# KEP-2570 names these as signs: `full avg10 > 5` of significant throttling (Monitoring
# Requirements), and above 10 with the cpu near zero of a livelock before 5.9 (Troubleshooting).
_THROTTLING_AVG10: Final = 5.0
_LIVELOCK_AVG10: Final = 10.0
_IDLE_CPU_PERCENT: Final = 1.0
_MOSTLY_ANONYMOUS: Final = 0.9
_NEAR_HIGH: Final = 0.95
_RAISE_LIMIT_FIX: Final = (
    "raise the container's memory limit, or memoryThrottlingFactor: "
    "memory.high is computed from them"
)


class _HighState(msgspec.Struct, frozen=True, kw_only=True):
    """A cgroup with a memory.high, its usage and how long it waits."""

    path: str
    high: int
    events: int
    """Since it was made."""
    rate: float | None
    """Events a second; None where it was read only once."""
    some: float | None
    full: float | None
    """Percent of the time; None without PSI."""
    avg10: float | None
    """`full avg10` of memory.pressure."""
    cpu: float | None
    """Percent of one CPU; None where it was read only once."""
    usage: int | None
    anon: int | None
    may_swap: bool


def check_throttling(facts: NodeFacts) -> Iterator[Finding]:
    """Containers slowed down at their memory.high."""
    before: list[_HighState] = []
    for each in _cgroups_with_high(facts):
        is_stalled = _is_stalled_near_high(each)
        if each.rate is None and not is_stalled:
            before.append(each)
        elif (each.rate or is_stalled) and not _is_stuck(each, facts):
            yield Finding(
                THROTTLING_NOW.id,
                "warning",
                f"it is above its memory.high of {format_exact_bytes(each.high)} and throttled",
                facts.display_name(each.path),
                _throttling_evidence(each),
                _RAISE_LIMIT_FIX,
            )
    counted = [each for each in before if each.events]
    if counted:
        counted.sort(key=lambda each: -each.events)
        yield Finding(
            THROTTLING_BEFORE.id,
            "info",
            f"cgroups that have been above their memory.high: {len(counted)}; one reading cannot "
            f"show whether they are now",
            facts.display_name(counted[0].path),
            tuple(
                f"{facts.display_name(each.path)}: {each.events} high events" for each in counted
            ),
            "run memqos doctor on the node: it reads the counters twice",
        )


def check_livelock(facts: NodeFacts) -> Iterator[Finding]:
    """Containers that cannot get below their memory.high again."""
    for each in _cgroups_with_high(facts):
        if _is_stuck(each, facts):
            yield Finding(
                THROTTLING_LIVELOCK.id,
                "error",
                "it is stuck at its memory.high: its memory cannot be reclaimed, and it is not "
                "killed either",
                facts.display_name(each.path),
                _throttling_evidence(each),
                f"{_RAISE_LIMIT_FIX}; to resume it now, write max to memory.high of {each.path}",
            )
        elif not each.may_swap and each.anon is not None and each.anon >= each.high:
            yield Finding(
                THROTTLING_UNRECLAIMABLE.id,
                "warning",
                "its anonymous memory alone is above its memory.high, and it has no swap: it is "
                "throttled until it frees memory",
                facts.display_name(each.path),
                _throttling_evidence(each),
                _RAISE_LIMIT_FIX,
            )


def _cgroups_with_high(facts: NodeFacts) -> Iterator[_HighState]:
    for path, files in facts.cgroups.items():
        high, events = file_number(files, "memory.high"), _high_events(files)
        if high is None or events is None:
            continue
        later = facts.later.cgroups.get(path) if facts.later else None
        now = None if later is None else _high_events(later)
        rate = None
        if facts.later is not None and now is not None:
            rate = max(0, now - events) / facts.later.seconds
        some, full = _stall_shares(files, later, facts.later.seconds if facts.later else 0)
        latest = files if later is None else later
        pressure = latest.get("memory.pressure")
        yield _HighState(
            path=path,
            high=high,
            events=events if now is None else now,
            rate=rate,
            some=some,
            full=full,
            avg10=None if pressure is None else stall_of(pressure).full.avg10,
            cpu=_cpu_percent(files, later, facts.later.seconds if facts.later else 0),
            usage=file_number(files, "memory.current"),
            anon=parse_keyed(files.get("memory.stat", "")).get("anon"),
            may_swap=bool(facts.machine.swap) and file_number(files, "memory.swap.max") != 0,
        )


def _is_stuck(each: _HighState, facts: NodeFacts) -> bool:
    if _shows_old_livelock(each, facts):
        return True
    grows = each.rate is not None and each.rate >= _STUCK_EVENT_RATE
    waits = each.full is not None and each.full >= _STUCK_STALL_PERCENT
    return grows and waits and not each.may_swap and _is_mostly_anonymous(each)


def _is_stalled_near_high(each: _HighState) -> bool:
    """Whether its tasks wait for memory while usage is at memory.high."""
    is_near = each.usage is not None and each.usage >= _NEAR_HIGH * each.high
    return is_near and each.events > 0 and (each.avg10 or 0) > _THROTTLING_AVG10


def _shows_old_livelock(each: _HighState, facts: NodeFacts) -> bool:
    """The signs that KEP-2570 gives for kernels before 5.9."""
    return (
        old_kernel_risk(facts.machine.kernel) is not None
        and bool(each.rate)
        and each.avg10 is not None
        and each.avg10 > _LIVELOCK_AVG10
        and each.cpu is not None
        and each.cpu < _IDLE_CPU_PERCENT
    )


def _cpu_percent(files: Files, later: Files | None, seconds: float) -> float | None:
    """CPU time between two readings of cpu.stat, as percent of one CPU."""
    first = parse_keyed(files.get("cpu.stat", "")).get("usage_usec")
    second = parse_keyed((later or {}).get("cpu.stat", "")).get("usage_usec")
    if first is None or second is None or not seconds:
        return None
    return max(0, second - first) / (seconds * 10_000)


def _is_mostly_anonymous(each: _HighState) -> bool:
    return (
        bool(each.usage)
        and each.anon is not None
        and each.anon >= _MOSTLY_ANONYMOUS * (each.usage or 0)
    )


def _high_events(files: Files) -> int | None:
    """Of the cgroup itself: a container at its own limit is not one at its pod's."""
    text = files.get("memory.events.local", files.get("memory.events", ""))
    return parse_keyed(text).get("high")


def _stall_shares(
    files: Files, later: Files | None, seconds: float
) -> tuple[float | None, float | None]:
    if "memory.pressure" not in files:
        return None, None
    first = stall_of(files["memory.pressure"])
    if later is None or "memory.pressure" not in later:
        return first.some.avg10, first.full.avg10
    return _stall_percent(first, stall_of(later["memory.pressure"]), seconds)


def _stall_percent(first: Stall, second: Stall, seconds: float) -> tuple[float, float]:
    """Microseconds waited, as percent of the time between."""
    some, full = (
        min(100.0, max(0, after.total - before.total) / (seconds * 10_000))
        for before, after in ((first.some, second.some), (first.full, second.full))
    )
    return some, full


def _throttling_evidence(each: _HighState) -> tuple[str, ...]:
    rate = "" if each.rate is None else f", {each.rate:.1f} a second now"
    lines = [f"memory.events: high {each.events}{rate}"]
    if each.some is not None and each.full is not None:
        lines.append(f"memory.pressure: some {each.some:.0f}%, full {each.full:.0f}% of the time")
    if each.avg10 is not None and each.avg10 > _THROTTLING_AVG10:
        meaning = "a livelock" if each.avg10 > _LIVELOCK_AVG10 else "significant throttling"
        lines.append(f"memory.pressure: full avg10 {each.avg10:g}, by KEP-2570 a sign of {meaning}")
    if each.cpu is not None and each.cpu < _IDLE_CPU_PERCENT:
        lines.append(f"cpu.stat: {each.cpu:.1f}% of a CPU, though it runs")
    if each.usage is not None:
        lines.append(
            f"memory.current: {format_exact_bytes(each.usage)} of memory.high "
            f"{format_exact_bytes(each.high)}"
        )
    if each.anon is not None:
        swap = "with swap" if each.may_swap else "without swap"
        lines.append(f"anonymous: {format_exact_bytes(each.anon)}, {swap}")
    return tuple(lines)
