"""The story of a pod with what its cluster tells woven in: its status, and the events about it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from memqos.agent.story.facts import SAME_END, duration
from memqos.agent.story.pod_events import (
    about,
    add_evidence,
    chapter_of,
    containers_of,
    has_place,
    nearest,
    plain,
)
from memqos.agent.story.rules import AGAINST_EVICTION, EVICTION, against_limit, at_limit
from memqos.draw.amounts import counted
from memqos.draw.scale import short_size
from memqos.errors import InputError, MemqosError
from memqos.findings.chapters import Chapter, Kind, Story
from memqos.kube.pod import Container
from memqos.kube.pod_history import Condition, Ended, Event, PastContainer, PastPod, milliseconds
from memqos.kube.quantity import Quantity
from memqos.kube.resources import MEMORY
from memqos.kube.shape import containers_in

_NEAR: Final[dict[Kind, int]] = {"killed": SAME_END, "evicted": 60_000}
"""Milliseconds within which record, status and events may report the same."""
_OOM_KILLED: Final = "OOMKilled"
_EVICTED: Final = "Evicted"
_RESIZES: Final = {
    "PodResizePending": "a resize waits",
    "PodResizeInProgress": "a resize is under way",
}


class Told(NamedTuple):
    """What a cluster told of a pod."""

    where: str
    pod: PastPod | None
    """None where it is gone, or may not be looked at."""
    events: Sequence[Event] = ()
    notes: tuple[MemqosError, ...] = ()
    """What could not be asked."""

    def uids(self, recorded: str | None = None) -> frozenset[str]:
        """The pod's; where there is none any more that of a record, or else of the last event."""
        if self.pod is not None:
            return self.pod.uids
        if recorded is not None:
            return frozenset({recorded})
        last = max(self.events, key=lambda event: event.until or event.at or 0, default=None)
        uid = None if last is None else last.involved_object.uid
        return frozenset() if uid is None else frozenset({uid})


def woven(
    stories: Sequence[Story], told: Told, namespace: str, pod: str, uid: str | None = None
) -> list[Story]:
    """The stories of all containers that either tells of, each with what the cluster adds.

    `uid` is that of the pod the stories are of.
    """
    recorded = {story.container: story for story in stories}
    specified = {} if told.pod is None else {c.name: c for c in containers_in(told.pod.spec)}
    events = [event for event in told.events if event.involved_object.uid in told.uids(uid)]
    mentioned = [name for event in events for name in containers_of(event)]
    named = dict.fromkeys([*recorded, *specified, *mentioned])
    if not named:
        # Of a pod that is gone there may be nothing but events about all of it.
        named = {"": None}
    qos = (told.pod.status.qos_class if told.pod is not None else None) or ""
    return [
        _woven(
            recorded.get(name) or Story(namespace, pod, name, qos, 0, 0, 0, ()),
            specified.get(name),
            told,
            [own for event in events if (own := about(event, name)) is not None],
        )
        for name in named
    ]


def _woven(story: Story, container: Container | None, told: Told, events: list[Event]) -> Story:
    chapters = list(story.chapters)
    others: dict[str, int] = {}
    heard: list[Chapter] = []
    if told.pod is not None:
        status = _statuses(told.pod).get(story.container)
        heard += _ends(status, _limit(container))
        heard += _of_pod(told.pod, events)
    for each in events:
        event = add_evidence(chapters, each)
        if event is None:
            continue
        if has_place(event):
            heard.append(chapter_of(event))
        else:
            others[event.reason or ""] = others.get(event.reason or "", 0) + 1
    for chapter in heard:
        _add(chapters, chapter)
    chapters.sort(key=lambda chapter: chapter.at)
    times = [time for each in chapters for time in (each.at, each.until or each.at)]
    begun = milliseconds(told.pod.metadata.creation_timestamp) if told.pod is not None else None
    since = [time for time in (story.since, begun, *times) if time]
    return msgspec.structs.replace(
        story,
        since=min(since, default=0),
        until=max([story.until, *since]),
        chapters=tuple(chapters),
        notes=(*story.notes, *told.notes, *_notes(told.pod, story.container, others)),
        told_by=told.where,
    )


def _add(chapters: list[Chapter], new: Chapter) -> None:
    """A chapter of its own, or evidence for the nearest that tells of the same."""
    index = nearest(chapters, new.at, _NEAR.get(new.kind, -1), lambda it: it.kind == new.kind)
    if index is None:
        chapters.append(new)
        return
    known = chapters[index]
    said = tuple(each for each in (new.what, *new.evidence) if each not in known.evidence)
    # An eviction is told by the status and by an event in the same words.
    if not any(each in line for line in known.evidence for each in new.evidence):
        chapters[index] = msgspec.structs.replace(known, evidence=known.evidence + said)


def _ends(status: PastContainer | None, limit: int | None) -> Iterator[Chapter]:
    if status is None:
        return
    for state in (status.last_state, status.state):
        ended = None if state is None else state.terminated
        at = None if ended is None else milliseconds(ended.finished_at)
        if ended is not None and at is not None and (ended.exit_code or ended.reason):
            if ended.reason == _OOM_KILLED:
                yield _killed(ended, at, limit)
            elif ended.exit_code:
                yield Chapter(at, "ended", f"ended by itself or by others: {_how(ended)}")


def _killed(ended: Ended, at: int, limit: int | None) -> Chapter:
    evidence = [f"the kubelet saw it end: {_how(ended)}"]
    if limit is None:
        rule: tuple[str | None, str | None] = (None, None)
        remedies: tuple[str, ...] = (
            "it has no memory limit of its own: look at those of its pod, and at the node's memory",
        )
    else:
        evidence.append(f"its memory limit is {short_size(limit)}")
        rule = at_limit()
        remedies = tuple(against_limit(limit))
    return Chapter(
        at, "killed", "killed by the kernel: out of memory", tuple(evidence), None, *rule, remedies
    )


def _how(ended: Ended) -> str:
    words = [plain(ended.reason or "it ended"), f"exit code {ended.exit_code}"]
    started, finished = milliseconds(ended.started_at), milliseconds(ended.finished_at)
    if started is not None and finished is not None and finished > started:
        words.append(f"after {duration(finished - started)}")
    return ", ".join(words) + (f": {plain(ended.message)}" if ended.message else "")


def _of_pod(pod: PastPod, events: Iterable[Event]) -> Iterator[Chapter]:
    conditions = [each for each in pod.status.conditions or () if each.status == "True"]
    if pod.status.reason == _EVICTED:
        yield Chapter(
            _evicted_at(pod, conditions, events),
            "evicted",
            "evicted by the kubelet",
            (plain(pod.status.message),) if pod.status.message else (),
            None,
            *EVICTION,
            (AGAINST_EVICTION,),
        )
    for each in conditions:
        at = milliseconds(each.last_transition_time)
        if at is None:
            continue
        said = (plain(each.message),) if each.message else ()
        if each.type in _RESIZES:
            reason = f": {plain(each.reason)}" if each.reason else ""
            yield Chapter(at, "resized", f"{_RESIZES[each.type]}{reason}", said)
        elif each.type == "DisruptionTarget" and pod.status.reason != _EVICTED:
            why = plain(each.reason or "nobody says why")
            yield Chapter(at, "evicted", f"chosen to make room: {why}", said)


def _evicted_at(pod: PastPod, conditions: Iterable[Condition], events: Iterable[Event]) -> int:
    times = [each.last_transition_time for each in conditions if each.type == "DisruptionTarget"]
    told = [event.at for event in events if event.reason == _EVICTED]
    known = [*map(milliseconds, times), *told, milliseconds(pod.status.start_time)]
    return next((at for at in known if at is not None), 0)


def _notes(pod: PastPod | None, container: str, others: dict[str, int]) -> Iterator[str]:
    if pod is None:
        yield "the cluster has no such pod any more, or does not show it"
    status = None if pod is None else _statuses(pod).get(container)
    if status is not None and status.restart_count:
        yield f"{counted(status.restart_count, 'restart')}, as the kubelet counts them"
    waiting = None if status is None or status.state is None else status.state.waiting
    if waiting is not None and waiting.reason not in (None, "ContainerCreating", "PodInitializing"):
        said = f": {plain(waiting.message)}" if waiting.message else ""
        yield f"it does not run now: {plain(waiting.reason or '')}{said}"
    if others:
        names = ", ".join(sorted(map(plain, others)))
        yield f"{counted(sum(others.values()), 'other event')}: {names}"


def _statuses(pod: PastPod) -> dict[str, PastContainer]:
    status = pod.status
    groups = (
        status.container_statuses,
        status.init_container_statuses,
        status.ephemeral_container_statuses,
    )
    return {each.name: each for group in groups for each in group or ()}


def _limit(container: Container | None) -> int | None:
    resources = None if container is None else container.resources
    stated = ((resources.limits if resources is not None else None) or {}).get(MEMORY)
    try:
        return None if stated is None else Quantity.parse(stated).value
    except InputError:
        return None
