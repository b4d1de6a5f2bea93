"""NUMA nodes as a picture: what is reserved for the system, held by pods, free, or hugepages."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from memqos.draw.svg.axis import AXIS_LEFT, AXIS_RIGHT, Axis, axis_to
from memqos.draw.svg.elements import (
    SMALL_FONT,
    TITLE_FONT,
    Markup,
    coordinate,
    el,
    ellipsize,
    svg_document,
    svg_line,
    svg_text,
    svg_title,
    text_width,
    zone_label,
    zone_path,
)
from memqos.draw.text.numa_state import POD_POOL, MemoryHolding, memory_holdings
from memqos.kernel.file_formats import describe_nodes, node_list
from memqos.kube.resources import MEMORY
from memqos.numa.machine_state import MemoryManagerState, NumaMemory
from memqos.numa.machines import NumaMachine
from memqos.units import format_bytes

SegmentKind = Literal["system", "held", "free", "untold"]
"""Untold: without a state it is not known whether it is held."""


class Segment(msgspec.Struct, frozen=True):
    """A stretch of a node's memory. `holder` is the number of the pod that holds it."""

    kind: SegmentKind
    size: int
    resource: str
    holder: int | None = None


class NodeBar(msgspec.Struct, frozen=True):
    """A node from its first byte to its last, and the nodes it is used with."""

    node: int
    segments: tuple[Segment, ...]
    used_with: tuple[int, ...] = ()


class MemoryHolder(msgspec.Struct, frozen=True):
    """A pod that holds memory."""

    number: int
    name: str
    holdings: tuple[MemoryHolding, ...]


def memory_holders(
    state: MemoryManagerState | None, names: Mapping[str, str]
) -> tuple[MemoryHolder, ...]:
    """The pods that hold memory, numbered by where they hold it."""
    if state is None:
        return ()
    by_pod: dict[str, list[MemoryHolding]] = {}
    for each in memory_holdings(state):
        by_pod.setdefault(each.uid, []).append(each)
    order = sorted(by_pod, key=lambda uid: (by_pod[uid][0].block.nodes, names.get(uid, uid)))
    return tuple(
        [
            MemoryHolder(number, names.get(uid, uid), tuple(by_pod[uid]))
            for number, uid in enumerate(order, start=1)
        ]
    )


def node_bars(
    machine: NumaMachine, state: MemoryManagerState | None, holders: Sequence[MemoryHolder]
) -> tuple[NodeBar, ...]:
    """Every node in segments."""
    if state is None:
        return tuple([NodeBar(node.id, _whole_node(node)) for node in machine.nodes])
    left = {
        (i, name): table.reserved
        for i, node in state.nodes.items()
        for name, table in node.memory.items()
    }
    parts: dict[tuple[int, str], list[Segment]] = {}
    for holder in holders:
        for holding in holder.holdings:
            block = holding.block
            rest = block.size
            for i in block.nodes:
                # A state has how much of each node is held, not by which pod: filled in its order.
                part = min(rest, left.get((i, block.type), 0))
                if part:
                    rest -= part
                    left[i, block.type] -= part
                    segment = Segment("held", part, block.type, holder.number)
                    parts.setdefault((i, block.type), []).append(segment)
    return tuple([_node_bar(node, state, parts) for node in machine.nodes])


def _node_bar(
    node: NumaMemory, state: MemoryManagerState, parts: Mapping[tuple[int, str], list[Segment]]
) -> NodeBar:
    found = state.nodes.get(node.id)
    if found is None:
        return NodeBar(node.id, _whole_node(node))
    names = [MEMORY, *sorted(name for name in found.memory if name != MEMORY)]
    segments = []
    for name in names:
        table = found.table(name)
        segments += [
            Segment("system", table.system_reserved, name),
            *parts.get((node.id, name), []),
            Segment("free", table.free, name),
        ]
    used_with = tuple([i for i in found.cells if i != node.id])
    return NodeBar(node.id, tuple([each for each in segments if each.size > 0]), used_with)


def _whole_node(node: NumaMemory) -> tuple[Segment, ...]:
    pages = [Segment("untold", size, name) for name, size in sorted(node.hugepages.items())]
    rest = node.memory - sum([each.size for each in pages])
    return tuple([each for each in (Segment("untold", rest, MEMORY), *pages) if each.size > 0])


SegmentLook = tuple[SegmentKind, str]
"""What a segment is, and how it is filled."""

_WIDTH: Final = 820
_MARGIN: Final = 20
_LINE: Final = 16
_BAR: Final = 26
_ROW: Final = 58
_CELL: Final = 34
_MOST_DISTANCES: Final = 16
"""Nodes whose distances are drawn; more would not fit."""

_LEGEND: Final[Mapping[SegmentLook, str]] = {
    ("system", "normal"): "reserved for the system",
    ("untold", "normal"): "memory",
    ("held", "min"): "assigned to a pod",
    ("held", "low"): "assigned to the next pod",
    ("free", "unknown"): "free",
    ("free", "high"): "free hugepages",
    ("untold", "high"): "hugepages",
}
"""Everything a map may have to explain."""
_KIND_WORDS: Final[Mapping[SegmentKind, str]] = {
    "system": " for the system",
    "held": " assigned",
    "free": " free",
    "untold": "",
}
_HOLDER_LOOKS: Final = ("min", "low")
"""Pods beside each other take turns."""


def numa_map_svg(
    machine: NumaMachine, state: MemoryManagerState | None, names: Mapping[str, str], title: str
) -> str:
    """One SVG document."""
    holders = memory_holders(state, names)
    bars = node_bars(machine, state, holders)
    axis = axis_to(max([node.memory for node in machine.nodes]))
    parts, y = svg_title(_MARGIN, _MARGIN + TITLE_FONT, title, _WIDTH - 2 * _MARGIN)
    key, y = _legend(y + _LINE, bars)
    parts.append(key)
    top = y + _LINE
    y = top
    rows = []
    for bar in bars:
        rows.append(_node_row(bar, axis, holders, y))
        y += _ROW
    parts += [_ruler(axis, top - 6, y - 6), *rows]
    y += 2 * _LINE
    if holders:
        listed, y = _holders(holders, y + _LINE)
        parts.append(listed)
    if machine.distances is not None:
        drawn, y = _distances(machine, y + _LINE)
        parts.append(drawn)
    height = y + _MARGIN
    return svg_document(title, _description(bars, holders), parts, _WIDTH, height)


def _look(segment: Segment) -> SegmentLook:
    if segment.holder is not None:
        return "held", _HOLDER_LOOKS[segment.holder % 2]
    if segment.resource != MEMORY and segment.kind != "system":
        return segment.kind, "high"
    return segment.kind, "unknown" if segment.kind == "free" else "normal"


def _legend(top: float, bars: Sequence[NodeBar]) -> tuple[Markup, float]:
    drawn = {_look(segment) for bar in bars for segment in bar.segments}
    signs = [(look, words) for (kind, look), words in _LEGEND.items() if (kind, look) in drawn]
    x: float = _MARGIN
    parts = []
    for look, words in signs:
        swatch = zone_path(look, f"M{coordinate(x)} {coordinate(top)}h22v12h-22Z", words)
        parts += [swatch, svg_text(x + 28, top + 10, "ink", words)]
        x += 28 + text_width(words, SMALL_FONT) + 14
    return el("g", *parts), top + 12


def _node_row(bar: NodeBar, axis: Axis, holders: Sequence[MemoryHolder], top: float) -> Markup:
    total = sum([segment.size for segment in bar.segments])
    parts = [
        svg_text(_MARGIN, top + 12, "ink name", f"node {bar.node}"),
        svg_text(_MARGIN, top + 27, "dim", format_bytes(total)),
    ]
    if bar.used_with:
        together = f"used with {node_list(bar.used_with)}"
        width = AXIS_LEFT - _MARGIN - 12
        parts.append(svg_text(_MARGIN, top + 41, "dim", ellipsize(together, SMALL_FONT, width)))
    start = 0
    for segment in bar.segments:
        parts.append(_segment(segment, axis, holders, start, top))
        start += segment.size
    parts.append(svg_text(AXIS_LEFT, top + _BAR + _LINE, "dim halo", " · ".join(_sums(bar))))
    return el("g", *parts)


def _segment(
    segment: Segment, axis: Axis, holders: Sequence[MemoryHolder], start: int, top: float
) -> Markup:
    left, right = axis.x(start), axis.x(start + segment.size)
    right = max(right, left + 1)
    _, look = _look(segment)
    who = "" if segment.holder is None else holders[segment.holder - 1].name
    hint = f"{who or segment.kind}: {segment.size:,} bytes of {segment.resource}"
    x1, x2, y1, y2 = map(coordinate, (left, right, top, top + _BAR))
    parts = [zone_path(look, f"M{x1} {y1}H{x2}V{y2}H{x1}Z", hint)]
    width = right - left - 8
    for words in _labels(segment, who):
        if text_width(words, SMALL_FONT) <= width:
            middle = (left + right) / 2
            parts.append(zone_label(look, middle, top + _BAR / 2 + 4, words))
            break
    return el("g", *parts)


def _labels(segment: Segment, who: str) -> list[str]:
    """What a segment may say, the longest first."""
    size = format_bytes(segment.size)
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
            key = _KIND_WORDS[segment.kind], segment.resource
            sums[key] = sums.get(key, 0) + segment.size
    return [
        format_bytes(size) + ("" if resource == MEMORY else f" {resource}") + kind
        for (kind, resource), size in sorted(sums.items(), key=lambda item: item[0][1] != MEMORY)
    ]


def _holders(holders: Sequence[MemoryHolder], top: float) -> tuple[Markup, float]:
    y = top
    parts = [svg_text(_MARGIN, y, "ink name", "Assignments")]
    for holder in holders:
        for index, holding in enumerate(holder.holdings):
            y += _LINE
            who = f"{holder.number}  {holder.name}" if not index else ""
            container = holding.container if holding.container != POD_POOL else "the whole pod"
            what = f"{format_bytes(holding.block.size)} of {holding.block.type}"
            nodes = describe_nodes(holding.block.nodes)
            parts += [
                svg_text(_MARGIN, y, "ink", ellipsize(who, SMALL_FONT, 290)),
                svg_text(320, y, "ink", ellipsize(container, SMALL_FONT, 170)),
                svg_text(500, y, "ink", what),
                svg_text(680, y, "ink", ellipsize(nodes, SMALL_FONT, 120)),
            ]
    return el("g", *[part for part in parts if part]), y + _LINE


def _distances(machine: NumaMachine, top: float) -> tuple[Markup, float]:
    assert machine.distances is not None
    rows, ids = machine.distances, machine.ids
    if len(ids) > _MOST_DISTANCES:
        every = [each for row in rows for each in row]
        words = f"Distances from {min(every)} to {max(every)}"
        return svg_text(_MARGIN, top, "ink name", words), top + _LINE
    parts = [svg_text(_MARGIN, top, "ink name", "Distances")]
    y = top + _LINE + 4
    for column, node in enumerate(ids):
        parts.append(svg_text(AXIS_LEFT + _CELL * column, y, "dim end", str(node)))
    for node, row in zip(ids, rows, strict=True):
        y += _LINE
        parts.append(svg_text(_MARGIN, y, "dim", f"node {node}"))
        for column, distance in enumerate(row):
            parts.append(svg_text(AXIS_LEFT + _CELL * column, y, "ink end", str(distance)))
    return el("g", *parts), y


def _ruler(axis: Axis, top: float, bottom: float) -> Markup:
    parts = [svg_line("axis", AXIS_LEFT, bottom, AXIS_RIGHT, bottom)]
    for tick in axis.ticks:
        x = axis.x(tick)
        parts.append(svg_line("grid", x, top, x, bottom + 4))
        parts.append(svg_text(x, bottom + _LINE, "dim middle", format_bytes(tick) if tick else "0"))
    return el("g", *parts)


def _description(bars: Sequence[NodeBar], holders: Sequence[MemoryHolder]) -> str:
    nodes = [f"Node {bar.node}: {', '.join(_sums(bar))}." for bar in bars]
    pods = [
        f"{holder.name} {holding.container} is assigned {format_bytes(holding.block.size)} of "
        f"{holding.block.type} on {describe_nodes(holding.block.nodes)}."
        for holder in holders
        for holding in holder.holdings
    ]
    return " ".join([*nodes, *pods])
