"""What the tellers of a story ask of the records: by kind, and how things stood at a time."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from memqos.agent.recorder.records import (
    FlightRecord,
    GuardRecord,
    LevelRecord,
    PressureRecord,
    Subject,
    WriteRecord,
)
from memqos.draw.scale import short_size

_NEAR: Final = 60_000
"""Milliseconds within which the node's state is taken to be that of a moment."""

SAME_END: Final = 15_000
"""Milliseconds within which two sources report the same end of a container, or the same change."""

GUARD_RULE: Final = "high/guard"
"""The rule of what the guard writes."""

_R = TypeVar("_R", bound=FlightRecord)


class RecordIndex:
    """Records by kind, and how things stood at a time."""

    def __init__(
        self, who: Subject, records: Sequence[FlightRecord], node: Iterable[FlightRecord]
    ) -> None:
        self.who = who
        self._records = records
        self.levels = self.records_of(LevelRecord)
        self._times = [level.at for level in self.levels]
        self.node_pressure = [record for record in node if isinstance(record, PressureRecord)]

    def records_of(self, kind: type[_R]) -> list[_R]:
        return [record for record in self._records if isinstance(record, kind)]

    def level_at(self, at: int) -> LevelRecord | None:
        """The last level before a time, or else the first after it."""
        if not self.levels:
            return None
        return self.levels[max(0, bisect_right(self._times, at) - 1)]

    def peak(self, since: int, until: int) -> int:
        return max([each.current for each in self.levels if since <= each.at <= until], default=0)

    def last_write(self, file: str, at: int) -> WriteRecord | None:
        """What last decided about a file before a time, the guard apart, where it is recorded."""
        return max(
            (
                each
                for each in self.records_of(WriteRecord)
                if each.file == file and each.at <= at and each.rule != GUARD_RULE
            ),
            key=lambda each: each.at,
            default=None,
        )

    def has_guard_step(self, since: int) -> bool:
        """Whether the guard was there from a time on."""
        return any(step.at >= since for step in self.records_of(GuardRecord))

    def is_guard_step(self, change: WriteRecord) -> bool:
        """Whether a value was written as a step of the guard; its last one is the plan's."""
        return change.file == "memory.high" and (
            change.rule == GUARD_RULE
            or any(
                step.at <= change.at <= step.at + _NEAR
                and change.new == ("max" if step.new is None else str(step.new))
                for step in self.records_of(GuardRecord)
            )
        )

    def node_at(self, at: int) -> PressureRecord | None:
        near = [each for each in self.node_pressure if abs(each.at - at) <= _NEAR]
        return min(near, key=lambda each: each.available, default=None)


def size_of(amount: int | None) -> str:
    """Bytes for people; None is `max`."""
    return "max" if amount is None else short_size(amount)


def duration_words(milliseconds: int) -> str:
    """A stretch of time for people."""
    seconds = round(milliseconds / 1000)
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
