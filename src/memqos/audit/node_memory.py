"""The memory of nodes: in total, not reserved, and published to the scheduler."""

import msgspec

from memqos.cluster.node_admission import kubelet_release
from memqos.kube.kubelet import KubeletConfiguration
from memqos.kube.kubelet.thresholds import MEMORY_AVAILABLE, read_thresholds
from memqos.kube.node import Node, allocatable, amount_in, capacity_of, node_os, swap_of
from memqos.kube.resources import MEMORY, is_hugepages
from memqos.settings.settings import Settings


class NodeMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What a node has, in bytes."""

    capacity: int
    enforced: int
    """Not reserved for the system: what all pods together may use."""
    published: int
    """What the scheduler may assign to pods."""
    version: str | None = None
    os: str | None = None
    swap: int | None = None
    """None where the Node does not say."""
    hugepages: int = 0
    """Set aside for them, used or not."""
    threshold: int = 0
    """memory.available below which the kubelet evicts."""
    is_hugepage_aware: bool = msgspec.field(default=True, name="hugepageAware")
    """Whether its kubelet knows that hugepages are not available."""

    @property
    def overstatement(self) -> int:
        """By how much memory.available is too large: hugepages that pass for available."""
        return 0 if self.is_hugepage_aware else self.hugepages

    @property
    def kills_before_eviction(self) -> bool:
        """Whether the kernel is out of memory before the kubelet begins to evict."""
        return self.overstatement > 0 and self.overstatement >= self.threshold

    @property
    def size(self) -> tuple[int, int]:
        """What a pod's values depend on: nodes of one size give a pod the same values."""
        return self.capacity, self.enforced


class NodeMemoryEstimator:
    """What nodes have, from their status and what their kubelets reserve.

    `exact` says that the configuration is the nodes' own: what they reserve then follows from it.
    """

    def __init__(self, config: KubeletConfiguration, settings: Settings, *, exact: bool) -> None:
        self._config = config
        self._release = settings.release
        self._is_exact = exact
        thresholds = read_thresholds(config.eviction_hard).thresholds
        self._threshold = next((t for t in thresholds if t.signal == MEMORY_AVAILABLE), None)

    def memory_of(self, node: Node) -> NodeMemory:
        """What a Node has; raise InputError where its status does not say."""
        total, enforced, published, hugepages = self._amounts_of(node)
        info = node.status.node_info
        version = None if info is None else info.kubelet_version
        return NodeMemory(
            capacity=total,
            enforced=enforced,
            published=published,
            version=version,
            os=node_os(node),
            swap=swap_of(node),
            hugepages=hugepages,
            threshold=self._eviction_reserve(total),
            is_hugepage_aware=kubelet_release(version, self._release).is_enabled(
                "HugepageAwareEviction"
            ),
        )

    def _amounts_of(self, node: Node) -> tuple[int, int, int, int]:
        if self._is_exact:
            capacity = capacity_of(node)
            left = allocatable(capacity, self._config, self._release)
            hugepages = sum(capacity.hugepages.values())
            return capacity.memory, left.enforced_memory, left.published_memory, hugepages
        stated = node.status.capacity or {}
        if MEMORY not in stated:
            capacity_of(node)
        total = amount_in(stated, MEMORY, "capacity").value
        offered = node.status.allocatable or stated
        published = amount_in(offered, MEMORY, "allocatable").value if MEMORY in offered else total
        # allocatable of a Node lacks the hard eviction threshold and hugepages as well (kubelet
        # cm/node_container_manager_linux.go, nodestatus/setters.go); memory.high counts them.
        hugepages = sum(
            amount_in(stated, name, "capacity").value for name in stated if is_hugepages(name)
        )
        before = published + self._eviction_reserve(total) + hugepages
        return total, min(total, before), published, hugepages

    def _eviction_reserve(self, capacity: int) -> int:
        return 0 if self._threshold is None else self._threshold.limit(capacity).value
