"""The status of a node as one screen, and as data."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from memqos.draw.text.lines import Line, Paragraph
from memqos.monitor.status import StatusReport
from memqos.units import duration_words, format_bytes, format_time, format_timestamp, pluralize

_SHOWN: Final = 8
_MODES: Final = {
    "enforce": "keeps the planned values in place",
    "observe": "only observes: it writes nothing",
    "no agent": "none answers on this node",
}
_LABEL: Final = 13
"""Columns of the name of a row, and blanks."""
_TIME: Final = len("2026-03-02 ")


def status_text(status: StatusReport) -> Iterator[Line]:
    """One screen for a person."""
    yield f"{status.origin} · {format_time(status.at)} UTC" if status.at else status.origin
    yield ""
    for name, words in status_facts(status):
        yield _row(name, words)
    yield ""
    yield from _throttled_lines(status)
    yield ""
    yield from _action_lines(status)
    yield ""
    for index, problem in enumerate(status.problems or ("none",)):
        yield _row("problems" if not index else "", problem)
    for note in status.notes:
        yield Paragraph(f"note: {note}", "", "  ")


def _row(name: str, text: str) -> Paragraph:
    return Paragraph(text, name.ljust(_LABEL), " " * (_LABEL + 2))


def status_facts(status: StatusReport) -> Iterator[tuple[str, str]]:
    """Whether it is on and has converged, and of how many pods that is said: each with its name."""
    if status.enablement is not None:
        yield "MemoryQoS", status.enablement.removeprefix("MemoryQoS is ")
    yield "agent", _mode_words(status)
    yield "converged", _converged_words(status)
    managed = f", {status.managed} managed" if status.mode != "no agent" else ""
    measured = f", {pluralize(status.containers, 'container')}" if status.containers else ""
    yield "pods", f"{pluralize(status.pods, 'pod')}{managed}{measured}"
    if status.pod_source is not None:
        yield "pod source", status.pod_source


def _mode_words(status: StatusReport) -> str:
    if status.mode != "cluster":
        return _MODES[status.mode]
    return f"enforces on {status.enforcing} of {pluralize(status.nodes, 'node')}"


def _converged_words(status: StatusReport) -> str:
    if status.converged is None:
        return "unknown without an agent; memqos plan compares the node with its plan"
    if not status.converged:
        return "no"
    if status.converged_for is None:
        return "yes"
    ago = round(status.converged_for * 1000)
    return f"yes, since {format_time(status.at - ago)} UTC ({duration_words(ago)})"


def _throttled_lines(status: StatusReport) -> Iterator[Line]:
    if not status.throttled:
        yield _row("throttled", "none" if status.throttling_known else _unknown_words(status))
        return
    for index, row in enumerate(status.throttled[:_SHOWN]):
        high = "max" if row.high is None else format_bytes(row.high)
        yield _row(
            "throttled" if not index else "",
            f"{row.name}: {row.high_events or 0:.1f} high events a second, "
            f"{format_bytes(row.current)} in use, memory.high {high}",
        )
    if len(status.throttled) > _SHOWN:
        yield _row("", f"and {len(status.throttled) - _SHOWN} more")


def _unknown_words(status: StatusReport) -> str:
    if status.mode == "cluster":
        return (
            "unknown yet: agents read the counters every ten seconds; --seconds 15 waits for them"
        )
    return "unknown: one reading cannot show it; memqos doctor shows earlier high events"


def _action_lines(status: StatusReport) -> Iterator[Line]:
    if not status.actions:
        yield _row("last hour", "nothing is recorded")
        return
    for index, action in enumerate(status.actions[:_SHOWN]):
        yield _row(
            "last hour" if not index else "",
            f"{format_time(action.at)[_TIME:]} {action.who}: {action.what}",
        )
    if len(status.actions) > _SHOWN:
        yield _row("", f"and {len(status.actions) - _SHOWN} more")


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
