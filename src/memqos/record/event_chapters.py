"""Events of a cluster as chapters of a container's story, or as evidence for those it has."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import msgspec

from memqos.kube.events import BETWEEN, CONTROLLER, Clause, clauses
from memqos.kube.pod_history import KubeEvent
from memqos.record.chapters import Chapter, ChapterKind
from memqos.record.recordings import SAME_END
from memqos.units import format_time, pluralize

_KINDS: Final[dict[str, ChapterKind]] = {
    "MemoryProtected": "changed",
    "ThrottleLimitSet": "changed",
    "MemoryDrifted": "changed",
    "MemoryContested": "changed",
    "GuardWidened": "guarded",
    "GuardNarrowed": "guarded",
    "OOMKilled": "killed",
    "Evicted": "evicted",
    "Preempted": "evicted",
    "ResizeStarted": "resized",
    "ResizeCompleted": "resized",
    "ResizeDeferred": "resized",
    "ResizeInfeasible": "resized",
    "ResizeError": "resized",
    "BackOff": "told",
    "Killing": "told",
    "Unhealthy": "told",
    "FailedScheduling": "told",
    "ExceededGracePeriod": "told",
}
"""Events that have to do with memory, or with how a container ends. Those of memqos all have."""


def event_containers(event: KubeEvent) -> Iterator[str]:
    """The containers that an event is about."""
    yield from filter(None, [clause.container for clause in _clauses(event)])


def _clauses(event: KubeEvent) -> tuple[Clause, ...]:
    message = event.message or ""
    if event.by == CONTROLLER and event.container is None:
        return clauses(event.reason or "", message)
    return (Clause(message, event.container),)


def narrow_to_container(event: KubeEvent, container: str) -> KubeEvent | None:
    """What of an event is about a container or all of its pod; None where nothing is."""
    every = _clauses(event)
    return _with_clauses(
        event, [each for each in every if each.container in (None, container)], every
    )


def _with_clauses(
    event: KubeEvent, some: Sequence[Clause], every: Sequence[Clause]
) -> KubeEvent | None:
    """An event reduced to some of its clauses; None without any."""
    if len(some) in (0, len(every)):
        return event if some else None
    message = BETWEEN.join(clause.text for clause in some)
    return msgspec.structs.replace(event, message=message)


def belongs_in_story(event: KubeEvent) -> bool:
    """Whether an event belongs in a story: it is memqos's, or about memory or an end."""
    return event.reason in _KINDS or event.by == CONTROLLER


def event_chapter(event: KubeEvent) -> Chapter:
    """An event on its own."""
    reason, at = event.reason or "", event.at or 0
    by = "memqos" if event.by == CONTROLLER else printable_line(event.by)
    often = "" if event.times < 2 else f" ({pluralize(event.times, 'time')}{_until(event)})"
    message = f": {printable_line(event.message)}" if event.message else ""
    what = f"event {printable_line(reason)} of {by}{often}{message}"
    kind = _KINDS.get(reason, "told")
    return Chapter(at=at, kind=kind, what=what, until=event.until)


def _until(event: KubeEvent) -> str:
    if event.at is None or event.until is None:
        return ""
    (day, _), (last, time) = format_time(event.at).split(), format_time(event.until).split()
    return f", last at {time}" if day == last else f", last at {last} {time}"


def add_evidence(chapters: list[Chapter], event: KubeEvent) -> KubeEvent | None:
    """Add clauses of an event to the chapters that record the same; return the others, if any.

    An event with a count above one is not split: its clauses have no time of their own.
    """
    if event.by != CONTROLLER or event.times > 1 or event.at is None:
        return event
    every, rest = _clauses(event), list[Clause]()
    for clause in every:
        index = nearest_chapter(
            chapters, event.at, SAME_END, partial(_is_same_event, clause, event.reason or "")
        )
        if index is None:
            rest.append(clause)
            continue
        known = chapters[index]
        line = event_chapter(msgspec.structs.replace(event, message=clause.text)).what
        chapters[index] = msgspec.structs.replace(known, evidence=(*known.evidence, line))
    return _with_clauses(event, rest, every)


def _is_same_event(clause: Clause, reason: str, chapter: Chapter) -> bool:
    """Whether a chapter records the same value, or the same step of the guard."""
    what = chapter.what
    if _KINDS.get(reason) == "changed":
        set_by_memqos = what.startswith(f"memqos set {clause.file}: ")
        return bool(clause.value) and set_by_memqos and what.endswith(f" → {clause.value}")
    word = reason.removeprefix("Guard").lower()
    return what.startswith(f"the guard {word} {clause.file} ")


def nearest_chapter(
    chapters: Sequence[Chapter], at: int, most: int, fits: Callable[[Chapter], bool]
) -> int | None:
    """The index of the chapter that fits and is nearest in time, within so many milliseconds."""
    near = [
        (max(0, each.at - at, at - (each.until or each.at)), index)
        for index, each in enumerate(chapters)
        if fits(each)
    ]
    distance, index = min(near, default=(most + 1, 0))
    return index if distance <= most else None


def printable_line(text: str | None) -> str:
    """One line, without control characters."""
    return "".join(each if each.isprintable() else " " for each in text or "").strip()
