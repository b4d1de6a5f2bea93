"""A replay of the past as a page."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from memqos.draw.html.charts import bar_row, card, made_stamp, scrolling_table, table_row
from memqos.draw.html.style import PAGE_STYLE
from memqos.draw.svg.elements import Markup, el
from memqos.draw.text.backtest import (
    BacktestReport,
    comparison_line,
    container_cells,
    episode_lines,
    ordered_containers,
    total_line,
)
from memqos.units import pluralize

_SHOWN: Final = 200
_BARS: Final = 12


def backtest_page(report: BacktestReport, *, at: datetime, version: str) -> str:
    """The whole page, without scripts or anything to load; made `at` a time by a version."""
    body: list[Markup] = [
        el("h1", "Memory backtest"),
        el("p", made_stamp(at, version), class_="note stamp"),
        el("p", ", compared with ".join(report.settings), class_="terms"),
        *(el("p", line, class_="note") for line in dict.fromkeys(map(str, report.enablement))),
    ]
    if len(report.settings) == 2:
        body.append(el("p", comparison_line(report)))
    for index, title in enumerate(report.settings):
        body += _setting_cards(report, index, title)
    if report.skipped:
        skipped = [el("li", name) for name in report.skipped[:_SHOWN]]
        body.append(card("No request or limit is known", el("ul", *skipped)))
    head = el(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="color-scheme" content="light dark">'),
        Markup('<link rel="icon" href="data:,">'),
        el("title", "Memory backtest"),
        el("style", Markup(PAGE_STYLE)),
    )
    return "<!doctype html>\n" + el("html", head, el("body", el("main", *body)), lang="en")


def _setting_cards(report: BacktestReport, index: int, title: str) -> Iterator[Markup]:
    containers = ordered_containers(report.containers)
    bars = [
        bar_row(
            "usage",
            each.name.text,
            each.results[index].throttled.seconds / each.results[index].seconds,
            pluralize(each.results[index].throttled.count, "time"),
            "share of the time throttled",
        )
        for each in containers
        if each.results[index].throttled.seconds
    ]
    rows = [
        table_row("th", ("container", "high", "max", "throttled", "days", "protected", "killed"))
    ]
    rows += [table_row("td", container_cells(each, index)) for each in containers[:_SHOWN]]
    episodes = [
        el("li", line) for each in containers[:_SHOWN] for line in episode_lines(each, index)
    ]
    parts = [el("p", total_line(report, index)), scrolling_table(rows)]
    if bars:
        parts += [el("h3", "Throttled most of the time"), *bars[:_BARS]]
    if episodes:
        parts += [el("h3", "When"), el("ul", *episodes[:_SHOWN])]
    yield card(title, *parts)
