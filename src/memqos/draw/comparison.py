"""One pod under several releases: a row a value, a column a release."""

from collections.abc import Sequence
from typing import Any

from memqos.draw.explained import PodExplanation
from memqos.draw.overview import cpu_max_text, cpu_weight, setting_cell
from memqos.draw.table import table


def release_comparison(columns: Sequence[tuple[str, PodExplanation]]) -> list[str]:
    """A row a value, a column a release; rows that differ are marked."""
    flat = [_flat_values(explained) for _, explained in columns]
    keys = list(dict.fromkeys(key for values in flat for key in values))
    rows = [["", "", *[title for title, _ in columns]]]
    for key in keys:
        cells = [values.get(key, "–") for values in flat]
        rows.append(["≠" if len(set(cells)) > 1 else " ", key, *cells])
    first = columns[0][1]
    differing = sum(row[0] == "≠" for row in rows)
    return [
        f"{first.label}  {differing} of {len(keys)} values differ",
        *table(rows, left=2),
    ]


def release_comparison_data(columns: Sequence[tuple[str, PodExplanation]]) -> dict[str, Any]:
    """The same as plain data."""
    first = columns[0][1]
    flat = {title: _flat_values(explained, exact=True) for title, explained in columns}
    keys = list(dict.fromkeys(key for values in flat.values() for key in values))
    return {
        "origin": first.origin,
        "name": first.label,
        "namespace": first.namespace,
        "releases": list(flat),
        "values": [
            {
                "value": key,
                "differs": len({str(values.get(key)) for values in flat.values()}) > 1,
                "by_release": {title: values.get(key) for title, values in flat.items()},
            }
            for key in keys
        ],
    }


def _flat_values(explained: PodExplanation, *, exact: bool = False) -> dict[str, Any]:
    if explained.semantics.plan is None:
        return (
            {"valid": "no", "errors": len(explained.semantics.errors)}
            if exact
            else {"valid": f"no: {len(explained.semantics.errors)} errors"}
        )
    plan = explained.plan
    values: dict[str, Any] = {"class": plan.qos}
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
