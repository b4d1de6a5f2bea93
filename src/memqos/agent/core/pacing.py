"""How fast an agent goes: retries that wait longer each time, and limits lowered step by step."""

from typing import Final

from memqos.agent.configuration import RampConfig
from memqos.plan.changes import Change, magnitude

FIRST_RETRY: Final = 1.0
LAST_RETRY: Final = 300.0
"""Seconds between the attempts at something that fails."""


class Backoff:
    """When to try again, by key: each failure in a row doubles the wait."""

    def __init__(self, first: float = FIRST_RETRY, last: float = LAST_RETRY) -> None:
        self._first = first
        self._last = last
        self._failures: dict[str, int] = {}
        self.until: dict[str, float] = {}
        """Key → when it may be tried again."""

    def note_failure(self, key: str, now: float) -> float:
        """Note a failure; how long to wait."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        wait = min(self._first * 2.0 ** min(failures, 30), self._last)
        self.until[key] = now + wait
        return wait

    def clear(self, key: str) -> None:
        """It went well, or is gone."""
        self._failures.pop(key, None)
        self.until.pop(key, None)

    def is_waiting(self, key: str, now: float) -> bool:
        """Whether it is too early."""
        return self.until.get(key, now) > now


def next_ramp_value(change: Change, usage: int, ramp: RampConfig, page_size: int) -> str | None:
    """What memory.high is set to now, on its way to what is planned; None to wait.

    It goes below what is in use by no more than a step, as the kernel takes away at once what lies
    above. Where it could not, the limit has been met already: going lower would not help.
    """
    target = magnitude(change.new)
    if ramp.off or usage <= target:
        return change.new
    down = int(usage * (1 - ramp.step)) // page_size * page_size
    if down <= target:
        return change.new
    return str(down) if down < magnitude(change.old) else None
