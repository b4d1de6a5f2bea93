"""How an agent stands: what it knows of itself beyond its core, shared by all who tell of it."""

from collections.abc import Iterator
from typing import Any, Final

from memqos.agent.core.pod_intent import WRITABLE_FILES, Notice, PodIntent
from memqos.agent.core.reconciler import Reconciler
from memqos.agent.events import Announcer
from memqos.agent.kernel_counters import CgroupCounters
from memqos.agent.sampler import Sampler
from memqos.plan.changes import as_stored
from memqos.plan.tree import Cgroup

STUCK_AFTER: Final = 60.0
"""Seconds without a pass after which something must be wrong."""


class AgentStatus:
    """Kept by the loop, read by metrics, health and state. Times are the clock's, or Unix's."""

    def __init__(
        self,
        core: Reconciler,
        version: str,
        now: float,
        unix: float,
        sampler: Sampler | None = None,
    ) -> None:
        self.core = core
        self.sampler = sampler
        self.version = version
        self.passed_at = now
        """When a pass last ended well."""
        self.is_complete = False
        """Whether the whole node has been looked at since the start."""
        self.resynced: float | None = None
        """Unix time of the last look at the whole node with all of its pods."""
        self.reloaded = unix
        """Unix time at which the configuration in force was read."""
        self.reload_fault: str | None = None
        """Why a newer configuration is not in force."""
        self.failing: str | None = None
        """Why a pass failed, until a resync of the whole node has succeeded."""
        self.journal_fault: str | None = None
        """Why the journal lacks what was done last."""
        self._failing_since = now
        self.counters: dict[str, CgroupCounters] = {}
        self.announcer: Announcer | None = None

    def fail(self, why: str, now: float) -> None:
        """Note that a pass failed."""
        if self.failing is None:
            self._failing_since = now
        self.failing = why

    def recover(self) -> None:
        """Note that a resync of the whole node has succeeded."""
        self.failing = None

    def health_problem(self, now: float) -> str | None:
        """Why the agent should be started anew; None where it should not."""
        silent = now - self.passed_at
        resyncs = 2 * self.core.configuration.resync
        # Mode observe has nothing to do between two resyncs.
        if silent > STUCK_AFTER + (0 if self.core.schedule.polls else resyncs):
            return f"no pass has ended well for {silent:.0f} s" + (
                f": {self.failing}" if self.failing else ""
            )
        failing = now - self._failing_since
        if self.failing is not None and failing > STUCK_AFTER + resyncs:
            return f"resync has failed for {failing:.0f} s: {self.failing}"
        return None

    def readiness_problem(self) -> str | None:
        """Why the agent does not do its work yet; None where it does."""
        doubt = self.core.planner.node_settings.doubt
        if doubt is not None and self.core.configuration.mode == "enforce":
            return f"nothing is written: {doubt}"
        if self.failing is not None:
            return self.failing
        if not self.is_complete:
            return "not all of the node and its pods has been read yet; the log names what fails"
        unconfirmed = self.core.drift.unconfirmed_since
        if unconfirmed is not None and self.passed_at - unconfirmed > STUCK_AFTER:
            return "protection above pods waits for the kubelet to tell its configuration"
        return self.journal_fault


def agent_state(status: AgentStatus, now: float) -> dict[str, Any]:
    """All of it as plain data; ages and waits are in seconds."""
    core = status.core
    terms = core.planner.node_settings.settings
    return {
        "version": status.version,
        "mode": core.configuration.mode,
        "release": str(terms.release),
        "policy": terms.policy,
        "factor": terms.factor,
        "placement": terms.placement,
        "converged": not core.pending,
        "failing": status.failing,
        "configurationRefused": status.reload_fault,
        "doubt": core.planner.node_settings.doubt,
        "notes": list(core.planner.node_settings.notes),
        "reservable": core.node_intent.reservable,
        "numa": _numa(core),
        "levels": [_cgroup(core, each) for each in core.node_intent.last_parent_cgroups],
        "reserved": [
            _cgroup(core, e)
            for e in core.node_intent.reserved
            if core.node_intent.is_enforced(e, None)
        ],
        "pods": [_pod(core, wish) for wish in tuple(core.node_intent.intents.values())],
        "waiting": {
            "ramps": _waits(core.schedule.ramps, now),
            "backoff": _waits(core.schedule.backoff.until, now),
        },
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
            for each in tuple(core.drift.drifts.values())
        ],
        "leftAlone": [
            {"path": path, "file": file, "cause": each.cause}
            for (path, file), each in tuple(core.drift.fights.contested.items())
        ],
    }


def _pod(core: Reconciler, intent: PodIntent) -> dict[str, Any]:
    cgroups = core.node_intent.cgroups_of(intent.path) if intent.path is not None else ()
    return {
        "pod": intent.key,
        "mode": intent.mode or "unselected",
        "leftOut": intent.path in core.node_intent.unreserved,
        "annotationsRefused": list(intent.refused_annotations),
        "annotationsIgnored": intent.ignored_annotations,
        "notices": [_notice(each) for each in core.node_intent.notices_of(intent.path or "")],
        "unresolved": [
            {"container": each.container, "why": each.why} for each in intent.unresolved
        ],
        "cgroups": [_cgroup(core, each) for each in cgroups],
    }


def _notice(notice: Notice) -> dict[str, Any]:
    hint = {} if notice.hint is None else {"hint": notice.hint}
    return {"reason": notice.reason, "what": notice.what, **hint}


def _numa(core: Reconciler) -> dict[str, Any]:
    """Who assigns, what speaks against it, who was assigned what, and what is left of each node."""
    bindings = core.bindings
    if bindings is None:
        return {"mode": "off"}
    intents = core.node_intent.by_path
    found = bindings.assigner.state
    return {
        "mode": core.configuration.numa,
        "faults": list(bindings.faults.values()),
        "assigned": [
            {
                "pod": intents[path].key,
                "container": container,
                "nodes": list(each.nodes),
                "holds": dict(each.amounts),
            }
            for path, assignments in tuple(bindings.assignments.items())
            if path in intents
            for container, each in assignments.items()
            if each.nodes
        ],
        "nodes": {
            str(number): {
                name: {"allocatable": table.allocatable, "free": table.free}
                for name, table in node.memory.items()
            }
            for number, node in (found.nodes if found is not None else {}).items()
        },
    }


def _cgroup(core: Reconciler, cgroup: Cgroup) -> dict[str, Any]:
    known = core.observed.by_path.get(cgroup.path)
    return {
        "path": cgroup.path,
        "container": cgroup.container,
        "present": known is not None,
        "files": dict(_files(cgroup, {} if known is None else known.files, core.planner.page_size)),
    }


def _files(
    cgroup: Cgroup, actual: dict[str, str], page_size: int
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
                "because": because.says,
                "steps": because.steps,
                "source": because.source,
            },
        )


def _waits(times: dict[str, float], now: float) -> dict[str, float]:
    return {path: round(max(0.0, at - now), 1) for path, at in tuple(times.items())}
