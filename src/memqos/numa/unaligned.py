"""Pods whose pod-level resources the managers ignore, and the notice KEP-2837 asks to give them.

Until a kubelet manages pod-level resources (PodLevelResourceManagers) a Guaranteed pod that sets
them runs as if it had asked for no alignment. The KEP wants an event to say so; kubelets only log
it.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from memqos.kube.pod import Pod
from memqos.numa.requests import PodWants, wants_of
from memqos.release import Release

NOTICE: Final = (
    "its pod-level resources are ignored for memory alignment while PodLevelResourceManagers is "
    "off: its memory is not aligned to NUMA nodes"
)
REMEDY: Final = (
    "set resources of each container instead, or turn on PodLevelResourceManagers (1.36 and newer)"
)


def is_unaligned(wants: PodWants) -> bool:
    """Whether a pod would have memory aligned, if it did not ask for it at pod level."""
    return wants.guaranteed and wants.unmanaged


def unaligned(pods: Iterable[Pod], release: Release) -> Iterator[Pod]:
    """Those of the pods that are due the notice."""
    for pod in pods:
        if pod.spec.resources is not None and is_unaligned(wants_of(pod, release)):
            yield pod
