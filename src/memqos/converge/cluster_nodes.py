"""All nodes of a cluster, by the read endpoints of their agents."""

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

from memqos.converge.live_node import wall_clock
from memqos.errors import MemqosError, Unreachable
from memqos.manifests.agent_state import AgentReport, read_agent_report
from memqos.monitor.cluster import cluster_instant
from memqos.monitor.instant import NodeInstant, RowQuery
from memqos.monitor.status import HOUR
from memqos.record.recordings import Recording
from memqos.record.transfer import SentRecords

_AT_ONCE: Final = 8
"""Agents that are read at a time."""
_EVERY: Final = 10_000
"""Milliseconds between two questions: an agent reads the kernel's counters no more often."""


class ReadEndpoints(Protocol):
    """The agents of a cluster, as `host.agent_endpoint` reaches them."""

    def list_agents(self) -> Collection[str]: ...

    def get_state(self, node: str) -> bytes: ...

    def get_records(self, node: str, since: int) -> SentRecords: ...

    def get_pod_records(self, node: str, namespace: str, pod: str) -> SentRecords: ...


class ClusterNodes:
    """All nodes of a cluster on which an agent runs."""

    def __init__(
        self, agents: ReadEndpoints, origin: str, clock: Callable[[], int] = wall_clock
    ) -> None:
        self._agents = agents
        self._origin = origin
        self._clock = clock
        self._instant: NodeInstant | None = None
        self._read_at = 0
        self._recordings: tuple[int, list[Recording]] | None = None
        """When those of the last hour were read, and they."""

    def read(self, visible: Collection[str], query: RowQuery) -> NodeInstant:
        """All nodes now, or as they were a few seconds ago."""
        now = self._clock()
        if self._instant is None or now - self._read_at >= _EVERY:
            nodes = sorted(self._agents.list_agents())
            if not nodes:
                raise Unreachable(
                    f"{self._origin}: no agent of memqos runs here",
                    hint="is it in another namespace? Give that with --agent-namespace",
                )
            with ThreadPoolExecutor(_AT_ONCE) as workers:
                reports = dict(zip(nodes, workers.map(self._report, nodes), strict=True))
            self._instant = cluster_instant(reports, self._clock(), self._origin, self._instant)
            self._read_at = now
        return self._instant

    def recordings(self, pod: str | None = None) -> Sequence[Recording]:
        """What the agents have recorded in the last hour; of one pod, all that is kept."""
        if pod is not None:
            return self._recordings_of(pod)
        now = self._clock()
        if self._recordings is None or now - self._recordings[0] >= _EVERY:
            since = now - HOUR
            known = () if self._instant is None else self._instant.nodes
            nodes = [node.name for node in known if node.mode != "unknown"]
            with ThreadPoolExecutor(_AT_ONCE) as workers:
                sent = list(workers.map(lambda node: self._agents.get_records(node, since), nodes))
            self._recordings = now, [recording for each in sent for recording in each.recordings]
        return self._recordings[1]

    def _recordings_of(self, pod: str) -> Sequence[Recording]:
        rows = () if self._instant is None else self._instant.rows
        node = next((row.node for row in rows if row.pod == pod), None)
        if node is None:
            return ()
        namespace, _, name = pod.partition("/")
        sent = self._agents.get_pod_records(node, namespace, name)
        of_node = sent.node_recording
        return [*sent.recordings, *([] if of_node is None else [of_node])]

    def _report(self, node: str) -> AgentReport | MemqosError:
        try:
            return read_agent_report(self._agents.get_state(node), f"the agent of {node}")
        except MemqosError as error:
            return error
        except OSError as error:
            return MemqosError(f"the agent of {node}: {error}")
