"""An explained pod as plain data, for scripts."""

from typing import Any

import msgspec

from memqos.draw.explained import Explained
from memqos.draw.overview import weight
from memqos.kube.resources import Amounts, spelled
from memqos.kube.why import why_class, why_defaulted
from memqos.plan.setting import Setting, Settings, Value
from memqos.plan.terms import Terms


def explained_data(explained: Explained, terms: Terms, *, why: bool) -> dict[str, Any]:
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
            name, value = "cpu.weight", weight(settings)
        values[name] = _with_reason(setting, value) if why else value
    return values


def _with_reason(setting: Setting, value: Value) -> dict[str, Any]:
    return {"value": value, "because": msgspec.to_builtins(setting.because)}
