"""The map of a machine's NUMA memory: a bar a node, who holds what of it, and the distances."""

from collections.abc import Mapping, Sequence
from typing import Final

from memqos.draw.look import BOLD, SMALL, TITLE, drawing, filled
from memqos.draw.numa_segments import Holder, Kind, NodeBar, Segment, holders_of, node_bars
from memqos.draw.numa_tables import POOL
from memqos.draw.scale import LEFT, RIGHT, Axis, axis_to, short_size
from memqos.draw.svg import Markup, el, number, shortened, text_width
from memqos.kernel.nodelists import named_nodes, node_list
from memqos.kube.resources import MEMORY
from memqos.numa.machines import NumaMachine
from memqos.numa.state import State

Look = tuple[Kind, str]
"""What a segment is, and how it is filled."""

WIDTH: Final = 820
MARGIN: Final = 20
LINE: Final = 16
BAR: Final = 26
ROW: Final = 58
CELL: Final = 34
_MOST_DISTANCES: Final = 16
"""Nodes whose distances are drawn; more would not fit."""

_KEY: Final[Mapping[Look, str]] = {
    ("system", "normal"): "kept for the system",
    ("untold", "normal"): "memory",
    ("held", "min"): "held by a pod",
    ("held", "low"): "held by the next pod",
    ("free", "unknown"): "free",
    ("free", "high"): "free hugepages",
    ("untold", "high"): "hugepages",
}
"""Everything a map may have to explain."""
_SAID: Final[Mapping[Kind, str]] = {
    "system": " for the system",
    "held": " held",
    "free": " free",
    "untold": "",
}
_HELD: Final = ("min", "low")
"""Pods beside each other take turns."""


def map_svg(machine: NumaMachine, state: State | None, names: Mapping[str, str], title: str) -> str:
    """One SVG document."""
    holders = holders_of(state, names)
    bars = node_bars(machine, state, holders)
    axis = axis_to(max([node.memory for node in machine.nodes]))
    y: float = MARGIN + TITLE
    parts = [_text(MARGIN, y, "ink title", shortened(title, TITLE * BOLD, WIDTH - 2 * MARGIN))]
    key, y = _key(y + LINE, bars)
    parts.append(key)
    top = y + LINE
    y = top
    rows = []
    for bar in bars:
        rows.append(_bar(bar, axis, holders, y))
        y += ROW
    parts += [_ruler(axis, top - 6, y - 6), *rows]
    y += 2 * LINE
    if holders:
        listed, y = _holders(holders, y + LINE)
        parts.append(listed)
    if machine.distances is not None:
        drawn, y = _distances(machine, y + LINE)
        parts.append(drawn)
    height = y + MARGIN
    return drawing(title, _spoken(bars, holders), parts, WIDTH, height)


def _look(segment: Segment) -> Look:
    if segment.holder is not None:
        return "held", _HELD[segment.holder % 2]
    if segment.resource != MEMORY and segment.kind != "system":
        return segment.kind, "high"
    return segment.kind, "unknown" if segment.kind == "free" else "normal"


def _key(top: float, bars: Sequence[NodeBar]) -> tuple[Markup, float]:
    drawn = {_look(segment) for bar in bars for segment in bar.segments}
    signs = [(look, words) for (kind, look), words in _KEY.items() if (kind, look) in drawn]
    x: float = MARGIN
    parts = []
    for look, words in signs:
        swatch = filled(look, f"M{number(x)} {number(top)}h22v12h-22Z", words)
        parts += [swatch, _text(x + 28, top + 10, "ink", words)]
        x += 28 + text_width(words, SMALL) + 14
    return el("g", *parts), top + 12


def _bar(bar: NodeBar, axis: Axis, holders: Sequence[Holder], top: float) -> Markup:
    total = sum([segment.size for segment in bar.segments])
    parts = [
        _text(MARGIN, top + 12, "ink name", f"node {bar.node}"),
        _text(MARGIN, top + 27, "dim", short_size(total)),
    ]
    if bar.used_with:
        together = f"used with {node_list(bar.used_with)}"
        room = LEFT - MARGIN - 12
        parts.append(_text(MARGIN, top + 41, "dim", shortened(together, SMALL, room)))
    start = 0
    for segment in bar.segments:
        parts.append(_segment(segment, axis, holders, start, top))
        start += segment.size
    parts.append(_text(LEFT, top + BAR + LINE, "dim halo", " · ".join(_sums(bar))))
    return el("g", *parts)


def _segment(
    segment: Segment, axis: Axis, holders: Sequence[Holder], start: int, top: float
) -> Markup:
    left, right = axis.x(start), axis.x(start + segment.size)
    right = max(right, left + 1)
    _, look = _look(segment)
    who = "" if segment.holder is None else holders[segment.holder - 1].name
    hint = f"{who or segment.kind}: {segment.size:,} bytes of {segment.resource}"
    x1, x2, y1, y2 = map(number, (left, right, top, top + BAR))
    parts = [filled(look, f"M{x1} {y1}H{x2}V{y2}H{x1}Z", hint)]
    room = right - left - 8
    for words in _labels(segment, who):
        if text_width(words, SMALL) <= room:
            middle = (left + right) / 2
            parts.append(_text(middle, top + BAR / 2 + 4, f"halo middle on-{look}", words))
            break
    return el("g", *parts)


def _labels(segment: Segment, who: str) -> list[str]:
    """What a segment may say, the longest first."""
    size = short_size(segment.size)
    if segment.holder is not None:
        of = "" if segment.resource == MEMORY else " in hugepages"
        return [
            f"{segment.holder}  {who} {size}{of}",
            f"{segment.holder}  {size}",
            str(segment.holder),
        ]
    if segment.resource != MEMORY:
        return [f"{segment.resource} {size}", size]
    return [size]


def _sums(bar: NodeBar) -> list[str]:
    sums: dict[tuple[str, str], int] = {}
    for segment in bar.segments:
        if (segment.kind, segment.resource) != ("untold", MEMORY):
            key = _SAID[segment.kind], segment.resource
            sums[key] = sums.get(key, 0) + segment.size
    return [
        short_size(size) + ("" if resource == MEMORY else f" {resource}") + said
        for (said, resource), size in sorted(sums.items(), key=lambda item: item[0][1] != MEMORY)
    ]


def _holders(holders: Sequence[Holder], top: float) -> tuple[Markup, float]:
    y = top
    parts = [_text(MARGIN, y, "ink name", "Who holds what")]
    for holder in holders:
        for index, held in enumerate(holder.holdings):
            y += LINE
            who = f"{holder.number}  {holder.name}" if not index else ""
            container = "the pod as a whole" if held.container == POOL else held.container
            what = f"{short_size(held.block.size)} of {held.block.type}"
            parts += [
                _text(MARGIN, y, "ink", shortened(who, SMALL, 290)),
                _text(320, y, "ink", shortened(container, SMALL, 170)),
                _text(500, y, "ink", what),
                _text(680, y, "ink", shortened(named_nodes(held.block.nodes), SMALL, 120)),
            ]
    return el("g", *[part for part in parts if part]), y + LINE


def _distances(machine: NumaMachine, top: float) -> tuple[Markup, float]:
    assert machine.distances is not None
    rows, ids = machine.distances, machine.ids
    if len(ids) > _MOST_DISTANCES:
        every = [each for row in rows for each in row]
        words = f"Distances from {min(every)} to {max(every)}"
        return _text(MARGIN, top, "ink name", words), top + LINE
    parts = [_text(MARGIN, top, "ink name", "Distances")]
    y = top + LINE + 4
    for column, node in enumerate(ids):
        parts.append(_text(LEFT + CELL * column, y, "dim end", str(node)))
    for node, row in zip(ids, rows, strict=True):
        y += LINE
        parts.append(_text(MARGIN, y, "dim", f"node {node}"))
        for column, distance in enumerate(row):
            parts.append(_text(LEFT + CELL * column, y, "ink end", str(distance)))
    return el("g", *parts), y


def _ruler(axis: Axis, top: float, bottom: float) -> Markup:
    parts = [_line("axis", LEFT, bottom, RIGHT, bottom)]
    for tick in axis.ticks:
        x = axis.x(tick)
        parts.append(_line("grid", x, top, x, bottom + 4))
        parts.append(_text(x, bottom + LINE, "dim middle", short_size(tick) if tick else "0"))
    return el("g", *parts)


def _text(x: float, y: float, look: str, words: str) -> Markup:
    return el("text", words, x=x, y=y, class_=look)


def _line(look: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    return el("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=look)


def _spoken(bars: Sequence[NodeBar], holders: Sequence[Holder]) -> str:
    nodes = [f"Node {bar.node}: {', '.join(_sums(bar))}." for bar in bars]
    pods = [
        f"{holder.name} {held.container} holds {short_size(held.block.size)} of "
        f"{held.block.type} on {named_nodes(held.block.nodes)}."
        for holder in holders
        for held in holder.holdings
    ]
    return " ".join([*nodes, *pods])
