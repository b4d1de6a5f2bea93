"""A container's story in plain sentences, and as data."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from memqos.draw.amounts import counted
from memqos.draw.paragraph import paragraph
from memqos.findings.chapters import Chapter, Kind, Story

_DATE: Final = len("2026-03-02")
_TOLD: Final[tuple[tuple[Kind, str, str | None], ...]] = (
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


def story_text(story: Story) -> Iterator[str]:
    """What happened, in order, and what would have prevented it."""
    qos = f" · {story.qos}" if story.qos else ""
    yield f"{story.namespace}/{story.pod} {story.container}{qos}"
    is_one_day = moment(story.since)[:_DATE] == moment(story.until)[:_DATE]
    skipped = _DATE if is_one_day else 0
    stretch = f"{moment(story.since)} to {moment(story.until)[skipped:].strip()} UTC"
    if story.records or not story.told_by:
        yield f"recorded {stretch}, {counted(story.records, 'record')}"
    if story.told_by:
        yield f"told by {story.told_by}" + ("" if story.records else f", {stretch}")
    yield summary(story)
    yield from (f"note: {note}" for note in story.notes)
    for chapter in story.chapters:
        yield ""
        yield from _chapter(chapter, skipped)
    if story.remedies:
        yield ""
        yield "what would have prevented it"
        for remedy in story.remedies:
            yield from paragraph(remedy, "  · ", "    ")


def summary(story: Story) -> str:
    """How often what happened."""
    counts = {kind: sum(chapter.kind == kind for chapter in story.chapters) for kind, _, _ in _TOLD}
    told = [counted(counts[kind], one, many) for kind, one, many in _TOLD if counts[kind]]
    return ", ".join(told) or "nothing happened"


def story_data(story: Story) -> dict[str, Any]:
    """The same for scripts, times as Kubernetes writes them."""
    data: dict[str, Any] = msgspec.to_builtins(story)
    data["since"], data["until"] = stamp(story.since), stamp(story.until)
    for chapter in data["chapters"]:
        chapter["at"] = stamp(chapter["at"])
        if chapter["until"] is not None:
            chapter["until"] = stamp(chapter["until"])
    if not story.told_by:
        del data["told_by"]
    return data | {"remedies": list(story.remedies)}


def moment(milliseconds: int) -> str:
    """A time for people, in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def stamp(milliseconds: int) -> str:
    """A time for scripts."""
    text = datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _chapter(chapter: Chapter, skipped: int) -> Iterator[str]:
    yield from paragraph(chapter.what, f"{moment(chapter.at)[skipped:].strip()}  ", "  ")
    for line in chapter.evidence:
        yield from paragraph(line, "  · ", "    ")
    if chapter.rule is not None:
        says = f": {chapter.because}" if chapter.because else ""
        yield from paragraph(f"rule {chapter.rule}{says}", "  ", "    ")
