"""The stories that a snapshot tells of a pod: the agent's records, or else one look.

One look is what there is now, the kernel's counters and the pod's status; it ends a record, too.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from memqos.agent.recorder.carried import snapshot_recordings
from memqos.agent.recorder.chronicle import subject_of
from memqos.agent.recorder.reading import Recording, latest_recordings
from memqos.agent.recorder.recording import MemoryReading, level_of, reading_of
from memqos.agent.recorder.records import (
    CountRecord,
    EvictionRecord,
    FlightRecord,
    KillRecord,
    Subject,
)
from memqos.agent.story import story_of
from memqos.agent.story.facts import SAME_END
from memqos.draw.amounts import pluralize
from memqos.draw.scale import short_size
from memqos.findings.chapters import Chapter, Story
from memqos.kernel.stall import stall_of
from memqos.kube.pod import ContainerStatus, Pod
from memqos.kube.shape import containers_of
from memqos.manifests.snapshot import Snapshot
from memqos.plan.names import CgroupNames
from memqos.plan.owners import Owners

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
    high = "max" if reading.high is None else short_size(reading.high)
    evidence = [
        f"{pluralize(events, 'high event')} since its cgroup was made; when, one look cannot tell",
        f"{short_size(reading.current)} in use, {short_size(reading.anon)} anonymous, "
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
