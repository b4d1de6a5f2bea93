"""Experiments, reports and comparisons as tables."""

from collections.abc import Iterable, Iterator
from typing import Final

from memqos.draw.text.lines import Line, Paragraph, Table
from memqos.lab.events import LabMachine
from memqos.lab.report import LabComparison, LabReport, ScenarioReport, Spread
from memqos.lab.scenario import Place, Scenario, Unit
from memqos.units import format_bytes, format_estimate, pluralize

PLACES: Final[dict[Place, str]] = {
    "emulated": "emulated machine (QEMU without KVM)",
    "kvm": "virtual machine (QEMU with KVM)",
    "here": "this computer",
}


def scenario_table(scenarios: Iterable[Scenario]) -> list[Line]:
    """One line an experiment."""
    rows = [["scenario", "what it shows", "variants", "a run, about"]]
    rows += [
        [
            each.name,
            each.title,
            str(len(each.variants)),
            f"{each.seconds * len(each.variants):.0f} s",
        ]
        for each in scenarios
    ]
    return [Table(rows, left=2)]


def report_lines(report: LabReport) -> Iterator[Line]:
    """A whole report."""
    yield f"memqos {report.memqos} · {PLACES[report.place]} · {report.seconds:.0f} s"
    for scenario in report.scenarios:
        yield ""
        yield f"{scenario.title} ({scenario.name})"
        yield f"  {machine_words(scenario.machine)}"
        yield from _scenario_lines(scenario)


def _scenario_lines(scenario: ScenarioReport) -> Iterator[Line]:
    yield Paragraph(scenario.about)
    yield ""
    names = list(scenario.measures)
    rows = [["", *[variant.title for variant in scenario.variants.values()]]]
    for name in names:
        measure = scenario.measures[name]
        cells = [format_summary(v.summary[name], measure.unit) for v in scenario.variants.values()]
        rows.append([measure.title, *cells])
    if scenario.variants:
        yield Table(rows, indent="  ")
        yield ""
    for each in scenario.hypotheses:
        yield Paragraph(f"{each.verdict}: {each.text} ({each.why})", "  ", "    ")
    for failure in scenario.failures:
        yield f"  not measured: {failure.variant}, run {failure.run}: {failure.why}"


def comparison_lines(comparison: LabComparison) -> Iterator[Line]:
    """Measures whose runs lie apart, and verdicts that differ."""
    apart = [each for each in comparison.measures if each.is_apart]
    alike = len(comparison.measures) - len(apart)
    if apart:
        rows = [["scenario", "variant", "measure", "first", "second", "ratio"]]
        for each in apart:
            ratio = "" if each.ratio is None else f"{each.ratio:.2f}"
            first, second = (format_summary(side, each.unit) for side in (each.first, each.second))
            rows.append([each.scenario, each.variant, each.measure, first, second, ratio])
        yield Table(rows, left=3)
    else:
        yield "no measure differs by more than runs of one report do"
    if alike:
        yield f"{pluralize(alike, 'other measure')}: the runs of both overlap"
    for changed in comparison.verdicts:
        yield Paragraph(
            f"{changed.scenario}: {changed.first} → {changed.second}: {changed.text}", "", "  "
        )


def machine_words(machine: LabMachine) -> str:
    """What is worth knowing of a machine."""
    nodes = f", {machine.numa_nodes} NUMA nodes" if machine.numa_nodes > 1 else ""
    swap = f", {format_bytes(machine.swap)} of swap" if machine.swap else ""
    recursion = "" if machine.recursive_protection else ", no memory_recursiveprot"
    return (
        f"{machine.system}, kernel {machine.kernel}, {format_bytes(machine.memory)}{swap}, "
        f"{pluralize(machine.processors, 'processor')}{nodes}{recursion}"
    )


def format_summary(summary: Spread | str, unit: Unit) -> str:
    """The median, and the least and the most where they differ."""
    if isinstance(summary, str):
        return summary or "–"
    low, middle, high = (
        format_figure(value, unit) for value in (summary.least, summary.median, summary.most)
    )
    return middle if low == high else f"{middle} ({low}–{high})"


def format_figure(value: float, unit: Unit) -> str:
    """A number with its unit."""
    match unit:
        case "bytes":
            return format_estimate(value)
        case "seconds":
            return f"{value:,.2f} s"
        case "share":
            return f"{value:.0%}"
        case "ratio":
            return f"{value:,.2f}"
    return f"{value:,.0f}"
