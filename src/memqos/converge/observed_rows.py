"""The rows of a node that was observed: whose each container is, its plan, its ranks."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from memqos.cluster.eviction_signals import working_set
from memqos.converge.node_plan import PLAN_FILES, NodePlan, PlanOptions, plan_observation
from memqos.converge.observation import ObservedNode
from memqos.errors import InputError, UnsupportedRelease
from memqos.kernel.file_formats import meminfo_of
from memqos.kernel.process import Process
from memqos.monitor.agent_rows import names_of_report, plan_of_report
from memqos.monitor.instant import ContainerRow
from memqos.monitor.rows import (
    ROW_FILES,
    RowNames,
    eviction_ranks,
    oom_ranks,
    row_of,
    with_ranks,
)
from memqos.plan.names import cgroup_names, names_of, outer
from memqos.plan.owners import SANDBOX_NAME, Owners
from memqos.plan.setting import FileSettings
from memqos.settings.settings import PAGE_SIZE

OBSERVED_FILES: Final = tuple(dict.fromkeys((*PLAN_FILES, *ROW_FILES)))
"""What is read of every cgroup for its plan and its row."""
_LAYOUTS: Final = (cgroup_names("systemd"), cgroup_names("cgroupfs"))


class RowPlan(NamedTuple):
    """The plan of a node as far as rows need it."""

    plan: NodePlan | None
    fault: str | None
    """Why there is no plan."""
    planned: Mapping[str, FileSettings]


def plan_rows(observation: ObservedNode, options: PlanOptions) -> RowPlan:
    """The plan of the node; where there is none, what its agent desires."""
    planned = {} if observation.agent is None else plan_of_report(observation.agent)
    try:
        plan = plan_observation(observation, options)
    except (InputError, UnsupportedRelease) as error:
        return RowPlan(None, f"no plan: {error}", planned)
    tree = {path: cgroup.settings for path, cgroup in plan.tree.cgroups.items()}
    return RowPlan(plan, None, planned | tree)


def observed_rows(
    observation: ObservedNode,
    row_plan: RowPlan,
    at: int,
    *,
    processes: Sequence[Process] = (),
    before: Mapping[str, ContainerRow] | None = None,
) -> tuple[ContainerRow, ...]:
    """A row a container; rates are since `before`, earlier rows by path."""
    names = _row_names(observation, row_plan.plan)
    rows = [
        _with_score(row, row_plan.planned)
        for path, files in observation.cgroups.items()
        if (owner := names.get(path)) is not None
        and (row := row_of(path, owner, files, at, (before or {}).get(path))) is not None
    ]
    machine = observation.machine
    meminfo = meminfo_of(machine.meminfo or "")
    total = meminfo.get("MemTotal", 0) + meminfo.get("SwapTotal", 0)
    oom = oom_ranks(rows, processes, total, machine.page_size or PAGE_SIZE) if total else {}
    eviction: dict[str, int] = {}
    if row_plan.plan is not None:
        used = _working_sets(observation, row_plan.plan)
        eviction = eviction_ranks(observation.pods, used, row_plan.plan.settings.release)
    return with_ranks(rows, oom, eviction)


def _row_names(observation: ObservedNode, plan: NodePlan | None) -> dict[str, RowNames]:
    """Path of a container → whose it is: by the pods, by the agent, or else by the UID in it."""
    if not observation.pods and observation.agent is not None:
        return names_of_report(observation.agent)
    layouts = _LAYOUTS if plan is None else (names_of(plan.config),)
    owners = Owners(layouts, observation.pods)
    found: dict[str, RowNames] = {}
    for path in observation.cgroups:
        owner = owners.of(path) if outer(path) == path else None
        if owner is not None and owner.container not in (None, SANDBOX_NAME):
            found[path] = RowNames(owner.pod, owner.container or "", owner.qos or "")
    return found


def _with_score(row: ContainerRow, planned: Mapping[str, FileSettings]) -> ContainerRow:
    setting = planned.get(row.path, {}).get("oom_score_adj")
    if setting is None or not isinstance(setting.value, int):
        return row
    return msgspec.structs.replace(row, oom_score_adj=setting.value)


def _working_sets(observation: ObservedNode, plan: NodePlan) -> dict[str, int]:
    """Pod → its working set, of the pods whose cgroups have one."""
    return {
        cgroup.pod: used
        for cgroup in plan.tree.cgroups.values()
        if cgroup.level == "pod" and cgroup.pod is not None
        if (used := working_set(observation.cgroups.get(cgroup.path, {}))) is not None
    }
