"""A node at an instant: the values that `top`, `status` and the page show, whatever they are of."""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from memqos.manifests.agent_state import AgentReport
from memqos.plan.setting import FileSettings
from memqos.settings.settings import PAGE_SIZE

LEVEL_FILES: Final = ("memory.min", "memory.low", "memory.high", "memory.max")


class ContainerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A container. Times are milliseconds since 1970, amounts bytes; None is not known.

    For `high` and `max` None is no limit.
    """

    path: str
    """Of its cgroup; for a container that is only recorded, a name that no other has."""
    pod: str
    """namespace/name."""
    container: str
    qos: str = ""
    node: str = ""
    """Empty where there is one node."""
    read_at: int = 0
    """When all of it was read: rows off the screen are read less often."""
    current: int = 0
    anon: int | None = None
    file: int | None = None
    swap: int | None = None
    min: int = 0
    low: int = 0
    high: int | None = None
    max: int | None = None
    some: float | None = None
    """Percent of the last ten seconds in which some tasks waited for memory; `full`: all did."""
    full: float | None = None
    high_events: float | None = None
    """A second."""
    refaults: float | None = None
    """Pages a second that had been reclaimed, and were needed again."""
    high_total: int = 0
    """High events since the cgroup was made; `refault_total` the same of pages."""
    refault_total: int = 0
    some_total: int = 0
    """Microseconds waited since the cgroup was made."""
    full_total: int = 0
    kills: int = 0
    """Processes that the kernel killed in it."""
    guard_step: int = 0
    """Steps by which the guard has widened its memory.high."""
    oom_score_adj: int | None = None
    oom_rank: int | None = None
    """Its place in the order in which the kernel would kill; 1 is the first."""
    eviction_rank: int | None = None
    """Its pod's place in the order in which the kubelet would evict."""
    numa: str | None = None
    """The NUMA nodes that its memory may be on."""

    @property
    def is_throttled(self) -> bool:
        """Whether it exceeded memory.high just now."""
        return bool(self.high_events)

    @property
    def name(self) -> str:
        """namespace/pod container."""
        return f"{self.pod} {self.container}"


class AvailableMemory(msgspec.Struct, frozen=True):
    """The node itself; pressure as in a row."""

    total: int
    available: int
    some: float | None = None
    full: float | None = None


class ValueChange(msgspec.Struct, frozen=True):
    """A value that another process has changed: of a pod, or of a cgroup above the pods."""

    pod: str
    """namespace/name; empty above the pods."""
    words: str


class NodeSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A node among others."""

    name: str
    mode: str
    converged: bool | None = None
    pressure: float | None = None
    """Percent of the time in which all tasks of a container waited, of the container worst off; not
    known before the second reading."""
    containers: int = 0
    pods: int = 0
    managed: int = 0
    throttled: int | None = None
    """None where it is not known: that takes two readings."""
    kills: int = 0
    unmanaged: tuple[str, ...] = ()
    """namespace/name of the pods that are not managed."""
    changes: tuple[ValueChange, ...] = ()
    """Values that others have changed."""
    problems: tuple[str, ...] = ()


class PlaybackPosition(msgspec.Struct, frozen=True):
    """Where a playback is."""

    since: int
    until: int
    speed: float
    is_paused: bool


class NodeInstant(msgspec.Struct, frozen=True, kw_only=True):
    """A node, or several, at an instant."""

    origin: str
    """What it was read from, in words."""
    at: int
    rows: tuple[ContainerRow, ...]
    nodes: tuple[NodeSummary, ...] = ()
    """Of a cluster, those under most pressure first."""
    memory: AvailableMemory | None = None
    enablement: str | None = None
    """Whether Memory QoS is on, and by what that is known."""
    unmeasured: int = 0
    """Pods that run, without a reading of the memory of any."""
    planned: Mapping[str, FileSettings] = {}
    """Path → file → the planned value with its derivation."""
    page_size: int = PAGE_SIZE
    """To which the kernel rounds the values of files."""
    agent: AgentReport | None = None
    notes: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    """Those notes that say why nothing can be said of the node: no plan, or an agent that fails."""
    playback: PlaybackPosition | None = None

    @property
    def throttled(self) -> tuple[ContainerRow, ...] | None:
        """Those above memory.high, who exceed it most often first.

        None where no rate is known: that takes two readings.
        """
        if not (self.rows or self.nodes) and self.unmeasured:
            return None
        if self.rows and all(row.high_events is None for row in self.rows):
            return None
        found = [row for row in self.rows if row.is_throttled]
        return tuple(sorted(found, key=lambda row: -(row.high_events or 0)))


SortKey = Literal["usage", "share", "name", "psi", "high", "refaults", "oom", "eviction"]
SORT_KEYS: Final[Mapping[SortKey, str]] = {
    "usage": "memory in use",
    "share": "memory in use, as a share of the limit",
    "name": "pod and container",
    "psi": "time that tasks waited for memory",
    "high": "high events a second",
    "refaults": "refaults a second",
    "oom": "order in which the kernel would kill",
    "eviction": "order in which the kubelet would evict",
}
"""What rows are ordered by."""
SORT_FILES: Final[Mapping[SortKey, tuple[str, ...]]] = {
    "share": ("memory.current", "memory.max"),
    "psi": ("memory.current", "memory.pressure"),
    "high": ("memory.current", "memory.events", "memory.events.local"),
    "refaults": ("memory.current", "memory.stat"),
}
"""What has to be read of every row to order them; memory.current where none is listed."""


class RowQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows to show, and in which order."""

    sort: SortKey = "usage"
    reverse: bool = False
    text: str = ""
    """Rows whose names contain it; `class:burstable`, `throttled`, `killed` select by state."""

    @property
    def files(self) -> tuple[str, ...]:
        """What has to be read of every row."""
        return SORT_FILES.get(self.sort, ("memory.current",))


def select_rows(instant: NodeInstant, query: RowQuery) -> list[ContainerRow]:
    """The rows that a query selects, in its order."""
    words = query.text.lower().split()
    rows = [row for row in instant.rows if all(_matches(row, word) for word in words)]
    # Two sorts, as the second keeps the order of the first where its keys are equal.
    rows.sort(key=lambda row: (row.node, row.name))
    rows.sort(key=lambda row: _sort_value(row, query.sort), reverse=query.reverse)
    return rows


def _matches(row: ContainerRow, word: str) -> bool:
    if word == "throttled":
        return row.is_throttled
    if word == "killed":
        return row.kills > 0
    if word.startswith("class:"):
        return row.qos.lower().startswith(word.removeprefix("class:"))
    return word in row.name.lower() or word in row.node.lower()


def _sort_value(row: ContainerRow, key: SortKey) -> float | str:
    """Smaller comes first."""
    if key == "name":
        return f"{row.node} {row.name}"
    if key in ("oom", "eviction"):
        rank = row.oom_rank if key == "oom" else row.eviction_rank
        return float("inf") if rank is None else rank
    if key == "usage":
        return -row.current
    if key == "share":
        return -row.current / row.max if row.max else 0.0
    if key == "psi":
        return -(row.full or 0.0) * 1000 - (row.some or 0.0)
    return -((row.high_events if key == "high" else row.refaults) or 0.0)
