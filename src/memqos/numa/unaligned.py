"""Pods whose pod-level resources the managers ignore, and the notice KEP-2837 asks to give them.

Until a kubelet manages pod-level resources (PodLevelResourceManagers) a Guaranteed pod that sets
them runs as if it had asked for no alignment. The KEP wants an event to say so; kubelets only log
it.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from memqos.kube.pod import Pod
from memqos.numa.requests import PodMemoryRequest, pod_memory_request
from memqos.release import Release

UNALIGNED_NOTICE: Final = (
    "its pod-level resources are ignored for memory alignment while PodLevelResourceManagers is "
    "off: its memory is not aligned to NUMA nodes"
)
UNALIGNED_REMEDY: Final = (
    "set resources of each container instead, or turn on PodLevelResourceManagers (1.36 and newer)"
)


def is_unaligned(request: PodMemoryRequest) -> bool:
    """Whether a pod would have memory aligned, if it did not ask for it at pod level."""
    return request.guaranteed and request.unmanaged


def pods_without_alignment(pods: Iterable[Pod], release: Release) -> Iterator[Pod]:
    """Those of the pods that are due the notice."""
    for pod in pods:
        if pod.spec.resources is not None and is_unaligned(pod_memory_request(pod, release)):
            yield pod
