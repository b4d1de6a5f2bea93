"""What the kernel counts about cgroups: memory in use, events, and time lost to pressure."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from memqos.host.cgroups import read_tree
from memqos.kernel.file_formats import events_of

_AT_LEAST: Final = 10.0
"""Seconds from a question to the next look."""
_AHEAD: Final = 5.0
"""Seconds before the next question, if it comes as the last one did, in which to look."""
_FORGOTTEN: Final = 300.0
"""Seconds after which an answer is too old to wait for the next question."""
_NEVER: Final = float("inf")
_FILES: Final = ("memory.current", "memory.events", "memory.pressure")


class CgroupCounters(NamedTuple):
    """One cgroup at one moment."""

    current: int | None
    events: Mapping[str, int]
    pressure: Mapping[str, float]
    """some, full → seconds."""


class CounterSchedule:
    """When to look: once for each question, and shortly before it, as scrapes are regular."""

    def __init__(self) -> None:
        self.due_at = _NEVER
        self._scraped_at = -_NEVER

    def note_scrape(self, now: float) -> None:
        """A reading was requested."""
        since, self._scraped_at = now - self._scraped_at, now
        if since > _FORGOTTEN:
            self.due_at = now
        elif self.due_at == _NEVER:
            self.due_at = now + max(_AT_LEAST, since - _AHEAD)

    def take_due(self, now: float) -> bool:
        """Whether to read now; then not again until the next request."""
        if self.due_at > now:
            return False
        self.due_at = _NEVER
        return True


def read_counters(root: str, below: str) -> dict[str, CgroupCounters]:
    """Read all cgroups from a path down."""
    tree = read_tree(root, _FILES, [below])
    return {path: _counters_of(files) for path, files in tree.cgroups.items()}


@lru_cache(maxsize=1 << 12)
def pressure_of(text: str) -> Mapping[str, float]:
    """Seconds lost, out of a pressure file."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        total = rest.rpartition("total=")[2]
        if total.isdecimal():
            found[kind] = int(total) / 1_000_000
    return found


def _counters_of(files: dict[str, str]) -> CgroupCounters:
    current = files.get("memory.current", "")
    return CgroupCounters(
        int(current) if current.isdecimal() else None,
        events_of(files.get("memory.events", "")),
        pressure_of(files.get("memory.pressure", "")),
    )
