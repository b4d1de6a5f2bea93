"""A container's story as text for a terminal, and as data for scripts."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from memqos.draw.text.lines import Line, Paragraph, Style
from memqos.draw.text.terminal import message_lines
from memqos.record.chapters import Chapter, ChapterKind, Story
from memqos.units import format_time, format_timestamp, pluralize

_DATE: Final = len("2026-03-02")
_KIND_WORDS: Final[tuple[tuple[ChapterKind, str, str | None], ...]] = (
    ("killed", "kill", None),
    ("evicted", "eviction", None),
    ("throttled", "throttling episode", None),
    ("guarded", "run of the guard", "runs of the guard"),
    ("resized", "resize", None),
    ("changed", "value set", "values set"),
    ("ended", "other end", None),
    ("told", "event", None),
    ("gap", "gap", None),
)

_CHAPTER_STYLES: Final[dict[ChapterKind, Style]] = {
    "killed": "error",
    "evicted": "error",
    "throttled": "warning",
    "guarded": "warning",
}


def story_text(story: Story) -> Iterator[Line]:
    """What happened, in order, and what would have prevented it."""
    qos = f" · {story.qos}" if story.qos else ""
    yield f"{story.namespace}/{story.pod} {story.container}{qos}"
    when = f" {time_range(story)}" if _is_dated(story) else ""
    if story.records:
        yield f"recorded{when}, {pluralize(story.records, 'record')}"
    elif not story.cluster:
        yield f"nothing was recorded{f', read{when}' if when else ''}"
    if story.cluster:
        yield f"source: {story.cluster}" + ("" if story.records or not when else f",{when}")
        yield Paragraph(f"evidence: {', '.join(story.sources) or 'none'}", "", "  ")
    yield story_summary(story)
    for note in story.notes:
        yield from message_lines(note, "note: ")
    skipped = _DATE if _is_dated(story) and _is_one_day(story) else 0
    explained: set[str] = set()
    for chapter in story.chapters:
        yield ""
        at = format_time(chapter.at)[skipped:].strip() if _is_dated(story) else "some time"
        yield from _chapter_lines(chapter, at, explained)
    if story.remedies:
        yield ""
        yield "what would have prevented it"
        for remedy in story.remedies:
            yield Paragraph(remedy, "  · ", "    ")


def time_range(story: Story) -> str:
    """From when to when; the date is repeated only where it changes."""
    until = format_time(story.until)
    return (
        f"{format_time(story.since)} to "
        f"{until[_DATE:].strip() if _is_one_day(story) else until} UTC"
    )


def story_summary(story: Story) -> str:
    """How many there are of each kind of chapter."""
    counts = {
        kind: sum(chapter.kind == kind for chapter in story.chapters) for kind, _, _ in _KIND_WORDS
    }
    words = [pluralize(counts[kind], one, many) for kind, one, many in _KIND_WORDS if counts[kind]]
    return ", ".join(words) or "nothing happened"


def story_data(story: Story) -> dict[str, Any]:
    """The same for scripts, times as Kubernetes writes them."""
    data: dict[str, Any] = msgspec.to_builtins(story, enc_hook=str)
    is_dated = _is_dated(story)
    for time in ("since", "until"):
        data[time] = format_timestamp(data[time]) if is_dated else None
    for chapter in data["chapters"]:
        chapter["at"] = format_timestamp(chapter["at"]) if is_dated else None
        if chapter["until"] is not None:
            chapter["until"] = format_timestamp(chapter["until"])
    if not story.cluster:
        del data["told_by"], data["sources"]
    return data | {"remedies": list(story.remedies)}


def _is_dated(story: Story) -> bool:
    """Whether any time is known; a snapshot need not say when it was taken."""
    return story.until > 0


def _is_one_day(story: Story) -> bool:
    return format_time(story.since)[:_DATE] == format_time(story.until)[:_DATE]


def _chapter_lines(chapter: Chapter, at: str, explained: set[str]) -> Iterator[Line]:
    """A chapter. A rule is explained the first time only; `explained` are those before."""
    yield Paragraph(chapter.what, f"{at}  ", "  ", _CHAPTER_STYLES.get(chapter.kind))
    for line in chapter.evidence:
        yield Paragraph(line, "  · ", "    ")
    if chapter.rule is not None:
        is_new = chapter.because is not None and chapter.rule not in explained
        says = f": {chapter.because}" if is_new else ""
        yield Paragraph(f"rule {chapter.rule}{says}", "  ", "    ")
        if is_new:
            explained.add(chapter.rule)
    elif chapter.because is not None:
        yield Paragraph(chapter.because, "  ", "    ")
