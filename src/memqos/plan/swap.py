"""memory.swap.max: what the kubelet lets a container swap; compared and never written."""

from collections.abc import Mapping
from typing import Final

from memqos.kube.pod import QosClass
from memqos.kube.resources import memory_in
from memqos.kube.shape import Part
from memqos.kube.swap import SwapNode, SwapReason, container_swap
from memqos.plan.setting import NEEDS_NODE, Rule, Setting
from memqos.settings.settings import Settings
from memqos.units import format_exact_bytes

_KEP: Final = "KEP-2400"

NO_CONTROLLER: Final = Rule(
    "swap/no-controller", "not set: the kernel has no swap controller", f"kubelet, {_KEP}"
)
CGROUP_V1: Final = Rule(
    "swap/cgroup-v1", "not set: on cgroup v1 memory and swap share one limit", f"kubelet, {_KEP}"
)
BEFORE_NODE_SWAP: Final = Rule(
    "swap/before-nodeswap", "not set: NodeSwap is alpha and off", f"{_KEP}, Alpha v1.22"
)
SWAP_GATE_OFF: Final = Rule("swap/gate-off", "no swap: NodeSwap is off", f"{_KEP}, Beta v1.28")
NO_SWAP: Final = Rule(
    "swap/none", "no swap: the kubelet's swapBehavior is not LimitedSwap", f"{_KEP}, NoSwap"
)
UNLIMITED_SWAP: Final = Rule(
    "swap/unlimited", "UnlimitedSwap: all swap of the node", f"{_KEP}, until 1.29"
)
SWAP_CRITICAL: Final = Rule("swap/critical", "no swap: the pod is critical", f"{_KEP}, 1.31")
SWAP_CLASS: Final = Rule(
    "swap/class",
    "no swap: only Burstable pods get swap",
    _KEP,
    lambda qos: (f"class = {qos}",),
)
SWAP_NO_MEMORY: Final = Rule(
    "swap/no-memory", "no swap: the container has neither memory request nor limit", _KEP
)
SWAP_REQUEST_IS_LIMIT: Final = Rule(
    "swap/request-is-limit", "no swap: request = limit, so the container opts out", _KEP
)
SWAP_NEEDS_NODE: Final = Rule(
    "swap/needs-node", "LimitedSwap: a share of the node's swap, which is unknown", _KEP
)
SWAP_ABOVE_CAPACITY: Final = Rule(
    "swap/above-capacity",
    "no swap: the request exceeds the node's memory",
    _KEP,
    lambda request, memory, swap: (
        f"request = {format_exact_bytes(request)}, capacity = {format_exact_bytes(memory)}",
    ),
)
SWAP_SHARE: Final = Rule(
    "swap/share",
    "LimitedSwap: the node's swap × the requested share of the node's memory",
    f"{_KEP}, LimitedSwap",
    lambda request, memory, swap: (
        f"request = {format_exact_bytes(request)}, memory = {format_exact_bytes(memory)}, "
        f"swap = {format_exact_bytes(swap)}",
        "request / memory × swap",
    ),
)
_RULES: Final[Mapping[SwapReason, Rule]] = {
    "no controller": NO_CONTROLLER,
    "cgroup v1": CGROUP_V1,
    "before NodeSwap": BEFORE_NODE_SWAP,
    "gate off": SWAP_GATE_OFF,
    "no swap": NO_SWAP,
    "unlimited": UNLIMITED_SWAP,
    "critical": SWAP_CRITICAL,
    "not Burstable": SWAP_CLASS,
    "no memory": SWAP_NO_MEMORY,
    "request is limit": SWAP_REQUEST_IS_LIMIT,
    "needs node": SWAP_NEEDS_NODE,
    "above capacity": SWAP_ABOVE_CAPACITY,
    "share": SWAP_SHARE,
}
NO_SWAP_SETTING: Final = Setting(0, NO_SWAP)
"""Of every container on a node without a swapBehavior: nearly all nodes."""


def swap_maximum(
    part: Part, settings: Settings, qos: QosClass, limit: Setting, *, critical: bool
) -> Setting:
    """memory.swap.max of one container; `limit` is its memory.max."""
    node = SwapNode(
        behavior=settings.swap_behavior,
        memory_capacity=settings.memory_capacity,
        swap_capacity=settings.swap_capacity,
    )
    bounded = limit.value if isinstance(limit.value, int) else 0
    swap = container_swap(part, qos, node, settings.release, limit=bounded, critical=critical)
    rule = _RULES[swap.because]
    if rule is SWAP_NEEDS_NODE:
        return Setting(NEEDS_NODE, rule)
    if rule is SWAP_CLASS:
        return Setting(swap.maximum, rule, (qos,))
    if rule in (SWAP_SHARE, SWAP_ABOVE_CAPACITY):
        inputs = (memory_in(part.requests), settings.memory_capacity, settings.swap_capacity)
        return Setting(swap.maximum, rule, inputs)
    return Setting(swap.maximum, rule)
