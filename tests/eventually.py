"""How tests wait: until something is so, never for a time that should be enough.

A machine may be fast, or slow and busy with other suites beside: no verdict may depend on that.
Whether something stays as it is, is looked at once something has come that would have followed.
"""

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

PATIENCE: Final = 600.0
"""Seconds, against hanging for ever: no test comes near them unless something is wrong."""
_FIRST: Final = 0.002
_LONGEST: Final = 0.05
"""Seconds between two looks, which get fewer."""


def eventually(what: str, holds: Callable[[], object]) -> None:
    """Return as soon as it holds; where it never does, fail and say what did not come."""
    for pause in _pauses(what, holds):
        time.sleep(pause)


async def eventually_on_loop(what: str, holds: Callable[[], object]) -> None:
    """The same, while the loop goes on."""
    for pause in _pauses(what, holds):
        await asyncio.sleep(pause)


@contextmanager
def within_patience() -> Iterator[None]:
    """For what would take hours if it did more than it has to: fail instead."""

    def give_up(*_: object) -> None:
        raise AssertionError(f"it has not ended within {PATIENCE:.0f} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _pauses(what: str, holds: Callable[[], object]) -> Iterator[float]:
    pause, end = _FIRST, time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, f"waited {PATIENCE:.0f} s, but not so: {what}"
        yield pause
        pause = min(pause * 1.5, _LONGEST)
