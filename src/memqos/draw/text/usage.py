"""Readings of a container's memory and deaths of a namespace, as text and as data."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from memqos.draw.text.lines import UNLIMITED, Line, Paragraph, Table
from memqos.draw.text.table import table_lines
from memqos.kernel.memory_usage import READING_KINDS
from memqos.record.recent_deaths import Death
from memqos.record.usage import UsageMoment
from memqos.units import format_bytes, format_time, format_timestamp

_UNKNOWN: Final = "–"


def readings_text(moments: Sequence[UsageMoment]) -> Iterator[Line]:
    """Every reading side by side, with what it counts and how it is computed."""
    yield "readings of its memory"
    heading = ["reading", *[moment.when for moment in moments]]
    amounts = list(zip(*[moment.usage for moment in moments], strict=True)) or [()] * len(
        READING_KINDS
    )
    rows = [
        [kind.name, *map(_amount_text, found)]
        for kind, found in zip(READING_KINDS, amounts, strict=True)
    ]
    first, *lines = table_lines(Table([heading, *rows], indent="  "), UNLIMITED, {})
    yield first
    for kind, line in zip(READING_KINDS, lines, strict=True):
        yield line
        yield Paragraph(kind.meaning, "    ", "      ")
        yield Paragraph(f"shown by {kind.shown_by}", "    ", "      ")
        yield Paragraph(f"cgroup v2: {kind.v2}; cgroup v1: {kind.v1}", "    ", "      ")


def readings_data(moments: Sequence[UsageMoment]) -> list[dict[str, Any]]:
    """The same for scripts, in bytes."""
    return [
        {
            "reading": kind.name,
            "v2": kind.v2,
            "v1": kind.v1,
            "shownBy": kind.shown_by,
            "meaning": kind.meaning,
            "values": [
                {
                    "when": moment.when,
                    "at": None if moment.at is None else format_timestamp(moment.at),
                    "bytes": moment.usage[index],
                }
                for moment in moments
            ],
        }
        for index, kind in enumerate(READING_KINDS)
    ]


def deaths_text(
    deaths: Sequence[Death], namespace: str | None, evidence: str, options: str = ""
) -> Iterator[Line]:
    """The containers that have died, the latest first; `options` name files to read again."""
    if not deaths:
        where = "" if namespace is None else f" in namespace {namespace}"
        yield f"no container{where} has died, as far as {evidence} show"
        return
    rows = [
        [
            format_time(death.at),
            f"{_pod_name(death, namespace)} {death.container}".strip(),
            death.what,
            _amount_text(death.usage),
            "none" if death.limit is None and death.is_oom else _amount_text(death.limit),
        ]
        for death in deaths
    ]
    yield Table([["when (UTC)", "pod, container", "what", "used", "limit"], *rows], left=3)
    yield ""
    last = namespace or deaths[0].namespace
    yield f"memqos why pod/{deaths[0].pod} -n {last}{options}  shows the history of one"


def _pod_name(death: Death, namespace: str | None) -> str:
    return death.pod if namespace else f"{death.namespace}/{death.pod}"


def deaths_data(deaths: Sequence[Death]) -> list[dict[str, Any]]:
    """The same for scripts."""
    return [
        {
            "at": format_timestamp(death.at),
            **({"namespace": death.namespace} if death.namespace else {}),
            "pod": death.pod,
            "container": death.container,
            "node": death.node,
            "what": death.what,
            "oomKilled": death.is_oom,
            "limit": death.limit,
            "usage": death.usage,
        }
        for death in deaths
    ]


def _amount_text(amount: int | None) -> str:
    return _UNKNOWN if amount is None else format_bytes(amount)
