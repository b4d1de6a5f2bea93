"""What a cluster requests beyond its need, as a table and as data."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from memqos.draw.text.size import risk_text
from memqos.draw.text.table import table
from memqos.size.savings import ClusterSavings, WorkloadSavings
from memqos.units import format_bytes, pluralize

_MAX_ROWS: Final = 20
_MAX_NAME: Final = 34


def savings_text(found: ClusterSavings) -> Iterator[str]:
    """The workloads with most to gain, and the nodes that would be enough."""
    over = [each for each in found.workloads if each.gain > 0]
    under = [each for each in found.workloads if each.gain < 0]
    total = sum(each.gain for each in over)
    yield f"Requests against history: {format_bytes(total)} more than needed"
    rows = [["CONTAINER", "PODS", "REQUESTS", "NEEDS", "GAIN", "RISK"]]
    shown = [*over[:_MAX_ROWS], *reversed(under[-_MAX_ROWS:])]
    yield from table([*rows, *map(_row, shown)])
    if len(shown) < len(found.workloads):
        yield f"… {pluralize(len(found.workloads) - len(shown), 'more container')}"
    if found.unsized:
        yield f"{pluralize(found.unsized, 'container')} without enough history stay as they are"
    yield _nodes_line(found)


def _row(each: WorkloadSavings) -> list[str]:
    name = f"{each.namespace}/{each.workload}/{each.container}"
    return [
        name if len(name) <= _MAX_NAME else "…" + name[1 - _MAX_NAME :],
        str(each.pods),
        format_bytes(each.requested),
        format_bytes(each.recommended),
        format_bytes(each.gain),
        risk_text(each.risk),
    ]


def _nodes_line(found: ClusterSavings) -> str:
    if not found.nodes:
        return "without Nodes in the dump it is not known how many would be enough"
    caveat = "by resources alone, without taints, affinity and DaemonSets"
    if found.nodes_then is None:
        return f"the pods do not fit on {pluralize(found.nodes, 'node')} with these requests"
    now = "more than there are" if found.nodes_now is None else str(found.nodes_now)
    return f"fits on {found.nodes_then} instead of {now} of {found.nodes} nodes, {caveat}"


def savings_data(found: ClusterSavings) -> dict[str, Any]:
    """All of it for scripts."""
    return msgspec.to_builtins(found)  # type: ignore[no-any-return]
