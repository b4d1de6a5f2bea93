"""An agent's state for a person on the node: the last plan, with the reason for every value."""

from collections.abc import Iterator
from typing import Any

from memqos.agent.core.notices import Notice
from memqos.agent.core.pod_intent import WRITABLE_FILES, PodIntent
from memqos.agent.core.reconciler import Reconciler
from memqos.agent.status import AgentStatus
from memqos.plan.changes import as_stored
from memqos.plan.tree import Cgroup


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
                "holds": dict(each.holds),
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
