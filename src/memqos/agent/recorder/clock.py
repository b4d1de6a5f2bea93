"""The time of records: the boot's decides, and the wall clock's is shown.

The wall clock is set, forward and back. Times of records begin with what it said when the recorder
was started, and go on from there as the machine does. Marks in the files say what the wall clock
said since: by these, whoever reads them shows the times of a boot.
"""

import time
from collections.abc import Callable

from memqos.agent.recorder.records import ClockRecord


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
