"""An agent's state for a person on the node: the last plan, with the reason for every value."""

from collections.abc import Iterator
from typing import Any

from memqos.agent.core.notices import Notice
from memqos.agent.core.pod_intent import KEPT, Wish
from memqos.agent.core.reconciler import Reconciler
from memqos.agent.status import Status
from memqos.plan.changes import stored
from memqos.plan.tree import Cgroup


def state(status: Status, now: float) -> dict[str, Any]:
    """All of it as plain data; ages and waits are in seconds."""
    core = status.core
    terms = core.desires.ground.terms
    return {
        "version": status.version,
        "mode": core.configuration.mode,
        "release": str(terms.release),
        "policy": terms.policy,
        "factor": terms.factor,
        "placement": terms.placement,
        "converged": not core.pending,
        "failing": status.failing,
        "configurationRefused": status.reload_refused,
        "doubt": core.desires.ground.doubt,
        "notes": list(core.desires.ground.notes),
        "reservable": core.aims.limit,
        "numa": _numa(core),
        "levels": [_cgroup(core, each) for each in core.aims.above_now],
        "reserved": [
            _cgroup(core, e) for e in core.aims.reserved if core.aims.is_enforced(e, None)
        ],
        "pods": [_pod(core, wish) for wish in tuple(core.aims.wishes.values())],
        "waiting": {
            "ramps": _waits(core.schedule.ramps, now),
            "backoff": _waits(core.schedule.backoff.until, now),
        },
        "drift": [
            {
                "path": each.path,
                "file": each.file,
                "held": each.held,
                "found": each.found,
                "cause": each.cause,
                "evidence": each.evidence,
                "age": round(now - each.at, 1),
            }
            for each in tuple(core.foreign.drifts.values())
        ],
        "leftAlone": [
            {"path": path, "file": file, "cause": each.cause}
            for (path, file), each in tuple(core.foreign.fights.left_alone.items())
        ],
    }


def _pod(core: Reconciler, wish: Wish) -> dict[str, Any]:
    cgroups = core.aims.of(wish.path) if wish.path is not None else ()
    return {
        "pod": wish.key,
        "mode": wish.mode or "unselected",
        "leftOut": wish.path in core.aims.left_out,
        "annotationsRefused": list(wish.refused),
        "annotationsIgnored": wish.ignored,
        "notices": [_notice(each) for each in core.aims.notices(wish.path or "")],
        "unresolved": [{"container": each.container, "why": each.why} for each in wish.unresolved],
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
    wishes = core.aims.by_path
    found = bindings.assigner.state
    return {
        "mode": core.configuration.numa,
        "faults": list(bindings.faults.values()),
        "assigned": [
            {
                "pod": wishes[path].key,
                "container": container,
                "nodes": list(each.nodes),
                "holds": dict(each.holds),
            }
            for path, assignments in tuple(bindings.assigned.items())
            if path in wishes
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
    known = core.cgroups.by_path.get(cgroup.path)
    return {
        "path": cgroup.path,
        "container": cgroup.container,
        "present": known is not None,
        "files": dict(_files(cgroup, {} if known is None else known.files, core.desires.page_size)),
    }


def _files(
    cgroup: Cgroup, actual: dict[str, str], page_size: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    for file in KEPT:
        setting = cgroup.settings.get(file)
        if setting is None:
            continue
        because = setting.because
        yield (
            file,
            {
                "desired": stored(file, setting.value, page_size),
                "actual": actual.get(file),
                "rule": because.rule,
                "because": because.says,
                "steps": because.steps,
                "source": because.source,
            },
        )


def _waits(times: dict[str, float], now: float) -> dict[str, float]:
    return {path: round(max(0.0, at - now), 1) for path, at in tuple(times.items())}
