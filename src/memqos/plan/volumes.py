"""Memory-backed volumes: how large the kubelet lets an `emptyDir` with medium Memory become.

Such a volume is a tmpfs: its pages count as the memory of the container that writes them, and of
the pod. It outlives its containers: one that filled it and was killed finds it full again.
"""

from collections.abc import Iterator
from typing import Literal

import msgspec

from memqos.kube.pod import Pod, Volume, is_memory_backed
from memqos.kube.quantity import milli_of
from memqos.kube.resources import whole
from memqos.plan.setting import FileSettings
from memqos.release import Release

SizeSource = Literal["sizeLimit", "pod limit", "allocatable", "half of RAM", "needs node"]


class VolumeSize(msgspec.Struct, frozen=True):
    """How large a memory-backed volume may become, and what decides it."""

    name: str
    source: SizeSource
    size: int | None
    """Bytes of the mount; None where it is mounted without a size, or the node is not known."""
    size_limit: int | None = None
    """As written, in bytes."""


def memory_volumes(
    pod: Pod, pod_settings: FileSettings, allocatable: int | None, release: Release
) -> Iterator[VolumeSize]:
    """The memory-backed volumes of a pod; `allocatable` is memory as the Node publishes it."""
    limit = pod_settings["memory.max"].value
    for volume in filter(is_memory_backed, pod.spec.volumes or ()):
        yield _volume_size(volume, limit if isinstance(limit, int) else 0, allocatable, release)


def _volume_size(
    volume: Volume, pod_limit: int, allocatable: int | None, release: Release
) -> VolumeSize:
    # calculateEmptyDirMemorySize(), kubelet volume/emptydir/empty_dir.go: each bound replaces the
    # one before if it is set and not larger.
    assert volume.empty_dir is not None
    written = milli_of(volume.empty_dir.size_limit)
    size_limit = whole(written) if written > 0 else None
    if not release.is_enabled("SizeMemoryBackedVolumes"):
        return VolumeSize(volume.name, "half of RAM", None, size_limit)
    if allocatable is None:
        return _without_node(volume.name, pod_limit, size_limit)
    source: SizeSource = "allocatable"
    size = allocatable * 1000
    if 0 < pod_limit * 1000 <= size:
        size, source = pod_limit * 1000, "pod limit"
    if 0 < written <= size:
        size, source = written, "sizeLimit"
    if not size:
        return VolumeSize(volume.name, "half of RAM", None, size_limit)
    return VolumeSize(volume.name, source, whole(size), size_limit)


def _without_node(name: str, pod_limit: int, size_limit: int | None) -> VolumeSize:
    """The size on any node that is large enough for what the pod sets."""
    if size_limit is not None and (not pod_limit or size_limit <= pod_limit):
        return VolumeSize(name, "sizeLimit", size_limit, size_limit)
    if pod_limit:
        return VolumeSize(name, "pod limit", pod_limit, size_limit)
    return VolumeSize(name, "needs node", None, size_limit)
