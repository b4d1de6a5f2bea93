"""How long to wait before asking again."""

from typing import Final

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
