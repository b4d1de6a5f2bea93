"""How experiments wait: until something is so, or until a time is over that bounds them."""

import time
from collections.abc import Callable
from typing import Final

from memqos.errors import LabError

PATIENCE: Final = 600.0
"""Seconds, against hanging for ever: an emulated machine may be slow and busy."""
_FIRST: Final = 0.002
_LONGEST: Final = 0.05
"""Seconds between two looks, which get fewer."""


def wait_until(what: str, holds: Callable[[], object]) -> None:
    """Return as soon as it holds; where it never does, say what did not come."""
    if not waits_for(holds, PATIENCE):
        raise LabError(f"not within {PATIENCE:.0f} s: {what}")


def waits_for(holds: Callable[[], object], seconds: float) -> bool:
    """Whether it holds within so many seconds."""
    pause, end = _FIRST, time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST)
    return True
