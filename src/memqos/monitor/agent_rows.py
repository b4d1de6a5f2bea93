"""Rows out of what agents report: one node's, or those of all nodes of a cluster."""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from memqos.manifests.agent_state import AgentReport, AgentState, CgroupState
from memqos.monitor.instant import ContainerRow
from memqos.monitor.rows import RowNames
from memqos.plan.setting import FileSettings, Rule, Setting

_SAME: Final = 5.0
"""Seconds within which two readings are one, reported again: an agent reads every ten seconds, and
how long its answers take varies."""


def names_of_report(report: AgentState) -> dict[str, RowNames]:
    """Path of a container → whose it is."""
    return {
        cgroup.path: RowNames(pod.pod, cgroup.container, _qos_of(cgroup.path))
        for pod in report.pods
        for cgroup in pod.cgroups
        if cgroup.container is not None
    }


def plan_of_report(report: AgentState) -> dict[str, FileSettings]:
    """Path → file → what the agent desires, with its reason."""
    cgroups = [*report.levels, *report.reserved]
    cgroups += [cgroup for pod in report.pods for cgroup in pod.cgroups]
    return {cgroup.path: _settings(cgroup) for cgroup in cgroups}


def rows_of_report(
    report: AgentReport, at: int, node: str = "", before: Mapping[str, ContainerRow] | None = None
) -> Iterator[ContainerRow]:
    """The containers of an agent's node; rates are since `before`, earlier rows by path."""
    read_at = at - round(report.usage.age * 1000)
    for pod in report.pods:
        for cgroup in pod.cgroups:
            used = report.usage.cgroups.get(cgroup.path)
            if cgroup.container is None or used is None or used.current is None:
                continue
            row = ContainerRow(
                path=cgroup.path,
                pod=pod.pod,
                container=cgroup.container,
                qos=_qos_of(cgroup.path),
                node=node,
                read_at=read_at,
                current=used.current,
                min=_amount(cgroup, "memory.min") or 0,
                low=_amount(cgroup, "memory.low") or 0,
                high=_amount(cgroup, "memory.high"),
                max=_number(used.max),
                high_total=used.high,
                some_total=_microseconds(used.some),
                full_total=_microseconds(used.full),
                kills=used.oom_kill,
                guard_step=report.guard.get(cgroup.path, 0),
                numa=_numa(cgroup),
            )
            yield _with_rates(row, (before or {}).get(cgroup.path))


def _with_rates(row: ContainerRow, before: ContainerRow | None) -> ContainerRow:
    """What happened since an earlier report; pressure as a share of that time."""
    if before is None:
        return row
    seconds = (row.read_at - before.read_at) / 1000
    if seconds < _SAME:
        return before
    some, full = (
        max(0, now - then) / seconds / 10_000
        for now, then in (
            (row.some_total, before.some_total),
            (row.full_total, before.full_total),
        )
    )
    return msgspec.structs.replace(
        row,
        high_events=max(0, row.high_total - before.high_total) / seconds,
        some=some,
        full=full,
    )


def _settings(cgroup: CgroupState) -> FileSettings:
    return {
        file: Setting(
            each.desired,
            Rule(each.rule, each.because, each.source, lambda *steps: steps),
            each.steps,
        )
        for file, each in cgroup.files.items()
    }


def _amount(cgroup: CgroupState, file: str) -> int | None:
    found = cgroup.files.get(file)
    if found is None:
        return None
    return _number(found.desired if found.actual is None else found.actual)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _numa(cgroup: CgroupState) -> str | None:
    found = cgroup.files.get("cpuset.mems")
    return None if found is None else found.actual or found.desired or None


def _microseconds(seconds: float | None) -> int:
    return round((seconds or 0.0) * 1_000_000)


def _qos_of(path: str) -> str:
    """The class of a container's pod, by the name of the cgroup that the pod's is in."""
    above = path.split("/")[-3:-2]
    if above and "burstable" in above[0]:
        return "Burstable"
    return "BestEffort" if above and "besteffort" in above[0] else "Guaranteed"
