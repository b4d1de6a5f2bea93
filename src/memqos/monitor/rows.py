"""Rows out of cgroup files: values, rates since the last reading, and ranks."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from memqos.cluster.eviction_order import PodMemoryUsage, eviction_order
from memqos.errors import InputError
from memqos.kernel.file_formats import processes_killed, stall_of
from memqos.kernel.process import Process
from memqos.kube.pod import Pod
from memqos.kube.resources_in_use import is_terminal
from memqos.monitor.instant import ContainerRow
from memqos.plan.oom_kill import kill_order
from memqos.plan.tree import pod_key
from memqos.record.readings import RECORDED_FILES, reading_of
from memqos.release import Release

ROW_FILES: Final = (*RECORDED_FILES, "cpuset.mems.effective", "cpuset.mems")
"""What a row is made of; of these only memory.current must be there."""
_REFAULTS: Final = re.compile(r"^workingset_refault_(?:anon|file) (\d+)$", re.MULTILINE)


class RowNames(NamedTuple):
    """Whose a cgroup is."""

    pod: str
    container: str
    qos: str = ""


def row_of(
    path: str,
    names: RowNames,
    files: Mapping[str, str],
    at: int,
    before: ContainerRow | None = None,
) -> ContainerRow | None:
    """A container as its files show it; None where its cgroup was removed.

    Rates are since `before`, an earlier row of the same cgroup.
    """
    reading = reading_of(files, at)
    if reading is None:
        return None
    stall = stall_of(files["memory.pressure"]) if "memory.pressure" in files else None
    refaults = sum(map(int, _REFAULTS.findall(files.get("memory.stat", ""))))
    high = reading.events.get("high", 0)
    numa = files.get("cpuset.mems.effective") or files.get("cpuset.mems")
    row = ContainerRow(
        path=path,
        pod=names.pod,
        container=names.container,
        qos=names.qos,
        read_at=at,
        current=reading.current,
        anon=reading.anon,
        file=reading.file,
        swap=reading.swap,
        min=reading.min,
        low=reading.low,
        high=reading.high,
        max=reading.max,
        some=None if stall is None else stall.some.avg10,
        full=None if stall is None else stall.full.avg10,
        high_total=high,
        refault_total=refaults,
        some_total=reading.some,
        full_total=reading.full,
        kills=processes_killed(reading.events),
        numa=numa or None,
    )
    return row if before is None else _with_rates(row, before)


def updated_row(row: ContainerRow, files: Mapping[str, str], at: int) -> ContainerRow | None:
    """A row of which only what orders it was read; None where its cgroup was removed."""
    current = files.get("memory.current", "")
    if not current.isdecimal():
        return None
    if len(files) == 1:
        return msgspec.structs.replace(row, current=int(current))
    now = row_of(row.path, RowNames(row.pod, row.container, row.qos), files, at)
    assert now is not None
    changes: dict[str, object] = {"current": now.current}
    if "memory.max" in files:
        changes["max"] = now.max
    if "memory.pressure" in files:
        changes |= {"some": now.some, "full": now.full}
    rated = _with_rates(now, row)
    if "memory.events" in files:
        changes |= {"high_events": rated.high_events, "kills": now.kills}
    if "memory.stat" in files:
        changes |= {"refaults": rated.refaults, "anon": now.anon, "file": now.file}
    return msgspec.structs.replace(row, **changes)


def _with_rates(row: ContainerRow, before: ContainerRow) -> ContainerRow:
    seconds = (row.read_at - before.read_at) / 1000
    if seconds <= 0:
        return msgspec.structs.replace(
            row, high_events=before.high_events, refaults=before.refaults
        )
    return msgspec.structs.replace(
        row,
        high_events=max(0, row.high_total - before.high_total) / seconds,
        refaults=max(0, row.refault_total - before.refault_total) / seconds,
    )


def eviction_ranks(
    pods: Iterable[Pod], working_sets: Mapping[str, int], release: Release
) -> dict[str, int]:
    """Pod → its place in the order of eviction, given what each uses."""
    running = []
    for pod in pods:
        used = working_sets.get(pod_key(pod))
        if not is_terminal(pod):
            running.append((pod, None if used is None else PodMemoryUsage(used)))
    try:
        order = eviction_order(running, release)
    except InputError:
        return {}  # a quantity that cannot be read: the plan reports it
    return {pod_key(each.pod): rank for rank, each in enumerate(order, 1)}


def oom_ranks(
    rows: Sequence[ContainerRow], processes: Sequence[Process], total: int, page_size: int
) -> dict[str, int]:
    """Path of a container → the place at which the kernel would first kill a process of it.

    Without its processes a container counts as one that holds all of its anonymous memory.
    """
    if not processes:
        processes = [
            Process(
                comm=row.container,
                oom_score_adj=row.oom_score_adj or 0,
                rss=row.anon or 0,
                swap=row.swap or 0,
                cgroup=row.path,
            )
            for row in rows
        ]
    paths = {row.path for row in rows}
    ranks: dict[str, int] = {}
    for kill in kill_order(processes, total, page_size).kills:
        path = kill.victim.process.cgroup or ""
        while path and path not in paths:
            path = path.rpartition("/")[0]
        if path:
            ranks.setdefault(path, len(ranks) + 1)
    return ranks


def with_ranks(
    rows: Iterable[ContainerRow], oom: Mapping[str, int], eviction: Mapping[str, int]
) -> tuple[ContainerRow, ...]:
    """The rows with their places in both orders."""
    return tuple(
        msgspec.structs.replace(
            row, oom_rank=oom.get(row.path), eviction_rank=eviction.get(row.pod)
        )
        for row in rows
    )
