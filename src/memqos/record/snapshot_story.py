"""The stories of containers in a snapshot: from its records, its cgroups and pod status."""

import binascii
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from memqos.kernel.file_formats import stall_of
from memqos.kube.pod import ContainerStatus, Pod
from memqos.kube.pod_history import milliseconds, statuses_by_name
from memqos.kube.shape import containers_of
from memqos.manifests.snapshot import Snapshot
from memqos.plan.names import CgroupNames
from memqos.plan.owners import Owners
from memqos.plan.setting import FileSettings
from memqos.record.chapters import Chapter, Story
from memqos.record.format import (
    HALF_SUFFIXES,
    CountRecord,
    EvictionRecord,
    FlightRecord,
    KillRecord,
    Subject,
    subject_of,
)
from memqos.record.readings import MemoryReading, level_of, reading_of
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

    pod: Pod
    who: Subject
    files: Mapping[str, str]
    status: ContainerStatus | None
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
    statuses = statuses_by_name(pod.status)
    for container in containers_of(pod):
        name = container.name
        yield _Look(pod, subject_of(pod, name), files.get(name, {}), statuses.get(name), at)


def _story_of_look(
    look: _Look, recording: Recording | None, node: Recording | None, planned: PlanLookup
) -> SnapshotStory:
    reading = reading_of(look.files, look.at)
    if recording is not None:
        current = [] if reading is None else [level_of(reading)]
        known = recording.records
        later = [each for each in _status_records(look) if not _is_known(each, known)]
        whole = msgspec.structs.replace(recording, records=(*known, *later, *current))
        return SnapshotStory(whole, story_of(whole, node, planned), True)
    records = [] if reading is None else _reading_records(reading)
    alone = Recording(look.who, (*records, *_status_records(look)))
    story = story_of(alone)
    chapters = list(story.chapters)
    if reading is not None and reading.events.get("high"):
        chapters.append(_throttle_chapter(reading, look.files, planned(look.who.container)))
    chapters.sort(key=lambda chapter: chapter.at)
    story = msgspec.structs.replace(
        story,
        since=story.since or look.at,
        until=story.until or look.at,
        chapters=tuple(chapters),
        notes=(*story.notes, _SINGLE_LOOK_NOTE),
    )
    return SnapshotStory(alone, story, False)


def _reading_records(reading: MemoryReading) -> list[FlightRecord]:
    kills = reading.events.get("oom_kill", 0)
    return [level_of(reading), *([CountRecord(reading.at, "oom_kill", kills)] if kills else [])]


def _status_records(look: _Look) -> Iterator[FlightRecord]:
    status, pod = look.status, look.pod
    last = None if status is None or status.last_state is None else status.last_state.terminated
    if last is not None and last.reason == "OOMKilled":
        yield CountRecord(milliseconds(last.finished_at) or look.at, "oom_kill", 1)
    if pod.status is not None and pod.status.reason == "Evicted":
        yield EvictionRecord(look.at, "Evicted", pod.status.message or "")


def _is_known(reported: FlightRecord, records: Iterable[FlightRecord]) -> bool:
    """Whether what a status reports is recorded as well."""
    if isinstance(reported, EvictionRecord):
        return any(isinstance(each, EvictionRecord) for each in records)
    return any(
        abs(each.at - reported.at) <= SAME_END
        for each in records
        if isinstance(each, KillRecord)
        or (isinstance(each, CountRecord) and each.event == "oom_kill")
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
