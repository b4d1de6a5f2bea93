"""The status of a node as one screen, and as data."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from memqos.draw.text.lines import Line, Paragraph
from memqos.monitor.status import StatusReport
from memqos.units import duration_words, format_bytes, format_time, format_timestamp, pluralize

_SHOWN: Final = 8
_MODES: Final = {
    "enforce": "an agent keeps the planned values in place",
    "observe": "an agent only observes: it writes nothing",
    "no agent": "no agent of memqos answers on this node",
}
_TIME: Final = len("2026-03-02 ")


def status_text(status: StatusReport) -> Iterator[Line]:
    """One screen for a person."""
    yield f"{status.origin} · {format_time(status.at)} UTC" if status.at else status.origin
    yield ""
    yield f"on           {_mode_words(status)}"
    if status.enablement is not None:
        yield f"             {status.enablement}"
    yield f"converged    {_converged_words(status)}"
    managed = f", {status.managed} managed" if status.mode != "no agent" else ""
    yield (
        f"pods         {pluralize(status.pods, 'pod')}{managed}, "
        f"{pluralize(status.containers, 'container')}"
    )
    if status.pod_source is not None:
        yield Paragraph(f"from {status.pod_source}", " " * 13, " " * 15)
    yield ""
    yield from _throttled_lines(status)
    yield ""
    yield from _action_lines(status)
    yield ""
    if not status.problems:
        yield "wrong        nothing"
    for index, problem in enumerate(status.problems):
        yield Paragraph(problem, "wrong        " if not index else " " * 13, " " * 15)
    for note in status.notes:
        yield Paragraph(f"note: {note}", "", "  ")


def _mode_words(status: StatusReport) -> str:
    if status.mode != "cluster":
        return _MODES[status.mode]
    return f"the agents of {status.enforcing} of {pluralize(status.nodes, 'node')} enforce"


def _converged_words(status: StatusReport) -> str:
    if status.converged is None:
        return "not known without an agent: memqos plan compares the node with its plan"
    if not status.converged:
        return "no"
    if status.converged_for is None:
        return "yes"
    ago = round(status.converged_for * 1000)
    return f"yes, since {format_time(status.at - ago)} UTC ({duration_words(ago)})"


def _throttled_lines(status: StatusReport) -> Iterator[str]:
    if not status.throttled:
        yield "throttled    nobody"
        return
    for index, row in enumerate(status.throttled[:_SHOWN]):
        high = "max" if row.high is None else format_bytes(row.high)
        yield (
            f"{'throttled' if not index else '':<13}{row.name}: {row.high_events or 0:.1f} high "
            f"events a second, {format_bytes(row.current)} in use, memory.high {high}"
        )
    if len(status.throttled) > _SHOWN:
        yield f"{'':<13}and {len(status.throttled) - _SHOWN} more"


def _action_lines(status: StatusReport) -> Iterator[Line]:
    if not status.actions:
        yield "last hour    nothing is recorded"
        return
    for index, action in enumerate(status.actions[:_SHOWN]):
        yield Paragraph(
            f"{format_time(action.at)[_TIME:]} {action.who}: {action.what}",
            f"{'last hour' if not index else '':<13}",
            " " * 15,
        )
    if len(status.actions) > _SHOWN:
        yield f"{'':<13}and {len(status.actions) - _SHOWN} more"


def status_data(status: StatusReport) -> dict[str, Any]:
    """The same for scripts."""
    data: dict[str, Any] = msgspec.to_builtins(status)
    data["at"] = format_timestamp(status.at) if status.at else None
    data["throttled"] = [
        {
            "pod": row.pod,
            "container": row.container,
            "node": row.node,
            "high_events": row.high_events,
            "current": row.current,
            "high": row.high,
        }
        for row in status.throttled
    ]
    for action in data["actions"]:
        action["at"] = format_timestamp(action["at"])
    return data
