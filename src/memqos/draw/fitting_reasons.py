"""Why a pod fits a node or not and how the node's scores come about, for people and scripts."""

from collections.abc import Iterator
from typing import Any

from memqos.cluster.fit import Scores, Verdict, needs_of
from memqos.cluster.fit_demand import DEFAULT_REQUESTS, PODS, Demand, Room
from memqos.cluster.fit_scores import BEST, DEFAULT_PROFILE
from memqos.draw.amounts import brief_amount
from memqos.draw.fitting import Fitted, brief, in_order
from memqos.kube.resources import CPU, MEMORY, Amounts, spelled
from memqos.release import Release


def fitting_reasons(fitted: Fitted, release: Release) -> list[str]:
    """The comparison behind every verdict, and the arithmetic behind every score."""
    lines = ["", f"why {fitted.label}", *[f"  {line}" for line in _pod(fitted.demand)]]
    for room, verdict in fitted.ordered:
        lines.append(f"  {room.name}")
        lines += [f"    {line}" for line in _node(fitted.demand, room, verdict, release)]
    return lines


def _pod(demand: Demand) -> Iterator[str]:
    yield f"must be free: {_amounts(demand.filtered)}, from the spec alone"
    if demand.held != demand.filtered:
        yield f"held once it runs: {_amounts(demand.held)}, by its status"
    assumed = ", ".join(
        f"{name} {brief_amount(name, amount)}" for name, amount in DEFAULT_REQUESTS.items()
    )
    yield (
        f"scored as {_amounts(demand.spread)}: a container that asks for nothing counts as "
        f"{assumed}, pod-level values do not count"
    )


def _amounts(amounts: Amounts) -> str:
    told = [f"{name} {brief(name, amounts[name])}" for name in in_order(amounts) if amounts[name]]
    return ", ".join(told) or "nothing"


def _node(demand: Demand, room: Room, verdict: Verdict, release: Release) -> Iterator[str]:
    short = {each.resource for each in verdict.shortages}
    for name, amount in needs_of(demand, release):
        has, free = room.allocatable.get(name, 0), room.free(name)
        line = (
            f"{name}: {brief(name, has)} allocatable − {brief(name, has - free)} "
            f"{'taken' if name == PODS else 'requested'} = {brief(name, free)} free"
        )
        relation = "<" if name in short else "≥"
        yield f"{line} {relation} {brief(name, amount)}"
    if verdict.shortages:
        return
    shares = []
    for name, _ in DEFAULT_PROFILE.weights:
        has = room.allocatable.get(name, 0)
        if has:
            left = room.left_non_zero(name) - demand.spread.get(name, 0)
            shares.append((name, min(max(left * BEST // has, 0), BEST)))
    told = ", ".join(f"{share}% of {name}" for name, share in shares)
    scores = verdict.scores
    yield f"least allocated {scores.least_allocated}: {told} would be left"
    yield f"most allocated {scores.most_allocated}: counts where the scheduler is told to pack"
    if scores.balanced is None:
        yield "balanced: left out, the pod asks for neither cpu nor memory"
        return
    used = [
        f"{name} {min(has, room.requested.get(name, 0) + demand.held.get(name, 0)) / has:.1%}"
        for name in (CPU, MEMORY)
        if (has := room.allocatable.get(name, 0))
    ]
    yield f"balanced {scores.balanced}: with it {' and '.join(used)} would be requested"


def fitting_data(fitted: Fitted, release: Release, *, why: bool) -> dict[str, Any]:
    """Verdicts as plain data, amounts as Kubernetes spells them."""
    survey = fitted.survey
    data: dict[str, Any] = {
        "origin": fitted.origin,
        "name": fitted.label,
        "namespace": fitted.namespace,
        "requests": {name: _spelled(name, value) for name, value in fitted.demand.filtered.items()},
        "fitting": survey.fitting,
        "of": survey.nodes,
        "best": survey.best,
        "scores": None if survey.scores is None else _scores(survey.scores),
        "scarce": {
            name: {
                "nodes": scarcity.nodes,
                "unresolvable": scarcity.unresolvable,
                "nearestLacks": _spelled(name, max(0, scarcity.lacking)),
            }
            for name, scarcity in survey.scarce.items()
        },
        "notes": list(fitted.notes),
    }
    if why:
        data["why"] = list(_pod(fitted.demand))
    if fitted.verdicts:
        data["nodes"] = [
            _verdict(verdict)
            | ({"why": list(_node(fitted.demand, room, verdict, release))} if why else {})
            for room, verdict in fitted.ordered
        ]
    return data


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "node": verdict.node,
        "fits": not verdict.shortages,
        "code": verdict.code,
        "scores": _scores(verdict.scores),
        "short": [
            {
                "resource": each.resource,
                "requested": _spelled(each.resource, each.requested),
                "free": _spelled(each.resource, each.capacity - each.used),
                "allocatable": _spelled(each.resource, each.capacity),
                "lacking": _spelled(each.resource, each.lacking),
                "unresolvable": each.unresolvable,
            }
            for each in verdict.shortages
        ],
    }


def _scores(scores: Scores) -> dict[str, int | None]:
    return {
        "leastAllocated": scores.least_allocated,
        "mostAllocated": scores.most_allocated,
        "balanced": scores.balanced,
    }


def _spelled(resource: str, amount: int) -> str:
    return spelled(resource, amount if resource == CPU else amount * 1000)
