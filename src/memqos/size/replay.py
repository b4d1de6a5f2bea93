"""The past under other settings: when usage would have been throttled, protected or killed."""

from collections.abc import Sequence
from typing import Final

import msgspec

from memqos.size.history import is_usable

_DAY: Final = 86_400.0
_MAX_EPISODES: Final = 100
_GAP: Final = 600.0
"""Seconds without a sample, or three usual intervals if that is longer, after which nothing is
known. The flight recorder writes a level every five minutes at least."""


class ReplayLevels(msgspec.Struct, frozen=True, kw_only=True):
    """What a container's cgroup would have held; None where nothing is set."""

    protected: int = 0
    """memory.min or memory.low."""
    high: int | None = None
    max: int | None = None


class Episode(msgspec.Struct, frozen=True):
    """A time above a level, in seconds, and the most that was used."""

    start: float
    end: float
    peak: float


class Excess(msgspec.Struct, kw_only=True):
    """All times above one level."""

    seconds: float = 0.0
    count: int = 0
    days: int = 0
    episodes: list[Episode] = []
    """The first hundred."""


class ReplayResult(msgspec.Struct, frozen=True, kw_only=True):
    """What would have happened to one container."""

    levels: ReplayLevels
    seconds: float
    """How long its usage is known."""
    days: int
    """Days with samples."""
    throttled: Excess
    killed: Excess
    protected: float
    """Seconds in which all that it used was protected from reclaim."""


class Replay:
    """Counts samples of one series against levels."""

    def __init__(self, levels: ReplayLevels) -> None:
        self._levels = levels
        self._last: tuple[float, float] | None = None
        self._interval = 0.0
        self._seconds = self._protected = 0.0
        self._days: set[int] = set()
        self._throttled = _ExcessCounter(levels.high)
        self._killed = _ExcessCounter(levels.max, is_one_event=True)

    def add(self, times: Sequence[float], values: Sequence[float]) -> None:
        """Count samples in order; earlier ones than the last, and unusable ones, are skipped."""
        for at, value in zip(times, values, strict=True):
            if not is_usable(at, value):
                continue
            if self._last is not None:
                before, used = self._last
                if at <= before:
                    continue
                self._count(before, used, at - before)
            self._last = at, value

    def result(self) -> ReplayResult:
        """What was counted; the last sample lasts as long as the one before it."""
        if self._last is not None:
            self._count(*self._last, self._interval)
        return ReplayResult(
            levels=self._levels,
            seconds=self._seconds,
            days=len(self._days),
            throttled=self._throttled.result(),
            killed=self._killed.result(),
            protected=self._protected,
        )

    def _count(self, at: float, used: float, seconds: float) -> None:
        if not self._interval:
            self._interval = seconds
        is_gap = seconds > max(_GAP, 3 * self._interval)
        seconds = self._interval if is_gap else seconds
        self._seconds += seconds
        self._days.add(int(at // _DAY))
        if 0 < used <= self._levels.protected:
            self._protected += seconds
        # What is above the limit is killed, and not throttled any more.
        is_killed = self._levels.max is not None and used > self._levels.max
        self._killed.count(at, used, seconds, is_gap=is_gap)
        self._throttled.count(at, 0.0 if is_killed else used, seconds, is_gap=is_gap)


class _ExcessCounter:
    def __init__(self, level: int | None, *, is_one_event: bool = False) -> None:
        self._level = level
        self._is_one_event = is_one_event
        self._found = Excess(episodes=[])
        self._open: Episode | None = None
        self._days: set[int] = set()

    def count(self, at: float, used: float, seconds: float, *, is_gap: bool) -> None:
        if self._level is not None and used > self._level:
            self._found.seconds += seconds
            # A container is killed once, when its usage rises above the limit.
            if self._open is None or not self._is_one_event:
                self._days.add(int(at // _DAY))
            if self._open is None:
                self._open = Episode(at, at + seconds, used)
            else:
                peak = max(used, self._open.peak)
                self._open = Episode(self._open.start, at + seconds, peak)
            if not is_gap:
                return
        self._close()

    def result(self) -> Excess:
        self._close()
        self._found.days = len(self._days)
        return self._found

    def _close(self) -> None:
        if self._open is not None:
            self._found.count += 1
            if len(self._found.episodes) < _MAX_EPISODES:
                self._found.episodes.append(self._open)
            self._open = None
