"""A pod against the nodes of a cluster: where it fits, what the others lack, how they score."""

from collections.abc import Iterable, Iterator

import msgspec

from memqos.cluster.fit import Shortage, Verdict
from memqos.cluster.fit_demand import PODS, STORAGE, Demand, Room
from memqos.cluster.fit_survey import Survey
from memqos.draw.amounts import brief_amount, counted
from memqos.draw.table import table, width
from memqos.kube.resources import CPU, MEMORY


class Fitted(msgspec.Struct, frozen=True):
    """A pod and the verdicts on it; `rooms` and `verdicts` are empty where only counts matter."""

    origin: str
    label: str
    namespace: str | None
    demand: Demand
    survey: Survey
    rooms: tuple[Room, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ordered(self) -> list[tuple[Room, Verdict]]:
        """The best node first, those that do not fit last, and otherwise as they were given."""
        pairs = zip(self.rooms, self.verdicts, strict=True)
        return sorted(
            pairs,
            key=lambda pair: (
                bool(pair[1].shortages),
                pair[1].node != self.survey.best,
                -liked(pair[1]) if not pair[1].shortages else 0,
            ),
        )


def liked(verdict: Verdict) -> int:
    """What the scheduler adds up by default: LeastAllocated and balance."""
    return verdict.scores.least_allocated + (verdict.scores.balanced or 0)


def fitting(fitted: Fitted) -> list[str]:
    """Where a pod fits, and what is short elsewhere."""
    survey = fitted.survey
    namespace = f" in {fitted.namespace}" if fitted.namespace else ""
    lines = [f"{fitted.label}{namespace}  {_verdict(survey)}", f"  asks for {_asks(fitted.demand)}"]
    if fitted.verdicts:
        lines += _nodes(fitted)
    else:
        lines += _scarce(survey)
    return lines + [f"  note: {note}" for note in fitted.notes]


def _verdict(survey: Survey) -> str:
    if not survey.fitting:
        return "fits no node" if survey.nodes > 1 else "does not fit the node"
    assert survey.scores is not None
    fits = f"fits {survey.fitting:,} of {counted(survey.nodes, 'node')}, best {survey.best}"
    balanced = survey.scores.balanced
    even = "" if balanced is None else f", balanced {balanced}"
    return f"{fits} (least allocated {survey.scores.least_allocated}{even})"


def _asks(demand: Demand) -> str:
    asked = [
        f"{name} {brief(name, demand.filtered[name])}"
        for name in in_order(demand.filtered)
        if demand.filtered[name]
    ]
    return ", ".join(asked) or "nothing but a place"


def in_order(names: Iterable[str]) -> list[str]:
    """cpu, memory, storage, then the rest by name."""
    first = (CPU, MEMORY, STORAGE)
    return sorted(names, key=lambda name: (first.index(name) if name in first else 3, name))


def brief(resource: str, amount: int) -> str:
    """An amount in the units of Demand: cpu in thousandths, everything else in whole units."""
    return brief_amount(resource, amount if resource == CPU else amount * 1000)


def _nodes(fitted: Fitted) -> list[str]:
    ordered = fitted.ordered
    short_of = {each.resource for _, verdict in ordered for each in verdict.shortages}
    asked = {name for name, amount in fitted.demand.filtered.items() if amount}
    resources = in_order(asked | short_of | {CPU, MEMORY})
    rows = [
        ["", *["free" if not index else "" for index, _ in enumerate(resources)], "score", ""],
        ["node", *resources, "least", "balanced"],
    ]
    for room, verdict in ordered:
        scores = verdict.scores
        even = "–" if scores.balanced is None else str(scores.balanced)
        told = ["–", "–"] if verdict.shortages else [str(scores.least_allocated), even]
        rows.append([room.name, *[brief(name, room.free(name)) for name in resources], *told])
    lines = table(rows)
    wide = max(map(width, lines))
    remarks = ["", "", *[lacks(verdict) for _, verdict in ordered]]
    return [
        f"{line}{' ' * (wide - width(line))}  {remark}".rstrip()
        for line, remark in zip(lines, remarks, strict=True)
    ]


def lacks(verdict: Verdict) -> str:
    """What a node has too little of; it may be too small for the pod even when empty."""
    return "; ".join(
        f"{title} {', '.join(map(_lacking, shortages))}"
        for title, shortages in (
            ("too small:", [each for each in verdict.shortages if each.unresolvable]),
            ("short of", [each for each in verdict.shortages if not each.unresolvable]),
        )
        if shortages
    )


def _lacking(shortage: Shortage) -> str:
    if shortage.resource == PODS:
        return f"a place, all {shortage.capacity} are taken"
    return f"{shortage.resource} by {brief(shortage.resource, shortage.lacking)}"


def _scarce(survey: Survey) -> Iterator[str]:
    for resource, scarcity in survey.scarce.items():
        what = "places for pods are" if resource == PODS else f"{resource} is"
        line = f"  {what} short on {counted(scarcity.nodes, 'node')}"
        if scarcity.unresolvable:
            line += f", {scarcity.unresolvable:,} of them too small even when empty"
        if scarcity.lacking > 0:
            line += f"; the nearest lacks {brief(resource, scarcity.lacking)}"
        yield line
