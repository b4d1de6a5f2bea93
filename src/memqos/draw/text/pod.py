"""A pod explained: its values as a table, and their derivation."""

from collections.abc import Iterator
from typing import Final

import msgspec

from memqos.cluster.autoscaling import AutoscalerRequests, UnknownRequest
from memqos.draw.text.lines import Line, Styled, Table
from memqos.kube.explanations import why_class, why_defaulted, why_total
from memqos.kube.resources import CPU, MEMORY, Amounts, legible, whole
from memqos.kube.shape import Role, Shape
from memqos.plan.cpu import weight_of
from memqos.plan.pod import PodPlan
from memqos.plan.semantics import Semantics
from memqos.plan.setting import NEEDS_NODE, FileSettings, FileValue, Setting
from memqos.plan.volumes import VolumeSize
from memqos.settings.enablement import Enablement
from memqos.settings.settings import Settings
from memqos.units import format_bytes, format_exact_bytes


class PodExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that was read, and its values in Kubernetes."""

    origin: str
    """file:line of the object it comes from."""
    label: str
    """`pod/web`, `deployment/web`, …"""
    namespace: str | None
    names: tuple[str, ...]
    """Of the containers, in the order of `Shape.parts`."""
    written: Shape
    semantics: Semantics
    windows: bool = False
    """Whether it runs on Windows, where there are no cgroups."""
    autoscalers: AutoscalerRequests | None = None
    """What autoscalers take for its requests; None where the pod is not valid."""
    notes: tuple[str, ...] = ()
    volumes: tuple[VolumeSize, ...] = ()
    """Those that are memory."""

    @property
    def plan(self) -> PodPlan:
        """The plan of a valid pod."""
        assert self.semantics.plan is not None
        return self.semantics.plan


def settings_line(settings: Settings, enablement: Enablement) -> str:
    """The settings of everything below; policy and factor have no effect while the gate is off."""
    factor = "no throttling factor" if settings.factor is None else f"factor {settings.factor:g}"
    node = (
        "no node given"
        if settings.memory_capacity is None
        else f"node of {format_bytes(settings.memory_capacity)}"
    )
    if settings.memory_allocatable is not None:
        node += f", {format_bytes(settings.memory_allocatable)} allocatable"
    policy = settings.reservation
    if settings.placement != "containers":
        policy += f", placement {settings.placement}"
    effective = (policy, factor) if enablement.is_on else ()
    state = f"MemoryQoS {enablement.state}"
    return " · ".join((f"Kubernetes {settings.release}", state, *effective, node))


WINDOWS_APPLIES: Final = (
    "QoS class and requests, for scheduling and eviction",
    "limits of containers, which the runtime sets on their job objects",
    "Memory Manager: only the policies None and BestEffort (WindowsCPUAndMemoryAffinity)",
)
WINDOWS_DOES_NOT_APPLY: Final = (
    "cgroups, and so Memory QoS: memory.min, memory.low, memory.high",
    "oom_score_adj: Windows has no OOM killer",
    "pod-level resources, and limits of a pod as a whole",
    "in-place resize",
)


def _windows_overview(explained: PodExplanation) -> list[Line]:
    """Requests and limits alone, and what of the rest applies."""
    plan = explained.plan
    rows = [["", "request", "limit"]]
    for name, part in zip(explained.names, explained.semantics.shape.parts, strict=True):
        rows.append([name, _memory_cell(part.requests), _memory_cell(part.limits)])
    namespace = f" in {explained.namespace}" if explained.namespace else ""
    return [
        f"{explained.label}{namespace}  {plan.qos} on Windows, without cgroups",
        Table(rows),
        *[f"  applies: {each}" for each in WINDOWS_APPLIES],
        *[f"  does not apply: {each}" for each in WINDOWS_DOES_NOT_APPLY],
        *[f"  note: {note}" for note in explained.notes],
    ]


_DROP: Final = {"cpu.max": 1, "cpu.weight": 2, "oom_score_adj": 3, "limit": 8, "request": 9}
"""Columns of the overview in the order they are dropped, counted from its end."""

GATED_FILES: Final = ("memory.min", "memory.low", "memory.high")
"""What the gate MemoryQoS decides about."""


def pod_overview(explained: PodExplanation, gate_off: PodExplanation | None = None) -> list[Line]:
    """The pod and its containers, a row each; with `gate_off`, both states of the gate."""
    if explained.windows:
        return _windows_overview(explained)
    plan = explained.plan
    namespace = f" in {explained.namespace}" if explained.namespace else ""
    rows = [
        ["", "", "", "memory.", "", "", "", "oom_", "cpu.", ""],
        ["", "request", "limit", "min", "low", "high", "max", "score_adj", "weight", "max"],
        _cgroup_row("pod", plan.requests, plan.limits, plan.settings),
    ]
    if gate_off is not None:
        rows.append(_gate_off_row(plan.settings, gate_off.plan.settings))
    last = len(plan.containers) - 1
    for index, (name, part, container) in enumerate(
        zip(explained.names, explained.semantics.shape.parts, plan.containers, strict=True)
    ):
        branch = "└ " if index == last else "├ "
        role = "" if container.role == "regular" else f" ({container.role})"
        rows.append(
            _cgroup_row(branch + name + role, part.requests, part.limits, container.settings)
        )
        if gate_off is not None:
            off = gate_off.plan.containers[index].settings
            rows.append(_gate_off_row(container.settings, off))
    left = 1
    if gate_off is not None:
        gates = ["", "", *["on", "off"] * (len(rows) // 2 - 1)]
        rows = [[row[0], gate, *row[1:]] for row, gate in zip(rows, gates, strict=True)]
        left = 2
    lines: list[Line] = [
        Styled(f"{explained.label}{namespace}  {plan.qos}", "title", len(explained.label)),
        Table(rows, left=left, drop={name: len(rows[0]) - end for name, end in _DROP.items()}),
    ]
    for setting_name, value in _hugepages(plan):
        lines.append(f"  {setting_name} = {value}")
    lines += [f"  {line}" for line in swap_lines(explained)]
    lines += [f"  {volume_text(volume, explained)}" for volume in explained.volumes]
    lines += [f"  note: {note}" for note in explained.notes]
    return lines


def _gate_off_row(on: FileSettings, off: FileSettings) -> list[str]:
    """What the gate changes; all else is as in the row above."""
    cells = []
    for file in GATED_FILES:
        cell = setting_cell(off[file])
        cells.append(cell if cell == setting_cell(on[file]) else Styled(cell, "changed"))
    return ["", "", "", *cells, "", "", "", ""]


def _cgroup_row(name: str, requests: Amounts, limits: Amounts, settings: FileSettings) -> list[str]:
    return [
        name,
        _memory_cell(requests),
        _memory_cell(limits),
        *[setting_cell(settings[f"memory.{level}"]) for level in ("min", "low", "high", "max")],
        setting_cell(settings["oom_score_adj"], plain=True) if "oom_score_adj" in settings else "",
        str(cpu_weight(settings)),
        cpu_max_text(settings["cpu.max"]),
    ]


def _memory_cell(amounts: Amounts) -> str:
    return format_bytes(whole(amounts[MEMORY])) if MEMORY in amounts else "–"


def setting_cell(setting: Setting, *, plain: bool = False) -> str:
    """A value for a column; bytes are shortened unless `plain`."""
    value = setting.value
    if value is None:
        return "–"
    if value == NEEDS_NODE:
        return "--node?"
    if isinstance(value, int) and not plain:
        return format_bytes(value)
    return str(value)


def cpu_max_text(setting: Setting) -> str:
    """cpu.max as a number of cpus."""
    quota, _, period = setting_cell(setting, plain=True).partition(" ")
    return f"{int(quota) / int(period):g} cpu" if quota.isdigit() else quota


def cpu_weight(settings: FileSettings) -> int:
    """The cpu.weight that the planned shares become."""
    shares = settings["cpu.shares"].value
    assert isinstance(shares, int)
    return weight_of(shares)


def _hugepages(plan: PodPlan) -> Iterator[tuple[str, str]]:
    for name, setting in plan.settings.items():
        if name.startswith("hugetlb.") and isinstance(setting.value, int) and setting.value:
            yield name, format_bytes(setting.value)


def swap_lines(explained: PodExplanation) -> Iterator[str]:
    """What each container may swap, where it may."""
    for name, container in zip(explained.names, explained.plan.containers, strict=True):
        setting = container.settings["memory.swap.max"]
        if setting.value:
            yield f"{name} memory.swap.max = {setting_cell(setting)}"


def volume_text(volume: VolumeSize, explained: PodExplanation) -> str:
    """A memory-backed volume: how large it may become, who decides, and whom it can kill."""
    if volume.source == "needs node":
        size = "up to the node's allocatable memory"
    elif volume.size is None:
        size = "up to half of the node's RAM"
    else:
        size = f"up to {format_bytes(volume.size)} ({volume.source})"
    text = f"volume {volume.name} is memory-backed, {size}, and outlives its containers"
    limits = [
        (name, container.settings["memory.max"].value)
        for name, container in zip(explained.names, explained.plan.containers, strict=True)
    ]
    # Its pages are charged to the container that writes them (cgroup-v2.rst, Memory Ownership).
    killed = [
        name
        for name, limit in limits
        if isinstance(limit, int) and (volume.size is None or volume.size >= limit)
    ]
    if not killed:
        return text
    return f"{text}: if {' or '.join(killed)} fills it, it is OOM-killed, after each restart too"


def derivation(explained: PodExplanation, settings: Settings) -> list[str]:
    """The derivation of every number, step by step with its rule."""
    plan, shape = explained.plan, explained.semantics.shape
    names = list(explained.names)
    lines = ["", f"why {explained.label}"]
    lines.append(f"  class {plan.qos}: {why_class(shape, names, settings.release)}")
    lines += [
        f"  defaulted {sentence}"
        for sentence in why_defaulted(explained.written, shape, names, settings.release)
    ]
    for side, amounts in (("requests", plan.requests), ("limits", plan.limits)):
        for resource in (CPU, MEMORY):
            if resource in amounts:
                text = why_total(shape, amounts, resource, side, settings.release)
                lines.append(
                    f"  {side}.{resource} = {legible(resource, amounts[resource])}: {text}"
                )
    if explained.autoscalers is not None:
        lines += _autoscaler_lines(explained.autoscalers)
    if explained.windows:
        return lines
    lines += _setting_reasons("pod", plan.settings)
    for name, container in zip(names, plan.containers, strict=True):
        lines += _setting_reasons(_container_title(name, container.role), container.settings)
    return lines


def _autoscaler_lines(requests: AutoscalerRequests) -> Iterator[str]:
    """What the horizontal autoscaler divides usage by, and what the cluster autoscaler seeks."""
    basis = (
        "the request of the pod, with overhead"
        if requests.whole_pod
        else "requests of the long-running containers, without overhead"
    )
    for resource, request in requests.utilization.items():
        yield (
            f"  HPA cannot compute {resource} utilization: {why_unknown(request)}"
            if isinstance(request, UnknownRequest)
            else f"  HPA divides {resource} usage by {legible(resource, request)}: {basis}"
        )
    sought = [
        f"{legible(resource, requests.node[resource])} {resource}"
        for resource in (CPU, MEMORY)
        if requests.node.get(resource)
    ]
    what = (
        f"room for {' and '.join(sought)}" if sought else "room for one more pod, no cpu or memory"
    )
    yield f"  the cluster autoscaler looks for a node with {what}"


def why_unknown(request: UnknownRequest) -> str:
    if request.container is None:
        return f"the pod-level requests have no {request.resource}"
    return f"container {request.container} requests no {request.resource}"


def gate_off_derivation(explained: PodExplanation) -> list[str]:
    """What decides the values that the gate MemoryQoS changes, while it is off."""
    plan = explained.plan
    lines = ["", f"why {explained.label}, with MemoryQoS off"]
    lines += _setting_reasons("pod", _gated(plan.settings))
    for name, container in zip(explained.names, plan.containers, strict=True):
        title = _container_title(name, container.role)
        lines += _setting_reasons(title, _gated(container.settings))
    return lines


def _gated(settings: FileSettings) -> FileSettings:
    return {file: settings[file] for file in GATED_FILES}


def _container_title(name: str, role: Role) -> str:
    return f"container {name}" if role == "regular" else f"{role} container {name}"


def _setting_reasons(title: str, settings: FileSettings) -> list[str]:
    """Each value with its reason; files that share both are named together."""
    reasons: dict[tuple[str, ...], list[str]] = {}
    for file, setting in settings.items():
        if file.startswith("hugetlb.") and not setting.value:
            continue
        reason = setting.because
        lines = [_value_text(file, setting.value), reason.text, *reason.steps]
        if file == "cpu.shares":
            lines.append(f"as cpu.weight: {cpu_weight(settings)}")
        lines.append(f"rule {reason.rule} ({reason.source})")
        if reason.differs is not None:
            lines.append(reason.differs)
        reasons.setdefault(tuple(lines), []).append(file)
    lines = [f"  {title}"]
    for (value, *why), files in reasons.items():
        names = ", ".join(files) + (" " if len(files) > 1 else "")
        lines.append(f"    {names:<16} {value}")
        lines += [f"      {line}" for line in why]
    return lines


_BYTES: Final = ("memory.m", "memory.l", "memory.h", "memory.s", "hugetlb.")


def _value_text(file: str, value: FileValue) -> str:
    if value is None:
        return "not written"
    if value == NEEDS_NODE:
        return "needs --node"
    if isinstance(value, int) and file.startswith(_BYTES):
        return f"{value} = {format_exact_bytes(value)}" if value >= 1024 else str(value)
    return str(value)
