"""How long to wait before a peer that failed is tried again."""

import time
from typing import Final

from memqos.errors import Unreachable

_SECONDS: Final = 30.0


class CircuitBreaker:
    """Fails calls at once while a peer has not answered in time: each would wait for a timeout."""

    def __init__(self, seconds: float = _SECONDS) -> None:
        self._seconds = seconds
        self._why: Unreachable | None = None
        self._until = 0.0

    def trip(self, why: Unreachable) -> Unreachable:
        """The peer has not answered in time: open the circuit. The same error, to raise."""
        self._why = why
        self._until = time.monotonic() + self._seconds
        return why

    def check(self) -> None:
        """Raise the last error while the circuit is open."""
        if self._why is not None and time.monotonic() < self._until:
            raise self._why


FIRST_DELAY: Final = 0.5
LONGEST_DELAY: Final = 30.0
LONGEST_RETRY_AFTER: Final = 60.0
"""Seconds. A longer Retry-After is cut: a busy API server sends half a minute at most."""
_SPREAD: Final = 0.2


def backoff_delay(failures: int, retry_after: float | None, chance: float) -> float:
    """Seconds to wait after so many failures in a row; `chance` is between 0 and 1.

    The bound doubles up to half a minute, and the wait is random between half of it and all of it,
    so that the agents of a cluster do not retry all at once. It is never shorter than the server's
    Retry-After, up to a bound.
    """
    bound = min(LONGEST_DELAY, FIRST_DELAY * (1 << min(failures, 10)))
    if retry_after is None:
        return bound * (0.5 + chance / 2)
    return max(min(retry_after, LONGEST_RETRY_AFTER), bound / 2) * (1 + _SPREAD * chance)
