"""The derivation of every number of a pod, step by step with its rule."""

from memqos.draw.explained import PodExplanation
from memqos.draw.overview import cpu_weight
from memqos.kube.resources import CPU, MEMORY, legible
from memqos.kube.shape import Role
from memqos.kube.why import why_class, why_defaulted, why_total
from memqos.plan.setting import NEEDS_NODE, FileSettings, FileValue, size
from memqos.plan.terms import Settings


def derivation(explained: PodExplanation, terms: Settings) -> list[str]:
    """The derivation of every number, step by step with its rule."""
    plan, shape = explained.plan, explained.semantics.shape
    names = list(explained.names)
    lines = ["", f"why {explained.label}"]
    lines.append(f"  class {plan.qos}: {why_class(shape, names, terms.release)}")
    lines += [
        f"  defaulted {sentence}"
        for sentence in why_defaulted(explained.written, shape, names, terms.release)
    ]
    for side, amounts in (("requests", plan.requests), ("limits", plan.limits)):
        for resource in (CPU, MEMORY):
            if resource in amounts:
                text = why_total(shape, amounts, resource, side, terms.release)
                lines.append(
                    f"  {side}.{resource} = {legible(resource, amounts[resource])}: {text}"
                )
    lines += _setting_reasons("pod", plan.settings)
    for name, container in zip(names, plan.containers, strict=True):
        lines += _setting_reasons(_container_title(name, container.role), container.settings)
    return lines


def _container_title(name: str, role: Role) -> str:
    return f"container {name}" if role == "regular" else f"{role} container {name}"


def _setting_reasons(title: str, settings: FileSettings) -> list[str]:
    lines = [f"  {title}"]
    for file, setting in settings.items():
        if file.startswith("hugetlb.") and not setting.value:
            continue
        reason = setting.because
        shown = _value_text(file, setting.value)
        lines.append(f"    {file:<16} {shown}")
        lines.append(f"      {reason.says}")
        lines += [f"      {step}" for step in reason.steps]
        if file == "cpu.shares":
            lines.append(f"      as cpu.weight: {cpu_weight(settings)}")
        lines.append(f"      rule {reason.rule} ({reason.source})")
    return lines


def _value_text(file: str, value: FileValue) -> str:
    if value is None:
        return "not written"
    if value == NEEDS_NODE:
        return "needs --node"
    if isinstance(value, int) and file.startswith(("memory.m", "memory.l", "memory.h", "hugetlb.")):
        return f"{value} = {size(value)}" if value >= 1024 else str(value)
    return str(value)
