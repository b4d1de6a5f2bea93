"""The time of records: the boot decides, the wall clock is shown.

The wall clock is set forward and back. Times of records start with what it said when the recorder
started, and go on as the machine does. Marks in the files hold what the wall clock said since:
by these a reader shows the times of a boot.
"""

import os
import time
from collections.abc import Callable, Collection
from typing import Final

import msgspec

from memqos.host import durable
from memqos.record.format import (
    ClockRecord,
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
        # Of another boot's end nothing is known, but this one has followed it.
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
