"""A pod in several releases: a row a value, a column a release."""

from collections.abc import Sequence
from typing import Any

import msgspec

from memqos.draw.text.lines import Line, Styled, Table
from memqos.draw.text.pod import (
    GATED_FILES,
    PodExplanation,
    cpu_max_text,
    cpu_weight,
    setting_cell,
)

_Values = dict[str, Any]


class ReleaseColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A pod in one release; with `gate_off`, both states of the gate MemoryQoS."""

    title: str
    pod: PodExplanation
    gate_off: PodExplanation | None = None


def release_comparison(columns: Sequence[ReleaseColumn]) -> list[Line]:
    """A row a value, and one for each state of the gate; rows that differ are marked."""
    on = [_flat_values(column.pod) for column in columns]
    off = _gate_off_values(columns)
    keys = list(dict.fromkeys(key for values in on for key in values))
    titles = [column.title for column in columns]
    rows = [["", "", "", *titles]]
    for key in keys:
        is_gated = off is not None and _is_gated(key)
        rows.append(_row(key, "on" if is_gated else "", on))
        if off is not None and is_gated:
            rows.append(_row(key, "off", off))
    differing = sum(row[0] == "≠" for row in rows)
    if off is None:
        rows = [[row[0], row[1], *row[3:]] for row in rows]
    return [
        f"{columns[0].pod.label}  {differing} of {len(rows) - 1} values differ",
        Table(rows, left=2 if off is None else 3),
    ]


def _row(key: str, gate: str, by_column: Sequence[_Values]) -> list[str]:
    cells = [values.get(key, "–") for values in by_column]
    if len(set(cells)) > 1:
        return [Styled(cell, "changed") for cell in ("≠", key, gate, *cells)]
    return [" ", key, gate, *cells]


def _is_gated(key: str) -> bool:
    return key.endswith(GATED_FILES)


def _gate_off_values(
    columns: Sequence[ReleaseColumn], *, exact: bool = False
) -> list[_Values] | None:
    """The values with the gate off in every release; None where one state alone is shown."""
    found = [
        _flat_values(column.gate_off, exact=exact)
        for column in columns
        if column.gate_off is not None
    ]
    return found if len(found) == len(columns) else None


def release_comparison_data(columns: Sequence[ReleaseColumn]) -> dict[str, Any]:
    """The same as plain data."""
    first = columns[0].pod
    titles = [column.title for column in columns]
    on = [_flat_values(column.pod, exact=True) for column in columns]
    off = _gate_off_values(columns, exact=True)
    keys = list(dict.fromkeys(key for values in on for key in values))
    return {
        "origin": first.origin,
        "name": first.label,
        "namespace": first.namespace,
        "releases": titles,
        "values": [
            {
                "value": key,
                "differs": len({str(values.get(key)) for values in on}) > 1,
                "by_release": _by_title(titles, key, on),
                **(
                    {}
                    if off is None
                    else {
                        "by_enablement": {
                            "on": _by_title(titles, key, on),
                            "off": _by_title(titles, key, off),
                        }
                    }
                ),
            }
            for key in keys
        ],
    }


def _by_title(titles: Sequence[str], key: str, by_column: Sequence[_Values]) -> dict[str, Any]:
    return {title: values.get(key) for title, values in zip(titles, by_column, strict=True)}


def _flat_values(explained: PodExplanation, *, exact: bool = False) -> _Values:
    if explained.semantics.plan is None:
        return (
            {"valid": "no", "errors": len(explained.semantics.errors)}
            if exact
            else {"valid": f"no: {len(explained.semantics.errors)} errors"}
        )
    plan = explained.plan
    values: _Values = {"class": plan.qos}
    if explained.windows:
        return values
    cgroups = [("pod", plan.settings)] + [
        (name, container.settings)
        for name, container in zip(explained.names, plan.containers, strict=True)
    ]
    for owner, settings in cgroups:
        for file, setting in settings.items():
            if file.startswith("hugetlb.") and not setting.value:
                continue
            if file == "cpu.shares":
                values[f"{owner} cpu.weight"] = (
                    cpu_weight(settings) if exact else str(cpu_weight(settings))
                )
            elif exact:
                values[f"{owner} {file}"] = setting.value
            elif file == "cpu.max":
                values[f"{owner} {file}"] = cpu_max_text(setting)
            else:
                plain = file in ("oom_score_adj", "memory.oom.group")
                values[f"{owner} {file}"] = setting_cell(setting, plain=plain)
    return values
