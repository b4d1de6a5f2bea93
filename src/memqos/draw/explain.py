"""What `memqos explain` shows: a table, the derivation of every number, and plain data."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from memqos.api.resources import CPU, MEMORY, Amounts, spelled, whole
from memqos.api.shape import Role, Shape
from memqos.api.why import why_class, why_defaulted, why_total
from memqos.draw.levels import Bar, Chart
from memqos.draw.table import short, table
from memqos.plan.cpu import weight_of
from memqos.plan.pod import PodPlan
from memqos.plan.semantics import Semantics
from memqos.plan.setting import MAX, NEEDS_NODE, Setting, Settings, Value, size
from memqos.plan.terms import Terms

_SILENT_WHEN_ZERO = "hugetlb."


class Explained(msgspec.Struct, frozen=True):
    """A pod that was read, and what Kubernetes makes of it."""

    origin: str
    """file:line of the object it comes from."""
    label: str
    """`pod/web`, `deployment/web`, …"""
    namespace: str | None
    names: tuple[str, ...]
    """Of the containers, in the order of `Shape.parts`."""
    written: Shape
    semantics: Semantics
    notes: tuple[str, ...] = ()

    @property
    def plan(self) -> PodPlan:
        """The plan of a valid pod."""
        assert self.semantics.plan is not None
        return self.semantics.plan


def terms_line(terms: Terms) -> str:
    """The terms everything below holds under."""
    factor = "no throttling factor" if terms.factor is None else f"factor {terms.factor:g}"
    node = (
        "no node given"
        if terms.memory_capacity is None
        else f"node of {short(terms.memory_capacity)}"
    )
    if terms.memory_allocatable is not None:
        node += f", {short(terms.memory_allocatable)} allocatable"
    policy = f"policy {terms.policy}" if terms.release.minor >= 36 else "hard reservation"
    return f"Kubernetes {terms.release} · {policy} · {factor} · {node}"


def explain_table(explained: Explained) -> list[str]:
    """The pod and its containers, a row each."""
    plan = explained.plan
    namespace = f" in {explained.namespace}" if explained.namespace else ""
    rows = [
        ["", "", "", "memory.", "", "", "", "oom_", "cpu.", ""],
        ["", "request", "limit", "min", "low", "high", "max", "score_adj", "weight", "max"],
        _row("pod", plan.requests, plan.limits, plan.settings),
    ]
    last = len(plan.containers) - 1
    for index, (name, part, container) in enumerate(
        zip(explained.names, explained.semantics.shape.parts, plan.containers, strict=True)
    ):
        branch = "└ " if index == last else "├ "
        role = "" if container.role == "regular" else f" ({container.role})"
        rows.append(_row(branch + name + role, part.requests, part.limits, container.settings))
    lines = [f"{explained.label}{namespace}  {plan.qos}", *table(rows)]
    for setting_name, value in _hugepages(plan):
        lines.append(f"  {setting_name} = {value}")
    lines += [f"  note: {note}" for note in explained.notes]
    return lines


def _row(name: str, requests: Amounts, limits: Amounts, settings: Settings) -> list[str]:
    return [
        name,
        _memory(requests),
        _memory(limits),
        *[_cell(settings[f"memory.{level}"]) for level in ("min", "low", "high", "max")],
        _cell(settings["oom_score_adj"], plain=True) if "oom_score_adj" in settings else "",
        str(_weight(settings)),
        _cell(settings["cpu.max"], plain=True),
    ]


def _memory(amounts: Amounts) -> str:
    return short(whole(amounts[MEMORY])) if MEMORY in amounts else "–"


def _cell(setting: Setting, *, plain: bool = False) -> str:
    value = setting.value
    if value is None:
        return "–"
    if value == NEEDS_NODE:
        return "--node?"
    if isinstance(value, int) and not plain:
        return short(value)
    return str(value).replace(" 100000", "")


def _weight(settings: Settings) -> int:
    shares = settings["cpu.shares"].value
    assert isinstance(shares, int)
    return weight_of(shares)


def _hugepages(plan: PodPlan) -> Iterator[tuple[str, str]]:
    for name, setting in plan.settings.items():
        if name.startswith(_SILENT_WHEN_ZERO) and isinstance(setting.value, int) and setting.value:
            yield name, short(setting.value)


def explain_why(explained: Explained, terms: Terms) -> list[str]:
    """The derivation of every number, step by step with its rule."""
    plan, shape = explained.plan, explained.semantics.shape
    names = list(explained.names)
    lines = ["", f"why {explained.label}"]
    lines.append(f"  class {plan.qos}: {why_class(shape, names, terms.release)}")
    for sentence in why_defaulted(explained.written, shape, names, terms.release):
        lines.append(f"  defaulted {sentence}")
    for side, amounts in (("requests", plan.requests), ("limits", plan.limits)):
        for resource in (CPU, MEMORY):
            if resource in amounts:
                text = why_total(shape, amounts, resource, side, terms.release)
                lines.append(f"  {side}.{resource} = {spelled(resource, amounts[resource])}: {text}")
    lines += _why("pod", plan.settings)
    for name, container in zip(names, plan.containers, strict=True):
        lines += _why(_titled(name, container.role), container.settings)
    return lines


def _titled(name: str, role: Role) -> str:
    return f"container {name}" if role == "regular" else f"{role} container {name}"


def _why(title: str, settings: Settings) -> list[str]:
    lines = [f"  {title}"]
    for file, setting in settings.items():
        if file.startswith(_SILENT_WHEN_ZERO) and not setting.value:
            continue
        reason = setting.because
        shown = _shown(file, setting.value)
        lines.append(f"    {file:<16} {shown}")
        lines.append(f"      {reason.says}  [{reason.rule}; {reason.source}]")
        lines += [f"      {step}" for step in reason.steps]
        if file == "cpu.shares":
            lines.append(f"      cpu.weight = {_weight(settings)}")
    return lines


def _shown(file: str, value: Value) -> str:
    if value is None:
        return "not written"
    if value == NEEDS_NODE:
        return "needs --node"
    if isinstance(value, int) and file.startswith(("memory.m", "memory.l", "memory.h", "hugetlb.")):
        exact = size(value)
        return str(value) if exact == str(value) else f"{value} = {exact}"
    return str(value)


def explain_data(explained: Explained, terms: Terms, *, why: bool) -> dict[str, Any]:
    """The same as plain data, for scripts."""
    semantics, shape = explained.semantics, explained.semantics.shape
    data: dict[str, Any] = {
        "origin": explained.origin,
        "name": explained.label,
        "namespace": explained.namespace,
        "release": str(terms.release),
        "valid": not semantics.errors,
        "errors": [msgspec.to_builtins(error) for error in semantics.errors],
        "notes": list(explained.notes),
        "defaulted": {
            "pod": None if shape.pod is None else _stanza(shape.pod.requests, shape.pod.limits),
            "containers": {
                name: _stanza(part.requests, part.limits)
                for name, part in zip(explained.names, shape.parts, strict=True)
            },
        },
    }
    if semantics.plan is None:
        return data
    plan = semantics.plan
    if why:
        names = list(explained.names)
        data["why"] = {
            "class": why_class(shape, names, terms.release),
            "defaulted": list(why_defaulted(explained.written, shape, names, terms.release)),
        }
    return data | {
        "qosClass": plan.qos,
        "requests": _spelled(plan.requests),
        "limits": _spelled(plan.limits),
        "pod": _values(plan.settings, why=why),
        "containers": [
            {"name": name, "role": container.role, "values": _values(container.settings, why=why)}
            for name, container in zip(explained.names, plan.containers, strict=True)
        ],
    }


def _stanza(requests: Amounts, limits: Amounts) -> dict[str, Any]:
    return {"requests": _spelled(requests), "limits": _spelled(limits)}


def _spelled(amounts: Amounts) -> dict[str, str]:
    return {name: spelled(name, amount) for name, amount in amounts.items()}


def _values(settings: Settings, *, why: bool) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for file, setting in settings.items():
        name, value = file, setting.value
        if file == "cpu.shares":
            name, value = "cpu.weight", _weight(settings)
        values[name] = _with_reason(setting, value) if why else value
    return values


def _with_reason(setting: Setting, value: Value) -> dict[str, Any]:
    return {"value": value, "because": msgspec.to_builtins(setting.because)}


def explain_chart(explained: Explained, terms: Terms) -> Chart:
    """The picture of memory levels for this very pod."""
    plan = explained.plan
    bars = [_bar("pod", "pod", plan.requests, plan.limits, plan.settings)]
    for name, part, container in zip(
        explained.names, explained.semantics.shape.parts, plan.containers, strict=True
    ):
        bars.append(_bar(name, container.role, part.requests, part.limits, container.settings))
    return Chart(
        f"{explained.label} · {plan.qos}", terms_line(terms), tuple(bars), terms.memory_allocatable
    )


def _bar(name: str, role: str, requests: Amounts, limits: Amounts, settings: Settings) -> Bar:
    def level(file: str) -> Value:
        return settings[file].value if file in settings else None

    def protected(file: str) -> int | None:
        value = level(file)
        return value if isinstance(value, int) else None

    return Bar(
        name=name,
        role=role,
        request=whole(requests[MEMORY]) if MEMORY in requests else None,
        limit=whole(limits[MEMORY]) if MEMORY in limits else None,
        min=protected("memory.min"),
        low=protected("memory.low"),
        high=level("memory.high"),
        max=MAX if level("memory.max") is None else level("memory.max"),
        oom_score_adj=level("oom_score_adj"),
    )


def compare_table(columns: Sequence[tuple[str, Explained]]) -> list[str]:
    """A row a value, a column a release; rows that differ are marked."""
    flat = [_flat(explained) for _, explained in columns]
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


def compare_data(columns: Sequence[tuple[str, Explained]]) -> dict[str, Any]:
    """The same as plain data."""
    first = columns[0][1]
    flat = {title: _flat(explained, exact=True) for title, explained in columns}
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


def _flat(explained: Explained, *, exact: bool = False) -> dict[str, Any]:
    if explained.semantics.plan is None:
        return {"valid": "no", "errors": len(explained.semantics.errors)} if exact else {
            "valid": f"no: {len(explained.semantics.errors)} errors"
        }
    plan = explained.plan
    values: dict[str, Any] = {"class": plan.qos}
    cgroups = [("pod", plan.settings)] + [
        (name, container.settings)
        for name, container in zip(explained.names, plan.containers, strict=True)
    ]
    for owner, settings in cgroups:
        for file, setting in settings.items():
            if file.startswith(_SILENT_WHEN_ZERO) and not setting.value:
                continue
            if file == "cpu.shares":
                values[f"{owner} cpu.weight"] = _weight(settings) if exact else str(_weight(settings))
            elif exact:
                values[f"{owner} {file}"] = setting.value
            else:
                plain = file in ("oom_score_adj", "cpu.max", "memory.oom.group")
                values[f"{owner} {file}"] = _cell(setting, plain=plain)
    return values
