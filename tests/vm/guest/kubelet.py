"""How a kubelet may be configured, and pods as it would show them."""

from collections.abc import Mapping
from typing import Any, Final

from tests.vm.guest.runtime import RunningPod

HIGH: Final = "memory.high"
LOW: Final = "memory.low"
MIN: Final = "memory.min"
PAGE: Final = 4096
FACTOR: Final = 0.9
ON: Final[dict[str, Any]] = {"featureGates": {"MemoryQoS": True}}
OFF: Final[dict[str, Any]] = {"featureGates": {"MemoryQoS": False}}
TIERED: Final[dict[str, Any]] = {**ON, "memoryReservationPolicy": "TieredReservation"}
THROTTLED: Final[dict[str, Any]] = {**ON, "memoryThrottlingFactor": FACTOR}
EVERYTHING: Final = {**TIERED, **THROTTLED}
Amounts = tuple[int | None, int | None]
"""Memory requested, and its limit."""


def high(request: int, limit: int, factor: float = FACTOR) -> int:
    """memory.high by the formula of 1.27 and later."""
    return int((request + (limit - request) * factor) // PAGE) * PAGE


def manifest(
    pod: RunningPod, containers: Mapping[str, Amounts], cpu: tuple[str, str] | None = None
) -> dict[str, Any]:
    """A pod that runs, with these amounts of memory."""

    def resources(amounts: Amounts) -> dict[str, dict[str, str]]:
        kinds = dict(zip(("requests", "limits"), amounts, strict=True))
        found = {kind: {"memory": str(size)} for kind, size in kinds.items() if size is not None}
        for kind, share in zip(("requests", "limits"), cpu or (), strict=False):
            found.setdefault(kind, {})["cpu"] = share
        return found

    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod.uid, "namespace": "default", "uid": pod.uid},
        "spec": {
            "nodeName": "node",
            "containers": [
                {"name": name, "image": "image", "resources": resources(amounts)}
                for name, amounts in containers.items()
            ],
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [
                {"name": name, "containerID": f"containerd://{pod.containers[name]}"}
                for name in containers
            ],
        },
    }
