"""Run an action that may block in a child process, for a bounded time."""

import os
import select
import signal
import warnings
from collections.abc import Callable
from typing import Final, NoReturn

_ENDS_WITHIN: Final = 1.0
"""Seconds in which a process that has answered or was killed usually ends."""

# Python 3.12 and newer warn of fork() beside other threads, whose locks the child inherits.
# Decision 26 says why this child may: it is killed when it does not answer in time.
warnings.filterwarnings(
    "ignore",
    message=r"This process .* is multi-threaded, use of fork",
    category=DeprecationWarning,
    module=r"memqos\.host\.bounded_child",
)


def run_bounded(action: Callable[[], bytes], seconds: float) -> bytes | None:
    """The action's result; None where it was stopped, or ended without one.

    OSError where no process can be made. A result is at most 4 KiB. A process that does not end
    even when killed is left behind: it keeps what it has inherited, locks too, until it ends.
    """
    # A process: a write to memory.high or memory.max reclaims in the writer's context, and only a
    # signal ends it (memory_high_write(), mm/memcontrol.c). Forked, not spawned: the flock(2) it
    # inherits keeps other writers out as long as its write may still happen.
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    try:
        child = os.fork()
    except OSError:
        os.close(read_end)
        os.close(write_end)
        raise
    if not child:
        _run_child(action, write_end)
    try:
        os.close(write_end)
        answer = os.read(read_end, select.PIPE_BUF) if _is_ready(read_end, seconds) else b""
    finally:
        os.close(read_end)
        _kill(child)
    return answer[1:] if answer else None


def _run_child(action: Callable[[], bytes], write_end: int) -> NoReturn:
    """Everything the forked process does: it flushes and unwinds nothing of its parent's."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.write(write_end, b"\0" + action())
    finally:
        os._exit(0)


def _kill(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    process = os.pidfd_open(child)
    try:
        if _is_ready(process, _ENDS_WITHIN):
            os.waitpid(child, 0)
    finally:
        os.close(process)


def _is_ready(handle: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
