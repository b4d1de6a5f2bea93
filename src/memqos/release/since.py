"""A rule's table over Kubernetes releases: the newest entry not after a release wins."""

from collections.abc import Mapping
from typing import Generic, TypeVar

from memqos.errors import UnsupportedRelease

_T = TypeVar("_T")


class Since(Generic[_T]):
    """What applies since which minor version, e.g. `Since({22: none, 27: throttled})`."""

    __slots__ = ("_entries", "_first", "_values")

    def __init__(self, entries: Mapping[int, _T]) -> None:
        self._first = min(entries)
        self._entries = tuple((minor, entries[minor]) for minor in sorted(entries))
        value = entries[self._first]
        self._values = [
            value := entries.get(minor, value) for minor in range(self._first, max(entries) + 1)
        ]

    def at(self, minor: int) -> _T:
        index = minor - self._first
        if index < 0:
            raise UnsupportedRelease(
                f"there is no entry for Kubernetes 1.{minor}",
                hint=f"the oldest entry is for 1.{self._first}",
            )
        return self._values[index] if index < len(self._values) else self._values[-1]

    def entries(self) -> tuple[tuple[int, _T], ...]:
        """Each change with the minor version that brought it, oldest first."""
        return self._entries
