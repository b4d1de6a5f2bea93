"""This machine, looked at again and again: rows on the screen often, all of it now and then."""

import time
from collections.abc import Callable, Collection
from typing import Final

import msgspec

from memqos.converge.node_plan import PlanOptions
from memqos.converge.observation import ObservedNode
from memqos.converge.observed_rows import OBSERVED_FILES, RowPlan, observed_rows, plan_rows
from memqos.converge.pod_sources import PodSource
from memqos.errors import InputError, MemqosError, Unreachable
from memqos.host.agent_socket import fetch_state
from memqos.host.cgroups import SYSTEM_ROOT, CgroupFs, read_tree
from memqos.host.processes import read_processes, read_text
from memqos.host.record_files import read_recordings
from memqos.kernel.file_formats import meminfo_of, stall_of
from memqos.kernel.process import Process
from memqos.kube.kubelet.drivers import kubepods_in
from memqos.manifests.agent_state import AgentReport, AgentState, read_agent_report
from memqos.monitor.instant import AvailableMemory, ContainerRow, NodeInstant, RowQuery
from memqos.monitor.rows import ROW_FILES, RowNames, row_of, updated_row
from memqos.record.recordings import Recording
from memqos.settings.settings import PAGE_SIZE

RESYNC: Final = 10_000
"""Milliseconds between two readings of all cgroups, the pods and the processes."""
SETTINGS: Final = 60_000
"""Milliseconds between two readings of what the kubelet runs with."""
REPORT: Final = 2_000
"""Milliseconds between two questions to the agent."""


def wall_clock() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class LiveNode:
    """This machine, by its cgroups, its pods and its agent."""

    def __init__(
        self,
        observation: ObservedNode,
        pods: PodSource | None,
        options: PlanOptions,
        *,
        root: str = SYSTEM_ROOT,
        proc: str = "/proc",
        socket: str | None = None,
        records: str | None = None,
        observe: Callable[[], ObservedNode] | None = None,
        clock: Callable[[], int] = wall_clock,
    ) -> None:
        """`observe` reads all of the node again, as it was read for `observation`."""
        self._observation = observation
        self._observe_all = observe
        self._pods = pods
        self._options = options
        self._fs = CgroupFs(root)
        self._proc = proc
        self._socket = socket
        self._records = records
        self._clock = clock
        self._resync_at = self._report_at = 0
        self._settings_at = clock() + SETTINGS
        self._plan: RowPlan | None = None
        self._report: AgentReport | None = None
        self._report_fault: str | None = None
        self._notes: tuple[str, ...] = ()
        self._rows: tuple[ContainerRow, ...] = ()
        self._recordings: tuple[int, list[Recording]] | None = None
        """When all of them were read, and they: there may be 32 MiB of them."""

    def read(self, visible: Collection[str], query: RowQuery) -> NodeInstant:
        """The node now: all of the visible rows, and of the others what orders them."""
        now = self._clock()
        if now >= self._report_at:
            self._read_report()
            self._report_at = now + REPORT
        if now >= self._resync_at:
            self._resync_at = now + RESYNC
            self._resync(now)
        else:
            self._refresh(visible, query, now)
        plan = None if self._plan is None else self._plan.plan
        agent_fault = () if self._report_fault is None else (self._report_fault,)
        plan_fault: tuple[str, ...] = ()
        # An agent that answers has a plan, even where this process can make none.
        if self._report is None and self._plan is not None and self._plan.fault is not None:
            plan_fault = (self._plan.fault,)
        return NodeInstant(
            origin=self._observation.origin,
            at=now,
            rows=tuple(map(self._with_guard, self._rows)),
            memory=_read_node_memory(self._proc),
            enablement=None if plan is None else str(plan.enablement),
            planned={} if self._plan is None else self._plan.planned,
            page_size=PAGE_SIZE if plan is None else plan.settings.page_size,
            agent=self._report,
            notes=(*self._notes, *agent_fault),
            faults=(*agent_fault, *plan_fault),
        )

    def recordings(self, pod: str | None = None) -> list[Recording]:
        """What the agent has recorded here; with `pod`, of that pod and of the node."""
        if self._records is None:
            return []

        if pod is not None:
            return list(
                read_recordings(
                    self._records,
                    lambda who: who.is_node or f"{who.namespace}/{who.pod}" == pod,
                )
            )
        now = self._clock()
        if self._recordings is None or now >= self._recordings[0] + RESYNC:
            self._recordings = now, list(read_recordings(self._records))
        return self._recordings[1]

    def _resync(self, now: int) -> None:
        """Read all cgroups, the pods and the processes; plan again where that changes the plan."""
        notes: list[str] = []
        observation = self._observe(now, notes)
        if self._plan is None or _plan_inputs(observation) != _plan_inputs(self._observation):
            self._plan = plan_rows(observation, self._options)
        self._observation = observation
        self._rows = observed_rows(
            observation,
            self._plan,
            now,
            processes=self._processes(),
            before={row.path: row for row in self._rows},
        )
        if self._plan.fault is not None:
            notes.append(self._plan.fault)
        if self._rows and not observation.pods and observation.agent is None:
            notes.append("the names of pods are not known: give --pods, or run memqos agent here")
        self._notes = (*observation.notes, *notes)

    def _observe(self, now: int, notes: list[str]) -> ObservedNode:
        observation = self._observation
        if self._observe_all is not None and now >= self._settings_at:
            self._settings_at = now + SETTINGS
            observation = self._read_settings(self._observe_all, notes)
        pods, cgroups = observation.pods, observation.cgroups
        if self._pods is not None:
            try:
                pods = tuple(self._pods.pods())
            except (MemqosError, OSError) as error:
                notes.append(f"the pods could not be read again: {error}")
        if observation.machine.layout in ("v2", None):
            below = [each.path for each in kubepods_in(cgroups)] or ["/"]
            cgroups = read_tree(self._fs.root, OBSERVED_FILES, below).cgroups
        return msgspec.structs.replace(observation, pods=pods, cgroups=cgroups, agent=self._report)

    def _read_settings(self, observe: Callable[[], ObservedNode], notes: list[str]) -> ObservedNode:
        """The node with what its kubelet runs with now; what was known, while it restarts."""
        try:
            found = observe()
        except (MemqosError, OSError) as error:
            notes.append(f"the kubelet's settings could not be read again: {error}")
            return self._observation
        return self._observation if _knows_less(found, self._observation) else found

    def _read_report(self) -> None:
        self._report = self._report_fault = None
        if self._socket is None:
            return
        try:
            answer = fetch_state(self._socket)
            self._report = None if answer is None else read_agent_report(answer, self._socket)
        except (Unreachable, InputError) as error:
            self._report_fault = f"the agent's state cannot be read: {error}"

    def _with_guard(self, row: ContainerRow) -> ContainerRow:
        step = 0 if self._report is None else self._report.guard.get(row.path, 0)
        return row if step == row.guard_step else msgspec.structs.replace(row, guard_step=step)

    def _processes(self) -> tuple[Process, ...]:
        """Those of the machine; a copy of its tree has none."""
        if self._fs.root != SYSTEM_ROOT:
            return ()
        try:
            return read_processes(self._proc, self._fs).processes
        except (MemqosError, OSError):
            return ()

    def _refresh(self, visible: Collection[str], query: RowQuery, now: int) -> None:
        """Read rows again; where a cgroup was removed, the next reading is a resync."""
        rows: list[ContainerRow] = []
        read, files = self._fs.read, query.files
        for row in self._rows:
            if row.path in visible:
                now_row = self._read_row(row, now)
            else:
                found = ((file, read(row.path, file)) for file in files)
                content = {file: text for file, text in found if text is not None}
                now_row = updated_row(row, content, now)
            if now_row is None:
                self._resync_at = 0
            else:
                rows.append(now_row)
        self._rows = tuple(rows)

    def _read_row(self, row: ContainerRow, now: int) -> ContainerRow | None:
        files = self._fs.read_all(row.path, ROW_FILES)
        found = row_of(row.path, RowNames(row.pod, row.container, row.qos), files, now, row)
        return found and msgspec.structs.replace(
            found,
            oom_rank=row.oom_rank,
            eviction_rank=row.eviction_rank,
            oom_score_adj=row.oom_score_adj,
        )


def _plan_inputs(observation: ObservedNode) -> tuple[object, ...]:
    """What a plan follows from, of all that may change."""
    return (
        observation.pods,
        observation.cgroups.keys(),
        _desired(observation.agent),
        observation.configuration,
        observation.machine.kubelet,
        observation.node,
        observation.driver,
    )


def _knows_less(found: ObservedNode, before: ObservedNode) -> bool:
    return any(
        now is None and then is not None
        for now, then in (
            (found.configuration, before.configuration),
            (found.machine.kubelet, before.machine.kubelet),
        )
    )


def _desired(agent: AgentState | None) -> object:
    return None if agent is None else (agent.mode, agent.levels, agent.reserved, agent.pods)


def _read_node_memory(proc: str) -> AvailableMemory | None:
    try:
        meminfo = meminfo_of(read_text(f"{proc}/meminfo"))
    except OSError:
        return None
    if "MemTotal" not in meminfo:
        return None
    memory = AvailableMemory(meminfo["MemTotal"], meminfo.get("MemAvailable", 0))
    try:
        stall = stall_of(read_text(f"{proc}/pressure/memory"))
    except OSError:  # the kernel has no PSI, or it is off
        return memory
    return msgspec.structs.replace(memory, some=stall.some.avg10, full=stall.full.avg10)
