"""The rows of a node as text: columns that fit the width, bars, and the head above them."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from memqos.draw.text.lines import Line, Table, display_width
from memqos.draw.text.terminal import visible
from memqos.monitor.instant import ContainerRow, NodeInstant
from memqos.units import format_bytes, format_time, pluralize

_WIDEST_BAR: Final = 40
_BAR_TITLE: Final = "0 … MAX"
_TABLE_BAR: Final = 10
_NARROWEST: Final = 30
"""Columns of a terminal that are left at least for the name and the bar."""


class Column(NamedTuple):
    """A column of the table; the larger its `drop`, the sooner it is dropped for want of width."""

    title: str
    width: int
    drop: int
    text: Callable[[ContainerRow], str]


COLUMNS: Final = (
    Column("QOS", 3, 2, lambda row: row.qos[:3].lower()),
    Column("USAGE", 7, 0, lambda row: format_bytes(row.current)),
    Column("MIN", 7, 9, lambda row: _amount(row.min)),
    Column("LOW", 7, 10, lambda row: _amount(row.low)),
    Column("HIGH", 7, 1, lambda row: _limit(row.high)),
    Column("MAX", 7, 0, lambda row: _limit(row.max)),
    Column("PSI%", 4, 1, lambda row: rate_text(row.full)),
    Column("HI/S", 4, 1, lambda row: rate_text(row.high_events)),
    Column("REF/S", 5, 6, lambda row: rate_text(row.refaults)),
    Column("GUARD", 5, 7, lambda row: f"+{row.guard_step}" if row.guard_step else "–"),
    Column("KILLS", 5, 5, lambda row: str(row.kills) if row.kills else "–"),
    Column("OOM", 4, 3, lambda row: _rank(row.oom_rank)),
    Column("EV", 4, 4, lambda row: _rank(row.eviction_rank)),
    Column("NUMA", 5, 8, lambda row: row.numa or "–"),
)


class Layout(NamedTuple):
    """The columns that fit a width, between the name and the bar."""

    name: int
    columns: tuple[Column, ...]
    bar: int


def layout_for(width: int) -> Layout:
    """As many columns as leave the name and the bar enough."""
    columns = list(COLUMNS)
    while True:
        taken = sum(column.width + 1 for column in columns)
        left = width - taken
        droppable = max(columns, key=lambda column: column.drop)
        if left >= _NARROWEST or not droppable.drop:
            break
        columns.remove(droppable)
    bar = max(8, min(_WIDEST_BAR, left // 3))
    return Layout(max(8, left - bar - 1), tuple(columns), bar)


def header_line(layout: Layout) -> str:
    """The titles of the columns."""
    titles = [fit_columns("CONTAINER", layout.name)]
    titles += [column.title.rjust(column.width) for column in layout.columns]
    return " ".join([*titles, fit_columns(_BAR_TITLE, layout.bar)])


def row_line(row: ContainerRow, layout: Layout, total: int | None, indent: int = 0) -> str:
    """A container; `total` is the memory of the node, for bars without a limit."""
    name = row.container if indent else _short_name(row, layout.name)
    cells = [fit_columns(" " * indent + name, layout.name)]
    cells += [fit_columns(column.text(row), column.width, right=True) for column in layout.columns]
    return " ".join([*cells, bar_text(row, layout.bar, total)])


def _short_name(row: ContainerRow, width: int) -> str:
    """Node, pod and container; the container's name is shortened last."""
    node = f"{row.node} " if row.node else ""
    pod = row.pod.partition("/")[2]
    short = f"{pod} {row.container}"
    for name in (f"{node}{row.name}", row.name, f"…/{short}", short):
        if display_width(visible(name)) <= width:
            return name
    left = max(4, width - display_width(visible(row.container)) - 1)
    return f"{fit_columns(pod, left)} {row.container}"


def bar_text(row: ContainerRow, width: int, total: int | None) -> str:
    """What is in use, from 0 to memory.max, with m, l and h where min, low and high are."""
    bound = row.max or max(total or 0, row.high or 0)
    end = max(bound, row.current, 1)
    # Without any bound, as in a cluster, there is nothing that the usage is a share of.
    full = min(width, -(-row.current * width // end)) if bound else 0
    cells = ["█"] * full + ["·"] * (width - full)
    for sign, level in (("m", row.min), ("l", row.low), ("h", row.high)):
        if level and level <= bound:
            cells[min(width - 1, level * width // end)] = sign
    if row.max is None:
        cells[-1] = ">"
    return "".join(cells)


def node_lines(instant: NodeInstant) -> list[str]:
    """The head of a screen: what is shown, of when, and the node's memory."""
    state = _agent_words(instant)
    first = " · ".join(filter(None, (instant.origin, _when(instant), state)))
    nodes = {row.node for row in instant.rows if row.node}
    facts = [pluralize(len(nodes), "node")] if nodes else []
    facts.append(pluralize(len(instant.rows), "container"))
    throttled = instant.throttled
    if throttled is not None:
        facts.append(f"{len(throttled)} throttled")
    killed = sum(row.kills for row in instant.rows)
    if killed:
        facts.append(pluralize(killed, "kill"))
    if instant.memory is not None:
        memory = instant.memory
        facts.append(f"{format_bytes(memory.available)} of {format_bytes(memory.total)} available")
        if memory.full is not None:
            facts.append(f"PSI some {memory.some:.1f} % full {memory.full:.1f} %")
    return [visible(first), visible(" · ".join(facts))]


def _when(instant: NodeInstant) -> str:
    if not instant.at:
        return ""
    time = f"{format_time(instant.at)} UTC"
    playback = instant.playback
    if playback is None:
        return time
    length = max(1, playback.until - playback.since)
    share = (instant.at - playback.since) / length
    return f"{time} · {'paused' if playback.is_paused else f'{playback.speed:g} ×'} · {share:.0%}"


def _agent_words(instant: NodeInstant) -> str:
    agent = instant.agent
    if agent is not None:
        return f"agent: {agent.mode}, {'converged' if agent.converged else 'not converged'}"
    if instant.playback is not None:
        return "recorded"
    return (instant.enablement or "").partition(":")[0]


def instant_lines(instant: NodeInstant, rows: Sequence[ContainerRow]) -> Iterator[Line]:
    """A node as a table that fits any width, with the columns that the screen drops dropped."""
    total = None if instant.memory is None else instant.memory.total
    yield from node_lines(instant)
    yield ""
    cells = [
        [
            f"{row.node} {row.name}" if row.node else row.name,
            *(column.text(row) for column in COLUMNS),
            bar_text(row, _TABLE_BAR, total),
        ]
        for row in rows
    ]
    ordered = sorted(COLUMNS, key=lambda column: -column.drop)
    bar = {_BAR_TITLE: len(COLUMNS) + 1}
    drop = {each.title: COLUMNS.index(each) + 1 for each in ordered if each.drop}
    titles = ["CONTAINER", *(column.title for column in COLUMNS), _BAR_TITLE]
    yield Table([titles, *cells], has_remarks=True, drop=drop | bar)


def fit_columns(text: str, width: int, *, right: bool = False) -> str:
    """A text in exactly so many columns of a terminal."""
    text = visible(text)
    if display_width(text) > width:
        while text and display_width(text) > width - 1:
            text = text[:-1]
        text += "…"
    space = " " * (width - display_width(text))
    return space + text if right else text + space


def _amount(amount: int) -> str:
    return format_bytes(amount) if amount else "–"


def _limit(amount: int | None) -> str:
    return "max" if amount is None else format_bytes(amount)


def rate_text(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _rank(rank: int | None) -> str:
    return "–" if rank is None else str(rank)
