"""The status of a node: is it on, converged, who is throttled, what was done, what is wrong."""

from collections.abc import Iterable, Iterator
from typing import Final, Literal

import msgspec

from memqos.manifests.agent_state import NriState
from memqos.monitor.instant import ContainerRow, NodeInstant
from memqos.record.chapters import Chapter, ChapterKind
from memqos.record.recordings import Recording
from memqos.record.story import story_of
from memqos.units import duration_words

HOUR: Final = 3_600_000
_ACTIONS: Final[tuple[ChapterKind, ...]] = (
    "killed",
    "evicted",
    "guarded",
    "changed",
    "resized",
    "throttled",
)
_MOST_ACTIONS: Final = 200

Mode = Literal["enforce", "observe", "no agent", "cluster"]


class Action(msgspec.Struct, frozen=True):
    """Something that was done to a container, or happened to it."""

    at: int
    who: str
    kind: ChapterKind
    what: str
    rule: str | None = None


class StatusReport(msgspec.Struct, frozen=True, kw_only=True):
    """One screen about a node."""

    origin: str
    at: int
    enablement: str | None
    """Whether Memory QoS is on by the kubelet's configuration."""
    mode: Mode
    converged: bool | None
    """None without an agent."""
    converged_for: float | None = None
    """Seconds."""
    containers: int = 0
    managed: int = 0
    """Pods whose values the agent manages."""
    pods: int = 0
    pod_source: str | None = None
    """Where the agent has its pods from."""
    nodes: int = 0
    """Of a cluster; `enforcing` are those whose agents enforce."""
    enforcing: int = 0
    throttled: tuple[ContainerRow, ...] = ()
    throttling_known: bool = True
    """Whether high events were read twice: one reading cannot show who is throttled."""
    actions: tuple[Action, ...] = ()
    """Of the last hour, the newest first."""
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_well(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def node_status(
    instant: NodeInstant, recordings: Iterable[Recording] = (), notes: Iterable[str] = ()
) -> StatusReport:
    """The status of a node, given its records where there are any."""
    agent, nodes = instant.agent, instant.nodes
    report = StatusReport(
        origin=instant.origin,
        at=instant.at,
        enablement=instant.enablement,
        mode="no agent" if agent is None else agent.mode,
        converged=None if agent is None else agent.converged,
        converged_for=None if agent is None else agent.converged_for,
        containers=len(instant.rows),
        managed=0 if agent is None else len(agent.managed_pods),
        pods=_count_pods(instant),
        pod_source=None if agent is None else agent.pod_source or None,
        throttled=instant.throttled or (),
        throttling_known=instant.throttled is not None,
        actions=tuple(recent_actions(recordings, instant.at)),
        problems=tuple(_problems(instant)),
        notes=(*(each for each in instant.notes if each not in instant.faults), *notes),
    )
    if not nodes:
        return report
    return msgspec.structs.replace(
        report,
        mode="cluster",
        converged=all(node.converged for node in nodes),
        pods=sum(node.pods for node in nodes),
        managed=sum(node.managed for node in nodes),
        nodes=len(nodes),
        enforcing=sum(node.mode == "enforce" for node in nodes),
        problems=tuple(f"{node.name}: {each}" for node in nodes for each in node.problems),
    )


def _count_pods(instant: NodeInstant) -> int:
    if instant.agent is not None:
        return len(instant.agent.pods)
    return len({row.pod for row in instant.rows}) or instant.unmeasured


def recent_actions(recordings: Iterable[Recording], at: int, within: int = HOUR) -> list[Action]:
    """What happened within a time before `at`, the newest first."""
    every = list(recordings)
    node = next((each for each in every if each.who.is_node), None)
    actions: list[Action] = []
    for recording in every:
        who = recording.who
        last = max((record.at for record in recording.records), default=0)
        if who.is_node or last < at - within:
            continue
        name = f"{who.namespace}/{who.pod} {who.container}"
        actions += [
            Action(when, name, chapter.kind, chapter.what, chapter.rule)
            for chapter in story_of(recording, node).chapters
            if chapter.kind in _ACTIONS and at - within <= (when := _last_time(chapter)) <= at
        ]
    actions.sort(key=lambda action: -action.at)
    return actions[:_MOST_ACTIONS]


def _last_time(chapter: Chapter) -> int:
    return chapter.at if chapter.until is None else chapter.until


def _problems(instant: NodeInstant) -> Iterator[str]:
    yield from instant.faults
    agent = instant.agent
    if agent is None:
        return
    if agent.failing is not None:
        yield f"the agent's last pass failed: {agent.failing}"
    if agent.doubt is not None and agent.mode == "enforce":
        yield f"the agent writes nothing: {agent.doubt}"
    if agent.configuration_refused is not None:
        yield f"the agent does not use its newer configuration: {agent.configuration_refused}"
    if agent.enforces and not agent.converged and agent.failing is None:
        yield "the agent has values to write that are not written yet"
    for each in agent.left_alone:
        yield f"{each.path}/{each.file} is no longer restored: {each.cause}"
    yield from _nri_problems(agent.nri)
    for drift in agent.drift:
        if drift.age < HOUR / 1000:
            yield (
                f"{drift.path}/{drift.file} was changed to {drift.found} "
                f"{duration_words(round(drift.age * 1000))} ago: {drift.cause}"
            )


def _nri_problems(nri: NriState) -> Iterator[str]:
    if nri.problem is not None:
        yield f"no runtime is connected over NRI: {nri.problem}"
    if nri.contested:
        yield "another NRI plugin sets the same values: containers get theirs after their start"
