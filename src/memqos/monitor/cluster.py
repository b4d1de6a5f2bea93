"""All nodes of a cluster at an instant, out of what their agents report."""

from collections.abc import Iterator, Mapping

from memqos.errors import MemqosError
from memqos.manifests.agent_state import AgentReport
from memqos.monitor.agent_rows import plan_of_report, rows_of_report
from memqos.monitor.instant import ContainerRow, NodeInstant, NodeSummary, ValueChange
from memqos.monitor.status import node_status
from memqos.plan.setting import FileSettings
from memqos.units import duration_words, pluralize

AgentReports = Mapping[str, AgentReport | MemqosError]
"""Node → what its agent reports, or why there is no report."""


def cluster_instant(
    reports: AgentReports, at: int, origin: str, before: NodeInstant | None = None
) -> NodeInstant:
    """All nodes, given what their agents report; rates are since `before`."""
    earlier: dict[str, dict[str, ContainerRow]] = {}
    for row in () if before is None else before.rows:
        earlier.setdefault(row.node, {})[row.path] = row
    nodes: list[NodeSummary] = []
    rows: list[ContainerRow] = []
    planned: dict[str, FileSettings] = {}
    for name, report in reports.items():
        if isinstance(report, MemqosError):
            nodes.append(NodeSummary(name=name, mode="unknown", problems=(str(report),)))
            continue
        of_node = tuple(rows_of_report(report, at, name, earlier.get(name)))
        rows += of_node
        planned |= plan_of_report(report)
        nodes.append(_summary(name, report, of_node, at))
    nodes.sort(
        key=lambda node: (
            -(node.pressure or 0.0),
            -(node.throttled or 0),
            not node.problems,
            node.name,
        )
    )
    unknown = sum(isinstance(each, MemqosError) for each in reports.values())
    notes = (f"{pluralize(unknown, 'node')} not read",) if unknown else ()
    return NodeInstant(
        origin=origin, at=at, rows=tuple(rows), nodes=tuple(nodes), planned=planned, notes=notes
    )


def _summary(
    name: str, report: AgentReport, rows: tuple[ContainerRow, ...], at: int
) -> NodeSummary:
    alone = NodeInstant(origin=name, at=at, rows=rows, agent=report)
    managed = {pod.pod for pod in report.managed_pods}
    throttled = alone.throttled
    return NodeSummary(
        name=name,
        mode=report.mode,
        converged=report.converged,
        pressure=max([row.full for row in rows if row.full is not None], default=None),
        containers=len(rows),
        pods=len(report.pods),
        managed=len(managed),
        throttled=None if throttled is None else len(throttled),
        kills=sum(row.kills for row in rows),
        unmanaged=tuple(sorted(pod.pod for pod in report.pods if pod.pod not in managed)),
        changes=tuple(_changes(report)),
        problems=node_status(alone).problems,
    )


def _changes(report: AgentReport) -> Iterator[ValueChange]:
    """The latest first."""
    owners = {
        cgroup.path: (pod.pod, cgroup.container or "")
        for pod in report.pods
        for cgroup in pod.cgroups
    }
    for drift in sorted(report.drift, key=lambda drift: drift.age):
        pod, container = owners.get(drift.path, ("", drift.path))
        ago = duration_words(round(drift.age * 1000))
        words = f"{drift.file}: {drift.held} → {drift.found}, {ago} ago: {drift.cause}"
        yield ValueChange(pod, f"{container} {words}".lstrip())
