"""What a cluster adds to the stories of a pod's containers: its events, status and conditions."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from memqos.errors import InputError, MemqosError
from memqos.kube.pod import Container
from memqos.kube.pod_history import (
    Ended,
    KubeEvent,
    PastContainer,
    PastPod,
    milliseconds,
    statuses_by_name,
)
from memqos.kube.quantity import Quantity
from memqos.kube.resources import MEMORY
from memqos.kube.shape import containers_in
from memqos.plan.rules import EVICTION_RANK
from memqos.record.chapters import (
    EVICTION_REMEDY,
    Chapter,
    ChapterKind,
    QuotedRule,
    Story,
    limit_remedies,
    limit_rule,
    quote_rule,
)
from memqos.record.event_chapters import (
    add_evidence,
    belongs_in_story,
    event_chapter,
    event_containers,
    narrow_to_container,
    nearest_chapter,
    printable_line,
)
from memqos.record.recordings import SAME_END
from memqos.units import duration_words, format_bytes, pluralize

_NEAR: Final[dict[ChapterKind, int]] = {"killed": SAME_END, "evicted": 60_000}
"""Milliseconds within which record, status and events may report the same."""
OOM_KILLED: Final = "OOMKilled"
EVICTED: Final = "Evicted"
_RESIZES: Final = {
    "PodResizePending": "a resize waits",
    "PodResizeInProgress": "a resize is under way",
}


class ClusterReport(NamedTuple):
    """What a cluster has about a pod."""

    cluster: str
    pod: PastPod | None
    """None where it no longer exists, or may not be read."""
    events: Sequence[KubeEvent] = ()
    notes: tuple[MemqosError, ...] = ()
    """What could not be read."""

    @property
    def node(self) -> str | None:
        """The node that the pod is or was on, by its spec, else by the events about it."""
        if self.pod is not None:
            return self.pod.spec.node_name or None
        return next((event.node for event in reversed(self.events) if event.node), None)

    @property
    def evidence(self) -> tuple[str, ...]:
        """What there is, in words."""
        status = () if self.pod is None else ("the pod's status",)
        return (*status, *((pluralize(len(self.events), "event"),) if self.events else ()))

    def uids(self, recorded: str | None = None) -> frozenset[str]:
        """The pod's; without a pod that of a record, or else of the last event."""
        if self.pod is not None:
            return self.pod.uids
        if recorded is not None:
            return frozenset({recorded})
        last = max(self.events, key=lambda event: event.until or event.at or 0, default=None)
        uid = None if last is None else last.involved_object.uid
        return frozenset() if uid is None else frozenset({uid})


def add_cluster_report(
    stories: Sequence[Story],
    report: ClusterReport,
    namespace: str,
    pod: str,
    uid: str | None = None,
) -> list[Story]:
    """The stories of all containers that were recorded or are reported, with what is reported.

    `uid` is that of the pod the stories are of.
    """
    recorded = {story.container: story for story in stories}
    specified = {} if report.pod is None else {c.name: c for c in containers_in(report.pod.spec)}
    events = [event for event in report.events if event.involved_object.uid in report.uids(uid)]
    mentioned = [name for event in events for name in event_containers(event)]
    named = dict.fromkeys([*recorded, *specified, *mentioned])
    if not named:
        # Of a pod that was deleted there may be nothing but events about all of it.
        named = {"": None}
    qos = (report.pod.status.qos_class if report.pod is not None else None) or ""
    return [
        _add_to_story(
            recorded.get(name)
            or Story(
                namespace=namespace,
                pod=pod,
                container=name,
                qos=qos,
                since=0,
                until=0,
                records=0,
                chapters=(),
            ),
            specified.get(name),
            report,
            [own for event in events if (own := narrow_to_container(event, name)) is not None],
        )
        for name in named
    ]


def _add_to_story(
    story: Story, container: Container | None, report: ClusterReport, events: list[KubeEvent]
) -> Story:
    chapters = list(story.chapters)
    others: dict[str, int] = {}
    reported: list[Chapter] = []
    if report.pod is not None:
        status = statuses_by_name(report.pod.status).get(story.container)
        reported += end_chapters(status, memory_limit(container))
        reported += _pod_chapters(report.pod, events)
    for each in events:
        event = add_evidence(chapters, each)
        if event is None:
            continue
        if belongs_in_story(event):
            reported.append(event_chapter(event))
        else:
            others[event.reason or ""] = others.get(event.reason or "", 0) + 1
    for chapter in reported:
        add_chapter(chapters, chapter)
    chapters.sort(key=lambda chapter: chapter.at)
    times = [time for each in chapters for time in (each.at, each.until or each.at)]
    pod = report.pod
    created = None if pod is None else milliseconds(pod.metadata.creation_timestamp)
    since = [time for time in (story.since, created, *times) if time]
    return msgspec.structs.replace(
        story,
        since=min(since, default=0),
        until=max([story.until, *since]),
        chapters=tuple(chapters),
        notes=(*story.notes, *report.notes, *_notes(report.pod, story.container, others)),
        cluster=report.cluster,
        sources=(*story.sources, *report.evidence),
    )


def add_chapter(chapters: list[Chapter], new: Chapter) -> None:
    """Add a chapter, or its text as evidence to the nearest one about the same."""
    index = nearest_chapter(
        chapters, new.at, _NEAR.get(new.kind, -1), lambda it: it.kind == new.kind
    )
    if index is None:
        chapters.append(new)
        return
    known = chapters[index]
    more = tuple(each for each in (new.what, *new.evidence) if each not in known.evidence)
    # The status and an event report an eviction in the same words.
    if not any(each in line for line in known.evidence for each in new.evidence):
        chapters[index] = msgspec.structs.replace(known, evidence=known.evidence + more)


def end_chapters(status: PastContainer | None, limit: int | None) -> Iterator[Chapter]:
    """How a container has ended, as its status reports it."""
    if status is None:
        return
    for state in (status.last_state, status.state):
        ended = None if state is None else state.terminated
        at = None if ended is None else milliseconds(ended.finished_at)
        if ended is not None and at is not None and (ended.exit_code or ended.reason):
            if ended.reason == OOM_KILLED:
                yield _oom_chapter(ended, at, limit)
            elif ended.exit_code:
                what = f"ended by itself or by a signal: {_describe_end(ended)}"
                yield Chapter(at=at, kind="ended", what=what)


def _oom_chapter(ended: Ended, at: int, limit: int | None) -> Chapter:
    evidence = [f"the kubelet saw it end: {_describe_end(ended)}"]
    if limit is None:
        rule = QuotedRule(None, None)
        remedies: tuple[str, ...] = (
            "it has no memory limit of its own: look at those of its pod, and at the node's memory",
        )
    else:
        evidence.append(f"its memory limit is {format_bytes(limit)}")
        rule = limit_rule()
        remedies = tuple(limit_remedies(limit))
    return Chapter(
        at=at,
        kind="killed",
        what="OOM-killed by the kernel",
        evidence=tuple(evidence),
        rule=rule.id,
        because=rule.text,
        remedies=remedies,
    )


def _describe_end(ended: Ended) -> str:
    words = [printable_line(ended.reason or "it ended"), f"exit code {ended.exit_code}"]
    started, finished = milliseconds(ended.started_at), milliseconds(ended.finished_at)
    if started is not None and finished is not None and finished > started:
        words.append(f"after {duration_words(finished - started)}")
    return ", ".join(words) + (f": {printable_line(ended.message)}" if ended.message else "")


def _pod_chapters(pod: PastPod, events: Iterable[KubeEvent]) -> Iterator[Chapter]:
    conditions = [each for each in pod.status.conditions or () if each.status == "True"]
    if pod.status.reason == EVICTED:
        rule = quote_rule(EVICTION_RANK)
        yield Chapter(
            at=eviction_time(pod, events) or 0,
            kind="evicted",
            what="evicted by the kubelet",
            evidence=(printable_line(pod.status.message),) if pod.status.message else (),
            rule=rule.id,
            because=rule.text,
            remedies=(EVICTION_REMEDY,),
        )
    for each in conditions:
        at = milliseconds(each.last_transition_time)
        if at is None:
            continue
        message = (printable_line(each.message),) if each.message else ()
        if each.type in _RESIZES:
            reason = f": {printable_line(each.reason)}" if each.reason else ""
            what = f"{_RESIZES[each.type]}{reason}"
            yield Chapter(at=at, kind="resized", what=what, evidence=message)
        elif each.type == "DisruptionTarget" and pod.status.reason != EVICTED:
            what = (
                f"terminated for another pod: {printable_line(each.reason or 'no reason is given')}"
            )
            yield Chapter(at=at, kind="evicted", what=what, evidence=message)


def eviction_time(pod: PastPod, events: Iterable[KubeEvent] = ()) -> int | None:
    """When the kubelet evicted it; the pod's own start where nothing says it."""
    conditions = [
        each.last_transition_time
        for each in pod.status.conditions or ()
        if each.type == "DisruptionTarget" and each.status == "True"
    ]
    reported = [event.at for event in events if event.reason == EVICTED]
    known = [*map(milliseconds, conditions), *reported, milliseconds(pod.status.start_time)]
    return next((at for at in known if at is not None), None)


def _notes(pod: PastPod | None, container: str, others: dict[str, int]) -> Iterator[str]:
    if pod is None:
        yield "the pod no longer exists in the cluster, or you may not read it"
    status = None if pod is None else statuses_by_name(pod.status).get(container)
    if status is not None and status.restart_count:
        yield f"{pluralize(status.restart_count, 'restart')}, as the kubelet counts them"
    waiting = None if status is None or status.state is None else status.state.waiting
    if waiting is not None and waiting.reason not in (None, "ContainerCreating", "PodInitializing"):
        message = f": {printable_line(waiting.message)}" if waiting.message else ""
        yield f"it is not running now: {printable_line(waiting.reason or '')}{message}"
    if others:
        names = ", ".join(sorted(map(printable_line, others)))
        yield f"{pluralize(sum(others.values()), 'other event')}: {names}"


def memory_limit(container: Container | None) -> int | None:
    """The memory limit of a container in bytes; None without one that can be read."""
    resources = None if container is None else container.resources
    stated = ((resources.limits if resources is not None else None) or {}).get(MEMORY)
    try:
        return None if stated is None else Quantity.parse(stated).value
    except InputError:
        return None
