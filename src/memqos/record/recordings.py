"""Recordings: the records of one container with times by the wall clock, and an index of them."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from memqos.plan.rules import HIGH_WIDENED
from memqos.record.format import (
    ClockRecord,
    FlightRecord,
    GapRecord,
    GuardRecord,
    LevelRecord,
    PressureRecord,
    Subject,
    ThrottleRecord,
    WriteRecord,
    decode_flight_records,
)
from memqos.units import format_bytes

_NOTED: Final = 1000
"""Milliseconds: a smaller change of the wall clock is not corrected."""
_CALENDAR: Final = range(-62_135_596_800_000, 253_402_300_800_000)
"""The years 1 to 9999."""


class Recording(msgspec.Struct, frozen=True):
    """All that is kept about one container, or about the node."""

    who: Subject
    records: tuple[FlightRecord, ...]
    damaged: int = 0


def to_wall_clock(found: Iterable[Recording | None]) -> Iterator[Recording]:
    """Recordings of one node, all times of a boot by its wall clock as last marked in that boot."""
    recordings = [each for each in found if each is not None]
    marks = [mark for each in recordings for mark in each.records if isinstance(mark, ClockRecord)]
    booted = {mark.boot: mark.wall - mark.up for mark in sorted(marks, key=lambda each: each.up)}
    for each in recordings:
        yield msgspec.structs.replace(each, records=tuple(_shift_times(each.records, booted)))


def _shift_times(
    records: Iterable[FlightRecord], booted: Mapping[str, int]
) -> Iterator[FlightRecord]:
    """The records by the wall clock, given when each boot was by it."""
    late = 0
    for record in records:
        if isinstance(record, ClockRecord):
            late = booted[record.boot] - (record.at - record.up) if record.boot else 0
            late = late if abs(late) > _NOTED else 0
            continue
        moved = {"at": record.at + late}
        if isinstance(record, ThrottleRecord | GapRecord):
            moved["since"] = record.since + late
        if all(time in _CALENDAR for time in moved.values()):
            yield msgspec.structs.replace(record, **moved) if late else record


def latest_recordings(recorded: Iterable[Recording]) -> list[Recording]:
    """Of pods of one name, one after another, the containers of the last."""
    by_uid: dict[str, list[Recording]] = {}
    for each in recorded:
        by_uid.setdefault(each.who.uid, []).append(each)
    last = max(by_uid.values(), key=lambda group: max(map(_last, group)), default=[])
    return sorted(last, key=lambda each: each.who.container)


def _last(recording: Recording) -> int:
    return max((record.at for record in recording.records), default=0)


def decode_recording(older: bytes, current: bytes) -> Recording | None:
    """The records of both halves of a file, clock marks included; None without a subject."""
    halves = decode_flight_records(older), decode_flight_records(current)
    who = next((half.who for half in reversed(halves) if half.who is not None), None)
    if who is None:
        return None
    records = tuple(record for half in halves for record in half.records)
    return Recording(who, records, sum(half.damaged for half in halves))


_NEAR: Final = 60_000
"""Milliseconds within which the node's state is taken to be that of a moment."""

SAME_END: Final = 15_000
"""Milliseconds within which two sources report the same end of a container, or the same change."""

_R = TypeVar("_R", bound=FlightRecord)


class RecordIndex:
    """Records by kind, and the state at a time."""

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

    def level_before(self, at: int) -> LevelRecord | None:
        """The last level before a time."""
        index = bisect_left(self._times, at)
        return self.levels[index - 1] if index else None

    def peak(self, since: int, until: int) -> int:
        return max([each.current for each in self.levels if since <= each.at <= until], default=0)

    def last_write(self, file: str, at: int) -> WriteRecord | None:
        """What last decided about a file before a time, the guard apart, where it is recorded."""
        return max(
            (
                each
                for each in self.records_of(WriteRecord)
                if each.file == file and each.at <= at and each.rule != HIGH_WIDENED.id
            ),
            key=lambda each: each.at,
            default=None,
        )

    def has_guard_step(self, since: int) -> bool:
        """Whether the guard acted from a time on."""
        return any(step.at >= since for step in self.records_of(GuardRecord))

    def is_guard_step(self, change: WriteRecord) -> bool:
        """Whether a value was written as a step of the guard; its last one is the plan's."""
        return change.file == "memory.high" and (
            change.rule == HIGH_WIDENED.id
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
    return "max" if amount is None else format_bytes(amount)
