"""Reads what a recorder has kept, in a folder of this node or of any other."""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from memqos.agent.recorder.files import CURRENT_SUFFIX, OLDER_SUFFIX, list_record_files
from memqos.agent.recorder.records import (
    ClockRecord,
    FlightRecord,
    GapRecord,
    Subject,
    ThrottleRecord,
    decode_flight_records,
)
from memqos.host import durable

_NOTED: Final = 1000
"""Milliseconds by which the wall clock must have been set to be made good."""
_CALENDAR: Final = range(-62_135_596_800_000, 253_402_300_800_000)
"""The years 1 to 9999."""
_LARGEST: Final = 64 << 20


class Recording(msgspec.Struct, frozen=True):
    """All that is kept about one container, or about the node."""

    who: Subject
    records: tuple[FlightRecord, ...]
    damaged: int = 0


def read_recordings(folder: str) -> Iterator[Recording]:
    """What is kept in a folder, by whatever process; files that make no sense are passed over."""
    yield from to_wall_clock(
        decode_recording(
            *[
                read_record_file(os.path.join(folder, name + suffix))
                for suffix in (OLDER_SUFFIX, CURRENT_SUFFIX)
            ]
        )
        for name in sorted({name for name, _ in list_record_files(folder)})
    )


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
    """What the two halves of a file say, marks of the clock included; None where not of whom."""
    halves = decode_flight_records(older), decode_flight_records(current)
    who = next((half.who for half in reversed(halves) if half.who is not None), None)
    if who is None:
        return None
    records = tuple(record for half in halves for record in half.records)
    return Recording(who, records, sum(half.damaged for half in halves))


def read_record_file(path: str) -> bytes:
    """What is in a file; nothing where there is none, or only a link or a pipe."""
    try:
        return durable.read_plain_file(path, _LARGEST)
    except OSError:
        return b""
