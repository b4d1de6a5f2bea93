"""What to record of a container: levels that change, throttling, what the kernel counted.

A container that is read every few seconds and does nothing leaves a record every five minutes.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from memqos.kernel.file_formats import events_of, memory_kinds, stall_of
from memqos.kernel.memory_usage import kernel_memory
from memqos.kernel.oom_report import OomReport
from memqos.plan.oom_kill import kill_order
from memqos.record.format import (
    CountRecord,
    FlightRecord,
    KillRecord,
    LevelRecord,
    MemoryEvent,
    ThrottleRecord,
    truncate_text,
)

RECORDED_FILES: Final = (
    "memory.current",
    "memory.events",
    "memory.events.local",
    "memory.stat",
    "memory.pressure",
    "memory.min",
    "memory.low",
    "memory.high",
    "memory.max",
    "memory.swap.current",
    "memory.swap.max",
)
"""What a reading is made of; of these only memory.current must be there."""

_AT_ONCE: Final[tuple[MemoryEvent, ...]] = ("oom", "oom_kill", "oom_group_kill")
_WITH_LEVELS: Final[tuple[MemoryEvent, ...]] = ("max", "low")
"""These may be counted a thousand times a second."""


class RecordingRate(msgspec.Struct, frozen=True):
    """How often levels are recorded. Times are in milliseconds."""

    at_most: int = 5_000
    at_least: int = 300_000
    change: float = 0.05
    """Share of its limit, or else of what it used, by which usage must have changed."""
    quiet: int = 30_000
    """Without a high event, after which an episode is over."""


class MemoryReading(msgspec.Struct, frozen=True, kw_only=True):
    """A container at one moment. Milliseconds, bytes, counters, microseconds."""

    at: int
    current: int
    anon: int = 0
    file: int = 0
    swap: int = 0
    swap_room: int = 0
    min: int = 0
    low: int = 0
    high: int | None = None
    max: int | None = None
    events: Mapping[str, int] = {}
    some: int = 0
    full: int = 0
    shmem: int = 0
    kernel: int | None = None
    inactive_file: int | None = None
    refaults: int | None = None
    """Pages of files that were read again soon after reclaim; None before Linux 5.9."""


class _Episode(msgspec.Struct, frozen=True):
    since: int
    last: int
    """When the last high event was seen."""
    events: int
    full: int


class ReadingHistory(msgspec.Struct, frozen=True):
    """What is remembered of a container between two readings."""

    last: MemoryReading | None = None
    recorded: MemoryReading | None = None
    """The reading that the last level was made of."""
    episode: _Episode | None = None


def reading_of(files: Mapping[str, str], at: int, swap_free: int = 0) -> MemoryReading | None:
    """A container as its files show it; None where its cgroup was removed."""
    current = files.get("memory.current", "")
    if not current.isdecimal():
        return None
    statistics = memory_kinds(files.get("memory.stat", ""))
    events = events_of(files.get("memory.events", ""))
    own = events_of(files.get("memory.events.local", ""))
    stall = stall_of(files.get("memory.pressure", ""))
    swap = _amount(files.get("memory.swap.current")) or 0
    swap_limit = _amount(files.get("memory.swap.max", "max"))
    swap_left = swap_free if swap_limit is None else max(0, min(swap_free, swap_limit - swap))
    return MemoryReading(
        at=at,
        current=int(current),
        # memory.stat counts tmpfs and shared memory in `file`, though only swap can take it
        # (cgroup-v2.rst): here it counts as anonymous.
        anon=statistics.get("anon", 0) + statistics.get("shmem", 0),
        file=statistics.get("file", 0) - statistics.get("shmem", 0),
        swap=swap,
        swap_room=swap_left,
        min=_amount(files.get("memory.min")) or 0,
        low=_amount(files.get("memory.low")) or 0,
        high=_amount(files.get("memory.high")),
        max=_amount(files.get("memory.max")),
        events={**events, "high": own["high"]} if "high" in own else events,
        some=stall.some.total,
        full=stall.full.total,
        shmem=statistics.get("shmem", 0),
        kernel=kernel_memory(statistics),
        inactive_file=statistics.get("inactive_file"),
        refaults=statistics.get("workingset_refault_file"),
    )


def records_since(
    memory: ReadingHistory, reading: MemoryReading, rate: RecordingRate
) -> tuple[ReadingHistory, list[FlightRecord]]:
    """What is to be recorded now, and what to remember."""
    last = memory.last
    if last is None or memory.recorded is None or reading.at <= last.at:
        return ReadingHistory(reading, reading), [_level_since(reading, reading)]
    records: list[FlightRecord] = []
    fatal = [
        CountRecord(reading.at, event, count)
        for event in _AT_ONCE
        if (count := _increase(event, last, reading))
    ]
    if fatal and last is not memory.recorded:
        # The state just before the kill, which no file shows any more.
        records.append(_level_since(memory.recorded, last))
        memory = msgspec.structs.replace(memory, recorded=last)
    episode, throttling = _episode(memory.episode, last, reading, rate)
    records += [*fatal, *throttling]
    assert memory.recorded is not None
    if fatal or throttling or _is_level_due(memory.recorded, reading, rate):
        records += [
            CountRecord(reading.at, event, count)
            for event in _WITH_LEVELS
            if (count := _increase(event, memory.recorded, reading))
        ]
        records.append(_level_since(memory.recorded, reading))
        return ReadingHistory(reading, reading, episode), records
    return ReadingHistory(reading, memory.recorded, episode), records


def final_records(memory: ReadingHistory) -> list[FlightRecord]:
    """What is still to be recorded of a container whose cgroup was removed."""
    last, recorded = memory.last, memory.recorded
    if last is None or recorded is None:
        return []
    records: list[FlightRecord] = [] if last is recorded else [_level_since(recorded, last)]
    if memory.episode is not None:
        records.append(_throttle_record(memory.episode, last, is_over=True))
    return records


def kill_record(report: OomReport, at: int, machine: int, page_size: int) -> KillRecord:
    """A kill as a record; `machine` is RAM and swap of the machine in bytes."""
    victim, statistics = report.victims[0], report.statistics
    total = machine
    if report.constraint == "memcg" and report.memory is not None and report.memory.limit:
        swap = 0 if report.swap is None or report.swap.limit is None else report.swap.limit
        total = report.memory.limit + swap
    order = kill_order(report.processes(page_size), total, page_size).kills
    ranks = {kill.victim.process.pid: rank for rank, kill in enumerate(order, 1)}
    points = {kill.victim.process.pid: kill.victim.points for kill in order}
    return KillRecord(
        at=at,
        comm=truncate_text(victim.comm),
        pid=victim.pid,
        constraint=report.constraint or "",
        oom_cgroup=truncate_text(report.oom_cgroup or ""),
        oom_score_adj=victim.oom_score_adj,
        points=points.get(victim.pid),
        rank=ranks.get(victim.pid),
        candidates=len(order),
        usage=None if report.memory is None else report.memory.usage,
        limit=None if report.memory is None else report.memory.limit,
        anon=victim.anon,
        file=victim.file,
        along=len(report.victims) - 1,
        total_anon=statistics.get("anon", statistics.get("rss")),
        total_file=statistics.get("file", statistics.get("cache")),
        total_shmem=statistics.get("shmem"),
        total_kernel=kernel_memory(statistics),
        inactive_file=statistics.get("inactive_file"),
    )


def _episode(
    episode: _Episode | None, last: MemoryReading, reading: MemoryReading, rate: RecordingRate
) -> tuple[_Episode | None, list[FlightRecord]]:
    events = _increase("high", last, reading)
    full = _share(last.full, reading.full, reading.at - last.at)
    if events:
        if episode is None:
            begun = _Episode(last.at, reading.at, events, full)
            return begun, [_throttle_record(begun, reading, is_over=False)]
        return _Episode(
            episode.since, reading.at, episode.events + events, max(episode.full, full)
        ), []
    if episode is not None and reading.at - episode.last >= rate.quiet:
        return None, [_throttle_record(episode, reading, is_over=True)]
    return episode, []


def _throttle_record(episode: _Episode, reading: MemoryReading, *, is_over: bool) -> ThrottleRecord:
    return ThrottleRecord(
        episode.last if is_over else reading.at,
        since=episode.since,
        is_over=is_over,
        events=episode.events,
        full=episode.full,
        high=reading.high or 0,
        anon=reading.anon,
        swap_room=reading.swap_room,
    )


def _is_level_due(recorded: MemoryReading, reading: MemoryReading, rate: RecordingRate) -> bool:
    waited = reading.at - recorded.at
    if waited >= rate.at_least or _values(recorded) != _values(reading):
        return True
    scale = reading.max or max(recorded.current, 1)
    return waited >= rate.at_most and abs(reading.current - recorded.current) >= rate.change * scale


def _values(reading: MemoryReading) -> tuple[int | None, ...]:
    return reading.min, reading.low, reading.high, reading.max


def level_of(reading: MemoryReading) -> LevelRecord:
    """One reading as a record; of the time before it nothing is known."""
    return LevelRecord(
        reading.at,
        current=reading.current,
        anon=reading.anon,
        file=reading.file,
        swap=reading.swap,
        min=reading.min,
        low=reading.low,
        high=reading.high,
        max=reading.max,
        shmem=reading.shmem,
        kernel=reading.kernel,
        inactive_file=reading.inactive_file,
    )


def _level_since(since: MemoryReading, reading: MemoryReading) -> LevelRecord:
    waited = reading.at - since.at
    return msgspec.structs.replace(
        level_of(reading),
        high_events=_increase("high", since, reading),
        some=_share(since.some, reading.some, waited),
        full=_share(since.full, reading.full, waited),
        refaults=_refaults_since(since, reading),
    )


def _refaults_since(since: MemoryReading, reading: MemoryReading) -> int | None:
    if since.refaults is None or reading.refaults is None:
        return None
    return max(0, reading.refaults - since.refaults)


def _increase(event: str, last: MemoryReading, reading: MemoryReading) -> int:
    return max(0, reading.events.get(event, 0) - last.events.get(event, 0))


def _share(before: int, after: int, milliseconds: int) -> int:
    """Microseconds of so many milliseconds, in thousandths."""
    return min(1000, max(0, after - before) // milliseconds) if milliseconds > 0 else 0


def _amount(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
