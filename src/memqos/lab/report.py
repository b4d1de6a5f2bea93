"""What experiments have shown: raw data, medians with spread, and a verdict on each hypothesis."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Final

import msgspec

from memqos.errors import InputError
from memqos.lab.catalogue import SCENARIOS
from memqos.lab.events import LabEvent, LabMachine, RunFailed, RunMeasured
from memqos.lab.scenario import Figure, Figures, LabMeasure, LabVerdict, Place, Planned, Unit, judge

REPORT_FORMAT: Final = "memqos-lab/1"


class Spread(msgspec.Struct, frozen=True):
    """A measure over all runs."""

    median: float
    least: float
    most: float


class HypothesisReport(msgspec.Struct, frozen=True):
    """A hypothesis and what came of it."""

    text: str
    verdict: LabVerdict
    why: str


class VariantReport(msgspec.Struct, frozen=True, kw_only=True):
    """All runs of a variant."""

    title: str
    summary: dict[str, Spread | str]
    """By measure; texts of different runs are joined."""
    runs: tuple[Figures, ...]
    seconds: tuple[float, ...]
    """What each run took."""
    planned: tuple[Planned, ...]
    """Values under test, of the first run."""


class ScenarioReport(msgspec.Struct, frozen=True, kw_only=True):
    """One experiment."""

    name: str
    title: str
    about: str
    source: str
    machine: LabMachine
    measures: dict[str, LabMeasure]
    variants: dict[str, VariantReport]
    hypotheses: tuple[HypothesisReport, ...]
    failures: tuple[RunFailed, ...] = ()


class LabReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a run of the lab."""

    format: str = REPORT_FORMAT
    made: str
    """When, in UTC."""
    command: str
    memqos: str
    """Its version."""
    place: Place
    seconds: float
    scenarios: tuple[ScenarioReport, ...]

    @property
    def fewest_runs(self) -> int:
        """Of any variant."""
        found = [len(each.runs) for one in self.scenarios for each in one.variants.values()]
        return min(found, default=0)


def report_scenarios(events: Iterable[LabEvent], place: Place) -> tuple[ScenarioReport, ...]:
    """All experiments that events report, in their order."""
    machines: dict[str, LabMachine] = {}
    measured: dict[str, list[RunMeasured]] = {}
    failed: dict[str, list[RunFailed]] = {}
    machine: LabMachine | None = None
    for event in events:
        if isinstance(event, LabMachine):
            machine = event
        elif isinstance(event, RunMeasured | RunFailed):
            assert machine is not None
            machines.setdefault(event.scenario, machine)
            if isinstance(event, RunMeasured):
                measured.setdefault(event.scenario, []).append(event)
            else:
                failed.setdefault(event.scenario, []).append(event)
    return tuple(
        _report(name, found, measured.get(name, []), failed.get(name, []), place)
        for name, found in machines.items()
    )


def _report(
    name: str,
    machine: LabMachine,
    measured: Sequence[RunMeasured],
    failed: Sequence[RunFailed],
    place: Place,
) -> ScenarioReport:
    scenario = SCENARIOS[name]
    by_run: dict[int, dict[str, Figures]] = {}
    for each in measured:
        by_run.setdefault(each.run, {})[each.variant] = each.figures
    runs: list[Mapping[str, Figures]] = list(by_run.values())
    names = [each for each in scenario.variants if any(each in run for run in runs)]
    return ScenarioReport(
        name=name,
        title=scenario.title,
        about=scenario.about,
        source=scenario.source,
        machine=machine,
        measures=dict(scenario.measures),
        variants={
            each: _variant(
                scenario.variants[each].title,
                [event for event in measured if event.variant == each],
                scenario.measures,
            )
            for each in names
        },
        hypotheses=tuple(
            HypothesisReport(each.text, *judge(each, runs, place)) for each in scenario.hypotheses
        ),
        failures=tuple(failed),
    )


def _variant(
    title: str, events: list[RunMeasured], measures: Mapping[str, LabMeasure]
) -> VariantReport:
    return VariantReport(
        title=title,
        summary={
            name: _summary([each.figures[name] for each in events if name in each.figures])
            for name in measures
        },
        runs=tuple(each.figures for each in events),
        seconds=tuple(each.seconds for each in events),
        planned=events[0].planned,
    )


def _summary(values: Sequence[Figure]) -> Spread | str:
    """The spread of numbers; a measure that no run has is an empty text."""
    numbers = [each for each in values if not isinstance(each, str)]
    if not numbers or len(numbers) < len(values):
        return " / ".join(dict.fromkeys(map(str, values)))
    return Spread(float(median(numbers)), float(min(numbers)), float(max(numbers)))


def decode_report(data: bytes, file: str) -> LabReport:
    """A report that was written before; anything else is refused."""
    try:
        version = msgspec.json.decode(data, type=_Format).format
        if version != REPORT_FORMAT:
            raise InputError(f"its format is {version}, and {REPORT_FORMAT} is known", file=file)
        return msgspec.json.decode(data, type=LabReport)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"this is no report of the lab: {error}",
            file=file,
            hint="write one with memqos lab run … -o json",
        ) from None


class _Format(msgspec.Struct):
    """What a report of any version has."""

    format: str


class ComparedMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """A measure of one variant in two reports."""

    scenario: str
    variant: str
    measure: str
    unit: Unit
    first: Spread | str
    second: Spread | str

    @property
    def is_apart(self) -> bool:
        """Whether the two differ by more than runs of one do."""
        if isinstance(self.first, str) or isinstance(self.second, str):
            return self.first != self.second
        return self.first.most < self.second.least or self.second.most < self.first.least

    @property
    def ratio(self) -> float | None:
        """The second median as a multiple of the first."""
        if isinstance(self.first, str) or isinstance(self.second, str) or not self.first.median:
            return None
        return self.second.median / self.first.median


class ChangedVerdict(msgspec.Struct, frozen=True):
    """A hypothesis that two reports judge differently."""

    scenario: str
    text: str
    first: LabVerdict
    second: LabVerdict


class LabComparison(msgspec.Struct, frozen=True):
    """Two reports side by side."""

    measures: tuple[ComparedMeasure, ...]
    verdicts: tuple[ChangedVerdict, ...]


def compare_reports(
    first: LabReport, second: LabReport, variants: tuple[str | None, str | None] = (None, None)
) -> LabComparison:
    """What both have measured; with `variants`, one variant of each against the other's.

    One that is named for one of them is meant for both.
    """
    others = {each.name: each for each in second.scenarios}
    left, right = variants
    both = (left or right, right or left)
    measures: list[ComparedMeasure] = []
    verdicts: list[ChangedVerdict] = []
    for one in first.scenarios:
        other = others.get(one.name)
        if other is None:
            continue
        measures += _compared(one, other, both)
        found = {each.text: each for each in other.hypotheses}
        verdicts += [
            ChangedVerdict(one.name, each.text, each.verdict, found[each.text].verdict)
            for each in one.hypotheses
            if each.text in found and found[each.text].verdict != each.verdict
        ]
    return LabComparison(tuple(measures), tuple(verdicts))


def _compared(
    one: ScenarioReport, other: ScenarioReport, variants: tuple[str | None, str | None]
) -> Iterable[ComparedMeasure]:
    left, right = variants
    pairs = [
        (name, right or name)
        for name in one.variants
        if left in (None, name) and (right or name) in other.variants
    ]
    for name, counterpart in pairs:
        before, after = one.variants[name].summary, other.variants[counterpart].summary
        for measure, described in one.measures.items():
            if measure in before and measure in after:
                yield ComparedMeasure(
                    scenario=one.name,
                    variant=name if name == counterpart else f"{name} → {counterpart}",
                    measure=described.title,
                    unit=described.unit,
                    first=before[measure],
                    second=after[measure],
                )
