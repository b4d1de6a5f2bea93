"""The parts that a page is put together from: cards, rows with a bar, keys, tables."""

from collections.abc import Iterable

from memqos.draw.charts import meter
from memqos.draw.svg import Markup, el


def card(title: str, *parts: Markup, level: str = "h2") -> Markup:
    """A box with a title."""
    return el("section", el(level, title), *parts, class_="card")


def bar_row(look: str, name: str, share: float, amount: str, hint: str) -> Markup:
    """A share as a bar, with words above it."""
    return el(
        "div",
        el("div", el("span", name), el("span", f"{amount} · {share:.0%}"), class_="bar-words"),
        meter(look, share, hint),
        class_="bar-row",
    )


def legend_entry(look: str, name: str, amount: str, share: str) -> Markup:
    """An entry of a key."""
    return el(
        "li",
        el("i", "", class_=f"swatch back-{look}"),
        el("span", name),
        el("b", amount),
        el("span", share, class_="dim"),
    )


def scrolling_table(rows: Iterable[Markup]) -> Markup:
    """A table that moves sideways in its own room, never the page."""
    return el("div", el("table", *rows), class_="scrolling", tabindex="0")


def table_row(tag: str, cells: Iterable[str]) -> Markup:
    """One row of a table, of `th` or `td`."""
    return el("tr", *[el(tag, cell) for cell in cells])
