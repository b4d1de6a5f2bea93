"""Why a pod fits a node or not and how the node's scores come about, for people and scripts."""

from collections.abc import Iterator
from typing import Any

from memqos.cluster.fit import FitVerdict, NodeScores, resource_needs
from memqos.cluster.fit_demand import DEFAULT_REQUESTS, PODS_RESOURCE, NodeInfo, SchedulingDemand
from memqos.cluster.fit_scores import DEFAULT_PROFILE, MAX_NODE_SCORE
from memqos.draw.amounts import short_amount
from memqos.draw.fitting import FitReport, demand_amount, sort_resources
from memqos.kube.resources import CPU, MEMORY, Amounts, format_amount
from memqos.release import Release


def fit_reasons(fitted: FitReport, release: Release) -> list[str]:
    """The comparison behind every verdict, and the arithmetic behind every score."""
    lines = ["", f"why {fitted.label}", *[f"  {line}" for line in _demand_lines(fitted.demand)]]
    for room, verdict in fitted.best_first:
        lines.append(f"  {room.name}")
        lines += [f"    {line}" for line in _node_reasons(fitted.demand, room, verdict, release)]
    return lines


def _demand_lines(demand: SchedulingDemand) -> Iterator[str]:
    yield f"must be free: {_amount_words(demand.filtered)}, from the spec alone"
    if demand.charged != demand.filtered:
        yield f"held once it runs: {_amount_words(demand.charged)}, by its status"
    assumed = ", ".join(
        f"{name} {short_amount(name, amount)}" for name, amount in DEFAULT_REQUESTS.items()
    )
    yield (
        f"scored as {_amount_words(demand.spread)}: a container that asks for nothing counts as "
        f"{assumed}, pod-level values do not count"
    )


def _amount_words(amounts: Amounts) -> str:
    told = [
        f"{name} {demand_amount(name, amounts[name])}"
        for name in sort_resources(amounts)
        if amounts[name]
    ]
    return ", ".join(told) or "nothing"


def _node_reasons(
    demand: SchedulingDemand, room: NodeInfo, verdict: FitVerdict, release: Release
) -> Iterator[str]:
    short = {each.resource for each in verdict.shortages}
    for name, amount in resource_needs(demand, release):
        has, free = room.allocatable.get(name, 0), room.free(name)
        line = (
            f"{name}: {demand_amount(name, has)} allocatable − {demand_amount(name, has - free)} "
            f"{'taken' if name == PODS_RESOURCE else 'requested'} = "
            f"{demand_amount(name, free)} free"
        )
        relation = "<" if name in short else "≥"
        yield f"{line} {relation} {demand_amount(name, amount)}"
    if verdict.shortages:
        return
    shares = []
    for name, _ in DEFAULT_PROFILE.weights:
        has = room.allocatable.get(name, 0)
        if has:
            left = room.free_non_zero(name) - demand.spread.get(name, 0)
            shares.append((name, min(max(left * MAX_NODE_SCORE // has, 0), MAX_NODE_SCORE)))
    told = ", ".join(f"{share}% of {name}" for name, share in shares)
    scores = verdict.scores
    yield f"least allocated {scores.least_allocated}: {told} would be left"
    yield f"most allocated {scores.most_allocated}: counts where the scheduler is told to pack"
    if scores.balanced is None:
        yield "balanced: left out, the pod asks for neither cpu nor memory"
        return
    used = [
        f"{name} {min(has, room.requested.get(name, 0) + demand.charged.get(name, 0)) / has:.1%}"
        for name in (CPU, MEMORY)
        if (has := room.allocatable.get(name, 0))
    ]
    yield f"balanced {scores.balanced}: with it {' and '.join(used)} would be requested"


def fit_data(fitted: FitReport, release: Release, *, why: bool) -> dict[str, Any]:
    """Verdicts as plain data, amounts as Kubernetes spells them."""
    survey = fitted.survey
    data: dict[str, Any] = {
        "origin": fitted.origin,
        "name": fitted.label,
        "namespace": fitted.namespace,
        "requests": {
            name: _quantity_text(name, value) for name, value in fitted.demand.filtered.items()
        },
        "fitting": survey.fitting,
        "of": survey.nodes,
        "best": survey.best,
        "scores": None if survey.scores is None else _scores_data(survey.scores),
        "scarce": {
            name: {
                "nodes": scarcity.nodes,
                "unresolvable": scarcity.unresolvable,
                "nearestLacks": _quantity_text(name, max(0, scarcity.lacking)),
            }
            for name, scarcity in survey.scarce.items()
        },
        "notes": list(fitted.notes),
    }
    if why:
        data["why"] = list(_demand_lines(fitted.demand))
    if fitted.verdicts:
        data["nodes"] = [
            _verdict_data(verdict)
            | ({"why": list(_node_reasons(fitted.demand, room, verdict, release))} if why else {})
            for room, verdict in fitted.best_first
        ]
    return data


def _verdict_data(verdict: FitVerdict) -> dict[str, Any]:
    return {
        "node": verdict.node,
        "fits": not verdict.shortages,
        "code": verdict.code,
        "scores": _scores_data(verdict.scores),
        "short": [
            {
                "resource": each.resource,
                "requested": _quantity_text(each.resource, each.requested),
                "free": _quantity_text(each.resource, each.capacity - each.used),
                "allocatable": _quantity_text(each.resource, each.capacity),
                "lacking": _quantity_text(each.resource, each.lacking),
                "unresolvable": each.unresolvable,
            }
            for each in verdict.shortages
        ],
    }


def _scores_data(scores: NodeScores) -> dict[str, int | None]:
    return {
        "leastAllocated": scores.least_allocated,
        "mostAllocated": scores.most_allocated,
        "balanced": scores.balanced,
    }


def _quantity_text(resource: str, amount: int) -> str:
    return format_amount(resource, amount if resource == CPU else amount * 1000)
