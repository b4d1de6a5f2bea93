"""One row of a node in full: every number with its derivation, as lines and as data."""

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Any

import msgspec

from memqos.draw.text.node_rows import rate_text
from memqos.draw.text.terminal import visible
from memqos.monitor.instant import LEVEL_FILES, ContainerRow, NodeInstant
from memqos.plan.changes import as_stored
from memqos.plan.rules import EVICTION_RANK, OOM_NODE
from memqos.plan.setting import Setting
from memqos.units import format_bytes, pluralize


def detail_lines(row: ContainerRow, instant: NodeInstant, width: int) -> list[str]:
    """Every number of a row with its derivation."""
    lines = [
        f"{row.name} · {row.qos or 'class not known'}" + (f" · {row.node}" if row.node else "")
    ]
    lines.append(f"in use {format_bytes(row.current)}{_composition(row)}")
    if row.high_events is not None:
        lines.append(
            f"high events {row.high_events:.1f}/s, {row.high_total:,} in all · refaults "
            f"{rate_text(row.refaults)}/s · PSI some {rate_text(row.some)} %, "
            f"full {rate_text(row.full)} %"
        )
    planned = instant.planned.get(row.path, {})
    for file in LEVEL_FILES:
        actual = level_of_row(row, file)
        lines += ["", *_setting_lines(file, actual, planned.get(file), instant.page_size)]
    if row.oom_score_adj is not None:
        lines += ["", *_setting_lines("oom_score_adj", None, planned.get("oom_score_adj"))]
    lines.append("")
    if row.oom_rank is not None:
        lines += [f"killed as number {row.oom_rank} if the node runs out of memory"]
        lines += [f"  {OOM_NODE.id}: {OOM_NODE.text}"]
    if row.eviction_rank is not None:
        lines += [f"evicted as number {row.eviction_rank} under memory pressure"]
        lines += [f"  {EVICTION_RANK.id}: {EVICTION_RANK.text}"]
    if row.guard_step:
        lines.append(f"the guard has widened memory.high by {pluralize(row.guard_step, 'step')}")
    if row.numa is not None:
        lines.append(f"memory on NUMA nodes {row.numa}")
    return list(_wrapped(lines, width))


def _composition(row: ContainerRow) -> str:
    """What the memory in use is made of; agents do not report it."""
    if row.anon is None or row.file is None or row.swap is None:
        return ""
    amounts = {"anonymous": row.anon, "page cache": row.file, "in swap": row.swap}
    return ": " + ", ".join(f"{format_bytes(amount)} {kind}" for kind, amount in amounts.items())


def level_of_row(row: ContainerRow, file: str) -> str:
    """The value of one of the four files in a row, as the kernel spells it."""
    value = getattr(row, file.removeprefix("memory."))
    return "max" if value is None else str(value)


def _setting_lines(
    file: str, actual: str | None, setting: Setting | None, page_size: int = 1
) -> Iterator[str]:
    shown = "" if actual is None else f" {_value_words(actual)}"
    if setting is None:
        yield f"{file}{shown}  (no plan for it)"
        return
    value = as_stored(file, setting.value, page_size) if actual is not None else str(setting.value)
    if actual is None:
        yield f"{file} {value}"
    elif value == actual:
        yield f"{file}{shown}  as planned"
    else:
        yield f"{file}{shown}  planned: {_value_words(value)}"
    reason = setting.because
    yield f"  {reason.rule}: {reason.text}" if reason.text else f"  {reason.rule}"
    for step in reason.steps:
        yield f"  · {step}"


def _wrapped(lines: Sequence[str], width: int) -> Iterator[str]:
    for line in lines:
        text = visible(line)
        indent = " " * (len(text) - len(text.lstrip()) + 2)
        yield from wrap(text, width, subsequent_indent=indent, break_on_hyphens=False) or [""]


def row_data(row: ContainerRow, instant: NodeInstant, *, why: bool = True) -> dict[str, Any]:
    """A row as plain data; with `why`, each planned value with its derivation."""
    data: dict[str, Any] = msgspec.to_builtins(row)
    if why:
        data["planned"] = {
            file: setting_data(file, setting, instant.page_size)
            for file, setting in instant.planned.get(row.path, {}).items()
            if file in LEVEL_FILES or file == "oom_score_adj"
        }
    return data


def setting_data(file: str, setting: Setting, page_size: int) -> dict[str, Any]:
    """A planned value and its reason as plain data."""
    reason = setting.because
    return {
        "value": as_stored(file, setting.value, page_size)
        if file in LEVEL_FILES
        else setting.value,
        "rule": reason.rule,
        "says": reason.text,
        "steps": list(reason.steps),
        "source": reason.source,
    }


def instant_data(
    instant: NodeInstant, rows: Sequence[ContainerRow], *, why: bool = True
) -> dict[str, Any]:
    """A node at an instant as plain data, with these rows of it."""
    agent = instant.agent
    return {
        "origin": instant.origin,
        "at": instant.at,
        "memory": None if instant.memory is None else msgspec.to_builtins(instant.memory),
        "enablement": instant.enablement,
        "agent": None
        if agent is None
        else {
            "mode": agent.mode,
            "converged": agent.converged,
            "converged_for": agent.converged_for,
            "policy": agent.policy,
            "factor": agent.factor,
        },
        "playback": None if instant.playback is None else msgspec.to_builtins(instant.playback),
        "containers": [row_data(row, instant, why=why) for row in rows],
        "notes": list(instant.notes),
    }


def _value_words(text: str) -> str:
    return format_bytes(int(text)) if text.isdecimal() else text
