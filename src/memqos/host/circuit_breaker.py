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
