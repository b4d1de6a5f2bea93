"""What a cluster requests beyond its need, as tables and as data."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from memqos.draw.text.lines import Line, Table
from memqos.draw.text.size import risk_text
from memqos.size.savings import ClusterSavings, NodeSavings, WorkloadSavings
from memqos.units import format_bytes, pluralize

_MAX_NAME: Final = 34
_MAX_ROWS: Final = 20
SAVINGS_HEAD: Final = ("Container", "Pods", "Requests", "Needs", "Gain", "Risk")
NODE_HEAD: Final = ("Node", "Pods", "Allocatable", "Requested", "Needed")


def savings_text(found: ClusterSavings) -> Iterator[Line]:
    """The workloads with most to gain, and the nodes that would be enough."""
    over = [each for each in found.workloads if each.gain > 0]
    under = [each for each in found.workloads if each.gain < 0]
    yield savings_title(found)
    rows = [[each.lower() for each in SAVINGS_HEAD]]
    shown = [*over[:_MAX_ROWS], *reversed(under[-_MAX_ROWS:])]
    yield Table([*rows, *map(_savings_row, shown)], drop={"pods": 1})
    if len(shown) < len(found.workloads):
        yield f"… {pluralize(len(found.workloads) - len(shown), 'more container')}"
    if found.unsized:
        yield f"{pluralize(found.unsized, 'container')} without enough history stay as they are"
    yield nodes_line(found)
    if found.by_node:
        rows = [[each.lower() for each in NODE_HEAD], *map(node_cells, found.by_node[:_MAX_ROWS])]
        yield ""
        yield Table(rows, drop={"pods": 1})
    if len(found.by_node) > _MAX_ROWS:
        yield f"… {pluralize(len(found.by_node) - _MAX_ROWS, 'more node')}"


def node_cells(each: NodeSavings) -> list[str]:
    """A node as cells of `NODE_HEAD`."""
    offered = each.allocatable
    return [
        each.node,
        str(each.pods),
        "unknown" if offered is None else format_bytes(offered),
        _of_node(each.requested, offered),
        _of_node(each.recommended, offered),
    ]


def _of_node(amount: int, offered: int | None) -> str:
    return format_bytes(amount) + (f" ({amount / offered:.0%})" if offered else "")


def _savings_row(each: WorkloadSavings) -> list[str]:
    name, *cells = savings_cells(each)
    return [name if len(name) <= _MAX_NAME else "…" + name[1 - _MAX_NAME :], *cells]


def savings_cells(each: WorkloadSavings) -> list[str]:
    """A container of a workload as cells of `SAVINGS_HEAD`."""
    return [
        f"{each.namespace}/{each.workload}/{each.container}",
        str(each.pods),
        format_bytes(each.requested),
        format_bytes(each.recommended),
        format_bytes(each.gain),
        risk_text(each.risk),
    ]


def nodes_line(found: ClusterSavings) -> str:
    """How many nodes would be enough."""
    if not found.nodes:
        return "without Nodes in the dump the number of nodes needed is unknown"
    caveat = "by resources only, without taints and affinity"
    if found.nodes_then is None:
        return f"the pods do not fit on {pluralize(found.nodes, 'node')} with these requests"
    now = "more than there are" if found.nodes_now is None else str(found.nodes_now)
    return f"fits on {found.nodes_then} instead of {now} of {found.nodes} nodes, {caveat}"


def savings_title(found: ClusterSavings) -> str:
    """What all containers together request beyond their need."""
    total = sum(each.gain for each in found.workloads if each.gain > 0)
    return f"Requests compared with history: {format_bytes(total)} more than needed"


def savings_data(found: ClusterSavings) -> dict[str, Any]:
    """All of it for scripts."""
    data: dict[str, Any] = msgspec.to_builtins(found)
    return data
