"""The flight recorder's files in a folder: append records, prune files, read all of them."""

import os
import threading
from collections.abc import Callable, Collection, Iterator
from typing import Final

import msgspec

from memqos.errors import MemqosError
from memqos.host import durable
from memqos.host.record_clock import FileAges, RecordClock
from memqos.record.format import (
    CURRENT_SUFFIX,
    HALF_SUFFIXES,
    MAX_PAYLOAD,
    OLDER_SUFFIX,
    RECORDS_MAGIC,
    FlightRecord,
    GapRecord,
    Subject,
    decode_flight_records,
    encode_frame,
    record_file_name,
)
from memqos.record.recordings import Recording, decode_recording, to_wall_clock

RECORDS_FOLDER: Final = "/var/lib/memqos/records"
_CLOCK_STEP: Final = 2.0
"""Seconds by which the wall clock must have been set for another clock record."""
_RETRY: Final = 30.0
"""Seconds until a write is tried again after one failed."""
_DAY: Final = 86_400.0
_LARGEST: Final = 64 << 20
"""Bytes of a file that are read."""
_HEAD_BYTES: Final = len(RECORDS_MAGIC) + MAX_PAYLOAD + 8
"""Bytes in which the subject of a file ends: that of its first frame."""
# Without O_NONBLOCK, opening a pipe in a file's place would block until it is read (fifo(7)).
_TO_APPEND: Final = (
    os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
)


class RecordBounds(msgspec.Struct, frozen=True):
    """How much is kept on the disk."""

    bytes_each: int = 64 << 10
    """Of a container, in two files."""
    containers: int = 512
    """Containers in all; the one written to longest ago is removed first."""
    days: float = 7.0
    """How long the records of a removed container are kept, in uptime of the machine."""
    waiting: int = 4 << 20
    """Bytes that may wait to be written."""

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
    """Appends records of containers, and of the node itself, to their files."""

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
        """Why nothing can be written now; None where writes succeed."""
        self.lost = 0
        """Records that could not be written."""
        self.clock = clock or RecordClock()
        self._lock = threading.Lock()
        self._waiting: dict[str, _PendingFile] = {}
        self._bytes = 0
        self._failed_at = self._tried_at = 0.0
        self._lost_since = 0
        self._pruned_at = float("-inf")
        self._live_names: set[str] = set()
        self._marked: dict[str, float] = {}
        """File → the wall clock's error in its last clock record."""
        self._ages = FileAges(folder, self.clock)

    def add(self, who: Subject, *records: FlightRecord) -> None:
        """Queue records for the next flush."""
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
        """Write all queued records to the disk; `fault` says why that fails."""
        now = self.clock()
        if self.fault is not None and now - self._tried_at < _RETRY:
            return
        self._tried_at = now
        with self._lock:
            waiting, self._waiting, self._bytes = self._waiting, {}, 0
        try:
            self._prepare(now, list(waiting))
            # Each file that is written to now may lack records before these.
            gap = self._gap(now)
            while waiting:
                name, each = next(iter(waiting.items()))
                self._append(name, each, gap)
                self.fault = None
                del waiting[name]
        except (OSError, MemqosError) as error:
            self._note_fault(now, self._describe_error(error))
            self._requeue(waiting)

    def prune(self, running: Collection[Subject] = ()) -> None:
        """Remove old files of removed containers, and the oldest where there are too many.

        Files of running containers go last.
        """
        self._live_names = {record_file_name(who) for who in running}
        try:
            remaining = self._prune(self._live_names)
            if remaining:
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
        is_clock_set = abs(error - self._marked.get(name, float("inf"))) > _CLOCK_STEP
        front = mark if is_clock_set else b""
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
            durable.sync_folder_of(path)
        if front:
            self._marked[name] = error
        self._ages.touch(name)
        self._lost_since = 0

    def _gap(self, now: float) -> bytes:
        """A record of the gap, where records are missing before the next ones."""
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

    def _requeue(self, unwritten: dict[str, _PendingFile]) -> None:
        with self._lock:
            for name, each in unwritten.items():
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

    def _prune(self, running: set[str]) -> list[str]:
        """Remove files beyond the bounds; the names of those that remain."""
        written: dict[str, float] = {}
        for name, when in list_record_files(self.folder):
            written[name] = max(when, written.get(name, 0.0))
        ages = {name: self._ages.age_of(name) for name in written}
        # Files of equal age, such as all new ones, are ordered by the wall clock.
        oldest_first = sorted(ages, key=lambda name: (name in running, -ages[name], written[name]))
        surplus = len(ages) - self.bounds.containers
        remaining: list[str] = []
        for index, name in enumerate(oldest_first):
            is_old = name not in running and ages[name] > self.bounds.days * _DAY
            if index >= surplus and not is_old:
                remaining.append(name)
                continue
            for suffix in HALF_SUFFIXES:
                durable.remove(os.path.join(self.folder, name + suffix))
        # At every pruning, not only the hourly one: pods may be created and removed every second.
        self._marked = {name: self._marked[name] for name in remaining if name in self._marked}
        self._ages.retain(remaining)
        return remaining


def list_record_files(folder: str) -> Iterator[tuple[str, float]]:
    """The names of recordings in a folder, and when each file was last written to."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                name, suffix = os.path.splitext(entry.name)
                if suffix in HALF_SUFFIXES and entry.is_file(follow_symlinks=False):
                    yield name, entry.stat(follow_symlinks=False).st_mtime
    except FileNotFoundError:
        return


def _size(path: str) -> int:
    try:
        return os.stat(path, follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0


def _latest(frames: list[bytes], room: int) -> list[bytes]:
    """As many of the last frames as fit."""
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


def read_recordings(
    folder: str, selects: Callable[[Subject], bool] | None = None
) -> Iterator[Recording]:
    """The recordings in a folder; files that cannot be decoded are skipped.

    With `selects` only those of the subjects that it selects are read in full.
    """
    yield from to_wall_clock(
        decode_recording(
            *[read_record_file(os.path.join(folder, name + suffix)) for suffix in HALF_SUFFIXES]
        )
        for name in sorted({name for name, _ in list_record_files(folder)})
        if selects is None or _is_selected(os.path.join(folder, name), selects)
    )


def _is_selected(path: str, selects: Callable[[Subject], bool]) -> bool:
    """Whether the subject that a recording starts with is selected."""
    heads = [read_record_file(path + suffix, _HEAD_BYTES) for suffix in HALF_SUFFIXES]
    subjects = [head.who for head in map(decode_flight_records, heads) if head.who is not None]
    return bool(subjects) and selects(subjects[-1])


def read_record_file(path: str, largest: int = _LARGEST) -> bytes:
    """A file's content; empty where it is missing, a link or a pipe."""
    try:
        return durable.read_plain_file(path, largest)
    except PermissionError:
        raise
    except OSError:
        return b""
