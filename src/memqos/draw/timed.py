"""A container's memory over time as values, and where on paper times and amounts lie."""

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from memqos.draw.scale import axis_to

TIMELINE_WIDTH: Final = 820
TIMELINE_MARGIN: Final = 20
TIMELINE_LEFT: Final = 74
TIMELINE_RIGHT: Final = 790
_PLOT_HEIGHT: Final = 260
_MINUTE: Final = 60_000

EpisodeKind = Literal["throttled", "gap"]
MarkKind = Literal["killed", "evicted", "guarded", "resized"]


class MemoryPoint(msgspec.Struct, frozen=True):
    """How things stood from a time on. Milliseconds, bytes; None is no limit."""

    at: int
    current: int
    min: int = 0
    low: int = 0
    high: int | None = None
    max: int | None = None


class Episode(msgspec.Struct, frozen=True):
    """An episode."""

    at: int
    until: int
    kind: EpisodeKind
    hint: str


class TimelineMark(msgspec.Struct, frozen=True):
    """Something that took no time."""

    at: int
    kind: MarkKind
    hint: str


class Timeline(msgspec.Struct, frozen=True):
    """What is drawn of one container."""

    title: str
    subtitle: str
    points: tuple[MemoryPoint, ...]
    episodes: tuple[Episode, ...] = ()
    marks: tuple[TimelineMark, ...] = ()


class TimelineFrame:
    """Where times and amounts are on paper."""

    def __init__(self, timeline: Timeline, top: float) -> None:
        times = [point.at for point in timeline.points] + [mark.at for mark in timeline.marks]
        times += [time for span in timeline.episodes for time in (span.at, span.until)]
        self.start, self.end = min(times, default=0), max(times, default=0)
        if self.start == self.end:
            # One look has no length, so it is taken to last.
            self.end += _MINUTE
        amounts = [value for point in timeline.points for value in _amounts(point)]
        self.axis = axis_to(max(amounts, default=0) * 21 // 20)
        self.top, self.bottom = top, top + _PLOT_HEIGHT

    def x(self, at: int) -> float:
        span = max(1, self.end - self.start)
        return (
            TIMELINE_LEFT
            + (TIMELINE_RIGHT - TIMELINE_LEFT)
            * (min(max(at, self.start), self.end) - self.start)
            / span
        )

    def y(self, amount: int) -> float:
        return self.bottom - _PLOT_HEIGHT * min(max(amount, 0), self.axis.end) / self.axis.end


def _amounts(point: MemoryPoint) -> Iterator[int]:
    yield from (point.current, point.min, point.low)
    yield from (value for value in (point.high, point.max) if value is not None)
