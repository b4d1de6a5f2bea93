"""How much swap a container may use, release by release (KEP-2400).

Everything follows from the kubelet's swapBehavior, the pod's class and the container's own memory
request and limit: pod-level values, overhead and claims do not count.
"""

from collections.abc import Callable
from typing import Final, Literal

import msgspec

from memqos.kube.pod import QosClass
from memqos.kube.resources import MEMORY, memory_in
from memqos.kube.shape import Part
from memqos.release import Release, Since

SwapBehavior = Literal["NoSwap", "LimitedSwap", "UnlimitedSwap"]
SwapReason = Literal[
    "no controller",
    "cgroup v1",
    "before NodeSwap",
    "gate off",
    "no swap",
    "unlimited",
    "critical",
    "not Burstable",
    "no memory",
    "request is limit",
    "needs node",
    "above capacity",
    "share",
]
UNLIMITED: Final = "max"


class SwapNode(msgspec.Struct, frozen=True, kw_only=True):
    """What swap depends on besides the pod. Capacities are None where no node is known."""

    behavior: str = ""
    """memorySwap.swapBehavior as configured; what "" means differs between releases."""
    memory_capacity: int | None = None
    swap_capacity: int | None = None
    has_controller: bool = True
    cgroup_version: int = 2


class ContainerSwap(msgspec.Struct, frozen=True):
    """What a container gets: of cgroup v2, and as memory+swap limit of older interfaces."""

    because: SwapReason
    maximum: int | str | None
    """memory.swap.max; None: not written."""
    with_memory: int = 0
    """Memory and swap together, as sent to the runtime: 0 not set, −1 no limit."""

    @property
    def behavior(self) -> SwapBehavior:
        """The behaviour that the kubelet chose for this container."""
        if self.because in ("share", "above capacity", "needs node"):
            return "LimitedSwap"
        return "UnlimitedSwap" if self.because == "unlimited" else "NoSwap"


def container_swap(
    part: Part, qos: QosClass, node: SwapNode, release: Release, *, limit: int, critical: bool
) -> ContainerSwap:
    """The swap of one container; `limit` is its memory.max, 0 without one.

    `critical` is whether its pod is.
    """
    return _SWAP.at(release.minor)(part, qos, node, release, limit, critical)


def _memory_and_swap(
    part: Part, qos: QosClass, node: SwapNode, release: Release, limit: int, critical: bool
) -> ContainerSwap:
    """1.22 to 1.27: no unified key. The runtime turns the sum of both limits into one for swap."""
    if not release.is_enabled("NodeSwap"):
        return ContainerSwap("before NodeSwap", None)
    if node.behavior == "UnlimitedSwap":
        return ContainerSwap("unlimited", UNLIMITED, -1)
    # Without a memory limit nothing is sent to the runtime, so the kernel's default holds.
    return ContainerSwap("no swap", 0 if limit else None, limit)


def _unified(
    part: Part, qos: QosClass, node: SwapNode, release: Release, limit: int, critical: bool
) -> ContainerSwap:
    if not node.has_controller:
        return ContainerSwap("no controller", None)
    if node.cgroup_version != 2:
        return ContainerSwap("cgroup v1", None, limit)
    if not release.is_enabled("NodeSwap"):
        return ContainerSwap("gate off", 0)
    behavior = BEHAVIOR.at(release.minor)(node.behavior)
    if behavior == "UnlimitedSwap":
        return ContainerSwap("unlimited", UNLIMITED)
    if behavior == "NoSwap":
        return ContainerSwap("no swap", 0)
    refusal = _refusal(part, qos, critical and _SPARES_CRITICAL.at(release.minor))
    return _share(part, node) if refusal is None else ContainerSwap(refusal, 0)


def _refusal(part: Part, qos: QosClass, critical: bool) -> SwapReason | None:
    """Why a container gets none of a node's swap: GetContainerSwapBehavior()."""
    request, limit = part.requests.get(MEMORY, 0), part.limits.get(MEMORY, 0)
    if critical:
        return "critical"
    if qos != "Burstable":
        return "not Burstable"
    if not request and not limit:
        return "no memory"
    return "request is limit" if request == limit else None


def _share(part: Part, node: SwapNode) -> ContainerSwap:
    request, memory, swap = memory_in(part.requests), node.memory_capacity, node.swap_capacity
    if memory is None or swap is None:
        return ContainerSwap("needs node", None)
    if request > memory or memory <= 0:
        return ContainerSwap("above capacity", 0)
    # In double precision and in this order: calcSwapForBurstablePods(),
    # kuberuntime_container_linux.go.
    return ContainerSwap("share", int(float(request) / float(memory) * float(swap)))


def _unlimited_by_default(configured: str) -> SwapBehavior:
    return "LimitedSwap" if configured == "LimitedSwap" else "UnlimitedSwap"


def _none_by_default(configured: str) -> SwapBehavior:
    return "LimitedSwap" if configured == "LimitedSwap" else "NoSwap"


# KEP-2400: 1.30 drops UnlimitedSwap and brings NoSwap, which "" means from then on.
BEHAVIOR: Final[Since[Callable[[str], SwapBehavior]]] = Since(
    {22: _none_by_default, 28: _unlimited_by_default, 30: _none_by_default}
)
"""What a configured behaviour means."""
MEANS_NO_SWAP: Final = Since({22: False, 30: True})
"""Whether an unset behaviour gives every container a memory.swap.max of 0."""
# 1.31 keeps critical pods out of swap (kubernetes#125277).
_SPARES_CRITICAL: Final = Since({22: False, 31: True})
# memory.swap.max since 1.28; before, MemorySwapLimitInBytes for both cgroup versions.
_SWAP: Final = Since({22: _memory_and_swap, 28: _unified})
