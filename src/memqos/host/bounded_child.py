"""Do something that may block for long in a process of its own, for so long and no longer."""

import os
import select
import signal
from collections.abc import Callable
from typing import Final, NoReturn

_ENDS_WITHIN: Final = 1.0
"""Seconds in which a process is gone that has answered or was killed."""


def run_bounded(action: Callable[[], bytes], seconds: float) -> bytes | None:
    """What the action answers; None where it had to be stopped, or ended without an answer.

    An answer is at most 4 KiB. A process that the kernel does not let go even when killed is left
    behind: it holds what it has inherited, locks too, until it ends.
    """
    # A process, as a write that reclaims cannot be interrupted from within. Forked, not spawned:
    # the flock it inherits keeps other writers out for as long as its write may still come.
    answers, answering = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if not child:
        _act(action, answering)
    try:
        os.close(answering)
        answer = os.read(answers, select.PIPE_BUF) if _ready(answers, seconds) else b""
    finally:
        os.close(answers)
        _end(child)
    return answer[1:] if answer else None


def _act(action: Callable[[], bytes], answering: int) -> NoReturn:
    """The whole life of the forked process: nothing of its parent's is flushed or unwound."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.write(answering, b"\0" + action())
    finally:
        os._exit(0)


def _end(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    process = os.pidfd_open(child)
    try:
        if _ready(process, _ENDS_WITHIN):
            os.waitpid(child, 0)
    finally:
        os.close(process)


def _ready(handle: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
