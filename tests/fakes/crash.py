"""A writer that is killed at a moment of one's choice.

Moments lie before every call by which a process changes the world outside of it, in the middle of
every write to a file, between what it asks of another and the answer, and after all. They are
counted over the writer and the processes it forks.
"""

import fcntl
import mmap
import os
import signal
import socket
import struct
from collections.abc import Callable
from typing import Any, Final, Literal

from memqos.host.cgroups import CgroupFs

Victim = Literal["writer", "family"]
"""Who is killed: the writer alone, or the processes it has forked with it."""
VICTIMS: Final[tuple[Victim, ...]] = ("writer", "family")

_CALLS: Final = (
    "fsync",
    "replace",
    "unlink",
    "link",
    "ftruncate",
    "mkdir",
    "pwrite",
    "fork",
)


class Clock:
    """Counts moments in memory that forked processes share, and kills when the time has come."""

    def __init__(self, end: int, victim: Victim) -> None:
        self._count = mmap.mmap(-1, 8)
        self._end = end
        self._victim = victim
        self._writer = os.getpid()

    def tick(self) -> None:
        (now,) = struct.unpack("q", self._count[:])
        self._count[:] = struct.pack("q", now + 1)
        if now == self._end:
            if self._victim == "family":
                os.killpg(self._writer, signal.SIGKILL)
            os.kill(self._writer, signal.SIGKILL)


def is_killed(action: Callable[[], object], moment: int, victim: Victim, fs: CgroupFs) -> bool:
    """Run an action in a process of its own, to be killed at a moment; False if it ended before."""
    writer = os.fork()
    if not writer:
        code = 1
        try:
            os.setpgid(0, 0)
            clock = Clock(moment, victim)
            _wire(clock, fs)
            action()
            clock.tick()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(writer, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def _wire(clock: Clock, fs: CgroupFs) -> None:
    """Have every call of this process, which has not long to live, tell the clock."""

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def telling(*arguments: Any, **named: Any) -> Any:
            clock.tick()
            return call(*arguments, **named)

        return telling

    write, open_ = os.write, os.open

    def torn(handle: int, data: Any) -> int:
        clock.tick()
        if os.readlink(f"/proc/self/fd/{handle}").startswith(f"{fs.root}/"):
            # The kernel takes a value whole or not at all.
            return write(handle, data)
        done = write(handle, data[: len(data) // 2])
        clock.tick()
        return done + write(handle, data[len(data) // 2 :])

    def opened(path: str, flags: int, *arguments: Any, **named: Any) -> int:
        if flags & os.O_CREAT:
            clock.tick()
        return open_(path, flags, *arguments, **named)

    os.write = torn
    os.open = opened  # type: ignore[assignment]
    for name in _CALLS:
        setattr(os, name, counted(getattr(os, name)))
    fcntl.flock = counted(fcntl.flock)
    for name in ("sendall", "recv"):
        setattr(socket.socket, name, counted(getattr(socket.socket, name)))
    fs.write = counted(fs.write)  # type: ignore[method-assign]
