"""The flight recorder's clock: times of records and ages of its files, by the time since the boot.

The wall clock may be set forward and back at any time. Times of records start at the wall clock of
the recorder's start and advance with the time since the boot. Clock records in the files hold the
wall clock since then, by which a reader converts the times of a boot.
"""

import os
import time
from collections.abc import Callable, Collection
from typing import Final

import msgspec

from memqos.host import durable
from memqos.record.format import ClockRecord


def seconds_since_boot() -> float:
    """Seconds since the machine was started, suspend included; this clock cannot be set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class RecordClock:
    """Seconds since 1970 that advance steadily, whatever the wall clock is set to."""

    def __init__(
        self,
        boot: str = "",
        *,
        uptime: Callable[[], float] = seconds_since_boot,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`boot` is the kernel's boot ID, empty where it is not known."""
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
        """The current time by both clocks."""
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
    """What one recorder stores for the next. Times are seconds."""

    boot: str = ""
    up: float = 0.0
    """Since the boot, when this was saved."""
    elapsed: float = 0.0
    """In all boots, when this was saved."""
    touched: dict[str, float] = {}
    """Name → `elapsed` at the last write."""


class FileAges:
    """The ages of the files in a folder, in uptime; a file without a stored age is new."""

    def __init__(self, folder: str, clock: RecordClock) -> None:
        self._path = os.path.join(folder, _FILE)
        self._clock = clock
        stored = _load_ages(self._path)
        self._touched = dict(stored.touched)
        self._elapsed_before = stored.elapsed
        # When another boot ended is not known; this one came after it.
        self._up_before = 0.0
        if not clock.boot:
            self._up_before = clock.uptime()
        elif clock.boot == stored.boot:
            self._up_before = stored.up

    @property
    def _elapsed(self) -> float:
        return self._elapsed_before + max(0.0, self._clock.uptime() - self._up_before)

    def touch(self, name: str) -> None:
        """Record that a file is written to now."""
        self._touched[name] = self._elapsed

    def age_of(self, name: str) -> float:
        """Seconds since a file was last written to, or first seen."""
        return self._elapsed - self._touched.setdefault(name, self._elapsed)

    def retain(self, names: Collection[str]) -> None:
        """Drop the ages of all other files."""
        self._touched = {name: self._touched[name] for name in names if name in self._touched}

    def save(self) -> None:
        """Store the ages for the next recorder."""
        ages = _StoredAges(self._clock.boot, self._clock.uptime(), self._elapsed, self._touched)
        durable.replace(self._path, msgspec.json.encode(ages))


def _load_ages(path: str) -> _StoredAges:
    """The stored ages; none where the file is missing or cannot be decoded."""
    try:
        return msgspec.json.decode(durable.read_plain_file(path, _LONGEST), type=_StoredAges)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return _StoredAges()
