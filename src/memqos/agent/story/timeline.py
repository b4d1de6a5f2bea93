"""The timeline of a recording: its levels as points, its chapters as episodes and marks."""

from memqos.agent.recorder.reading import Recording
from memqos.agent.recorder.records import Level, Paused
from memqos.draw.story import stretch, summary
from memqos.draw.timed import Happening, MarkKind, Point, Span, SpanKind, Timeline
from memqos.findings.chapters import Kind, Story

_SPANS: dict[Kind, SpanKind] = {"throttled": "throttled", "gap": "gap"}
_MARKS: dict[Kind, MarkKind] = {
    "killed": "killed",
    "evicted": "evicted",
    "guarded": "guarded",
    "resized": "resized",
}


def timeline_of(recording: Recording, story: Story) -> Timeline:
    """What is drawn of a container."""
    levels = sorted(
        (record for record in recording.records if isinstance(record, Level)),
        key=lambda level: level.at,
    )
    # What had only to wait for the disk is there.
    lost = {each.since for each in recording.records if isinstance(each, Paused) and each.lost}
    return Timeline(
        f"{story.namespace}/{story.pod} {story.container}",
        f"{stretch(story)} · {summary(story)}",
        tuple(
            Point(each.at, each.current, each.min, each.low, each.high, each.max) for each in levels
        ),
        tuple(
            Span(chapter.at, chapter.until or chapter.at, _SPANS[chapter.kind], chapter.what)
            for chapter in story.chapters
            if chapter.kind in _SPANS and (chapter.kind != "gap" or chapter.at in lost)
        ),
        tuple(
            Happening(chapter.at, _MARKS[chapter.kind], chapter.what)
            for chapter in story.chapters
            if chapter.kind in _MARKS
        ),
    )
