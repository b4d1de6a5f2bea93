"""Where a pod fits in a cluster, what other nodes lack, how nodes score: text and data."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from memqos.cluster.fit import FitVerdict, NodeScores, Shortage, resource_needs
from memqos.cluster.fit_demand import (
    DEFAULT_REQUESTS,
    EPHEMERAL_STORAGE,
    PODS_RESOURCE,
    NodeInfo,
    SchedulingDemand,
)
from memqos.cluster.fit_scores import DEFAULT_PROFILE, MAX_NODE_SCORE
from memqos.cluster.fit_survey import FitSurvey
from memqos.cluster.node_admission import NodeAdmission
from memqos.draw.text.amounts import short_amount
from memqos.draw.text.lines import Line, Table
from memqos.kube.resources import CPU, MEMORY, Amounts, format_amount
from memqos.release import Release
from memqos.units import pluralize


class FitReport(msgspec.Struct, frozen=True, kw_only=True):
    """A pod and the verdicts on it; without `nodes` and `verdicts` nodes are only counted."""

    origin: str
    label: str
    namespace: str | None
    demand: SchedulingDemand
    survey: FitSurvey
    nodes: tuple[NodeInfo, ...] = ()
    verdicts: tuple[FitVerdict, ...] = ()
    refused: Mapping[str, NodeAdmission] = {}
    """By node, why its kubelet would refuse the pod if the scheduler bound it there."""
    notes: tuple[str, ...] = ()

    @property
    def best_first(self) -> list[tuple[NodeInfo, FitVerdict]]:
        """The best node first, those that do not fit last, and otherwise as they were given."""
        pairs = zip(self.nodes, self.verdicts, strict=True)
        return sorted(
            pairs,
            key=lambda pair: (
                pair[1].node in self.refused,
                bool(pair[1].shortages),
                pair[1].node != self.survey.best,
                -default_score(pair[1]) if not pair[1].shortages else 0,
            ),
        )


def default_score(verdict: FitVerdict) -> int:
    """What the scheduler adds up by default: LeastAllocated and balance."""
    return verdict.scores.least_allocated + (verdict.scores.balanced or 0)


def fit_text(fitted: FitReport) -> list[Line]:
    """Where a pod fits, and what is short elsewhere."""
    survey = fitted.survey
    namespace = f" in {fitted.namespace}" if fitted.namespace else ""
    lines: list[Line] = [
        f"{fitted.label}{namespace}  {_fit_summary(survey)}",
        f"  requests {_demand_words(fitted.demand)}",
    ]
    if fitted.verdicts:
        lines.append(_node_table(fitted))
    else:
        lines += _scarcity_lines(survey)
        lines += _refusal_lines(fitted)
    return [*lines, *[f"  note: {note}" for note in fitted.notes]]


def _fit_summary(survey: FitSurvey) -> str:
    if not survey.fitting:
        return "fits no node" if survey.nodes > 1 else "does not fit the node"
    assert survey.scores is not None
    fits = f"fits {survey.fitting:,} of {pluralize(survey.nodes, 'node')}, best {survey.best}"
    balanced = survey.scores.balanced
    even = "" if balanced is None else f", balanced {balanced}"
    return f"{fits} (least allocated {survey.scores.least_allocated}{even})"


def _demand_words(demand: SchedulingDemand) -> str:
    words = [
        f"{name} {demand_amount(name, demand.filtered[name])}"
        for name in sort_resources(demand.filtered)
        if demand.filtered[name]
    ]
    return ", ".join(words) or "no cpu or memory"


def sort_resources(names: Iterable[str]) -> list[str]:
    """cpu, memory, storage, then the rest by name."""
    first = (CPU, MEMORY, EPHEMERAL_STORAGE)
    return sorted(names, key=lambda name: (first.index(name) if name in first else 3, name))


def demand_amount(resource: str, amount: int) -> str:
    """An amount in the units of a SchedulingDemand: cpu in thousandths, all else in whole ones."""
    return short_amount(resource, amount if resource == CPU else amount * 1000)


def _node_table(fitted: FitReport) -> Table:
    ordered = fitted.best_first
    short_of = {each.resource for _, verdict in ordered for each in verdict.shortages}
    requested = {name for name, amount in fitted.demand.filtered.items() if amount}
    resources = sort_resources(requested | short_of | {CPU, MEMORY})
    rows = [
        ["", *["free" if not index else "" for index, _ in enumerate(resources)], "score", "", ""],
        ["node", *resources, "least", "balanced", ""],
    ]
    for node, verdict in ordered:
        scores = verdict.scores
        even = "–" if scores.balanced is None else str(scores.balanced)
        no_score = verdict.shortages or verdict.node in fitted.refused
        cells = ["–", "–"] if no_score else [str(scores.least_allocated), even]
        free = [demand_amount(name, node.free(name)) for name in resources]
        rows.append([node.name, *free, *cells, _remark(fitted, verdict)])
    last = len(rows[0]) - 1
    return Table(rows, has_remarks=True, drop={"balanced": last - 1, "least": last - 2})


def _remark(fitted: FitReport, verdict: FitVerdict) -> str:
    refused = fitted.refused.get(verdict.node)
    kubelet = "" if refused is None else f"its kubelet refuses it: {refused.words}"
    return "; ".join(filter(None, [kubelet, shortage_text(verdict)]))


def shortage_text(verdict: FitVerdict) -> str:
    """What a node has too little of; it may be too small for the pod even when empty."""
    return "; ".join(
        f"{title} {', '.join(map(_shortage_words, shortages))}"
        for title, shortages in (
            ("too small:", [each for each in verdict.shortages if each.unresolvable]),
            ("short of", [each for each in verdict.shortages if not each.unresolvable]),
        )
        if shortages
    )


def _shortage_words(shortage: Shortage) -> str:
    if shortage.resource == PODS_RESOURCE:
        return f"room for a pod: all {shortage.capacity} are in use"
    return f"{shortage.resource} by {demand_amount(shortage.resource, shortage.lacking)}"


def _scarcity_lines(survey: FitSurvey) -> Iterator[str]:
    for resource, scarcity in survey.scarce.items():
        what = "pod slots are" if resource == PODS_RESOURCE else f"{resource} is"
        line = f"  {what} short on {pluralize(scarcity.nodes, 'node')}"
        if scarcity.unresolvable:
            line += f", {scarcity.unresolvable:,} of them are too small even when empty"
        if scarcity.lacking > 0:
            line += f"; the nearest lacks {demand_amount(resource, scarcity.lacking)}"
        yield line


def _refusal_lines(fitted: FitReport) -> Iterator[str]:
    for words, count in Counter(each.words for each in fitted.refused.values()).items():
        yield f"  the kubelets of {pluralize(count, 'node')} refuse it: {words}"


def fit_reasons(fitted: FitReport, release: Release) -> list[str]:
    """The comparison behind every verdict, and the arithmetic behind every score."""
    lines = ["", f"why {fitted.label}", *[f"  {line}" for line in _demand_lines(fitted.demand)]]
    for node, verdict in fitted.best_first:
        lines.append(f"  {node.name}")
        lines += [f"    {line}" for line in _node_reasons(fitted.demand, node, verdict, release)]
    return lines


def _demand_lines(demand: SchedulingDemand) -> Iterator[str]:
    yield f"must be free: {_amount_words(demand.filtered)}, from the spec"
    if demand.charged != demand.filtered:
        yield f"charged once it runs: {_amount_words(demand.charged)}, from its status"
    assumed = ", ".join(
        f"{name} {short_amount(name, amount)}" for name, amount in DEFAULT_REQUESTS.items()
    )
    yield (
        f"scored as {_amount_words(demand.spread)}: a container without requests counts as "
        f"{assumed}, pod-level values do not count"
    )


def _amount_words(amounts: Amounts) -> str:
    words = [
        f"{name} {demand_amount(name, amounts[name])}"
        for name in sort_resources(amounts)
        if amounts[name]
    ]
    return ", ".join(words) or "nothing"


def _node_reasons(
    demand: SchedulingDemand, node: NodeInfo, verdict: FitVerdict, release: Release
) -> Iterator[str]:
    short = {each.resource for each in verdict.shortages}
    for name, amount in resource_needs(demand, release):
        has, free = node.allocatable.get(name, 0), node.free(name)
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
        has = node.allocatable.get(name, 0)
        if has:
            left = node.free_non_zero(name) - demand.spread.get(name, 0)
            shares.append((name, min(max(left * MAX_NODE_SCORE // has, 0), MAX_NODE_SCORE)))
    free_shares = ", ".join(f"{share}% of {name}" for name, share in shares)
    scores = verdict.scores
    yield f"least allocated {scores.least_allocated}: {free_shares} would be left"
    yield f"most allocated {scores.most_allocated}: used if the scheduler packs nodes"
    if scores.balanced is None:
        yield "balanced: not scored, as the pod requests neither cpu nor memory"
        return
    used = [
        f"{name} {min(has, node.requested.get(name, 0) + demand.charged.get(name, 0)) / has:.1%}"
        for name in (CPU, MEMORY)
        if (has := node.allocatable.get(name, 0))
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
            _verdict_data(verdict, fitted.refused.get(node.name))
            | ({"why": list(_node_reasons(fitted.demand, node, verdict, release))} if why else {})
            for node, verdict in fitted.best_first
        ]
    return data


def _verdict_data(verdict: FitVerdict, refused: NodeAdmission | None) -> dict[str, Any]:
    return {
        "node": verdict.node,
        "fits": not verdict.shortages and refused is None,
        "code": verdict.code,
        "refused": None
        if refused is None
        else {"reason": refused.reason, "message": refused.message},
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
