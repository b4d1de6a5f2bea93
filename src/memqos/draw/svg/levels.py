"""The memory levels of pods as a picture: a bar a cgroup, from 0 to where it is killed."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from memqos.draw.svg.axis import (
    AXIS_LEFT,
    AXIS_RIGHT,
    Axis,
    Zone,
    ZoneKind,
    axis_to,
    position_on_bar,
    zones,
)
from memqos.draw.svg.elements import (
    BOLD_WIDENING,
    NAME_FONT,
    SMALL_FONT,
    TITLE_FONT,
    Flag,
    Mark,
    Markup,
    coordinate,
    el,
    ellipsize,
    place_flags,
    svg_document,
    svg_line,
    svg_text,
    svg_title,
    text_width,
    zone_label,
    zone_path,
)
from memqos.plan.setting import MAX
from memqos.units import format_bytes


class LevelBar(msgspec.Struct, frozen=True, kw_only=True):
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


class LevelsChart(msgspec.Struct, frozen=True):
    """Bars on one axis. It reaches `scale`, the memory of the node, if a bar has no limit."""

    title: str
    subtitle: str
    bars: tuple[LevelBar, ...]
    scale: int | None
    notes: tuple[str, ...] = ()


SPEC_NAMES: Final = ("request", "limit")
LEVEL_NAMES: Final = ("min", "low", "high", "max")
_MEANING: Final[dict[ZoneKind, str]] = {
    "min": "never reclaimed",
    "low": "reclaimed last",
    "normal": "reclaimed under pressure",
    "high": "throttled",
    "unknown": "reclaimed, then throttled: high needs node",
}
_LEGEND: Final[tuple[tuple[ZoneKind, str], ...]] = (
    ("min", "to min: never reclaimed"),
    ("low", "to low: reclaimed last"),
    ("normal", "to high: reclaimed under pressure"),
    ("high", "above high: throttled"),
)

LEVELS_WIDTH: Final = 820
LEVELS_MARGIN: Final = 20
_LINE: Final = 15
_BAR: Final = 24
_ARROW: Final = 16
_TIP: Final = 8


def levels_svg(charts: Sequence[LevelsChart]) -> str:
    """One SVG document with the charts below each other."""
    body: list[Markup] = []
    y: float = LEVELS_MARGIN
    for chart in charts:
        drawn, y = _chart(chart, y, key=not body)
        body.append(drawn)
    title = ", ".join([chart.title for chart in charts])
    return svg_document(title, _description(charts), body, LEVELS_WIDTH, y)


# Each part takes the y where it starts and returns the one where it ends.


def _chart(chart: LevelsChart, top: float, *, key: bool) -> tuple[Markup, float]:
    width = LEVELS_WIDTH - 2 * LEVELS_MARGIN
    parts, y = svg_title(LEVELS_MARGIN, top + TITLE_FONT, chart.title, width)
    if chart.subtitle:
        y += _LINE + 4
        parts.append(_text_within(LEVELS_MARGIN, y, "dim", chart.subtitle, SMALL_FONT, width))
    for note in chart.notes:
        y += _LINE
        parts.append(_text_within(LEVELS_MARGIN, y, "ink", f"note: {note}", SMALL_FONT, width))
    if key:
        drawn, y = _legend(y + _LINE)
        parts.append(drawn)
    top = y + _LINE
    bottom = top + _LINE
    axis, node = _axis(chart)
    bars: list[Markup] = []
    for bar in chart.bars:
        drawn, bottom = _bar(bar, axis, bottom)
        bars.append(drawn)
    parts.append(_ruler(axis, top + _LINE, bottom))
    if node is not None:
        parts.append(_node_line(node, axis, top, bottom))
    return el("g", *parts, *bars), bottom + _LINE + LEVELS_MARGIN


def _axis(chart: LevelsChart) -> tuple[Axis, int | None]:
    """The axis, and the node's memory if it is measured by that."""
    values = [
        value for bar in chart.bars for value in _values(bar, SPEC_NAMES + LEVEL_NAMES).values()
    ]
    known = max([value for value in values if isinstance(value, int)], default=0)
    if all([isinstance(bar.max, int) for bar in chart.bars]):
        return axis_to(known), None
    if not chart.scale:
        return axis_to(known * 4 // 3), None
    return axis_to(max(known, chart.scale)), chart.scale


def _legend(top: float) -> tuple[Markup, float]:
    x: float = LEVELS_MARGIN
    y = top
    signs = [
        *[(_swatch(kind), words) for kind, words in _LEGEND],
        (_kill(5, 0, 12), "at max: killed"),
        (_tip(11, 10), "request and limit"),
    ]
    parts: list[Markup] = []
    for sign, words in signs:
        width = 28 + text_width(words, SMALL_FONT)
        if x + width > LEVELS_WIDTH - LEVELS_MARGIN:
            x, y = LEVELS_MARGIN, y + _LINE + 5
        parts.append(
            el(
                "g",
                sign,
                svg_text(28, 10, "ink", words),
                transform=f"translate({coordinate(x)} {coordinate(y)})",
            )
        )
        x += width + 12
    return el("g", *parts), y + 12


def _swatch(kind: ZoneKind) -> Markup:
    return zone_path(kind, "M0 0h22v12h-22Z", _MEANING[kind])


def _ruler(axis: Axis, top: float, bottom: float) -> Markup:
    parts = [svg_line("axis", AXIS_LEFT, bottom, AXIS_RIGHT, bottom)]
    for tick in axis.ticks:
        x = axis.x(tick)
        parts.append(svg_line("grid", x, top, x, bottom + 4))
        parts.append(
            svg_text(x, bottom + _LINE + 2, "dim middle", format_bytes(tick) if tick else "0")
        )
    return el("g", *parts)


def _node_line(node: int, axis: Axis, top: float, bottom: float) -> Markup:
    mark = Mark(axis.x(node), f"node {format_bytes(node)}", f"memory of the node = {node:,} bytes")
    texts = [_flag(flag, top + 10, "dim") for flag in _flags([mark])]
    return el("g", svg_line("axis node", mark.x, top, mark.x, bottom), *texts)


def _bar(bar: LevelBar, axis: Axis, top: float) -> tuple[Markup, float]:
    limit = bar.max if isinstance(bar.max, int) else None
    stretches = zones(bar.min or 0, bar.low or 0, bar.high, limit, axis)
    above = _flags(_marks(bar, SPEC_NAMES, "", stretches, axis))
    levels = _marks(bar, LEVEL_NAMES, "memory.", stretches, axis)
    if limit is None:
        levels.append(_open_end(bar))
    below = _flags(levels)

    y = top + _LINE * _rows(above) + _TIP
    parts = _caption(bar, y)
    parts += [
        _zone(zone, y, arrow=limit is None and zone.right == AXIS_RIGHT) for zone in stretches
    ]
    if limit is not None:
        parts.append(_kill(position_on_bar(limit, stretches, axis), y - 3, y + _BAR + 3))
    parts += [_flag_above(flag, y) for flag in above]
    parts += [_flag_below(flag, y + _BAR) for flag in below]
    words, bottom = _remarks(bar, below, y + _BAR)
    return el("g", *parts, *words), bottom + _LINE


def _caption(bar: LevelBar, top: float) -> list[Markup]:
    width = AXIS_LEFT - LEVELS_MARGIN - 12
    parts = [
        _text_within(
            LEVELS_MARGIN, top + 10, "ink name", bar.name, NAME_FONT * BOLD_WIDENING, width
        ),
        _text_within(LEVELS_MARGIN, top + 25, "dim", bar.role, SMALL_FONT, width),
    ]
    if bar.oom_score_adj is not None:
        score = f"oom_score_adj {bar.oom_score_adj}"
        parts.append(_text_within(LEVELS_MARGIN, top + 39, "dim", score, SMALL_FONT, width))
    return parts


def _zone(zone: Zone, top: float, *, arrow: bool) -> Markup:
    left, right, middle, bottom = map(
        coordinate, (zone.left, zone.right, top + _BAR / 2, top + _BAR)
    )
    head = f"L{coordinate(zone.right + _ARROW)} {middle}" if arrow else ""
    outline = f"M{left} {coordinate(top)}H{right}{head}L{right} {bottom}H{left}Z"
    words = _MEANING[zone.kind]
    parts = [zone_path(zone.kind, outline, words)]
    if text_width(words, SMALL_FONT) + 12 <= zone.right - zone.left:
        x = (zone.left + zone.right) / 2
        parts.append(zone_label(zone.kind, x, top + _BAR / 2 + 4, words))
    return el("g", *parts)


def _kill(x: float, top: float, bottom: float) -> Markup:
    """The edge, drawn past the place, where it hides nothing."""
    cross = f"M{coordinate(x + 8)} {coordinate((top + bottom) / 2 - 4)}l8 8m0 -8l-8 8"
    return el(
        "g",
        el("title", "killed"),
        svg_line("kill edge", x + 2, top, x + 2, bottom),
        el("path", d=cross, class_="kill cross"),
    )


def _flag_above(flag: Flag, y: float) -> Markup:
    """Request or limit, above the bar that starts at y."""
    x, foot = flag.mark.x, y - _TIP - _LINE * flag.row
    return el("g", svg_line("pole", x, foot - 9, x, y), _tip(x, y), _flag(flag, foot, "ink"))


def _flag_below(flag: Flag, y: float) -> Markup:
    """A level, below the bar that ends at y; the end of the arrow is none and has no pole."""
    x, foot = flag.mark.x, y + _LINE * (flag.row + 1)
    pole = [svg_line("pole", x, y, x, foot)] if x <= AXIS_RIGHT else []
    return el("g", *pole, _flag(flag, foot, "ink"))


def _remarks(bar: LevelBar, below: Sequence[Flag], y: float) -> tuple[list[Markup], float]:
    y += _LINE * max(1, _rows(below))
    parts: list[Markup] = []
    unmarked = _absent_values(bar)
    if unmarked:
        x = _gap(below, text_width(unmarked, SMALL_FONT))
        if x is None:
            x, y = AXIS_LEFT, y + _LINE
        parts.append(svg_text(x, y, "dim halo", unmarked))
    if bar.note:
        y += _LINE
        parts.append(
            _text_within(
                AXIS_LEFT,
                y,
                "dim halo",
                bar.note,
                SMALL_FONT,
                LEVELS_WIDTH - LEVELS_MARGIN - AXIS_LEFT,
            )
        )
    return parts, y


def _gap(below: Sequence[Flag], width: float) -> float | None:
    """Where in the last row of flags a text of this width fits, apart from them."""
    last = [flag for flag in below if flag.row == _rows(below) - 1]
    starts = [AXIS_LEFT, *[flag.right + 24 for flag in last]]
    ends = [*[flag.left - 24 for flag in last], LEVELS_WIDTH - LEVELS_MARGIN]
    return next((x for x, end in zip(starts, ends, strict=True) if x + width <= end), None)


def _text_within(
    x: float, y: float, look: str, words: str, font_size: float, width: float
) -> Markup:
    short = ellipsize(words, font_size, width)
    return svg_text(x, y, look, short, "" if short == words else words)


def _flag(flag: Flag, y: float, look: str) -> Markup:
    mark = flag.mark
    if flag.left > mark.x:
        return svg_text(flag.left, y, f"{look} halo", mark.text, mark.hint)
    return svg_text(flag.right, y, f"{look} halo end", mark.text, mark.hint)


def _tip(x: float, y: float) -> Markup:
    return el("path", d=f"M{coordinate(x)} {coordinate(y)}l-4 -7h8Z", class_="ink")


# The texts of a bar


def _values(bar: LevelBar, names: Iterable[str]) -> dict[str, int | str | None]:
    return {name: getattr(bar, name) for name in names}


def _marks(
    bar: LevelBar, names: Iterable[str], file: str, stretches: list[Zone], axis: Axis
) -> list[Mark]:
    """The amounts among the values; equal ones share a mark."""
    together: dict[int, list[str]] = {}
    for name, value in _values(bar, names).items():
        if isinstance(value, int) and value:
            together.setdefault(value, []).append(name)
    return [
        Mark(
            position_on_bar(value, stretches, axis),
            f"{' = '.join(same)} {format_bytes(value)}",
            ", ".join([f"{file}{name} = {value:,} bytes" for name in same]),
        )
        for value, same in together.items()
    ]


def _open_end(bar: LevelBar) -> Mark:
    words = "no limit" if bar.max in (None, MAX) else f"max {bar.max}"
    return Mark(AXIS_RIGHT + _ARROW, words, f"memory.max: {_value_words(bar.max)}")


def _flags(marks: Iterable[Mark]) -> list[Flag]:
    return place_flags(marks, SMALL_FONT, AXIS_LEFT, LEVELS_WIDTH - LEVELS_MARGIN)


def _rows(placed: Iterable[Flag]) -> int:
    return max([flag.row + 1 for flag in placed], default=0)


def _absent_values(bar: LevelBar) -> str:
    """What has no place on a bar: zeros, words, and what is not set."""
    values = _values(bar, SPEC_NAMES + LEVEL_NAMES)
    words = [f"{name} 0" for name, value in values.items() if value == 0]
    if isinstance(bar.high, str):
        words.append(f"high {_value_words(bar.high)}")
    unset = [name for name, value in values.items() if value is None]
    if unset:
        words.append(f"not set: {', '.join(unset)}")
    return " · ".join(words)


def _value_words(value: int | str | None) -> str:
    if isinstance(value, int):
        return format_bytes(value)
    return {None: "not set", MAX: "no limit"}.get(value, str(value))


def _description(charts: Iterable[LevelsChart]) -> str:
    lines: list[str] = []
    for chart in charts:
        for bar in chart.bars:
            values = _values(bar, SPEC_NAMES + LEVEL_NAMES).items()
            listed = ", ".join([f"{name} {_value_words(value)}" for name, value in values])
            lines.append(f"{chart.title}, {bar.name} ({bar.role}): {listed}.")
    return " ".join(lines)
