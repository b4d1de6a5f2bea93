"""The flight recorder: bounded, whole after a power cut, and not in the way of anything."""

import errno
import gc
import os
import stat
import subprocess
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.node import memory_folder

from memqos.host.record_clock import RecordClock
from memqos.host.record_files import RecordBounds, RecordWriter, read_recordings
from memqos.record.format import (
    MAX_PAYLOAD,
    RECORDS_MAGIC,
    ClockRecord,
    CountRecord,
    FlightRecord,
    GapRecord,
    LevelRecord,
    Subject,
    ThrottleRecord,
    WriteRecord,
    decode_flight_records,
    encode_frame,
    record_file_name,
)
from memqos.record.recordings import Recording

WEB = Subject(0, "shop", "web-1", "uid-1", "app")
NODE = Subject(0)
MI = 1 << 20


class Time:
    """Both clocks of a machine; the wall's can be set."""

    def __init__(self, boot: str = "a-boot") -> None:
        self.boot = boot
        self.now = 1000.0
        """Seconds since the boot."""
        self.booted = 1_700_000_000.0
        """By the wall clock."""

    def clock(self) -> RecordClock:
        return RecordClock(self.boot, uptime=lambda: self.now, wall=lambda: self.booted + self.now)


def level(number: int) -> LevelRecord:
    return LevelRecord(number * 1000, current=number * MI)


def kept(folder: Path, who: Subject = WEB) -> tuple[FlightRecord, ...]:
    found = [
        recording for recording in read_recordings(str(folder)) if recording.who.key == who.key
    ]
    return found[0].records if found else ()


@pytest.fixture
def recorder(tmp_path: Path) -> RecordWriter:
    return RecordWriter(str(tmp_path / "records"))


@pytest.fixture
def folder(recorder: RecordWriter) -> Path:
    return Path(recorder.folder)


def test_what_was_noted_can_be_read_by_another_process(
    recorder: RecordWriter, folder: Path
) -> None:
    recorder.add(WEB, level(1), CountRecord(1500, "oom_kill"))
    recorder.add(NODE, level(2))
    recorder.flush()
    recorder.add(WEB, level(3))
    recorder.flush()
    assert kept(folder) == (level(1), CountRecord(1500, "oom_kill"), level(3))
    assert kept(folder, NODE) == (level(2),)


def test_nothing_is_written_before_it_is_flushed(recorder: RecordWriter, folder: Path) -> None:
    recorder.add(WEB, level(1))
    assert not folder.exists()


def test_a_record_outlives_its_cgroup_and_its_agent(recorder: RecordWriter, folder: Path) -> None:
    recorder.add(WEB, level(1))
    recorder.flush()
    again = RecordWriter(str(folder))
    again.add(WEB, level(2))
    again.flush()
    assert kept(folder) == (level(1), level(2))


def test_a_file_never_grows_past_its_bound_and_keeps_the_latest(tmp_path: Path) -> None:
    recorder = RecordWriter(str(tmp_path), RecordBounds(bytes_each=8192))
    for number in range(2000):
        recorder.add(WEB, level(number))
        recorder.flush()
        sizes = [file.stat().st_size for file in tmp_path.iterdir()]
        assert sum(sizes) <= 8192
    found = kept(tmp_path)
    assert found[-1] == level(1999)
    assert len(found) > 60
    assert list(found) == [level(number) for number in range(2000 - len(found), 2000)]


def test_more_than_a_file_holds_at_once_leaves_the_latest(tmp_path: Path) -> None:
    recorder = RecordWriter(str(tmp_path), RecordBounds(bytes_each=8192))
    recorder.add(WEB, *[level(number) for number in range(2000)])
    recorder.flush()
    assert kept(tmp_path)[-1] == level(1999)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 8192


def test_there_are_never_more_files_than_containers_allowed(tmp_path: Path) -> None:
    time = Time()
    recorder = RecordWriter(str(tmp_path), RecordBounds(containers=10), clock=time.clock())
    for number in range(30):
        time.now += 60
        who = Subject(0, "shop", f"web-{number}", f"uid-{number}", "app")
        recorder.add(who, level(number))
        recorder.flush()
    pods = {recording.who.pod for recording in read_recordings(str(tmp_path))}
    assert len(pods) <= 11
    assert "web-29" in pods
    recorder.prune()
    assert len(list(read_recordings(str(tmp_path)))) == 10


def test_containers_whose_files_are_removed_take_no_memory() -> None:
    time = Time()
    with memory_folder() as folder:
        recorder = RecordWriter(str(folder), RecordBounds(containers=10), clock=time.clock())

        def memory_after(numbers: range) -> int:
            for number in numbers:
                time.now += 60
                recorder.add(Subject(0, "shop", f"web-{number}", f"uid-{number}", "app"), level(1))
                recorder.flush()
            gc.collect()
            own = tracemalloc.Filter(True, "*/memqos/agent/recorder/*")
            traces = tracemalloc.take_snapshot().filter_traces([own]).traces
            return sum(trace.size for trace in traces)

        tracemalloc.start()
        try:
            before, after = memory_after(range(500)), memory_after(range(500, 1000))
        finally:
            tracemalloc.stop()
    # A name alone has 81 bytes.
    assert after - before < 32 * 500


def test_the_long_gone_are_forgotten_and_the_living_are_not(tmp_path: Path) -> None:
    time = Time()
    recorder = RecordWriter(str(tmp_path), RecordBounds(days=7), clock=time.clock())
    recorder.add(WEB, level(1))
    recorder.add(NODE, level(1))
    recorder.flush()
    time.now += 8 * 86_400
    recorder.prune(running=[WEB])
    assert [recording.who for recording in read_recordings(str(tmp_path))] == [WEB]


class TestTheWallClock:
    """It may be set by days, forward and back; what is decided goes by time that has passed."""

    def at(self, time: Time) -> LevelRecord:
        return LevelRecord(int((time.booted + time.now) * 1000), current=MI)

    def test_set_forward_costs_nobody_their_records(self, tmp_path: Path) -> None:
        time = Time()
        recorder = RecordWriter(str(tmp_path), RecordBounds(days=7), clock=time.clock())
        gone, new = Subject(0, "a", "gone", "u1", "c"), Subject(0, "a", "new", "u2", "c")
        for who in (WEB, gone, NODE):
            recorder.add(who, level(1))
        recorder.flush()
        recorder.prune([WEB, NODE])
        time.booted += 8 * 86_400
        time.now += 60
        recorder.add(new, level(2))
        recorder.flush()
        recorder.prune([WEB, NODE, new])
        assert {each.who for each in read_recordings(str(tmp_path))} == {WEB, gone, NODE, new}
        time.now += 8 * 86_400
        recorder.prune([WEB, NODE])
        assert {each.who for each in read_recordings(str(tmp_path))} == {WEB, NODE}

    def test_wrong_at_the_start_costs_nobody_their_records(self, tmp_path: Path) -> None:
        time = Time()
        recorder = RecordWriter(str(tmp_path), RecordBounds(days=7), clock=time.clock())
        recorder.add(WEB, level(1))
        recorder.flush()
        recorder.prune()
        for boot in ("a-boot", "another", "a-third"):
            time.boot = boot
            time.booted += 30 * 86_400
            time.now = 2000.0 if boot == "a-boot" else 2 * 86_400.0
            later = RecordWriter(str(tmp_path), RecordBounds(days=7), clock=time.clock())
            later.prune()
            assert [each.who for each in read_recordings(str(tmp_path))] == [WEB]
        time.now += 5 * 86_400
        later.prune()
        assert list(read_recordings(str(tmp_path))) == []

    def test_set_back_does_not_stop_a_disk_from_being_tried_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(handle: int, data: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        time = Time()
        recorder = RecordWriter(str(tmp_path), clock=time.clock())
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", full)
            recorder.add(WEB, level(1))
            recorder.flush()
        time.booted -= 3600
        time.now += 60
        recorder.flush()
        assert recorder.fault is None
        assert [type(record) for record in kept(tmp_path)] == [GapRecord, LevelRecord]

    @pytest.mark.parametrize("set_by", [-3600, 8 * 86_400])
    def test_is_shown_as_it_was_last_seen_to_go(self, tmp_path: Path, set_by: int) -> None:
        time = Time()
        clock = time.clock()
        recorder = RecordWriter(str(tmp_path), clock=clock)
        gone = Subject(0, "a", "gone", "u1", "c")
        for who in (WEB, gone):
            recorder.add(who, LevelRecord(int(clock() * 1000), current=MI))
            recorder.add(who, ThrottleRecord(int(clock() * 1000), since=int(clock() * 1000) - 500))
        recorder.flush()
        first = self.at(time).at
        time.booted += set_by
        time.now += 60
        recorder.add(WEB, LevelRecord(int(clock() * 1000), current=2 * MI))
        recorder.flush()
        shift = set_by * 1000
        assert [each.at for each in kept(tmp_path)] == [first + shift] * 2 + [
            first + shift + 60_000
        ]
        level, throttled = kept(tmp_path, gone)
        assert isinstance(throttled, ThrottleRecord)
        assert (level.at, throttled.at - throttled.since) == (first + shift, 500)

    def test_of_another_boot_changes_nothing(self, tmp_path: Path) -> None:
        time = Time()
        for boot in ("one", "two"):
            time.boot = boot
            clock = time.clock()
            recorder = RecordWriter(str(tmp_path), clock=clock)
            recorder.add(WEB, LevelRecord(int(clock() * 1000), current=MI))
            recorder.flush()
            time.booted += 3600
        assert [each.at for each in kept(tmp_path)] == [
            1_700_001_000_000,
            1_700_001_000_000 + 3_600_000,
        ]

    def test_is_marked_only_where_it_was_set(self, tmp_path: Path) -> None:
        time = Time()
        clock = time.clock()
        recorder = RecordWriter(str(tmp_path), clock=clock)
        for _ in range(100):
            time.now += 60
            time.booted += 0.001
            recorder.add(WEB, LevelRecord(int(clock() * 1000), current=MI))
            recorder.flush()
        marks = [
            each
            for file in tmp_path.glob("*.records")
            for each in decode_flight_records(file.read_bytes()).records
            if isinstance(each, ClockRecord)
        ]
        assert len(marks) == 1

    def test_was_trusted_by_older_recorders_whose_files_are_as_they_were(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / f"{record_file_name(WEB)}.older").write_bytes(
            RECORDS_MAGIC + encode_frame(WEB) + encode_frame(level(1))
        )
        (tmp_path / f"{record_file_name(WEB)}.records").write_bytes(
            RECORDS_MAGIC + encode_frame(WEB) + encode_frame(level(2))
        )
        recorder = RecordWriter(str(tmp_path), clock=Time().clock())
        recorder.add(WEB, level(3))
        recorder.flush()
        recorder.prune()
        assert kept(tmp_path) == (level(1), level(2), level(3))

    def test_out_of_any_calendar_is_skipped(self, tmp_path: Path) -> None:
        mark = encode_frame(ClockRecord(0, "b", 0, 1 << 62))
        (tmp_path / f"{record_file_name(WEB)}.records").write_bytes(
            RECORDS_MAGIC
            + encode_frame(WEB)
            + encode_frame(level(1))
            + encode_frame(LevelRecord(1 << 62))
            + mark
            + encode_frame(level(2))
        )
        assert kept(tmp_path) == (level(1),)

    @pytest.mark.parametrize(
        "junk", [b"", b"{", b'{"touched": 1}', b"[]", b"\xff", b'{"boot":"\xff"}']
    )
    def test_ages_that_make_no_sense_are_none(self, tmp_path: Path, junk: bytes) -> None:
        (tmp_path / "ages").write_bytes(junk)
        recorder = RecordWriter(str(tmp_path), clock=Time().clock())
        recorder.add(WEB, level(1))
        recorder.flush()
        recorder.prune()
        assert kept(tmp_path) == (level(1),)
        assert b'"boot":"a-boot"' in (tmp_path / "ages").read_bytes()


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", ".", "x" * 5000, "ü\0\n", ""])
def test_a_name_never_becomes_part_of_a_path(
    name: str, recorder: RecordWriter, folder: Path
) -> None:
    recorder.add(Subject(0, name, name or "pod", name, name), level(1))
    recorder.flush()
    written = [path for path in folder.parent.rglob("*") if path.is_file()]
    assert all(path.parent == folder for path in written)
    assert all(path.stem.isalnum() for path in written)


def test_pods_of_one_name_after_another_have_files_of_their_own() -> None:
    later = Subject(0, "shop", "web-1", "uid-2", "app")
    assert record_file_name(later) != record_file_name(WEB)
    assert record_file_name(Subject(0, "a", "b", "c", "d")) != record_file_name(
        Subject(0, "a", "b\0c", "", "d")
    )


def test_only_the_owner_can_read_the_records(recorder: RecordWriter, folder: Path) -> None:
    recorder.add(WEB, level(1))
    recorder.flush()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}


def test_a_folder_that_others_can_write_to_is_not_used(
    recorder: RecordWriter, folder: Path
) -> None:
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    recorder.add(WEB, level(1))
    recorder.flush()
    assert recorder.fault is not None
    assert list(folder.iterdir()) == []


def test_a_link_laid_in_the_way_is_not_followed(
    recorder: RecordWriter, folder: Path, tmp_path: Path
) -> None:
    folder.mkdir(mode=0o700)
    target = tmp_path / "precious"
    target.write_text("precious")
    (folder / f"{record_file_name(WEB)}.records").symlink_to(target)
    recorder.add(WEB, level(1))
    recorder.flush()
    assert recorder.fault is not None
    assert target.read_text() == "precious"


def test_a_pipe_laid_in_the_way_blocks_nobody(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    for name in ("ages", f"{record_file_name(WEB)}.records", f"{record_file_name(WEB)}.older"):
        os.mkfifo(folder / name)
    recorder = RecordWriter(str(folder))
    recorder.add(WEB, level(1))
    recorder.flush()
    assert recorder.fault is not None
    assert kept(folder) == ()


# Power cuts and damage


def whole(number: int) -> tuple[bytes, list[FlightRecord]]:
    records: list[FlightRecord] = [level(each) for each in range(number)]
    return RECORDS_MAGIC + encode_frame(WEB) + b"".join(map(encode_frame, records)), records


def test_cut_off_anywhere_a_file_says_all_that_was_whole_before() -> None:
    data, records = whole(20)
    ends = [len(RECORDS_MAGIC + encode_frame(WEB))]
    for record in records:
        ends.append(ends[-1] + len(encode_frame(record)))
    for cut in range(len(data) + 1):
        found = decode_flight_records(data[:cut])
        assert list(found.records) == records[: max(0, sum(end <= cut for end in ends) - 1)]


def test_what_follows_a_torn_record_is_read_as_well() -> None:
    data, records = whole(20)
    for cut in range(len(RECORDS_MAGIC), len(data), 7):
        after = [level(100), level(101)]
        found = decode_flight_records(data[:cut] + b"".join(map(encode_frame, after)))
        assert list(found.records[-2:]) == after
        assert all(record in [*records, *after] for record in found.records)


@pytest.mark.parametrize("junk", [b"\0" * 4096, b"\xa5Q" * 999, b"\xff" * 100, RECORDS_MAGIC])
def test_junk_costs_no_record(junk: bytes) -> None:
    data, records = whole(3)
    assert list(decode_flight_records(data + junk + encode_frame(level(9))).records) == [
        *records,
        level(9),
    ]


def test_a_flipped_bit_costs_the_record_it_is_in() -> None:
    data, records = whole(10)
    start = len(RECORDS_MAGIC + encode_frame(WEB))
    for position in range(start, len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        found = decode_flight_records(bytes(damaged))
        assert len(found.records) >= len(records) - 1
        assert found.damaged > 0


def test_a_record_of_a_newer_memqos_is_skipped() -> None:
    import struct
    import zlib

    payload = b"\x92\xa1z\x01"
    data, records = whole(2)
    data += struct.pack("<2sHI", b"\xa5Q", len(payload), zlib.crc32(payload)) + payload
    assert list(decode_flight_records(data).records) == records
    assert decode_flight_records(data).damaged == 0


def test_a_record_too_long_is_excluded(recorder: RecordWriter) -> None:
    recorder.add(WEB, WriteRecord(0, says="x" * (MAX_PAYLOAD + 1)), level(1))
    assert recorder.lost == 1


_CHANGES = ("open", "write", "ftruncate", "fdatasync", "fsync", "replace")


class _PowerCut(BaseException):
    pass


@pytest.mark.parametrize("moment", range(60))
def test_power_cut_at_any_call_loses_what_was_not_flushed_and_nothing_else(
    moment: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of each write that was going on gets through."""
    bounds = RecordBounds(bytes_each=600)
    recorder = RecordWriter(str(tmp_path), bounds)
    recorder.add(WEB, level(0))
    recorder.flush()
    flushed, count = 0, 0

    def cut(name: str, *arguments: object) -> None:
        nonlocal count
        count += 1
        if count == moment + 1:
            if name == "write":
                handle, data = arguments
                real_write(handle, bytes(data)[: len(bytes(data)) // 2])  # type: ignore[arg-type, call-overload]
            raise _PowerCut

    real_write = os.write
    with monkeypatch.context() as patched:
        for name in _CHANGES:
            real = getattr(os, name)

            def watched(
                *arguments: object, _real: object = real, _name: str = name, **more: object
            ) -> object:
                cut(_name, *arguments)
                return _real(*arguments, **more)  # type: ignore[operator]

            patched.setattr(os, name, watched)
        try:
            for number in range(1, 40):
                recorder.add(WEB, level(number))
                recorder.flush()
                flushed = number
        except _PowerCut:
            pass
    found = [record.current // MI for record in kept(tmp_path) if isinstance(record, LevelRecord)]
    assert found[-1] in (flushed, flushed + 1)
    assert found == list(range(found[0], found[-1] + 1))
    # A new agent goes on where the old one was cut off.
    again = RecordWriter(str(tmp_path), bounds)
    again.add(WEB, level(99))
    again.flush()
    assert kept(tmp_path)[-1] == level(99)
    assert len(kept(tmp_path)) > 1


# Full disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir(mode=0o700)
    mounting = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "tmpfs", str(disk)]
    try:
        mounted = subprocess.run(mounting, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("only root can mount a small disk; the full disk that is faked is tested too")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_stops_recording_and_nothing_else(small_disk: Path) -> None:
    time = Time()
    recorder = RecordWriter(str(small_disk), clock=time.clock())
    recorder.add(WEB, level(1))
    recorder.flush()
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space"):
        filler.write_bytes(b"x" * (1 << 20))
    for _ in range(5):
        recorder.add(WEB, *[level(each) for each in range(100)])
        recorder.flush()
        time.now += 1
    assert "No space" in str(recorder.fault)
    filler.unlink()
    time.now += 60
    recorder.flush()
    found = kept(small_disk)
    assert found[0] == level(1)
    assert any(isinstance(record, GapRecord) and "No space" in record.why for record in found)
    assert found[-1] == level(99)


def test_a_gap_is_told_to_everybody_who_is_heard_of_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int, data: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    time = Time()
    recorder = RecordWriter(str(tmp_path), clock=time.clock())
    other = Subject(0, "shop", "db-0", "u2", "pg")
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        for who in (WEB, other):
            recorder.add(who, level(1))
        recorder.flush()
    time.now += 60
    recorder.flush()
    for each in read_recordings(str(tmp_path)):
        gap, *rest = each.records
        assert isinstance(gap, GapRecord)
        assert gap.at - gap.since == 60_000
        assert rest == [level(1)]


def test_a_disk_that_is_full_is_not_tried_over_and_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    time, tries = Time(), 0

    def full(handle: int, data: object) -> int:
        nonlocal tries
        tries += 1
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    recorder = RecordWriter(str(tmp_path), RecordBounds(waiting=4096), clock=time.clock())
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        for number in range(600):
            recorder.add(WEB, level(number))
            recorder.flush()
            time.now += 0.1
    assert 1 < tries < 10
    assert recorder.lost > 0
    time.now += 60
    recorder.flush()
    first, *rest = kept(tmp_path)
    assert isinstance(first, GapRecord)
    assert first.lost == recorder.lost
    assert rest[0] == level(0)


def test_a_disk_that_has_gone_is_no_reason_to_fail(tmp_path: Path) -> None:
    recorder = RecordWriter(str(tmp_path / "file" / "records"))
    (tmp_path / "file").write_text("in the way")
    recorder.add(WEB, level(1))
    recorder.flush()
    recorder.prune()
    assert recorder.fault is not None


def test_reading_passes_over_what_is_no_recording(tmp_path: Path) -> None:
    (tmp_path / "a.records").write_bytes(b"nonsense")
    (tmp_path / "b.txt").write_text("text")
    (tmp_path / "c.records").mkdir()
    assert list(read_recordings(str(tmp_path))) == []
    assert list(read_recordings(str(tmp_path / "missing"))) == []
    data, records = whole(2)
    (tmp_path / "d.records").write_bytes(data + b"torn")
    assert list(read_recordings(str(tmp_path))) == [Recording(WEB, tuple(records), 4)]
