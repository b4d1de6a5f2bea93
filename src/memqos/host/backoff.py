"""A peer that does not answer is not asked again for a while, or every question would wait."""

import time
from typing import Final

from memqos.errors import Unreachable

_SECONDS: Final = 30.0


class CircuitBreaker:
    """Whether a peer has been silent of late."""

    def __init__(self, seconds: float = _SECONDS) -> None:
        self._seconds = seconds
        self._why: Unreachable | None = None
        self._until = 0.0

    def trip(self, why: Unreachable) -> Unreachable:
        """It has not answered in time."""
        self._why = why
        self._until = time.monotonic() + self._seconds
        return why

    def check(self) -> None:
        """Raise what is known of a peer that was silent a moment ago."""
        if self._why is not None and time.monotonic() < self._until:
            raise self._why


FIRST_DELAY: Final = 0.5
LONGEST_DELAY: Final = 30.0
LONGEST_RETRY_AFTER: Final = 60.0
"""Seconds. No server makes anybody wait longer: a busy API server asks for half a minute."""
_SPREAD: Final = 0.2


def backoff_delay(failures: int, retry_after: float | None, chance: float) -> float:
    """Seconds to wait after so many failures in a row; `chance` is between 0 and 1.

    The bound doubles up to half a minute and chance decides below it, so that the agents of a
    cluster do not come back all at once. Never sooner than the server asked for, within reason.
    """
    bound = min(LONGEST_DELAY, FIRST_DELAY * (1 << min(failures, 10)))
    if retry_after is None:
        return bound * (0.5 + chance / 2)
    return max(min(retry_after, LONGEST_RETRY_AFTER), bound / 2) * (1 + _SPREAD * chance)
