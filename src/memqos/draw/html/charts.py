"""Charts for pages: small pictures that need no script and are readable at the width of a phone.

Their colours are those of the page they stand in, by class.
"""

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from memqos.draw.svg.elements import BOLD_WIDENING, Markup, coordinate, el, text_width

_WIDTH: Final = 360
_HEIGHT: Final = 170
_LEFT: Final = 34
_BOTTOM: Final = 24
_TOP: Final = 18
_MOST_COLUMNS: Final = 108
_WIDEST: Final = 36
_RING_FONT: Final = 22
_FONT: Final = 11
"""Of texts, by the style sheet of a page."""
_BIG: Final = "big middle"
_RING_INSIDE: Final = 72
"""The widest text within a ring."""


class RingSlice(NamedTuple):
    """A part of a ring: the class of its colour, what it is, and how much."""

    look: str
    hint: str
    amount: int


class NodeColumn(NamedTuple):
    """A node among others: what is filled, what is outlined above it, as shares of one."""

    hint: str
    filled: float
    outlined: float


def ring(slices: Sequence[RingSlice], middle: str, below: str) -> Markup:
    """A ring of shares with a number in it."""
    total = sum(each.amount for each in slices)
    size = min(_RING_FONT, _RING_INSIDE / text_width(middle, BOLD_WIDENING))
    parts, at = [], 0.0
    for each in slices:
        if each.amount:
            share = each.amount / total
            parts.append(_arc(each, at, share))
            at += share
    return el(
        "svg",
        el("circle", cx=70, cy=70, r=52, class_="track", fill="none", stroke_width=22),
        *parts,
        # Scaled, as the page of memqos web allows no inline style.
        el("text", middle, transform=f"translate(70 72) scale({size / _FONT:.2f})", class_=_BIG),
        el("text", below, x=70, y=90, class_="dim middle"),
        viewBox="0 0 140 140",
        class_="ring",
        role="img",
        aria_label=", ".join(f"{each.hint}" for each in slices),
    )


def _arc(each: RingSlice, at: float, share: float) -> Markup:
    round_trip = 2 * math.pi * 52
    return el(
        "circle",
        el("title", each.hint),
        cx=70,
        cy=70,
        r=52,
        fill="none",
        stroke_width=22,
        stroke_dasharray=f"{round_trip * share:.2f} {round_trip:.2f}",
        transform=f"rotate({360 * at - 90:.2f} 70 70)",
        class_=f"stroke-{each.look}",
    )


def meter(look: str, share: float, hint: str, mark: float | None = None) -> Markup:
    """A bar filled by a share, with a mark where another amount would be."""
    parts = [
        el("rect", width="100%", height=12, rx=3, class_="track-fill"),
        el("rect", width=f"{100 * min(share, 1):.2f}%", height=12, rx=3, class_=f"fill-{look}"),
    ]
    if share > 1:
        parts.append(el("rect", x="97%", width="3%", height=12, class_="fill-over"))
    if mark is not None:
        place = f"{100 * min(mark, 1):.2f}%"
        parts.append(el("line", x1=place, x2=place, y1=0, y2=12, class_="mark"))
    return el("svg", el("title", hint), *parts, class_="meter", height=12, role="img")


def histogram(shares: Sequence[float], words: str) -> Markup:
    """How many nodes there are for every tenth of a share; what is above one stands together."""
    counts = [0] * 11
    for share in shares:
        counts[min(int(share * 10), 10)] += 1
    tallest = max(counts)
    wide = (_WIDTH - _LEFT) / len(counts)
    bars = []
    for place, count in enumerate(counts):
        high = (_HEIGHT - _TOP - _BOTTOM) * count / tallest if tallest else 0
        x, y = _LEFT + place * wide, _HEIGHT - _BOTTOM - high
        span = f"{place * 10}–{place * 10 + 10} %" if place < 10 else "more than all"
        hint = f"{span}: {count}"
        look = "fill-over" if place == 10 else "fill-requested"
        bars.append(
            el(
                "rect",
                el("title", hint),
                x=x + 1.5,
                y=y,
                width=wide - 3,
                height=max(high, 0.5),
                rx=2,
                class_=look,
            )
        )
        if count:
            bars.append(el("text", str(count), x=x + wide / 2, y=y - 3, class_="tick middle"))
    labels = [
        el("text", f"{place * 10}", x=_LEFT + place * wide, y=_HEIGHT - 8, class_="tick middle")
        for place in range(0, 11, 2)
    ]
    return _plot(words, *bars, _axis(), *labels)


def skyline(columns: Sequence[NodeColumn], words: str) -> Markup:
    """All nodes side by side, as they come; where they are too many, the fullest of each group."""
    group = math.ceil(len(columns) / _MOST_COLUMNS) or 1
    shown = [
        max(columns[start : start + group], key=lambda each: each.outlined)
        for start in range(0, len(columns), group)
    ]
    top = max([1.0, *[min(max(each.filled, each.outlined), 2.0) for each in shown]])
    wide = min((_WIDTH - _LEFT) / max(len(shown), 1), _WIDEST)
    height = _HEIGHT - _TOP - _BOTTOM
    bars = []
    for place, each in enumerate(shown):
        x = _LEFT + place * wide
        outlined, filled = (
            height * min(share, top) / top for share in (each.outlined, each.filled)
        )
        gap = min(1.0, wide * 0.2)
        bars.append(
            el(
                "g",
                el("title", each.hint),
                _box("fill-requested", x, wide - gap, outlined),
                _box("fill-usage", x + wide * 0.2, wide * 0.6 - gap, filled),
            )
        )
    full = _HEIGHT - _BOTTOM - height / top
    ticks = [
        el("line", x1=_LEFT, x2=_WIDTH, y1=full, y2=full, class_="full"),
        el("text", "100%", x=_LEFT - 4, y=full + 4, class_="tick end"),
        el("text", "0", x=_LEFT - 4, y=_HEIGHT - _BOTTOM + 2, class_="tick end"),
    ]
    return _plot(words, *bars, _axis(), *ticks)


def _box(look: str, x: float, wide: float, high: float) -> Markup:
    y = _HEIGHT - _BOTTOM - high
    return el("rect", x=x, y=y, width=max(wide, 0.6), height=max(high, 0), class_=look)


def _axis() -> Markup:
    y = _HEIGHT - _BOTTOM
    return el("path", d=f"M{_LEFT} {coordinate(y + 0.5)}H{_WIDTH}", class_="axis")


def _plot(words: str, *parts: Markup) -> Markup:
    return el(
        "svg",
        *parts,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        class_="plot",
        role="img",
        aria_label=words,
    )


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


def made_stamp(at: datetime, version: str) -> str:
    """When a page was made, and by what."""
    return f"Made {at:%Y-%m-%d %H:%M} UTC by memqos {version}."


def scrolling_table(rows: Iterable[Markup]) -> Markup:
    """A table that scrolls sideways within its box, never the page."""
    return el("div", el("table", *rows), class_="scrolling", tabindex="0")


def table_row(tag: str, cells: Iterable[str]) -> Markup:
    """One row of a table, of `th` or `td`."""
    return el("tr", *[el(tag, cell) for cell in cells])
