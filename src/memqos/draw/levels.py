"""The memory levels of pods as a picture: one bar a cgroup, from 0 to where it is killed."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from memqos.draw.look import BOLD, NAME, SMALL, TITLE, drawing, filled
from memqos.draw.scale import (
    LEFT,
    RIGHT,
    Axis,
    Zone,
    ZoneKind,
    axis_to,
    place,
    short_size,
    zones,
)
from memqos.draw.svg import (
    Flag,
    Mark,
    Markup,
    el,
    flags,
    number,
    shortened,
    text_width,
)
from memqos.plan.setting import MAX


class Bar(msgspec.Struct, frozen=True):
    """One cgroup. Bytes; None is not set, "max" no limit, "needs node" unknown without a node."""

    name: str
    role: str
    request: int | None
    limit: int | None
    min: int | None
    low: int | None
    high: int | str | None
    max: int | str | None
    oom_score_adj: int | str | None
    note: str = ""


class Chart(msgspec.Struct, frozen=True):
    """Bars on one axis. It reaches `scale`, the memory of the node, if a bar has no limit."""

    title: str
    subtitle: str
    bars: tuple[Bar, ...]
    scale: int | None


ASKED: Final = ("request", "limit")
LEVELS: Final = ("min", "low", "high", "max")
MEANING: Final[dict[ZoneKind, str]] = {
    "min": "never reclaimed",
    "low": "reclaimed last",
    "normal": "reclaimed under pressure",
    "high": "throttled",
    "unknown": "reclaimed, then throttled: high needs node",
}
KEY: Final[tuple[tuple[ZoneKind, str], ...]] = (
    ("min", "to min: never reclaimed"),
    ("low", "to low: reclaimed last"),
    ("normal", "to high: reclaimed under pressure"),
    ("high", "above high: throttled"),
)

WIDTH: Final = 820
MARGIN: Final = 20
LINE: Final = 15
BAR: Final = 24
ARROW: Final = 16
TIP: Final = 8


def levels_svg(charts: Sequence[Chart]) -> str:
    """One SVG document with the charts below each other."""
    body: list[Markup] = []
    y: float = MARGIN
    for chart in charts:
        drawn, y = _chart(chart, y, key=not body)
        body.append(drawn)
    title = ", ".join([chart.title for chart in charts])
    return drawing(title, _spoken(charts), body, WIDTH, y)


# Each part is told where it starts and says where it ends.


def _chart(chart: Chart, top: float, *, key: bool) -> tuple[Markup, float]:
    room = WIDTH - 2 * MARGIN
    y = top + TITLE
    parts = [_fitted(MARGIN, y, "ink title", chart.title, TITLE * BOLD, room)]
    if chart.subtitle:
        y += LINE + 4
        parts.append(_fitted(MARGIN, y, "dim", chart.subtitle, SMALL, room))
    if key:
        drawn, y = _key(y + LINE)
        parts.append(drawn)
    top = y + LINE
    bottom = top + LINE
    axis, node = _axis(chart)
    bars: list[Markup] = []
    for bar in chart.bars:
        drawn, bottom = _bar(bar, axis, bottom)
        bars.append(drawn)
    parts.append(_ruler(axis, top + LINE, bottom))
    if node is not None:
        parts.append(_node_line(node, axis, top, bottom))
    return el("g", *parts, *bars), bottom + LINE + MARGIN


def _axis(chart: Chart) -> tuple[Axis, int | None]:
    """The axis, and the node's memory if it is measured by that."""
    values = [value for bar in chart.bars for value in _values(bar, ASKED + LEVELS).values()]
    known = max([value for value in values if isinstance(value, int)], default=0)
    if all([isinstance(bar.max, int) for bar in chart.bars]):
        return axis_to(known), None
    if not chart.scale:
        return axis_to(known * 4 // 3), None
    return axis_to(max(known, chart.scale)), chart.scale


def _key(top: float) -> tuple[Markup, float]:
    x: float = MARGIN
    y = top
    signs = [
        *[(_swatch(kind), words) for kind, words in KEY],
        (_kill(5, 0, 12), "at max: killed"),
        (_tip(11, 10), "request and limit"),
    ]
    parts: list[Markup] = []
    for sign, words in signs:
        width = 28 + text_width(words, SMALL)
        if x + width > WIDTH - MARGIN:
            x, y = MARGIN, y + LINE + 5
        parts.append(
            el(
                "g",
                sign,
                _text(28, 10, "ink", words),
                transform=f"translate({number(x)} {number(y)})",
            )
        )
        x += width + 12
    return el("g", *parts), y + 12


def _swatch(kind: ZoneKind) -> Markup:
    return filled(kind, "M0 0h22v12h-22Z", MEANING[kind])


def _ruler(axis: Axis, top: float, bottom: float) -> Markup:
    parts = [_line("axis", LEFT, bottom, RIGHT, bottom)]
    for tick in axis.ticks:
        x = axis.x(tick)
        parts.append(_line("grid", x, top, x, bottom + 4))
        parts.append(_text(x, bottom + LINE + 2, "dim middle", short_size(tick) if tick else "0"))
    return el("g", *parts)


def _node_line(node: int, axis: Axis, top: float, bottom: float) -> Markup:
    mark = Mark(axis.x(node), f"node {short_size(node)}", f"memory of the node = {node:,} bytes")
    texts = [_flag(flag, top + 10, "dim") for flag in _flags([mark])]
    return el("g", _line("axis node", mark.x, top, mark.x, bottom), *texts)


def _bar(bar: Bar, axis: Axis, top: float) -> tuple[Markup, float]:
    limit = bar.max if isinstance(bar.max, int) else None
    stretches = zones(bar.min or 0, bar.low or 0, bar.high, limit, axis)
    asked = _flags(_marks(bar, ASKED, "", stretches, axis))
    levels = _marks(bar, LEVELS, "memory.", stretches, axis)
    if limit is None:
        levels.append(_open_end(bar))
    hung = _flags(levels)

    y = top + LINE * _rows(asked) + TIP
    parts = _caption(bar, y)
    parts += [_zone(zone, y, arrow=limit is None and zone.right == RIGHT) for zone in stretches]
    if limit is not None:
        parts.append(_kill(place(limit, stretches, axis), y - 3, y + BAR + 3))
    parts += [_raised(flag, y) for flag in asked]
    parts += [_hanging(flag, y + BAR) for flag in hung]
    words, bottom = _remarks(bar, hung, y + BAR)
    return el("g", *parts, *words), bottom + LINE


def _caption(bar: Bar, top: float) -> list[Markup]:
    room = LEFT - MARGIN - 12
    parts = [
        _fitted(MARGIN, top + 10, "ink name", bar.name, NAME * BOLD, room),
        _fitted(MARGIN, top + 25, "dim", bar.role, SMALL, room),
    ]
    if bar.oom_score_adj is not None:
        score = f"oom_score_adj {bar.oom_score_adj}"
        parts.append(_fitted(MARGIN, top + 39, "dim", score, SMALL, room))
    return parts


def _zone(zone: Zone, top: float, *, arrow: bool) -> Markup:
    left, right, middle, bottom = map(number, (zone.left, zone.right, top + BAR / 2, top + BAR))
    head = f"L{number(zone.right + ARROW)} {middle}" if arrow else ""
    outline = f"M{left} {number(top)}H{right}{head}L{right} {bottom}H{left}Z"
    words = MEANING[zone.kind]
    parts = [filled(zone.kind, outline, words)]
    if text_width(words, SMALL) + 12 <= zone.right - zone.left:
        x = (zone.left + zone.right) / 2
        parts.append(_text(x, top + BAR / 2 + 4, f"halo middle on-{zone.kind}", words))
    return el("g", *parts)


def _kill(x: float, top: float, bottom: float) -> Markup:
    """The edge, drawn past the place, where it hides nothing."""
    cross = f"M{number(x + 8)} {number((top + bottom) / 2 - 4)}l8 8m0 -8l-8 8"
    return el(
        "g",
        el("title", "killed"),
        _line("kill edge", x + 2, top, x + 2, bottom),
        el("path", d=cross, class_="kill cross"),
    )


def _raised(flag: Flag, y: float) -> Markup:
    """Request or limit, above the bar that starts at y."""
    x, foot = flag.mark.x, y - TIP - LINE * flag.row
    return el("g", _line("pole", x, foot - 9, x, y), _tip(x, y), _flag(flag, foot, "ink"))


def _hanging(flag: Flag, y: float) -> Markup:
    """A level, below the bar that ends at y; the end of the arrow is none and has no pole."""
    x, foot = flag.mark.x, y + LINE * (flag.row + 1)
    pole = [_line("pole", x, y, x, foot)] if x <= RIGHT else []
    return el("g", *pole, _flag(flag, foot, "ink"))


def _remarks(bar: Bar, hung: Sequence[Flag], y: float) -> tuple[list[Markup], float]:
    y += LINE * max(1, _rows(hung))
    parts: list[Markup] = []
    unmarked = _unmarked(bar)
    if unmarked:
        x = _gap(hung, text_width(unmarked, SMALL))
        if x is None:
            x, y = LEFT, y + LINE
        parts.append(_text(x, y, "dim halo", unmarked))
    if bar.note:
        y += LINE
        parts.append(_fitted(LEFT, y, "dim halo", bar.note, SMALL, WIDTH - MARGIN - LEFT))
    return parts, y


def _gap(hung: Sequence[Flag], width: float) -> float | None:
    """Where the last row of flags has room for words, well apart from the flags."""
    last = [flag for flag in hung if flag.row == _rows(hung) - 1]
    starts = [LEFT, *[flag.right + 24 for flag in last]]
    ends = [*[flag.left - 24 for flag in last], WIDTH - MARGIN]
    return next((x for x, end in zip(starts, ends, strict=True) if x + width <= end), None)


def _fitted(x: float, y: float, look: str, words: str, font_size: float, room: float) -> Markup:
    short = shortened(words, font_size, room)
    return _text(x, y, look, short, "" if short == words else words)


def _text(x: float, y: float, look: str, words: str, hint: str = "") -> Markup:
    title = [el("title", hint)] if hint else []
    return el("text", *title, words, x=x, y=y, class_=look)


def _flag(flag: Flag, y: float, look: str) -> Markup:
    mark = flag.mark
    if flag.left > mark.x:
        return _text(flag.left, y, f"{look} halo", mark.text, mark.hint)
    return _text(flag.right, y, f"{look} halo end", mark.text, mark.hint)


def _line(look: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    return el("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=look)


def _tip(x: float, y: float) -> Markup:
    return el("path", d=f"M{number(x)} {number(y)}l-4 -7h8Z", class_="ink")


# What a bar says


def _values(bar: Bar, names: Iterable[str]) -> dict[str, int | str | None]:
    return {name: getattr(bar, name) for name in names}


def _marks(
    bar: Bar, names: Iterable[str], file: str, stretches: list[Zone], axis: Axis
) -> list[Mark]:
    """The amounts among the values; equal ones share a mark."""
    together: dict[int, list[str]] = {}
    for name, value in _values(bar, names).items():
        if isinstance(value, int) and value:
            together.setdefault(value, []).append(name)
    return [
        Mark(
            place(value, stretches, axis),
            f"{' = '.join(same)} {short_size(value)}",
            ", ".join([f"{file}{name} = {value:,} bytes" for name in same]),
        )
        for value, same in together.items()
    ]


def _open_end(bar: Bar) -> Mark:
    words = "no limit" if bar.max in (None, MAX) else f"max {bar.max}"
    return Mark(RIGHT + ARROW, words, f"memory.max: {_said(bar.max)}")


def _flags(marks: Iterable[Mark]) -> list[Flag]:
    return flags(marks, SMALL, LEFT, WIDTH - MARGIN)


def _rows(placed: Iterable[Flag]) -> int:
    return max([flag.row + 1 for flag in placed], default=0)


def _unmarked(bar: Bar) -> str:
    """What has no place on a bar: zeros, words, and what is not set."""
    values = _values(bar, ASKED + LEVELS)
    words = [f"{name} 0" for name, value in values.items() if value == 0]
    if isinstance(bar.high, str):
        words.append(f"high {_said(bar.high)}")
    unset = [name for name, value in values.items() if value is None]
    if unset:
        words.append(f"not set: {', '.join(unset)}")
    return " · ".join(words)


def _said(value: int | str | None) -> str:
    if isinstance(value, int):
        return short_size(value)
    return {None: "not set", MAX: "no limit"}.get(value, str(value))


def _spoken(charts: Iterable[Chart]) -> str:
    lines: list[str] = []
    for chart in charts:
        for bar in chart.bars:
            values = _values(bar, ASKED + LEVELS).items()
            said = ", ".join([f"{name} {_said(value)}" for name, value in values])
            lines.append(f"{chart.title}, {bar.name} ({bar.role}): {said}.")
    return " ".join(lines)
