"""The QoS class of a pod."""

from typing import Final, get_args

from memqos.kube.aggregate import has_pod_level
from memqos.kube.pod import QosClass
from memqos.kube.resources import CPU, MEMORY, Amounts
from memqos.kube.shape import Shape
from memqos.release import Release

CLASSES: Final[tuple[QosClass, ...]] = get_args(QosClass)


def qos_class(shape: Shape, release: Release) -> QosClass:
    """The class of a pod: the stored one, which never changes, else the computed one."""
    if shape.stored_class in CLASSES:
        return shape.stored_class
    return compute_qos_class(shape, release)


def compute_qos_class(shape: Shape, release: Release) -> QosClass:
    """The class that requests and limits give a pod when it is created."""
    pod = shape.pod
    # Before PodLevelResourcesFixKubeletQOSClass an empty `resources: {}` made a pod BestEffort
    # (pkg/apis/core/v1/helper/qos/qos.go, ComputePodQOS).
    if (
        pod is not None
        and release.is_enabled("PodLevelResources")
        and (
            not release.is_enabled("PodLevelResourcesFixKubeletQOSClass")
            or has_pod_level(shape, release)
        )
    ):
        return _class_of(pod.requests, pod.limits)
    parts = shape.init_containers + shape.containers
    if not parts:
        return "BestEffort"
    common = _class_of(parts[0].requests, parts[0].limits)
    for part in parts[1:]:
        if common == "Burstable" or _class_of(part.requests, part.limits) != common:
            return "Burstable"
    return common


def _class_of(requests: Amounts, limits: Amounts) -> QosClass:
    cpu, memory = requests.get(CPU, 0), requests.get(MEMORY, 0)
    if cpu != limits.get(CPU, 0) or memory != limits.get(MEMORY, 0):
        return "Burstable"
    if cpu and memory:
        return "Guaranteed"
    return "Burstable" if cpu or memory else "BestEffort"
