"""A container's story as values: what happened when, the rule that decided, what prevents it."""

from typing import Literal

import msgspec

from memqos.errors import MemqosError

ChapterKind = Literal[
    "throttled",
    "guarded",
    "killed",
    "evicted",
    "resized",
    "changed",
    "pressed",
    "lived",
    "gap",
    "ended",
    "told",
]


class Chapter(msgspec.Struct, frozen=True):
    """One thing that happened. Times are milliseconds since 1970."""

    at: int
    kind: ChapterKind
    what: str
    """The sentence."""
    evidence: tuple[str, ...] = ()
    until: int | None = None
    rule: str | None = None
    """The rule that decided, by its id."""
    because: str | None = None
    """What that rule says."""
    remedies: tuple[str, ...] = ()


class Story(msgspec.Struct, frozen=True):
    """All that is known of a container."""

    namespace: str
    pod: str
    container: str
    qos: str
    since: int
    until: int
    records: int
    chapters: tuple[Chapter, ...]
    notes: tuple[str | MemqosError, ...] = ()
    told_by: str = ""
    """The cluster that had its say; empty where none was asked."""

    @property
    def remedies(self) -> tuple[str, ...]:
        """What would have prevented it, each said once."""
        return tuple(
            dict.fromkeys(remedy for chapter in self.chapters for remedy in chapter.remedies)
        )
