"""The time of records: the boot's decides, and the wall clock's is shown.

The wall clock is set, forward and back. Times of records begin with what it said when the recorder
was started, and go on from there as the machine does. Marks in the files say what the wall clock
said since: by these, whoever reads them shows the times of a boot.
"""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import Final

import msgspec

from memqos.errors import MemqosError
from memqos.host import durable
from memqos.record.format import (
    RECORDS_MAGIC,
    ClockRecord,
    FlightRecord,
    GapRecord,
    Subject,
    encode_frame,
)


def seconds_since_boot() -> float:
    """Seconds since the machine was started, those asleep included: nobody sets this clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class RecordClock:
    """Seconds since 1970 that nobody sets."""

    def __init__(
        self,
        boot: str = "",
        *,
        uptime: Callable[[], float] = seconds_since_boot,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`boot` is the kernel's ID of it, empty where it is not known."""
        self.boot = boot
        self.uptime = uptime
        self._wall = wall
        self._booted_at = wall() - uptime()

    def __call__(self) -> float:
        return self._booted_at + self.uptime()

    @property
    def wall_clock_error(self) -> float:
        """Seconds by which the wall clock is ahead of this one."""
        return self._wall() - self()

    def mark(self) -> ClockRecord:
        """This moment by both clocks."""
        up = self.uptime()
        milliseconds = [int(each * 1000) for each in (self._booted_at + up, up, self._wall())]
        at, since, wall = milliseconds
        return ClockRecord(at, self.boot, since, wall)


def record_clock_of(proc: str) -> RecordClock:
    """The clock of this boot."""
    try:
        with open(f"{proc}/sys/kernel/random/boot_id", encoding="ascii") as file:
            return RecordClock(file.read().strip())
    except OSError:
        return RecordClock()


_FILE: Final = "ages"
_LONGEST: Final = 1 << 20


class _StoredAges(msgspec.Struct, frozen=True):
    """What is remembered from one recorder to the next. Times are seconds."""

    boot: str = ""
    up: float = 0.0
    """Since the boot, when this was kept."""
    elapsed: float = 0.0
    """In all boots, likewise."""
    touched: dict[str, float] = {}
    """Name → elapsed when it was last written to."""


class FileAges:
    """The ages of the files in a folder; one that nothing is known of is new."""

    def __init__(self, folder: str, clock: RecordClock) -> None:
        self._path = os.path.join(folder, _FILE)
        self._clock = clock
        kept = _load_ages(self._path)
        self._touched = dict(kept.touched)
        self._elapsed_before = kept.elapsed
        # When the other boot ended is unknown, but this one came after it.
        self._up_before = 0.0
        if not clock.boot:
            self._up_before = clock.uptime()
        elif clock.boot == kept.boot:
            self._up_before = kept.up

    @property
    def _elapsed(self) -> float:
        return self._elapsed_before + max(0.0, self._clock.uptime() - self._up_before)

    def touch(self, name: str) -> None:
        """It is written to now."""
        self._touched[name] = self._elapsed

    def age_of(self, name: str) -> float:
        """Seconds since it was last written to, or heard of."""
        return self._elapsed - self._touched.setdefault(name, self._elapsed)

    def retain(self, names: Collection[str]) -> None:
        """Forget the ages of all others."""
        self._touched = {name: self._touched[name] for name in names if name in self._touched}

    def save(self) -> None:
        """Have the next recorder know them."""
        kept = _StoredAges(self._clock.boot, self._clock.uptime(), self._elapsed, self._touched)
        durable.replace(self._path, msgspec.json.encode(kept))


def _load_ages(path: str) -> _StoredAges:
    """What was kept; nothing where that is missing or makes no sense."""
    try:
        return msgspec.json.decode(durable.read_plain_file(path, _LONGEST), type=_StoredAges)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return _StoredAges()


RECORDS_FOLDER: Final = "/var/lib/memqos/records"
CURRENT_SUFFIX: Final = ".records"
OLDER_SUFFIX: Final = ".older"
_MOVED: Final = 2.0
"""Seconds by which the wall clock must have been set to be marked."""
_RETRY: Final = 30.0
"""Seconds until a disk that was full is tried again."""
_DAY: Final = 86_400.0
# O_NONBLOCK: opening a FIFO in a file's place would block until somebody reads it (fifo(7)).
_TO_APPEND: Final = (
    os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
)


class RecordBounds(msgspec.Struct, frozen=True):
    """How much is kept."""

    bytes_each: int = 64 << 10
    """Of a container: two halves."""
    containers: int = 512
    """Files in all; the longest untouched go first."""
    days: float = 7.0
    """How long a removed container is remembered, in uptime of the machine."""
    waiting: int = 4 << 20
    """Bytes that may wait for the disk."""

    @property
    def total(self) -> int:
        """Bytes on the disk at most."""
        return self.bytes_each * self.containers


class _PendingFile(msgspec.Struct):
    """What is to be appended to a file."""

    who: Subject
    frames: list[bytes] = []
    size: int = 0


class RecordWriter:
    """Takes records for containers, and for the node itself."""

    def __init__(
        self,
        folder: str = RECORDS_FOLDER,
        bounds: RecordBounds | None = None,
        *,
        clock: RecordClock | None = None,
    ) -> None:
        self.folder = folder
        self.bounds = bounds or RecordBounds()
        self.fault: str | None = None
        """Why nothing is recorded at the moment."""
        self.lost = 0
        """Records that could not be kept."""
        self.clock = clock or RecordClock()
        self._lock = threading.Lock()
        self._waiting: dict[str, _PendingFile] = {}
        self._bytes = 0
        self._failed_at = self._tried_at = 0.0
        self._lost_since = 0
        self._pruned_at = float("-inf")
        self._live_names: set[str] = set()
        self._marked: dict[str, float] = {}
        """File → the error of the wall clock in its last mark."""
        self._ages = FileAges(folder, self.clock)

    def add(self, who: Subject, *records: FlightRecord) -> None:
        """Have records written with the next flush."""
        name = record_file_name(who)
        with self._lock:
            waiting = self._waiting.setdefault(name, _PendingFile(who))
            for record in records:
                data = encode_frame(record)
                if not data or self._bytes + len(data) > self.bounds.waiting:
                    self._count_lost(1)
                    continue
                waiting.frames.append(data)
                waiting.size += len(data)
                self._bytes += len(data)

    def flush(self) -> None:
        """Have all that was noted on the disk, or say in `fault` why not."""
        now = self.clock()
        if self.fault is not None and now - self._tried_at < _RETRY:
            return
        self._tried_at = now
        with self._lock:
            waiting, self._waiting, self._bytes = self._waiting, {}, 0
        try:
            self._prepare(now, list(waiting))
            # A subject that comes back may have been missed in between.
            gap = self._gap(now)
            while waiting:
                name, each = next(iter(waiting.items()))
                self._append(name, each, gap)
                self.fault = None
                del waiting[name]
        except (OSError, MemqosError) as error:
            self._note_fault(now, self._describe_error(error))
            self._requeue(waiting)

    def prune(self, living: Collection[Subject] = ()) -> None:
        """Remove files of containers long gone, and the longest untouched where there are too many.

        Files of the living go last.
        """
        self._live_names = {record_file_name(who) for who in living}
        try:
            stay = self._prune(self._live_names)
            if stay:
                durable.ensure_private_folder(self.folder)
                self._ages.save()
        except (OSError, MemqosError) as error:
            self._note_fault(self.clock(), self._describe_error(error))

    def _prepare(self, now: float, names: Collection[str]) -> None:
        if all(map(self._exists, names)):
            return
        durable.ensure_private_folder(self.folder)
        if now - self._pruned_at > _RETRY:
            self._pruned_at = now
            self._prune(self._live_names.union(names))

    def _append(self, name: str, waiting: _PendingFile, gap: bytes) -> None:
        path = os.path.join(self.folder, name)
        error, mark = self.clock.wall_clock_error, encode_frame(self.clock.mark())
        head = RECORDS_MAGIC + encode_frame(waiting.who) + mark
        half = self.bounds.bytes_each // 2
        data = gap + b"".join(_latest(waiting.frames, half - len(head) - len(gap)))
        size = _size(path + CURRENT_SUFFIX)
        has_moved = abs(error - self._marked.get(name, float("inf"))) > _MOVED
        front = mark if has_moved else b""
        if size and size + len(front) + len(data) > half:
            os.replace(path + CURRENT_SUFFIX, path + OLDER_SUFFIX)
            size = 0
        if not size:
            front = head
        handle = os.open(path + CURRENT_SUFFIX, _TO_APPEND, 0o600)
        try:
            _append_or_truncate(handle, front + data, size)
            os.fdatasync(handle)
        finally:
            os.close(handle)
        if not size:
            _sync_folder(self.folder)
        if front:
            self._marked[name] = error
        self._ages.touch(name)
        self._lost_since = 0

    def _gap(self, now: float) -> bytes:
        """What tells of records that are missing, before the first one after them."""
        if self.fault is None and not self._lost_since:
            return b""
        since = now if self.fault is None else self._failed_at
        why = self.fault or "too much at once"
        return encode_frame(GapRecord(int(now * 1000), int(since * 1000), why, self._lost_since))

    def _count_lost(self, records: int) -> None:
        self.lost += records
        self._lost_since += records

    def _note_fault(self, now: float, why: str) -> None:
        if self.fault is None:
            self._failed_at = now
        self.fault = why

    def _describe_error(self, error: Exception) -> str:
        strerror = error.strerror if isinstance(error, OSError) else None
        return f"{self.folder}: {strerror}" if strerror else str(error)

    def _requeue(self, left: dict[str, _PendingFile]) -> None:
        with self._lock:
            for name, each in left.items():
                if self._bytes + each.size > self.bounds.waiting:
                    self._count_lost(len(each.frames))
                    continue
                later = self._waiting.get(name, _PendingFile(each.who))
                self._waiting[name] = _PendingFile(
                    each.who, each.frames + later.frames, each.size + later.size
                )
                self._bytes += each.size

    def _exists(self, name: str) -> bool:
        return os.path.exists(os.path.join(self.folder, name + CURRENT_SUFFIX))

    def _prune(self, living: set[str]) -> list[str]:
        """Those that stay."""
        written: dict[str, float] = {}
        for name, when in list_record_files(self.folder):
            written[name] = max(when, written.get(name, 0.0))
        ages = {name: self._ages.age_of(name) for name in written}
        # Files of equal age, such as all that have none yet, go by the wall clock.
        oldest_first = sorted(ages, key=lambda name: (name in living, -ages[name], written[name]))
        surplus = len(ages) - self.bounds.containers
        stay: list[str] = []
        for index, name in enumerate(oldest_first):
            is_old = name not in living and ages[name] > self.bounds.days * _DAY
            if index >= surplus and not is_old:
                stay.append(name)
                continue
            for suffix in (CURRENT_SUFFIX, OLDER_SUFFIX):
                durable.remove(os.path.join(self.folder, name + suffix))
        # At every pruning, not only the hourly one: pods may come and go by the second.
        self._marked = {name: self._marked[name] for name in stay if name in self._marked}
        self._ages.retain(stay)
        return stay


def record_file_name(who: Subject) -> str:
    """The name of a container's file: nothing of it was chosen by anybody."""
    if who.is_node:
        return "node"
    return hashlib.sha256("\0".join(who.key).encode("utf-8", "replace")).hexdigest()[:32]


def list_record_files(folder: str) -> Iterator[tuple[str, float]]:
    """The records in a folder by name, and when they were last written to."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                name, suffix = os.path.splitext(entry.name)
                if suffix in (CURRENT_SUFFIX, OLDER_SUFFIX) and entry.is_file(
                    follow_symlinks=False
                ):
                    yield name, entry.stat(follow_symlinks=False).st_mtime
    except FileNotFoundError:
        return


def _size(path: str) -> int:
    try:
        return os.stat(path, follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0


def _latest(frames: list[bytes], room: int) -> list[bytes]:
    """As many of the last frames as there is room for."""
    first = len(frames)
    while first and room >= len(frames[first - 1]):
        first -= 1
        room -= len(frames[first])
    return frames[first:]


def _append_or_truncate(handle: int, data: bytes, size: int) -> None:
    try:
        durable.append(handle, data)
    except OSError:
        os.ftruncate(handle, size)
        raise


def _sync_folder(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
