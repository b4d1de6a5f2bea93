"""How an agent is doing: its health, its readiness, and all of it as data.

The worker publishes an `AgentView` at the end of each turn. What answers a scrape, a probe or a
request for the state reads the last one, from any thread.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from memqos.agent.core.guard import GuardStep
from memqos.agent.core.pod_intent import WRITABLE_FILES, Notice
from memqos.agent.core.view import NodeView, PodView
from memqos.agent.kernel_counters import CgroupCounters
from memqos.kernel.file_formats import processes_killed
from memqos.plan.changes import as_stored
from memqos.plan.tree import Cgroup

STUCK_AFTER: Final = 60.0
"""Seconds without a pass after which something must be wrong."""


class AgentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the worker knows of its own work. Times are the agent's clock's, or Unix times."""

    version: str
    passed_at: float
    """When a turn last ended well, but perhaps for a full disk."""
    reloaded: float
    """Unix time at which the current configuration was read."""
    is_complete: bool = False
    """Whether the whole node has been looked at since the start."""
    resynced: float | None = None
    """Unix time of the last look at the whole node with all of its pods."""
    reload_fault: str | None = None
    """Why a newer configuration is not used."""
    failing: str | None = None
    """Why a pass failed, until a resync of the whole node has succeeded."""
    failing_since: float = 0.0
    may_restart: bool = True
    """Whether a restart may end that failure."""
    journal_fault: str | None = None
    """Why the journal lacks what was done last."""
    converged_since: float | None = None
    """Since when nothing is to be written; None while something is."""

    def with_failure(self, why: str, now: float, *, may_restart: bool = True) -> "AgentStatus":
        """The same after a pass that failed."""
        is_same = self.failing is not None and self.may_restart == may_restart
        since = self.failing_since if is_same else now
        return msgspec.structs.replace(
            self, failing=why, failing_since=since, may_restart=may_restart
        )


class GuardView(NamedTuple):
    """What the guard has changed."""

    widened: Mapping[str, int]
    """Path of a container → how many steps its memory.high is wider than planned."""
    steps: Mapping[GuardStep, int]
    """Since the start."""
    excluded: int


class RecorderView(NamedTuple):
    """Whether records reach the disk, and how many did not."""

    is_recording: bool
    lost: int


class SamplerView(msgspec.Struct, frozen=True, kw_only=True):
    """What the sampler, the guard and the recorder have counted."""

    kills: int
    """Processes that the kernel has killed for want of memory."""
    kills_by_container: Mapping[tuple[str, str, str], int] = {}
    """The same by namespace, pod and container."""
    guard: GuardView | None
    recorder: RecorderView | None


class EventCounts(NamedTuple):
    """Events for the cluster."""

    sent: int
    dropped: int


NriAnswer = Literal["set", "unchanged", "unknown", "observed", "withheld", "failed", "late"]
"""What became of a container that is created or resized: values were set, none differ or the pod is
not selected, the pod is not known yet, memqos only observes it, another plugin sets the same
values, an error, or the values were not in the journal in time."""


class NriView(msgspec.Struct, frozen=True, kw_only=True):
    """The agent as a plugin of the runtime."""

    runtime: str | None
    """Name and version of the runtime that is connected."""
    problem: str | None
    """Why none is."""
    is_contested: bool
    """Whether another plugin seems to set the same values."""
    answers: Mapping[NriAnswer, int]
    """What became of containers that were created or resized → how many."""
    slowest_answer: float
    """In seconds."""


class AgentView(msgspec.Struct, frozen=True, kw_only=True):
    """The agent at the end of a turn. Nothing in it is changed once it is published."""

    status: AgentStatus
    node: NodeView
    pod_source: str = ""
    """Where the pods come from now."""
    counters: Mapping[str, CgroupCounters] = {}
    """Path of a cgroup → what the kernel counted."""
    counters_at: float = 0.0
    """When that was read, by the agent's clock."""
    sampler: SamplerView | None = None
    events: EventCounts | None = None
    """None where no events are posted."""
    nri: NriView | None = None
    """None where the agent is no plugin of the runtime."""

    def health_problem(self, now: float) -> str | None:
        """Why the agent should be restarted; None where it should not."""
        status = self.status
        age = now - status.passed_at
        resyncs = 2 * self.node.configuration.resync
        # Mode observe has nothing to do between two resyncs.
        if age > STUCK_AFTER + (0 if self.node.polls else resyncs):
            return f"no reconcile has succeeded for {age:.0f} s" + (
                f": {status.failing}" if status.failing else ""
            )
        failing = now - status.failing_since
        if status.failing is not None and status.may_restart and failing > STUCK_AFTER + resyncs:
            return f"resync has failed for {failing:.0f} s: {status.failing}"
        return None

    def readiness_problem(self) -> str | None:
        """Why the agent does not do its work yet; None where it does."""
        status, doubt = self.status, self.node.node_settings.doubt
        if doubt is not None and self.node.configuration.mode == "enforce":
            return f"nothing is written: {doubt}"
        if status.failing is not None:
            return status.failing
        if not status.is_complete:
            return (
                "the node and its pods have not been read completely yet; the log shows the errors"
            )
        unconfirmed = self.node.unconfirmed_since
        if unconfirmed is not None and status.passed_at - unconfirmed > STUCK_AFTER:
            return "protection above pods waits for the kubelet's configuration"
        return status.journal_fault


def agent_state(view: AgentView, now: float) -> dict[str, Any]:
    """All of it as plain data; ages and waits are in seconds."""
    node = view.node
    settings = node.node_settings.settings
    return {
        "version": view.status.version,
        "mode": node.configuration.mode,
        "release": str(settings.release),
        "policy": settings.policy,
        "factor": settings.factor,
        "placement": settings.placement,
        "converged": not node.pending,
        "convergedFor": _age(view.status.converged_since, now),
        "failing": view.status.failing,
        "configurationRefused": view.status.reload_fault,
        "doubt": node.node_settings.doubt,
        "notes": list(node.node_settings.notes),
        "reservable": node.reservable,
        "podSource": view.pod_source,
        "numa": _numa(node),
        "nri": _nri(view.nri),
        "guard": {}
        if view.sampler is None or view.sampler.guard is None
        else dict(view.sampler.guard.widened),
        "usage": _usage(view, now),
        "levels": [_cgroup(node, each) for each in node.parents],
        "reserved": [_cgroup(node, each) for each in node.reserved],
        "pods": [_pod(node, pod) for pod in node.pods],
        "waiting": {"ramps": _waits(node.ramps, now), "backoff": _waits(node.backoff, now)},
        "drift": [
            {
                "path": each.path,
                "file": each.file,
                "held": each.expected,
                "found": each.found,
                "cause": each.cause,
                "evidence": each.evidence,
                "age": round(now - each.at, 1),
            }
            for each in node.drifts
        ],
        "leftAlone": [
            {"path": each.path, "file": each.file, "cause": each.cause}
            for each, _ in node.contested
        ],
    }


def _age(since: float | None, now: float) -> float | None:
    return None if since is None else round(max(0.0, now - since), 1)


def _usage(view: AgentView, now: float) -> dict[str, Any]:
    """What the kernel counted of the cgroups, and how long ago that was read."""
    return {
        "age": _age(view.counters_at, now),
        "cgroups": {
            path: {
                "current": each.current,
                "max": view.node.files.get(path, {}).get("memory.max"),
                "high": each.events.get("high", 0),
                "oomKill": processes_killed(each.events),
                "some": each.pressure.get("some"),
                "full": each.pressure.get("full"),
            }
            for path, each in view.counters.items()
        },
    }


def _pod(node: NodeView, pod: PodView) -> dict[str, Any]:
    intent = pod.intent
    return {
        "pod": intent.key,
        "mode": intent.mode or "unselected",
        "leftOut": pod.is_unreserved,
        "annotationsRefused": list(intent.refused_annotations),
        "annotationsIgnored": intent.ignored_annotations,
        "notices": [_notice(each) for each in pod.notices],
        "unresolved": [
            {"container": each.container, "why": each.why} for each in intent.unresolved
        ],
        "cgroups": [_cgroup(node, each) for each in pod.cgroups],
    }


def _notice(notice: Notice) -> dict[str, Any]:
    hint = {} if notice.hint is None else {"hint": notice.hint}
    return {"reason": notice.reason, "what": notice.what, **hint}


def _numa(node: NodeView) -> dict[str, Any]:
    """The mode, what speaks against it, the assignments, and what is free of each NUMA node."""
    numa = node.numa
    if numa is None:
        return {"mode": "off"}
    keys = {pod.intent.path: pod.intent.key for pod in node.pods}
    return {
        "mode": node.configuration.numa,
        "faults": list(numa.faults),
        "assigned": [
            {
                "pod": keys[path],
                "container": container,
                "nodes": list(each.nodes),
                "holds": dict(each.amounts),
            }
            for path, assignments in numa.assignments.items()
            if path in keys
            for container, each in assignments.items()
            if each.nodes
        ],
        "nodes": {
            str(number): {
                each.name: {"allocatable": each.allocatable, "free": each.free}
                for each in resources
            }
            for number, resources in numa.resources.items()
        },
    }


def _nri(nri: NriView | None) -> dict[str, Any]:
    """Whether a runtime is connected, and what became of its containers."""
    if nri is None:
        return {"mode": "off"}
    return {
        "mode": "on",
        "runtime": nri.runtime,
        "problem": nri.problem,
        "contested": nri.is_contested,
        "answers": dict(nri.answers),
        "slowestAnswer": round(nri.slowest_answer, 6),
    }


def _cgroup(node: NodeView, cgroup: Cgroup) -> dict[str, Any]:
    files = node.files.get(cgroup.path)
    page_size = node.node_settings.settings.page_size
    return {
        "path": cgroup.path,
        "container": cgroup.container,
        "present": files is not None,
        "files": dict(_files(cgroup, files or {}, page_size)),
    }


def _files(
    cgroup: Cgroup, actual: Mapping[str, str], page_size: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    for file in WRITABLE_FILES:
        setting = cgroup.settings.get(file)
        if setting is None:
            continue
        because = setting.because
        yield (
            file,
            {
                "desired": as_stored(file, setting.value, page_size),
                "actual": actual.get(file),
                "rule": because.rule,
                "because": because.text,
                "steps": because.steps,
                "source": because.source,
            },
        )


def _waits(times: Mapping[str, float], now: float) -> dict[str, float]:
    return {path: round(max(0.0, at - now), 1) for path, at in times.items()}
