"""A pod and its containers as plain data, for scripts."""

from typing import Any

import msgspec

from memqos.cluster.autoscaling import AutoscalerRequests, UnknownRequest
from memqos.draw.text.amounts import quantity_texts, resources_data
from memqos.draw.text.pod import (
    WINDOWS_APPLIES,
    WINDOWS_DOES_NOT_APPLY,
    PodExplanation,
    cpu_weight,
    why_unknown,
)
from memqos.kube.explanations import why_class, why_defaulted
from memqos.kube.node import WINDOWS
from memqos.kube.resources import format_amount
from memqos.plan.setting import FileSettings, FileValue, Setting
from memqos.settings.settings import Settings


def pod_data(
    explained: PodExplanation,
    settings: Settings,
    *,
    why: bool,
    gate_off: PodExplanation | None = None,
) -> dict[str, Any]:
    """The same as plain data, for scripts."""
    semantics, shape = explained.semantics, explained.semantics.shape
    data: dict[str, Any] = {
        "origin": explained.origin,
        "name": explained.label,
        "namespace": explained.namespace,
        "release": str(settings.release),
        "valid": not semantics.errors,
        "errors": [msgspec.to_builtins(error) for error in semantics.errors],
        "notes": list(explained.notes),
        "defaulted": {
            "pod": None if shape.pod is None else resources_data(shape.pod),
            "containers": {
                name: resources_data(part)
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
            "class": why_class(shape, names, settings.release),
            "defaulted": list(why_defaulted(explained.written, shape, names, settings.release)),
        }
    values = _values_data(explained, why=why)
    if gate_off is not None and not explained.windows:
        both = {"on": values, "off": _values_data(gate_off, why=why)}
        data["by_enablement"] = both
    return data | {
        "qosClass": plan.qos,
        "requests": quantity_texts(plan.requests),
        "limits": quantity_texts(plan.limits),
        **(
            {}
            if explained.autoscalers is None
            else {"autoscaling": _autoscaler_data(explained.autoscalers)}
        ),
        **(
            {
                "os": WINDOWS,
                "applies": list(WINDOWS_APPLIES),
                "doesNotApply": list(WINDOWS_DOES_NOT_APPLY),
            }
            if explained.windows
            else {}
        ),
        "memoryVolumes": [
            {
                "name": volume.name,
                "size": volume.size,
                "source": volume.source,
                "sizeLimit": volume.size_limit,
            }
            for volume in explained.volumes
        ],
        **values,
    }


def _values_data(explained: PodExplanation, *, why: bool) -> dict[str, Any]:
    plan = explained.plan
    return {
        "pod": {} if explained.windows else _settings_data(plan.settings, why=why),
        "containers": [
            {
                "name": name,
                "role": container.role,
                "values": {} if explained.windows else _settings_data(container.settings, why=why),
            }
            for name, container in zip(explained.names, plan.containers, strict=True)
        ],
    }


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


def _autoscaler_data(requests: AutoscalerRequests) -> dict[str, Any]:
    return {
        "hpaDivisor": {
            resource: None
            if isinstance(request, UnknownRequest)
            else format_amount(resource, request)
            for resource, request in requests.utilization.items()
        },
        "hpaFailures": {
            resource: why_unknown(request)
            for resource, request in requests.utilization.items()
            if isinstance(request, UnknownRequest)
        },
        "hpaCountsPodLevel": requests.whole_pod,
        "clusterAutoscaler": quantity_texts(requests.node),
    }
