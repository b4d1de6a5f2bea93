"""oom_score_adj: which containers the kernel kills first when the node has no memory left.

Division is that of integers, truncating, as the kubelet does it.
"""

from typing import Final

import msgspec

from memqos.kube.aggregate import has_pod_level_requests, requests_with_claims
from memqos.kube.pod import QosClass
from memqos.kube.quantity import wrap_int64
from memqos.kube.resources import MEMORY, Amounts, kubelet_memory
from memqos.kube.shape import Part, Shape
from memqos.release import Release, Since

# kubelet qos/policy.go. -1000 exempts from killing, -999 is the kubelet's own, -998 that of pause
# containers: their end would take the pod's network with it (kubernetes#47938).
GUARANTEED: Final = -997
BEST_EFFORT_SCORE: Final = 1000
LOWEST_BURSTABLE: Final = 1000 + GUARANTEED


class Score(msgspec.Struct, frozen=True, gc=False):
    """A score and what it was computed from; None where the node's memory is unknown."""

    value: int | None
    request: int = 0
    share: int = 0
    smallest_regular: int | None = None
    """The smallest request of a regular container, where a sidecar is scored no worse than it."""
    claimed: int = 0
    """What of the request is a share of DRA claims."""


def oom_scores(
    shape: Shape,
    release: Release,
    qos: QosClass,
    memory_capacity: int | None,
    *,
    of_containers: Amounts | None = None,
) -> list[Score]:
    """The score of every container, in the order of `Shape.parts`."""
    if shape.node_critical or qos == "Guaranteed":
        return [Score(GUARANTEED)] * len(shape.parts)
    if qos == "BestEffort":
        return [Score(BEST_EFFORT_SCORE)] * len(shape.parts)
    share, smallest = _BURSTABLE.at(release.minor)(shape, release, of_containers)
    return [_burstable(part, share, smallest, memory_capacity) for part in shape.parts]


def _request_alone(
    shape: Shape, release: Release, of_containers: Amounts | None
) -> tuple[int, int | None]:
    return 0, None


def _with_pod_level_share(
    shape: Shape, release: Release, of_containers: Amounts | None
) -> tuple[int, int | None]:
    """What each container gets of the pod-level request, and the floor of sidecars."""
    smallest = None
    if any([part.role == "sidecar" for part in shape.init_containers]):
        smallest = min([_request(part) for part in shape.containers], default=None)
    if (
        shape.pod is None
        or not release.is_enabled("PodLevelResources")
        or not has_pod_level_requests(shape, release)
        or not shape.pod.requests.get(MEMORY)
    ):
        return 0, smallest
    claimed = requests_with_claims(shape) if of_containers is None else of_containers
    left = wrap_int64(kubelet_memory(shape.pod.requests) - kubelet_memory(claimed))
    sharing = len(shape.containers) + len(shape.init_containers)
    return max(0, left) // max(1, sharing), smallest


# GetContainerOOMScoreAdjust(), kubelet qos/policy.go: pod-level requests since 1.32 (KEP-2837).
_BURSTABLE: Final = Since({22: _request_alone, 32: _with_pod_level_share})


def _burstable(part: Part, share: int, smallest: int | None, capacity: int | None) -> Score:
    request = _request(part)
    floor = smallest if part.role == "sidecar" else None
    if not capacity:
        return Score(None, request, share, floor, part.claimed_memory)
    value = burstable_value(request, share, floor, capacity)
    return Score(value, request, share, floor, part.claimed_memory)


def _request(part: Part) -> int:
    return kubelet_memory(part.requests) + part.claimed_memory


def burstable_value(request: int, share: int, floor: int | None, capacity: int) -> int:
    """The score of what a Score was computed from, on a node with so much memory."""
    weight = request + share
    if floor is not None:
        weight = max(weight, floor + share)
    # GetContainerOOMScoreAdjust(), kubelet qos/policy.go: above any Guaranteed pod and below every
    # BestEffort one. The product is an int64: that of a request of 8Ei wraps to −1000, which
    # leaves 999, the score of a pod that requests next to nothing.
    product = wrap_int64(1000 * weight)
    value = 1000 - (product // capacity if product >= 0 else -(-product // capacity))
    if value < LOWEST_BURSTABLE:
        return LOWEST_BURSTABLE
    return value - 1 if value == BEST_EFFORT_SCORE else value
