"""An explained pod as plain data, for scripts."""

from typing import Any

import msgspec

from memqos.draw.explained import PodExplanation
from memqos.draw.overview import cpu_weight
from memqos.kube.resources import Amounts, format_amount
from memqos.kube.why import why_class, why_defaulted
from memqos.plan.setting import FileSettings, FileValue, Setting
from memqos.plan.terms import Settings


def pod_data(explained: PodExplanation, terms: Settings, *, why: bool) -> dict[str, Any]:
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
            "pod": None
            if shape.pod is None
            else _resources_data(shape.pod.requests, shape.pod.limits),
            "containers": {
                name: _resources_data(part.requests, part.limits)
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
        "requests": _quantity_texts(plan.requests),
        "limits": _quantity_texts(plan.limits),
        "pod": _settings_data(plan.settings, why=why),
        "containers": [
            {
                "name": name,
                "role": container.role,
                "values": _settings_data(container.settings, why=why),
            }
            for name, container in zip(explained.names, plan.containers, strict=True)
        ],
    }


def _resources_data(requests: Amounts, limits: Amounts) -> dict[str, Any]:
    return {"requests": _quantity_texts(requests), "limits": _quantity_texts(limits)}


def _quantity_texts(amounts: Amounts) -> dict[str, str]:
    return {name: format_amount(name, amount) for name, amount in amounts.items()}


def _settings_data(settings: FileSettings, *, why: bool) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for file, setting in settings.items():
        name, value = file, setting.value
        if file == "cpu.shares":
            name, value = "cpu.weight", cpu_weight(settings)
        values[name] = _setting_with_reason(setting, value) if why else value
    return values


def _setting_with_reason(setting: Setting, value: FileValue) -> dict[str, Any]:
    return {"value": value, "because": msgspec.to_builtins(setting.because)}
