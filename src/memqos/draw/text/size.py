"""Recommended sizes as tables with reasons and as data."""

from collections.abc import Iterator
from typing import Any, Final

from memqos.draw.text.lines import Line, Table
from memqos.plan.setting import FileValue
from memqos.settings.enablement import Enablement
from memqos.size.consequences import ContainerLevels, MemorySize
from memqos.size.workloads import PodLevelSize, SizedContainer, SizedWorkload, SizeReport
from memqos.units import format_bytes, format_estimate, pluralize

_MAX_NAME: Final = 28
"""Columns, of the 80 of a terminal."""
_DROP: Final = {"mean": 5, "confidence": 7, "pods": 1}


def size_lines(report: SizeReport, allocatable: int | None, *, why: bool) -> Iterator[Line]:
    """A row for each container of a workload, the largest first; reasons if `why`."""
    ordered = sorted(report.workloads, key=lambda each: -_limit_of(each))
    rows = [["container", "pods", "request", "limit", "peak", "mean", "risk", "confidence"]]
    rows += [_row(each) for each in ordered]
    yield Table(rows, drop=_DROP)
    for each in ordered if why else ():
        yield ""
        yield from _reasons(each, allocatable)
    if report.pods:
        yield ""
    for pod in report.pods:
        yield (
            f"pod {_pod_name(pod)}: its containers peak at different times: "
            f"{_size_words(pod.size)} for the whole pod, "
            f"{format_bytes(pod.of_containers)} for each on its own"
        )
    unsized = [each for each in ordered if each.size is None]
    for each in unsized if not why else ():
        yield ""
        yield f"{_name(each)}: {each.deciding.recommendation.reasons[0]}"


def _row(each: SizedWorkload) -> list[str]:
    found, size = each.deciding.recommendation, each.size
    name = _name(each)
    if len(name) > _MAX_NAME:
        name = "…" + name[1 - _MAX_NAME :]
    if size is None or found.need is None or found.risk is None:
        return [name, str(len(each.replicas)), *["–"] * 5, found.sureness]
    return [
        name,
        str(len(each.replicas)),
        _short(size.request),
        _short(size.limit),
        _short(int(found.need.peak)),
        _short(int(found.mean)),
        risk_text(found.risk),
        found.sureness,
    ]


def _reasons(each: SizedWorkload, allocatable: int | None) -> Iterator[str]:
    deciding = each.deciding
    found = deciding.recommendation
    pod = found.name.pod
    yield f"{_name(each)}" + (f", decided by {pod}" if len(each.replicas) > 1 else "")
    if each.size is not None:
        before = f" (now {_size_words(each.written)})" if each.written != MemorySize() else ""
        yield f"  {_size_words(each.size)}{before}, by {found.decides}"
    for reason in found.reasons:
        yield f"    {reason}"
    for line in _level_lines(deciding.levels):
        yield f"  {line}"
    if deciding.throttled_days:
        yield f"  above memory.high on {risk_text(deciding.throttled_days)} of the days so far"
    if each.size is not None:
        yield f"  {_eviction_line(deciding.evicted_days)}"
    if allocatable is not None and each.size is not None and each.size.request:
        count = pluralize(allocatable // each.size.request, "such container")
        yield f"  by memory {count} fit on a node with {format_bytes(allocatable)} allocatable"
    if found.days_to_limit is not None and found.limit is not None:
        yield f"  at this rate the limit is reached in {found.days_to_limit:.1f} days"
    for note in found.notes:
        yield f"  note: {note}"


def _eviction_line(days: float | None) -> str:
    if days is None:
        return "risk of eviction: unknown: no source has the memory pressure of its node"
    share = risk_text(days) if days else "0%"
    return f"risk of eviction: above the request under memory pressure on {share} of days so far"


def _level_lines(levels: ContainerLevels | None) -> Iterator[str]:
    if levels is None:
        return
    parts = [f"{levels.qos}"]
    for file, value in _files(levels).items():
        if value not in (None, 0):
            parts.append(f"{file} {_value_text(file, value)}")
    yield ", ".join(parts)


def _files(levels: ContainerLevels) -> dict[str, FileValue]:
    return {
        "memory.min": levels.min,
        "memory.low": levels.low,
        "memory.high": levels.high,
        "memory.max": levels.max,
        "oom_score_adj": levels.oom_score_adj,
    }


def _value_text(file: str, value: FileValue) -> str:
    if isinstance(value, int) and file.startswith("memory."):
        return format_bytes(value)
    return str(value)


def size_data(report: SizeReport, enablement: Enablement) -> dict[str, Any]:
    """All of it for scripts."""
    return {
        "enablement": enablement.data,
        "series": [_series_data(each) for each in report.containers],
        "workloads": [_workload_data(each) for each in report.workloads],
        "pods": [
            {
                "namespace": each.namespace,
                "pod": each.pod,
                "request": each.size.request,
                "limit": each.size.limit,
                "sum_of_containers": each.of_containers,
            }
            for each in report.pods
        ],
    }


def _series_data(each: SizedContainer) -> dict[str, Any]:
    found = each.recommendation
    need = found.need
    return {
        "series": found.name.text,
        "request": found.request,
        "limit": found.limit,
        "risk": found.risk,
        "throttled_days": each.throttled_days,
        "evictedDays": each.evicted_days,
        "slack": found.slack,
        "sure": found.sureness,
        "decided_by": found.decides or None,
        "samples": found.samples,
        "days": None if need is None else round(need.days, 3),
        "peak": None if need is None else int(need.peak),
        "mean": None if need is None else int(found.mean),
        "growth": None if need is None else need.growth,
        "growth_per_day": None if need is None else int(need.slope),
        "days_to_limit": found.days_to_limit,
        "reasons": list(found.reasons),
        "notes": list(found.notes),
        "class": None if each.levels is None else each.levels.qos,
        "files": {} if each.levels is None else _files(each.levels),
    }


def _workload_data(each: SizedWorkload) -> dict[str, Any]:
    size = each.size or MemorySize()
    return {
        "namespace": each.namespace,
        "workload": each.workload,
        "container": each.container,
        "pods": len(each.replicas),
        "request": size.request,
        "limit": size.limit,
        "request_now": each.written.request,
        "limit_now": each.written.limit,
        "decided_by": each.deciding.recommendation.name.text,
    }


def risk_text(risk: float) -> str:
    """A share of days."""
    return f"{risk:.1%}" if risk >= 0.0005 else "<0.1%"


def summary_line(report: SizeReport, sources: int) -> str:
    """What was read and sized."""
    sized = sum(each.recommendation.limit is not None for each in report.containers)
    return (
        f"{pluralize(len(report.containers), 'series', 'series')} from "
        f"{pluralize(sources, 'history', 'histories')}, {sized:,} sized"
    )


def _name(each: SizedWorkload) -> str:
    parts = [each.namespace, each.workload, each.container]
    return "/".join(part for part in parts if part)


def _pod_name(pod: PodLevelSize) -> str:
    return f"{pod.namespace}/{pod.pod}" if pod.namespace else pod.pod


def _size_words(size: MemorySize) -> str:
    return f"request {_short(size.request)}, limit {_short(size.limit)}"


def _short(amount: int | None) -> str:
    return "none" if amount is None else format_estimate(amount)


def _limit_of(each: SizedWorkload) -> int:
    return 0 if each.size is None else each.size.limit or 0
