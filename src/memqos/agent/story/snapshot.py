"""The story that a snapshot tells of a pod: one look, the kernel's counters, the pod's status."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

import msgspec

from memqos.agent.recorder.chronicle import who_is
from memqos.agent.recorder.files import Recording
from memqos.agent.recorder.recording import Reading, level_of, reading_of
from memqos.agent.recorder.records import Counted, Evicted, Record
from memqos.agent.story import story_of
from memqos.api.kernel.stall import stall_of
from memqos.api.pod import ContainerStatus, Pod
from memqos.api.shape import containers_of
from memqos.api.snapshot import Snapshot
from memqos.draw.amounts import counted
from memqos.draw.scale import short_size
from memqos.findings.chapters import Chapter, Story
from memqos.plan.names import CgroupNames
from memqos.plan.owners import Owners

_ONE_LOOK: Final = "a snapshot is one look: memqos agent records what happens in between"


def stories_in(snapshot: Snapshot, names: CgroupNames, namespace: str, pod: str) -> Iterator[Story]:
    """The stories of a pod's containers."""
    at = _milliseconds(snapshot.taken_at) or 0
    owners = Owners((names,), snapshot.running)
    for found in snapshot.running:
        if (found.metadata.namespace or "default", found.metadata.name) != (namespace, pod):
            continue
        files = {
            owner.container: content
            for path, content in snapshot.cgroups.items()
            if (owner := owners.of(path)) is not None
            and owner.pod == f"{namespace}/{pod}"
            and owner.container
        }
        statuses = _statuses(found)
        for container in containers_of(found):
            yield _story(
                found,
                container.name,
                files.get(container.name, {}),
                statuses.get(container.name),
                at,
            )


def _story(
    pod: Pod, name: str, files: Mapping[str, str], status: ContainerStatus | None, at: int
) -> Story:
    records: list[Record] = []
    reading = reading_of(files, at)
    if reading is not None:
        records.append(level_of(reading))
        kills = reading.events.get("oom_kill", 0)
        if kills:
            records.append(Counted(at, "oom_kill", kills))
    last = None if status is None or status.last_state is None else status.last_state.terminated
    if last is not None and last.reason == "OOMKilled":
        records.append(Counted(_milliseconds(last.finished_at) or at, "oom_kill", 1))
    if pod.status is not None and pod.status.reason == "Evicted":
        records.append(Evicted(at, "Evicted", pod.status.message or ""))
    story = story_of(Recording(who_is(pod, name), tuple(records)))
    chapters = [*story.chapters, *([] if reading is None else _throttled(reading, files))]
    chapters.sort(key=lambda chapter: chapter.at)
    return msgspec.structs.replace(
        story,
        since=story.since or at,
        until=story.until or at,
        chapters=tuple(chapters),
        notes=(*story.notes, _ONE_LOOK),
    )


def _throttled(reading: Reading, files: Mapping[str, str]) -> Iterator[Chapter]:
    events = reading.events.get("high", 0)
    if not events:
        return
    high = "max" if reading.high is None else short_size(reading.high)
    evidence = [
        f"{counted(events, 'high event')} since its cgroup was made; when, one look cannot tell",
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
