"""A container's memory by its kinds, before a kill and now, and what the usual gauges leave out."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from memqos.kernel.memory_usage import MemoryUsage, usage_of, working_set_of
from memqos.record.format import CountRecord, KillRecord, LevelRecord
from memqos.record.recordings import Recording
from memqos.units import format_bytes

_NOTICED: Final = 0.05
"""Share of the limit by which a gauge must be below it to be mentioned."""


class UsageMoment(NamedTuple):
    """The readings of a container at one moment."""

    when: str
    at: int | None
    """Milliseconds since 1970; None for now."""
    usage: MemoryUsage


def level_usage(level: LevelRecord) -> MemoryUsage:
    """The readings at a level; those that an older agent did not record are None."""
    return MemoryUsage(
        usage=level.current,
        working_set=working_set_of(level.current, level.inactive_file),
        rss=max(0, level.anon - level.shmem),
        cache=level.file + level.shmem,
        tmpfs=level.shmem,
        kernel=level.kernel,
        swap=level.swap,
    )


def kill_usage(kill: KillRecord) -> MemoryUsage:
    """The readings of the cgroup whose memory had run out, as the kernel has logged them."""
    return MemoryUsage(
        usage=kill.usage,
        working_set=working_set_of(kill.usage, kill.inactive_file),
        rss=kill.total_anon,
        cache=kill.total_file,
        tmpfs=kill.total_shmem,
        kernel=kill.total_kernel,
    )


def describe_kinds(usage: MemoryUsage) -> str:
    """What was in use by its kinds; empty where that is not known."""
    if usage.rss is None:
        return ""
    cache = usage.cache
    if cache is not None and usage.tmpfs is not None:
        cache = max(0, cache - usage.tmpfs)
    kinds = (
        (usage.rss, "anonymous"),
        (cache, "page cache"),
        (usage.tmpfs, "tmpfs"),
        (usage.kernel, "kernel memory"),
    )
    return ", ".join(
        f"{format_bytes(amount)} {name}" for amount, name in kinds if amount is not None
    )


def gauge_evidence(usage: MemoryUsage, limit: int | None) -> Iterator[str]:
    """What the usual gauges leave out, where they stay below a limit that was reached."""
    if limit is None or usage.rss is None:
        return
    shown = usage.working_set
    if shown is not None and usage.usage is not None and shown < (1 - _NOTICED) * limit:
        yield (
            f"the working set, which kubectl top shows, was {format_bytes(shown)}: it does not "
            f"count {format_bytes(usage.usage - shown)} of inactive page cache"
        )
    if usage.rss < (1 - _NOTICED) * limit:
        parts = [
            f"{format_bytes(amount)} of {name}"
            for amount, name in (
                (max(0, (usage.cache or 0) - (usage.tmpfs or 0)), "page cache"),
                (usage.tmpfs or 0, "tmpfs"),
                (usage.kernel or 0, "kernel memory"),
                (_rest(usage), "other memory, such as network buffers"),
            )
            if amount >= _NOTICED / 5 * limit
        ]
        if parts:
            yield (
                f"RSS was {format_bytes(usage.rss)}: it does not count {', '.join(parts)}, all of "
                "which counts towards the limit"
            )


def _rest(usage: MemoryUsage) -> int:
    """What of the usage has no name of its own: memory.stat counts `sock` outside `kernel`."""
    known = (usage.rss, usage.cache, usage.kernel)
    if usage.usage is None or None in known:
        return 0
    return max(0, usage.usage - sum(each or 0 for each in known))


def usage_moments(
    recording: Recording | None, files: Mapping[str, str] | None
) -> tuple[UsageMoment, ...]:
    """The readings before the last kill, and now; else those of the last record."""
    moments: list[UsageMoment] = []
    records = () if recording is None else recording.records
    levels = [each for each in records if isinstance(each, LevelRecord)]
    kills = [
        each.at
        for each in records
        if isinstance(each, KillRecord)
        or (isinstance(each, CountRecord) and each.event == "oom_kill")
    ]
    before = [each for each in levels if kills and each.at < max(kills)]
    if before:
        moments.append(UsageMoment("before the kill", before[-1].at, level_usage(before[-1])))
    if files:
        moments.append(UsageMoment("now", None, usage_of(files)))
    elif levels:
        moments.append(UsageMoment("last recorded", levels[-1].at, level_usage(levels[-1])))
    return tuple(moments)
