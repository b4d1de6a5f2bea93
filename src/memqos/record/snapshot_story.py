"""The recorder's files in a snapshot: those last written to, as many as there is room for."""

import binascii
import os
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from memqos.agent.flight_recorder import subject_of
from memqos.host.record_files import (
    CURRENT_SUFFIX,
    OLDER_SUFFIX,
    list_record_files,
    record_file_name,
)
from memqos.kernel.file_formats import stall_of
from memqos.kube.pod import ContainerStatus, Pod
from memqos.kube.shape import containers_of
from memqos.manifests.snapshot import Snapshot
from memqos.plan.names import CgroupNames
from memqos.plan.owners import Owners
from memqos.record.chapters import Chapter, Story
from memqos.record.format import (
    CountRecord,
    EvictionRecord,
    FlightRecord,
    KillRecord,
    Subject,
)
from memqos.record.readings import MemoryReading, level_of, reading_of
from memqos.record.recordings import (
    SAME_END,
    Recording,
    decode_recording,
    latest_recordings,
    read_record_file,
    to_wall_clock,
)
from memqos.record.story import story_of
from memqos.units import format_bytes, pluralize

SNAPSHOT_RECORD_BYTES: Final = 4 << 20
"""Bytes of files; in a snapshot they take a third more."""
_HALVES: Final = (OLDER_SUFFIX, CURRENT_SUFFIX)
_NODE: Final = record_file_name(Subject(0))


def add_records(snapshot: Snapshot, folder: str, most: int = SNAPSHOT_RECORD_BYTES) -> Snapshot:
    """A snapshot that holds the records in a folder too; its notes say which are missing."""
    try:
        names = _latest_first(folder)
    except PermissionError:
        notes = (*snapshot.notes, f"no records: {folder} is not yours to read – run as root")
        return msgspec.structs.replace(snapshot, notes=notes)
    held: dict[str, str] = {}
    carried = 0
    for name in names:
        files = {
            name + suffix: read_record_file(os.path.join(folder, name + suffix))
            for suffix in _HALVES
        }
        most -= sum(map(len, files.values()))
        if most < 0:
            break
        carried += 1
        held |= {file: b64encode(data).decode() for file, data in files.items() if data}
    notes = snapshot.notes
    if carried < len(names):
        notes += (f"records: the {carried} last written to, of {len(names)}",)
    return msgspec.structs.replace(snapshot, records=held, notes=notes)


def snapshot_recordings(snapshot: Snapshot) -> Iterator[Recording]:
    """The records in a snapshot; what makes no sense is passed over."""
    files = snapshot.records
    yield from to_wall_clock(
        decode_recording(*[_decode_file(files, name + suffix) for suffix in _HALVES])
        for name in sorted({os.path.splitext(file)[0] for file in files})
    )


def _latest_first(folder: str) -> list[str]:
    """The names of recordings, the node's own before all others."""
    touched: dict[str, float] = {}
    for name, when in list_record_files(folder):
        touched[name] = max(when, touched.get(name, 0.0))
    return sorted(touched, key=lambda name: (name != _NODE, -touched[name], name))


def _decode_file(files: Mapping[str, str], name: str) -> bytes:
    try:
        return b64decode(files.get(name, ""), validate=True)
    except (binascii.Error, ValueError):
        return b""


_SINGLE_LOOK_NOTE: Final = "a snapshot is one look: memqos agent records what happens in between"


class SnapshotStory(NamedTuple):
    """A story, and what it was made of."""

    recording: Recording
    story: Story
    has_records: bool
    """Whether there is more to it than one look."""


def snapshot_stories(
    snapshot: Snapshot, names: CgroupNames, namespace: str, pod: str
) -> list[SnapshotStory]:
    """The stories of a pod's containers; of one that is gone, what was recorded."""
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
            _story_of_look(look, by_key.get(look.who.key), node)
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
    at = _milliseconds(snapshot.taken_at) or 0
    owners = Owners((names,), snapshot.running)
    key = f"{pod.metadata.namespace or 'default'}/{pod.metadata.name}"
    files = {
        owner.container: content
        for path, content in snapshot.cgroups.items()
        if (owner := owners.of(path)) is not None and owner.pod == key and owner.container
    }
    statuses = _statuses(pod)
    for container in containers_of(pod):
        name = container.name
        yield _Look(pod, subject_of(pod, name), files.get(name, {}), statuses.get(name), at)


def _story_of_look(
    look: _Look, recording: Recording | None, node: Recording | None
) -> SnapshotStory:
    reading = reading_of(look.files, look.at)
    if recording is not None:
        seen = [] if reading is None else [level_of(reading)]
        known = recording.records
        later = [each for each in _status_records(look) if not _is_known(each, known)]
        whole = msgspec.structs.replace(recording, records=(*known, *later, *seen))
        return SnapshotStory(whole, story_of(whole, node), True)
    records = [] if reading is None else _reading_records(reading)
    alone = Recording(look.who, (*records, *_status_records(look)))
    story = story_of(alone)
    chapters = [
        *story.chapters,
        *([] if reading is None else _throttle_chapter(reading, look.files)),
    ]
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
        yield CountRecord(_milliseconds(last.finished_at) or look.at, "oom_kill", 1)
    if pod.status is not None and pod.status.reason == "Evicted":
        yield EvictionRecord(look.at, "Evicted", pod.status.message or "")


def _is_known(told: FlightRecord, records: Iterable[FlightRecord]) -> bool:
    """Whether what a status tells of is recorded as well."""
    if isinstance(told, EvictionRecord):
        return any(isinstance(each, EvictionRecord) for each in records)
    return any(
        abs(each.at - told.at) <= SAME_END
        for each in records
        if isinstance(each, KillRecord)
        or (isinstance(each, CountRecord) and each.event == "oom_kill")
    )


def _throttle_chapter(reading: MemoryReading, files: Mapping[str, str]) -> Iterator[Chapter]:
    events = reading.events.get("high", 0)
    if not events:
        return
    high = "max" if reading.high is None else format_bytes(reading.high)
    evidence = [
        f"{pluralize(events, 'high event')} since its cgroup was made; when, one look cannot tell",
        f"{format_bytes(reading.current)} in use, {format_bytes(reading.anon)} anonymous, "
        f"memory.high {high}",
    ]
    if "memory.pressure" in files:
        full = stall_of(files["memory.pressure"]).full
        evidence.append(f"nothing ran for {full.avg300:.0f} % of the last five minutes")
    yield Chapter(
        reading.at,
        "throttled",
        "throttled at memory.high",
        tuple(evidence),
        rule="high/above-request",
        because="throttled from a share of what lies between request and limit",
        remedies=("a higher memory limit: memory.high follows from it",),
    )


def _statuses(pod: Pod) -> dict[str, ContainerStatus]:
    status = pod.status
    if status is None:
        return {}
    groups = (
        status.container_statuses,
        status.init_container_statuses,
        status.ephemeral_container_statuses,
    )
    return {each.name: each for group in groups for each in group or ()}


def _milliseconds(text: str | None) -> int | None:
    try:
        return None if text is None else int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return None
