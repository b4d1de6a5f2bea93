"""The memory of nodes: in total, not reserved, and published to the scheduler."""

import msgspec

from memqos.kube.kubelet import KubeletConfiguration
from memqos.kube.kubelet.thresholds import MEMORY_AVAILABLE, read_thresholds
from memqos.kube.node import Node, allocatable, amount_in, capacity_of, node_os, swap_of
from memqos.kube.resources import MEMORY, is_hugepages
from memqos.settings.settings import Settings


class NodeMemory(msgspec.Struct, frozen=True):
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
        info = node.status.node_info
        version = None if info is None else info.kubelet_version
        if self._is_exact:
            capacity = capacity_of(node)
            left = allocatable(capacity, self._config, self._release)
            return NodeMemory(
                capacity.memory,
                left.enforced_memory,
                left.published_memory,
                version,
                node_os(node),
                swap_of(node),
            )
        stated = node.status.capacity or {}
        if MEMORY not in stated:
            capacity_of(node)
        total = amount_in(stated, MEMORY, "capacity").value
        offered = node.status.allocatable or stated
        published = amount_in(offered, MEMORY, "allocatable").value if MEMORY in offered else total
        # allocatable of a Node lacks the hard eviction threshold and hugepages as well (kubelet
        # cm/node_container_manager_linux.go, nodestatus/setters.go); memory.high counts them.
        before = published + self._eviction_reserve(total)
        before += sum(
            amount_in(stated, name, "capacity").value for name in stated if is_hugepages(name)
        )
        return NodeMemory(
            total, min(total, before), published, version, node_os(node), swap_of(node)
        )

    def _eviction_reserve(self, capacity: int) -> int:
        return 0 if self._threshold is None else self._threshold.limit(capacity).value
