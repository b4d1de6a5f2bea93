"""The containers of a namespace that have died lately, by their pods' statuses and by records."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from memqos.kube.pod_history import Ended, PastPod, milliseconds, statuses_by_name
from memqos.kube.shape import containers_in
from memqos.record.cluster_story import EVICTED, OOM_KILLED, eviction_time, memory_limit
from memqos.record.event_chapters import printable_line
from memqos.record.format import CountRecord, KillRecord
from memqos.record.recordings import SAME_END, RecordIndex, Recording
from memqos.record.story import story_of


class Death(msgspec.Struct, frozen=True, kw_only=True):
    """A container that has ended, and not well."""

    at: int
    """Milliseconds since 1970."""
    pod: str
    container: str
    what: str
    limit: int | None = None
    """Bytes, by the pod's spec."""
    usage: int | None = None
    """Bytes in use when it died, by the records of an agent."""
    node: str = ""
    namespace: str = ""
    is_oom: bool = False


def list_deaths(pods: Iterable[PastPod]) -> list[Death]:
    """How containers of pods have ended, the latest first."""
    found = [death for pod in pods for death in _deaths_of_pod(pod)]
    return sorted(found, key=lambda death: -death.at)


def recorded_deaths(recordings: Sequence[Recording], namespace: str | None) -> list[Death]:
    """How containers have ended by records alone, the latest first; of all namespaces if None."""
    node = next((each for each in recordings if each.who.is_node), None)
    found = [
        with_recorded_usage(
            Death(
                at=chapter.at,
                namespace=each.who.namespace,
                pod=each.who.pod,
                container=each.who.container,
                what=chapter.what.partition(":")[0],
                limit=_limit_at(each, chapter.at),
                is_oom=chapter.kind == "killed",
            ),
            [each],
        )
        for each in recordings
        if not each.who.is_node and namespace in (None, each.who.namespace)
        for chapter in story_of(each, node).chapters
        if chapter.kind in ("killed", "evicted")
    ]
    return sorted(found, key=lambda death: -death.at)


def _limit_at(recording: Recording, at: int) -> int | None:
    """Of the cgroup whose memory had run out."""
    kills = (each for each in recording.records if isinstance(each, KillRecord))
    return next((each.limit for each in kills if abs(each.at - at) <= SAME_END), None)


def with_recorded_usage(death: Death, recordings: Sequence[Recording]) -> Death:
    """The same with what was in use when it died, where that is recorded."""
    for each in recordings:
        if (each.who.pod, each.who.container) == (death.pod, death.container):
            usage = _usage_at(each, death.at)
            if usage is not None:
                return msgspec.structs.replace(death, usage=usage)
    return death


def _usage_at(recording: Recording, at: int) -> int | None:
    facts = RecordIndex(recording.who, sorted(recording.records, key=lambda each: each.at), ())
    near = [each for each in facts.records_of(KillRecord) if abs(each.at - at) <= SAME_END]
    for kill in near:
        if kill.usage is not None:
            return kill.usage
    counts = [
        each.at
        for each in facts.records_of(CountRecord)
        if each.event == "oom_kill" and abs(each.at - at) <= SAME_END
    ]
    before = min(counts, default=at)
    levels = [each for each in facts.levels if each.at < before]
    return levels[-1].current if levels else None


def _deaths_of_pod(pod: PastPod) -> Iterator[Death]:
    name, node = pod.metadata.name or "", pod.spec.node_name or ""
    namespace = pod.metadata.namespace or "default"
    if pod.status.reason == EVICTED:
        yield Death(
            at=eviction_time(pod) or 0,
            namespace=namespace,
            pod=name,
            container="",
            what="evicted by the kubelet",
            node=node,
        )
    limits = {each.name: memory_limit(each) for each in containers_in(pod.spec)}
    for container, status in statuses_by_name(pod.status).items():
        for state in (status.state, status.last_state):
            ended = None if state is None else state.terminated
            at_end = None if ended is None else milliseconds(ended.finished_at)
            if ended is None or at_end is None or not _is_death(ended):
                continue
            is_oom = ended.reason == OOM_KILLED
            reason = "OOM-killed by the kernel" if is_oom else _describe_end(ended)
            yield Death(
                at=at_end,
                namespace=namespace,
                pod=name,
                container=container,
                what=reason,
                limit=limits.get(container),
                node=node,
                is_oom=is_oom,
            )


def _is_death(ended: Ended) -> bool:
    return ended.reason == OOM_KILLED or bool(ended.exit_code)


def _describe_end(ended: Ended) -> str:
    return f"{printable_line(ended.reason or 'ended')}, exit code {ended.exit_code}"
