"""Why a kubelet refuses a pod that the API server took."""

from memqos.kube.aggregate import has_pod_level
from memqos.kube.shape import Shape
from memqos.release import Release


def node_refuses(shape: Shape, release: Release, *, cgroup_version: int, os: str) -> str | None:
    """Why a node will not admit a pod with pod-level resources; None where it will."""
    if not has_pod_level(shape, release):
        return None
    if os == "windows":
        return "pod-level resources are not supported on Windows"
    if not release.is_enabled("PodLevelResources"):
        return "the kubelet's gate PodLevelResources is off"
    if cgroup_version != 2:
        return "pod-level resources need cgroup v2"
    return None
