"""The timeline of a recording: its levels as points, its chapters as episodes and marks."""

from memqos.agent.recorder.reading import Recording
from memqos.agent.recorder.records import GapRecord, LevelRecord
from memqos.draw.story import story_summary, time_range
from memqos.draw.timed import Episode, EpisodeKind, MarkKind, MemoryPoint, Timeline, TimelineMark
from memqos.findings.chapters import ChapterKind, Story

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
    # What had only to wait for the disk is there.
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
