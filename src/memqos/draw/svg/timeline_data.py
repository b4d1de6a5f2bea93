"""A recording as a timeline: its levels as points, its chapters as episodes and marks."""

from typing import Literal

import msgspec

from memqos.draw.text.story import story_summary, time_range
from memqos.record.chapters import ChapterKind, Story
from memqos.record.format import GapRecord, LevelRecord
from memqos.record.recordings import Recording

EpisodeKind = Literal["throttled", "gap"]
MarkKind = Literal["killed", "evicted", "guarded", "resized"]


class MemoryPoint(msgspec.Struct, frozen=True):
    """How things stood from a time on. Milliseconds, bytes; None is no limit."""

    at: int
    current: int
    min: int = 0
    low: int = 0
    high: int | None = None
    max: int | None = None


class Episode(msgspec.Struct, frozen=True):
    """Something that lasted."""

    at: int
    until: int
    kind: EpisodeKind
    hint: str


class TimelineMark(msgspec.Struct, frozen=True):
    """Something that took no time."""

    at: int
    kind: MarkKind
    hint: str


class Timeline(msgspec.Struct, frozen=True):
    """What is drawn of one container."""

    title: str
    subtitle: str
    points: tuple[MemoryPoint, ...]
    episodes: tuple[Episode, ...] = ()
    marks: tuple[TimelineMark, ...] = ()


_SPANS: dict[ChapterKind, EpisodeKind] = {"throttled": "throttled", "gap": "gap"}
_MARKS: dict[ChapterKind, MarkKind] = {
    "killed": "killed",
    "evicted": "evicted",
    "guarded": "guarded",
    "resized": "resized",
}


def timeline_of(recording: Recording, story: Story) -> Timeline:
    """What is drawn of a container."""
    levels = sorted(
        (record for record in recording.records if isinstance(record, LevelRecord)),
        key=lambda level: level.at,
    )
    # Records that only waited for the disk are in the file: such a gap is not drawn.
    lost = {each.since for each in recording.records if isinstance(each, GapRecord) and each.lost}
    return Timeline(
        f"{story.namespace}/{story.pod} {story.container}",
        f"{time_range(story)} · {story_summary(story)}",
        tuple(
            MemoryPoint(each.at, each.current, each.min, each.low, each.high, each.max)
            for each in levels
        ),
        tuple(
            Episode(chapter.at, chapter.until or chapter.at, _SPANS[chapter.kind], chapter.what)
            for chapter in story.chapters
            if chapter.kind in _SPANS and (chapter.kind != "gap" or chapter.at in lost)
        ),
        tuple(
            TimelineMark(chapter.at, _MARKS[chapter.kind], chapter.what)
            for chapter in story.chapters
            if chapter.kind in _MARKS
        ),
    )
