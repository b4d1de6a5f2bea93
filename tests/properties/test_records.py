"""Whatever becomes of a file of records, what is whole in it can be read."""

from typing import get_args

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from memqos.draw.text.render import render
from memqos.draw.text.story import story_text
from memqos.record.format import (
    RECORDS_MAGIC,
    FlightRecord,
    Subject,
    decode_flight_records,
    encode_frame,
)
from memqos.record.readings import MemoryReading, ReadingHistory, RecordingRate, records_since
from memqos.record.recordings import Recording
from memqos.record.story import story_of

KINDS = [kind for kind in get_args(FlightRecord) if kind is not Subject]
AMOUNTS = st.integers(0, 1 << 50)


@st.composite
def records(draw: st.DrawFn) -> FlightRecord:
    """Any record, with any values that its fields can hold."""
    kind = draw(st.sampled_from(KINDS))
    values = {each.name: draw(_strategy(each.type)) for each in msgspec.structs.fields(kind)}
    record: FlightRecord = kind(**values)
    return record


def _strategy(hint: object) -> st.SearchStrategy[object]:
    if hint is int:
        return AMOUNTS
    if hint is bool:
        return st.booleans()
    if hint is str:
        return st.text(max_size=40)
    options = get_args(hint)
    if type(None) in options:
        return st.none() | AMOUNTS
    return st.sampled_from(options)


@given(st.lists(records(), max_size=20))
def test_what_is_written_is_read_again(written: list[FlightRecord]) -> None:
    data = (
        RECORDS_MAGIC
        + encode_frame(Subject(0, "a", "b", "c", "d"))
        + b"".join(map(encode_frame, written))
    )
    found = decode_flight_records(data)
    assert list(found.records) == written
    assert found.who == Subject(0, "a", "b", "c", "d")
    assert found.damaged == 0


@given(st.binary(max_size=2000))
def test_any_bytes_can_be_read(data: bytes) -> None:
    found = decode_flight_records(data)
    assert found.damaged <= len(data)


@given(st.lists(records(), min_size=2, max_size=10), st.data())
def test_damage_costs_only_what_it_touches(
    written: list[FlightRecord], data: st.DataObject
) -> None:
    frames = list(map(encode_frame, written))
    index = data.draw(st.integers(0, len(frames) - 1))
    hit = bytearray(frames[index])
    position = data.draw(st.integers(0, len(hit) - 1))
    hit[position] ^= data.draw(st.integers(1, 255))
    found = decode_flight_records(
        RECORDS_MAGIC + b"".join([*frames[:index], bytes(hit), *frames[index + 1 :]])
    )
    assert list(found.records) == [*written[:index], *written[index + 1 :]]


@given(st.lists(records(), max_size=30), st.lists(records(), max_size=5))
def test_a_story_can_be_reported_any_records(
    written: list[FlightRecord], of_node: list[FlightRecord]
) -> None:
    # Times of which calendars know.
    near = [msgspec.structs.replace(each, at=each.at % (1 << 42)) for each in written]
    recording = Recording(Subject(0, "a", "b", "c", "d"), tuple(map(_since_before, near)))
    story = story_of(recording, Recording(Subject(0), tuple(of_node)))
    assert "\n".join(render(story_text(story)))
    assert [chapter.at for chapter in story.chapters] == sorted(
        chapter.at for chapter in story.chapters
    )


def _since_before(record: FlightRecord) -> FlightRecord:
    if "since" in record.__struct_fields__:
        return msgspec.structs.replace(record, since=record.at)
    return record


readings = st.lists(
    st.builds(
        MemoryReading,
        at=st.integers(0, 10_000_000),
        current=AMOUNTS,
        anon=AMOUNTS,
        high=st.none() | AMOUNTS,
        max=st.none() | AMOUNTS,
        events=st.dictionaries(
            st.sampled_from(["low", "high", "max", "oom", "oom_kill"]), st.integers(0, 1000)
        ),
        full=AMOUNTS,
    ),
    max_size=40,
)


@given(readings)
def test_any_sequence_of_readings_can_be_recorded(given: list[MemoryReading]) -> None:
    memory = ReadingHistory()
    for reading in given:
        memory, noticed = records_since(memory, reading, RecordingRate())
        assert len(noticed) <= 8
        assert all(encode_frame(record) for record in noticed)
