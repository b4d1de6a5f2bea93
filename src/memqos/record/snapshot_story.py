"""The stories of containers in a snapshot: from its records, its cgroups and pod status."""

import binascii
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from memqos.kernel.file_formats import processes_killed, stall_of
from memqos.kube.pod import Container, Pod, PodStatus
from memqos.kube.pod_history import PastPod, milliseconds, statuses_by_name
from memqos.kube.shape import containers_of
from memqos.manifests.snapshot import Snapshot
from memqos.plan.names import CgroupNames
from memqos.plan.owners import Owners
from memqos.plan.setting import FileSettings
from memqos.record.chapters import Chapter, Story, limit_remedies, limit_rule
from memqos.record.cluster_story import (
    EVICTED,
    add_chapter,
    end_chapters,
    eviction_time,
    memory_limit,
)
from memqos.record.format import (
    HALF_SUFFIXES,
    EvictionRecord,
    FlightRecord,
    Subject,
    subject_of,
)
from memqos.record.readings import MemoryReading, level_of, reading_of
from memqos.record.recent_deaths import Death, list_deaths, recorded_deaths, with_recorded_usage
from memqos.record.recordings import (
    SAME_END,
    Recording,
    decode_recording,
    latest_recordings,
    to_wall_clock,
)
from memqos.record.story import PlanLookup, rule_of_high, story_of, unknown_plan
from memqos.units import format_bytes, pluralize


def snapshot_recordings(snapshot: Snapshot) -> Iterator[Recording]:
    """The records in a snapshot; what cannot be decoded is skipped."""
    files = snapshot.records
    names = {
        file.removesuffix(suffix)
        for file in files
        for suffix in HALF_SUFFIXES
        if file.endswith(suffix)
    }
    yield from to_wall_clock(
        decode_recording(*[_decode_file(files, name + suffix) for suffix in HALF_SUFFIXES])
        for name in sorted(names)
    )


def _decode_file(files: Mapping[str, str], name: str) -> bytes:
    try:
        return b64decode(files.get(name, ""), validate=True)
    except (binascii.Error, ValueError):
        return b""


_SINGLE_LOOK_NOTE: Final = "a snapshot is one reading: memqos agent records what happens over time"


def snapshot_deaths(snapshot: Snapshot, namespace: str | None) -> list[Death]:
    """How containers have ended by records and by statuses, the latest first."""
    recordings = list(snapshot_recordings(snapshot))
    recorded = recorded_deaths(recordings, namespace)
    reported = [
        with_recorded_usage(each, recordings)
        for each in list_deaths(map(_past_pod, snapshot.running))
        if namespace in (None, each.namespace)
        and not any(_is_same_death(each, known) for known in recorded)
    ]
    return sorted([*recorded, *reported], key=lambda death: -death.at)


def _is_same_death(reported: Death, recorded: Death) -> bool:
    if (reported.namespace, reported.pod) != (recorded.namespace, recorded.pod):
        return False
    if not reported.container:  # all of the pod was evicted
        return reported.what == recorded.what
    is_near = abs(reported.at - recorded.at) <= SAME_END
    return is_near and reported.container == recorded.container


class SnapshotStory(NamedTuple):
    """A story, and what it was made of."""

    recording: Recording
    story: Story
    has_records: bool
    """Whether it has records in addition to one reading."""


def snapshot_stories(
    snapshot: Snapshot,
    names: CgroupNames,
    namespace: str,
    pod: str,
    planned: PlanLookup = unknown_plan,
) -> list[SnapshotStory]:
    """The stories of a pod's containers; of a pod that no longer runs, what was recorded.

    `planned` has the rules that are not recorded.
    """
    recorded = [
        each
        for each in snapshot_recordings(snapshot)
        if (each.who.namespace, each.who.pod) == (namespace, pod)
    ]
    node = next((each for each in snapshot_recordings(snapshot) if each.who.is_node), None)
    running = [
        each
        for each in snapshot.running
        if (each.metadata.namespace or "default", each.metadata.name) == (namespace, pod)
    ]
    if running:
        by_key = {each.who.key: each for each in recorded}
        return [
            _story_of_look(look, by_key.get(look.who.key), node, planned)
            for each in running
            for look in _looks(snapshot, names, each)
        ]
    return [SnapshotStory(each, story_of(each, node), True) for each in latest_recordings(recorded)]


class _Look(NamedTuple):
    """A container as the snapshot shows it."""

    who: Subject
    files: Mapping[str, str]
    container: Container
    past: PastPod
    at: int


def _looks(snapshot: Snapshot, names: CgroupNames, pod: Pod) -> Iterator[_Look]:
    at = milliseconds(snapshot.taken_at) or 0
    owners = Owners((names,), snapshot.running)
    key = f"{pod.metadata.namespace or 'default'}/{pod.metadata.name}"
    files = {
        owner.container: content
        for path, content in snapshot.cgroups.items()
        if (owner := owners.of(path)) is not None and owner.pod == key and owner.container
    }
    past = _past_pod(pod)
    for container in containers_of(pod):
        name = container.name
        yield _Look(subject_of(pod, name), files.get(name, {}), container, past, at)


def _past_pod(pod: Pod) -> PastPod:
    status = pod.status or PodStatus()
    return msgspec.convert(
        msgspec.structs.replace(pod, status=status), PastPod, from_attributes=True
    )


def _story_of_look(
    look: _Look, recording: Recording | None, node: Recording | None, planned: PlanLookup
) -> SnapshotStory:
    reading = reading_of(look.files, look.at)
    levels = [] if reading is None else [level_of(reading)]
    if recording is not None:
        known = recording.records
        is_recorded = any(isinstance(each, EvictionRecord) for each in known)
        later = () if is_recorded else _eviction_records(look)
        whole = msgspec.structs.replace(recording, records=(*known, *later, *levels))
        story = story_of(whole, node, planned)
        return SnapshotStory(whole, _with_chapters(story, look), True)
    alone = Recording(look.who, (*levels, *_eviction_records(look)))
    counted = []
    if reading is not None and reading.events.get("high"):
        counted.append(_throttle_chapter(reading, look.files, planned(look.who.container)))
    if reading is not None and processes_killed(reading.events):
        counted.append(_kill_chapter(reading))
    story = _with_chapters(story_of(alone), look, counted)
    story = msgspec.structs.replace(
        story,
        since=story.since or look.at,
        until=story.until or look.at,
        notes=(*story.notes, _SINGLE_LOOK_NOTE),
    )
    return SnapshotStory(alone, story, False)


def _with_chapters(story: Story, look: _Look, counted: Iterable[Chapter] = ()) -> Story:
    """The same with what is counted in the cgroup, and with how the container has ended."""
    chapters = [*story.chapters, *counted]
    status = statuses_by_name(look.past.status).get(look.who.container)
    for chapter in end_chapters(status, memory_limit(look.container)):
        add_chapter(chapters, chapter)
    return msgspec.structs.replace(
        story, chapters=tuple(sorted(chapters, key=lambda chapter: chapter.at))
    )


def _eviction_records(look: _Look) -> Iterator[FlightRecord]:
    status = look.past.status
    if status.reason == EVICTED:
        at = eviction_time(look.past) or look.at
        yield EvictionRecord(at, EVICTED, status.message or "")


def _kill_chapter(reading: MemoryReading) -> Chapter:
    kills = pluralize(processes_killed(reading.events), "process", "processes")
    rule = limit_rule()
    return Chapter(
        at=reading.at,
        kind="killed",
        what=f"OOM-killed by the kernel: {kills}",
        evidence=(
            "memory.events has counted this since its cgroup was created; one reading cannot show "
            "when",
        ),
        rule=rule.id,
        because=rule.text,
        remedies=tuple(limit_remedies(reading.max)),
    )


def _throttle_chapter(
    reading: MemoryReading, files: Mapping[str, str], planned: FileSettings | None
) -> Chapter:
    events = reading.events["high"]
    high = "max" if reading.high is None else format_bytes(reading.high)
    evidence = [
        f"{pluralize(events, 'high event')} since its cgroup was created; one reading cannot "
        f"show when",
        f"{format_bytes(reading.current)} in use, {format_bytes(reading.anon)} anonymous, "
        f"memory.high {high}",
    ]
    if "memory.pressure" in files:
        full = stall_of(files["memory.pressure"]).full
        evidence.append(f"nothing ran for {full.avg300:.0f} % of the last five minutes")
    rule, doubt = rule_of_high(planned, reading.high)
    return Chapter(
        at=reading.at,
        kind="throttled",
        what="throttled at memory.high",
        evidence=(*evidence, *doubt),
        rule=rule.id,
        because=rule.text,
        remedies=("a higher memory limit: memory.high is computed from it",),
    )
