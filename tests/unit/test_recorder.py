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

from memqos.agent.recorder.clock import Clock
from memqos.agent.recorder.files import Bounds, Recorder, name_of
from memqos.agent.recorder.reading import Recording, recordings
from memqos.agent.recorder.records import (
    LONGEST,
    MAGIC,
    Changed,
    Counted,
    Dated,
    Level,
    Paused,
    Record,
    Throttled,
    Who,
    decode,
    frame,
)

WEB = Who(0, "shop", "web-1", "uid-1", "app")
NODE = Who(0)
MI = 1 << 20


class Time:
    """Both clocks of a machine; the wall's can be set."""

    def __init__(self, boot: str = "a-boot") -> None:
        self.boot = boot
        self.now = 1000.0
        """Seconds since the boot."""
        self.booted = 1_700_000_000.0
        """By the wall clock."""

    def clock(self) -> Clock:
        return Clock(self.boot, up=lambda: self.now, wall=lambda: self.booted + self.now)


def level(number: int) -> Level:
    return Level(number * 1000, number * MI)


def kept(folder: Path, who: Who = WEB) -> tuple[Record, ...]:
    found = [recording for recording in recordings(str(folder)) if recording.who.key == who.key]
    return found[0].records if found else ()


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(str(tmp_path / "records"))


@pytest.fixture
def folder(recorder: Recorder) -> Path:
    return Path(recorder.folder)


def test_what_was_noted_can_be_read_by_another_process(recorder: Recorder, folder: Path) -> None:
    recorder.note(WEB, level(1), Counted(1500, "oom_kill"))
    recorder.note(NODE, level(2))
    recorder.flush()
    recorder.note(WEB, level(3))
    recorder.flush()
    assert kept(folder) == (level(1), Counted(1500, "oom_kill"), level(3))
    assert kept(folder, NODE) == (level(2),)


def test_nothing_is_written_before_it_is_flushed(recorder: Recorder, folder: Path) -> None:
    recorder.note(WEB, level(1))
    assert not folder.exists()


def test_a_record_outlives_its_cgroup_and_its_agent(recorder: Recorder, folder: Path) -> None:
    recorder.note(WEB, level(1))
    recorder.flush()
    again = Recorder(str(folder))
    again.note(WEB, level(2))
    again.flush()
    assert kept(folder) == (level(1), level(2))


def test_a_file_never_grows_past_its_bound_and_keeps_the_latest(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path), Bounds(bytes_each=8192))
    for number in range(2000):
        recorder.note(WEB, level(number))
        recorder.flush()
        sizes = [file.stat().st_size for file in tmp_path.iterdir()]
        assert sum(sizes) <= 8192
    found = kept(tmp_path)
    assert found[-1] == level(1999)
    assert len(found) > 60
    assert list(found) == [level(number) for number in range(2000 - len(found), 2000)]


def test_more_than_a_file_holds_at_once_leaves_the_latest(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path), Bounds(bytes_each=8192))
    recorder.note(WEB, *[level(number) for number in range(2000)])
    recorder.flush()
    assert kept(tmp_path)[-1] == level(1999)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 8192


def test_there_are_never_more_files_than_containers_allowed(tmp_path: Path) -> None:
    time = Time()
    recorder = Recorder(str(tmp_path), Bounds(containers=10), clock=time.clock())
    for number in range(30):
        time.now += 60
        who = Who(0, "shop", f"web-{number}", f"uid-{number}", "app")
        recorder.note(who, level(number))
        recorder.flush()
    pods = {recording.who.pod for recording in recordings(str(tmp_path))}
    assert len(pods) <= 11
    assert "web-29" in pods
    recorder.prune()
    assert len(list(recordings(str(tmp_path)))) == 10


def test_containers_whose_files_are_removed_take_no_memory() -> None:
    time = Time()
    with memory_folder() as folder:
        recorder = Recorder(str(folder), Bounds(containers=10), clock=time.clock())

        def memory_after(numbers: range) -> int:
            for number in numbers:
                time.now += 60
                recorder.note(Who(0, "shop", f"web-{number}", f"uid-{number}", "app"), level(1))
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
    recorder = Recorder(str(tmp_path), Bounds(days=7), clock=time.clock())
    recorder.note(WEB, level(1))
    recorder.note(NODE, level(1))
    recorder.flush()
    time.now += 8 * 86_400
    recorder.prune(living=[WEB])
    assert [recording.who for recording in recordings(str(tmp_path))] == [WEB]


class TestTheWallClock:
    """It may be set by days, forward and back; what is decided goes by time that has passed."""

    def at(self, time: Time) -> Level:
        return Level(int((time.booted + time.now) * 1000), MI)

    def test_set_forward_costs_nobody_their_records(self, tmp_path: Path) -> None:
        time = Time()
        recorder = Recorder(str(tmp_path), Bounds(days=7), clock=time.clock())
        gone, new = Who(0, "a", "gone", "u1", "c"), Who(0, "a", "new", "u2", "c")
        for who in (WEB, gone, NODE):
            recorder.note(who, level(1))
        recorder.flush()
        recorder.prune([WEB, NODE])
        time.booted += 8 * 86_400
        time.now += 60
        recorder.note(new, level(2))
        recorder.flush()
        recorder.prune([WEB, NODE, new])
        assert {each.who for each in recordings(str(tmp_path))} == {WEB, gone, NODE, new}
        time.now += 8 * 86_400
        recorder.prune([WEB, NODE])
        assert {each.who for each in recordings(str(tmp_path))} == {WEB, NODE}

    def test_wrong_at_the_start_costs_nobody_their_records(self, tmp_path: Path) -> None:
        time = Time()
        recorder = Recorder(str(tmp_path), Bounds(days=7), clock=time.clock())
        recorder.note(WEB, level(1))
        recorder.flush()
        recorder.prune()
        for boot in ("a-boot", "another", "a-third"):
            time.boot = boot
            time.booted += 30 * 86_400
            time.now = 2000.0 if boot == "a-boot" else 2 * 86_400.0
            later = Recorder(str(tmp_path), Bounds(days=7), clock=time.clock())
            later.prune()
            assert [each.who for each in recordings(str(tmp_path))] == [WEB]
        time.now += 5 * 86_400
        later.prune()
        assert list(recordings(str(tmp_path))) == []

    def test_set_back_does_not_stop_a_disk_from_being_tried_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(handle: int, data: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        time = Time()
        recorder = Recorder(str(tmp_path), clock=time.clock())
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", full)
            recorder.note(WEB, level(1))
            recorder.flush()
        time.booted -= 3600
        time.now += 60
        recorder.flush()
        assert recorder.fault is None
        assert [type(record) for record in kept(tmp_path)] == [Paused, Level]

    @pytest.mark.parametrize("set_by", [-3600, 8 * 86_400])
    def test_is_shown_as_it_was_last_seen_to_go(self, tmp_path: Path, set_by: int) -> None:
        time = Time()
        clock = time.clock()
        recorder = Recorder(str(tmp_path), clock=clock)
        gone = Who(0, "a", "gone", "u1", "c")
        for who in (WEB, gone):
            recorder.note(who, Level(int(clock() * 1000), MI))
            recorder.note(who, Throttled(int(clock() * 1000), int(clock() * 1000) - 500))
        recorder.flush()
        first = self.at(time).at
        time.booted += set_by
        time.now += 60
        recorder.note(WEB, Level(int(clock() * 1000), 2 * MI))
        recorder.flush()
        shift = set_by * 1000
        assert [each.at for each in kept(tmp_path)] == [first + shift] * 2 + [
            first + shift + 60_000
        ]
        level, throttled = kept(tmp_path, gone)
        assert isinstance(throttled, Throttled)
        assert (level.at, throttled.at - throttled.since) == (first + shift, 500)

    def test_of_another_boot_changes_nothing(self, tmp_path: Path) -> None:
        time = Time()
        for boot in ("one", "two"):
            time.boot = boot
            clock = time.clock()
            recorder = Recorder(str(tmp_path), clock=clock)
            recorder.note(WEB, Level(int(clock() * 1000), MI))
            recorder.flush()
            time.booted += 3600
        assert [each.at for each in kept(tmp_path)] == [
            1_700_001_000_000,
            1_700_001_000_000 + 3_600_000,
        ]

    def test_is_marked_only_where_it_was_set(self, tmp_path: Path) -> None:
        time = Time()
        clock = time.clock()
        recorder = Recorder(str(tmp_path), clock=clock)
        for _ in range(100):
            time.now += 60
            time.booted += 0.001
            recorder.note(WEB, Level(int(clock() * 1000), MI))
            recorder.flush()
        marks = [
            each
            for file in tmp_path.glob("*.records")
            for each in decode(file.read_bytes()).records
            if isinstance(each, Dated)
        ]
        assert len(marks) == 1

    def test_was_trusted_by_older_recorders_whose_files_are_as_they_were(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / f"{name_of(WEB)}.older").write_bytes(MAGIC + frame(WEB) + frame(level(1)))
        (tmp_path / f"{name_of(WEB)}.records").write_bytes(MAGIC + frame(WEB) + frame(level(2)))
        recorder = Recorder(str(tmp_path), clock=Time().clock())
        recorder.note(WEB, level(3))
        recorder.flush()
        recorder.prune()
        assert kept(tmp_path) == (level(1), level(2), level(3))

    def test_out_of_any_calendar_is_passed_over(self, tmp_path: Path) -> None:
        mark = frame(Dated(0, "b", 0, 1 << 62))
        (tmp_path / f"{name_of(WEB)}.records").write_bytes(
            MAGIC + frame(WEB) + frame(level(1)) + frame(Level(1 << 62)) + mark + frame(level(2))
        )
        assert kept(tmp_path) == (level(1),)

    @pytest.mark.parametrize(
        "junk", [b"", b"{", b'{"touched": 1}', b"[]", b"\xff", b'{"boot":"\xff"}']
    )
    def test_ages_that_make_no_sense_are_none(self, tmp_path: Path, junk: bytes) -> None:
        (tmp_path / "ages").write_bytes(junk)
        recorder = Recorder(str(tmp_path), clock=Time().clock())
        recorder.note(WEB, level(1))
        recorder.flush()
        recorder.prune()
        assert kept(tmp_path) == (level(1),)
        assert b'"boot":"a-boot"' in (tmp_path / "ages").read_bytes()


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", ".", "x" * 5000, "ü\0\n", ""])
def test_a_name_never_becomes_part_of_a_path(name: str, recorder: Recorder, folder: Path) -> None:
    recorder.note(Who(0, name, name or "pod", name, name), level(1))
    recorder.flush()
    written = [path for path in folder.parent.rglob("*") if path.is_file()]
    assert all(path.parent == folder for path in written)
    assert all(path.stem.isalnum() for path in written)


def test_pods_of_one_name_after_another_have_files_of_their_own() -> None:
    later = Who(0, "shop", "web-1", "uid-2", "app")
    assert name_of(later) != name_of(WEB)
    assert name_of(Who(0, "a", "b", "c", "d")) != name_of(Who(0, "a", "b\0c", "", "d"))


def test_only_the_owner_can_read_the_records(recorder: Recorder, folder: Path) -> None:
    recorder.note(WEB, level(1))
    recorder.flush()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}


def test_a_folder_that_others_can_write_to_is_not_used(recorder: Recorder, folder: Path) -> None:
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    recorder.note(WEB, level(1))
    recorder.flush()
    assert recorder.fault is not None
    assert list(folder.iterdir()) == []


def test_a_link_laid_in_the_way_is_not_followed(
    recorder: Recorder, folder: Path, tmp_path: Path
) -> None:
    folder.mkdir(mode=0o700)
    target = tmp_path / "precious"
    target.write_text("precious")
    (folder / f"{name_of(WEB)}.records").symlink_to(target)
    recorder.note(WEB, level(1))
    recorder.flush()
    assert recorder.fault is not None
    assert target.read_text() == "precious"


def test_a_pipe_laid_in_the_way_blocks_nobody(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    for name in ("ages", f"{name_of(WEB)}.records", f"{name_of(WEB)}.older"):
        os.mkfifo(folder / name)
    recorder = Recorder(str(folder))
    recorder.note(WEB, level(1))
    recorder.flush()
    assert recorder.fault is not None
    assert kept(folder) == ()


# Power cuts and damage


def whole(number: int) -> tuple[bytes, list[Record]]:
    records: list[Record] = [level(each) for each in range(number)]
    return MAGIC + frame(WEB) + b"".join(map(frame, records)), records


def test_cut_off_anywhere_a_file_says_all_that_was_whole_before() -> None:
    data, records = whole(20)
    ends = [len(MAGIC + frame(WEB))]
    for record in records:
        ends.append(ends[-1] + len(frame(record)))
    for cut in range(len(data) + 1):
        found = decode(data[:cut])
        assert list(found.records) == records[: max(0, sum(end <= cut for end in ends) - 1)]


def test_what_follows_a_torn_record_is_read_as_well() -> None:
    data, records = whole(20)
    for cut in range(len(MAGIC), len(data), 7):
        after = [level(100), level(101)]
        found = decode(data[:cut] + b"".join(map(frame, after)))
        assert list(found.records[-2:]) == after
        assert all(record in [*records, *after] for record in found.records)


@pytest.mark.parametrize("junk", [b"\0" * 4096, b"\xa5Q" * 999, b"\xff" * 100, MAGIC])
def test_junk_costs_no_record(junk: bytes) -> None:
    data, records = whole(3)
    assert list(decode(data + junk + frame(level(9))).records) == [*records, level(9)]


def test_a_flipped_bit_costs_the_record_it_is_in() -> None:
    data, records = whole(10)
    start = len(MAGIC + frame(WEB))
    for position in range(start, len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        found = decode(bytes(damaged))
        assert len(found.records) >= len(records) - 1
        assert found.damaged > 0


def test_a_record_of_a_newer_memqos_is_passed_over() -> None:
    import struct
    import zlib

    payload = b"\x92\xa1z\x01"
    data, records = whole(2)
    data += struct.pack("<2sHI", b"\xa5Q", len(payload), zlib.crc32(payload)) + payload
    assert list(decode(data).records) == records
    assert decode(data).damaged == 0


def test_a_record_too_long_is_left_out(recorder: Recorder) -> None:
    recorder.note(WEB, Changed(0, says="x" * (LONGEST + 1)), level(1))
    assert recorder.lost == 1


_CHANGES = ("open", "write", "ftruncate", "fdatasync", "fsync", "replace")


class _PowerCut(BaseException):
    pass


@pytest.mark.parametrize("moment", range(60))
def test_power_cut_at_any_call_loses_what_was_not_flushed_and_nothing_else(
    moment: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of each write that was going on gets through."""
    bounds = Bounds(bytes_each=600)
    recorder = Recorder(str(tmp_path), bounds)
    recorder.note(WEB, level(0))
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
                recorder.note(WEB, level(number))
                recorder.flush()
                flushed = number
        except _PowerCut:
            pass
    found = [record.current // MI for record in kept(tmp_path) if isinstance(record, Level)]
    assert found[-1] in (flushed, flushed + 1)
    assert found == list(range(found[0], found[-1] + 1))
    # A new agent goes on where the old one was cut off.
    again = Recorder(str(tmp_path), bounds)
    again.note(WEB, level(99))
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
    recorder = Recorder(str(small_disk), clock=time.clock())
    recorder.note(WEB, level(1))
    recorder.flush()
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space"):
        filler.write_bytes(b"x" * (1 << 20))
    for _ in range(5):
        recorder.note(WEB, *[level(each) for each in range(100)])
        recorder.flush()
        time.now += 1
    assert "No space" in str(recorder.fault)
    filler.unlink()
    time.now += 60
    recorder.flush()
    found = kept(small_disk)
    assert found[0] == level(1)
    assert any(isinstance(record, Paused) and "No space" in record.why for record in found)
    assert found[-1] == level(99)


def test_a_gap_is_told_to_everybody_who_is_heard_of_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int, data: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    time = Time()
    recorder = Recorder(str(tmp_path), clock=time.clock())
    other = Who(0, "shop", "db-0", "u2", "pg")
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        for who in (WEB, other):
            recorder.note(who, level(1))
        recorder.flush()
    time.now += 60
    recorder.flush()
    for each in recordings(str(tmp_path)):
        gap, *rest = each.records
        assert isinstance(gap, Paused)
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

    recorder = Recorder(str(tmp_path), Bounds(waiting=4096), clock=time.clock())
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        for number in range(600):
            recorder.note(WEB, level(number))
            recorder.flush()
            time.now += 0.1
    assert 1 < tries < 10
    assert recorder.lost > 0
    time.now += 60
    recorder.flush()
    first, *rest = kept(tmp_path)
    assert isinstance(first, Paused)
    assert first.lost == recorder.lost
    assert rest[0] == level(0)


def test_a_disk_that_has_gone_is_no_reason_to_fail(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path / "file" / "records"))
    (tmp_path / "file").write_text("in the way")
    recorder.note(WEB, level(1))
    recorder.flush()
    recorder.prune()
    assert recorder.fault is not None


def test_reading_passes_over_what_is_no_recording(tmp_path: Path) -> None:
    (tmp_path / "a.records").write_bytes(b"nonsense")
    (tmp_path / "b.txt").write_text("text")
    (tmp_path / "c.records").mkdir()
    assert list(recordings(str(tmp_path))) == []
    assert list(recordings(str(tmp_path / "missing"))) == []
    data, records = whole(2)
    (tmp_path / "d.records").write_bytes(data + b"torn")
    assert list(recordings(str(tmp_path))) == [Recording(WEB, tuple(records), 4)]
