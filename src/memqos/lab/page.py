"""A report as a page: verdicts, charts of medians with their spread, tables, raw data."""

from collections.abc import Iterator
from typing import Final

from memqos.draw.html.charts import scrolling_table, table_row
from memqos.draw.html.style import PAGE_STYLE
from memqos.draw.svg.elements import Markup, el, ellipsize
from memqos.lab.report import LabReport, ScenarioReport, Spread, VariantReport
from memqos.lab.scenario import LabMeasure, LabVerdict
from memqos.lab.text import PLACES, format_figure, format_summary, machine_words
from memqos.units import pluralize

_WIDTH: Final = 440
_LABEL: Final = 150
_VALUE: Final = 66
_ROW: Final = 24
_LABEL_FONT: Final = 12
"""Between that of the page and the larger one of phones: widths are estimates, rather too wide."""
_TAGS: Final[dict[LabVerdict, str]] = {
    "confirmed": "info",
    "refuted": "error",
    "mixed": "warning",
    "not tested": "none",
}
_STYLE: Final = """
.verdicts li{display:grid;grid-template-columns:auto 1fr;gap:4px 10px;align-items:start;
padding:5px 0}
.verdicts .tag{min-width:94px;text-align:center}.tag.none{color:var(--dim)}
.whisker{stroke:var(--ink);stroke-width:1.5}
.experiment{margin-top:14px}.experiment>.grid{margin:12px 0}
.experiment h3{color:var(--dim);font-weight:600}
.raw{margin-top:8px}.raw summary{cursor:pointer;color:var(--dim)}
.raw td,.raw th{text-align:left}
@media (max-width:520px){.experiment .plot text{font-size:13px}}
"""


def lab_page(report: LabReport) -> str:
    """The whole page, without scripts or anything to load."""
    verdicts = [each.verdict for scenario in report.scenarios for each in scenario.hypotheses]
    body = [
        el(
            "header",
            el("h1", "Memory QoS at work"),
            el("p", f"memqos {report.memqos} · {PLACES[report.place]}", class_="terms"),
            el("p", el("code", report.command), class_="sources"),
            el("p", f"{report.made} · {report.seconds:.0f} s", class_="note"),
            *_warning(report),
        ),
        el(
            "section",
            *[_number(verdicts.count(name), name, look) for name, look in _TAGS.items()],
            class_="numbers",
        ),
        *[_experiment(each) for each in report.scenarios],
        el(
            "footer",
            "Bars are medians; lines go from the least to the most. Made by memqos lab.",
        ),
    ]
    head = el(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="color-scheme" content="light dark">'),
        Markup('<link rel="icon" href="data:,">'),
        el("title", "Memory QoS at work"),
        el("style", Markup(PAGE_STYLE + _STYLE)),
    )
    return "<!doctype html>\n" + el("html", head, el("body", el("main", *body)), lang="en")


def _warning(report: LabReport) -> Iterator[Markup]:
    if report.place == "emulated":
        text = "Seconds of an emulated machine mean nothing alone: compare them within a run."
        yield el("p", text, class_="note")


def _number(count: int, what: str, look: str) -> Markup:
    return el("div", el("b", str(count)), el("span", what), class_=f"number {look}")


def _experiment(scenario: ScenarioReport) -> Markup:
    charts = [
        _chart(measure, name, scenario.variants)
        for name, measure in scenario.measures.items()
        if measure.charted and scenario.variants
    ]
    items = [
        el(
            "li",
            el("span", each.verdict, class_=f"tag {_TAGS[each.verdict]}"),
            el("span", each.text, el("span", each.why, class_="evidence")),
        )
        for each in scenario.hypotheses
    ]
    failures = [
        el("li", f"not measured: {each.variant}, run {each.run}: {each.why}", class_="dim")
        for each in scenario.failures
    ]
    parts = [
        el("p", scenario.about),
        el("p", f"{scenario.source} · {machine_words(scenario.machine)}", class_="dim"),
        el("ul", *items, *failures, class_="verdicts"),
        *([el("div", *charts, class_="grid charts")] if charts else []),
    ]
    if scenario.variants:
        parts += [_summary_table(scenario), _raw_data(scenario), _planned_values(scenario)]
    return el(
        "section", el("h2", scenario.title), *parts, class_="card experiment", id=scenario.name
    )


def _chart(measure: LabMeasure, name: str, variants: dict[str, VariantReport]) -> Markup:
    """A bar a variant: its median, and a line from the least to the most."""
    summaries = [(variant.title, variant.summary[name]) for variant in variants.values()]
    top = max([each.most for _, each in summaries if isinstance(each, Spread)] + [1e-9])
    scale = (_WIDTH - _LABEL - _VALUE) / top
    rows = [
        _bar(number, title, each, scale, format_figure(each.median, measure.unit))
        if isinstance(each, Spread)
        else _bar(number, title, Spread(0, 0, 0), scale, format_summary(each, measure.unit))
        for number, (title, each) in enumerate(summaries)
    ]
    picture = el(
        "svg",
        *rows,
        viewBox=f"0 0 {_WIDTH} {_ROW * len(rows) + 4}",
        class_="plot",
        role="img",
        aria_label=f"{measure.title} by variant",
    )
    return el("div", el("h3", measure.title), picture)


def _bar(number: int, title: str, spread: Spread, scale: float, value: str) -> Markup:
    y = number * _ROW + 4
    middle = y + _ROW / 2 - 3
    end = _LABEL + max(spread.median, 0) * scale
    parts = [
        el("title", f"{title}: {value}"),
        el(
            "text",
            ellipsize(title, _LABEL_FONT, _LABEL - 8),
            x=_LABEL - 6,
            y=middle + 4,
            class_="end",
        ),
        el(
            "rect",
            x=_LABEL,
            y=y,
            width=max(end - _LABEL, 1),
            height=_ROW - 6,
            rx=2,
            class_="fill-requested",
        ),
    ]
    if spread.most > spread.least:
        left, right = (_LABEL + edge * scale for edge in (spread.least, spread.most))
        parts.append(el("line", x1=left, x2=right, y1=middle, y2=middle, class_="whisker"))
    at = _LABEL + max(spread.median, spread.most) * scale + 6
    parts.append(el("text", value, x=at, y=middle + 4, class_="tick"))
    return el("g", *parts)


def _summary_table(scenario: ScenarioReport) -> Markup:
    titles = [variant.title for variant in scenario.variants.values()]
    rows = [table_row("th", ["", *titles])]
    for name, measure in scenario.measures.items():
        cells = [format_summary(v.summary[name], measure.unit) for v in scenario.variants.values()]
        rows.append(table_row("td", [measure.title, *cells]))
    return scrolling_table(rows)


def _raw_data(scenario: ScenarioReport) -> Markup:
    names = list(scenario.measures)
    titles = [scenario.measures[name].title for name in names]
    rows = [table_row("th", ["variant", "run", *titles, "took"])]
    for variant in scenario.variants.values():
        runs = zip(variant.runs, variant.seconds, strict=True)
        for number, (figures, took) in enumerate(runs, start=1):
            cells = [str(figures.get(name, "–")) for name in names]
            rows.append(table_row("td", [variant.title, str(number), *cells, f"{took:.1f} s"]))
    return _details(f"Raw data of {pluralize(len(rows) - 1, 'run')}", rows)


def _planned_values(scenario: ScenarioReport) -> Markup:
    rows = [table_row("th", ["variant", "cgroup", "file", "value", "rule"])]
    for variant in scenario.variants.values():
        rows += [table_row("td", [variant.title, *each]) for each in variant.planned]
    return _details("Values under test, as planned", rows)


def _details(title: str, rows: list[Markup]) -> Markup:
    return el("details", el("summary", title), scrolling_table(rows), class_="raw")
