"""Whether a pod can be resized in place: what its kubelet answers, and the API server before it.

The kubelet's checks are those of kubelet allocation/handlers.go; the first that refuses decides.
Infeasible is final, Deferred is tried again whenever something on the node changes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from memqos.cluster.node_admission import LINUX, AdmittingNode, admit_pod
from memqos.kube.aggregate import pod_requests
from memqos.kube.node import OS_LABEL
from memqos.kube.pod import Container, Pod, ResourceRequirements, is_memory_backed
from memqos.kube.qos import qos_class
from memqos.kube.quantity import milli_of
from memqos.kube.resources import CPU, MEMORY, Amounts, memory_in, whole
from memqos.kube.shape import Part, Shape, amounts_of, containers_in, is_static, shape_of
from memqos.kube.swap import SwapNode, container_swap
from memqos.release import Release, Since

Verdict = Literal["Accepted", "Unchanged", "Deferred", "Infeasible"]
ResizeObstacle = Literal[
    "windows", "static pod", "swap", "volume on cgroup v1", "cpu manager", "memory manager", "node"
]
INFEASIBLE: Final = "Infeasible"
_POLICY_RESTART: Final = "RestartContainer"
_STATIC_CPU: Final = "static"
_STATIC_MEMORY: Final = "Static"


class ResizingNode(msgspec.Struct, frozen=True, kw_only=True):
    """The node a pod is resized on."""

    admission: AdmittingNode
    swap: SwapNode = SwapNode()
    cpu_manager_policy: str = "none"
    memory_manager_policy: str = "None"
    unreserved: Amounts | None = None
    """Allocatable without eviction thresholds, in thousandths; None: as published."""


class ResizeVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The kubelet's answer; reason and message are those of the condition PodResizePending."""

    verdict: Verdict
    reason: str | None = None
    message: str | None = None
    obstacle: ResizeObstacle | None = None
    """What makes it infeasible."""
    preempted: tuple[Pod, ...] = ()

    @property
    def still_pending(self) -> bool:
        """Whether the kubelet will try again."""
        return self.verdict == "Deferred"


_HELP: Final[Mapping[ResizeObstacle, str]] = {
    "windows": "delete the pod and create it with the new resources",
    "static pod": "change its manifest: the kubelet then restarts it",
    "swap": "set resizePolicy RestartContainer for memory, or change the limit alone",
    "volume on cgroup v1": "resize on a node with cgroup v2",
    "cpu manager": "delete the pod and create it with the new resources, or turn the kubelet's "
    "gate InPlacePodVerticalScalingExclusiveCPUs on",
    "memory manager": "delete the pod and create it with the new resources, or turn the kubelet's "
    "gate InPlacePodVerticalScalingExclusiveMemory on",
    "node": "delete the pod, so that it is scheduled to a larger node",
}


class ResizeAdmission(msgspec.Struct, frozen=True):
    """The answer of the API server's plugin PodResizeValidator."""

    cause: str | None = None
    message: str | None = None

    @property
    def allowed(self) -> bool:
        return self.cause is None


def resize_help(verdict: ResizeVerdict, admission: ResizeAdmission | None = None) -> str | None:
    """What would let the resize through; None where nothing is in its way."""
    if admission is not None and admission.cause == "NodeCapacity":
        return (
            "request at most what the node has for pods, or delete the pod so that it is "
            "scheduled on a larger node"
        )
    if verdict.obstacle is not None:
        return _HELP[verdict.obstacle]
    if verdict.verdict != "Deferred":
        return None
    if verdict.reason == "TaintToleration":
        return "tolerate the NoExecute taint, or remove it from the node"
    if verdict.reason == "PodLevelResourcesNotSupported":
        return "turn the kubelet's gate PodLevelResources on"
    return (
        "it is retried when a pod of the node ends or shrinks: free resources, or delete the pod "
        "so that it is scheduled elsewhere"
    )


class _Resize(msgspec.Struct, frozen=True, kw_only=True):
    """A resize as the kubelet looks at it."""

    desired: Pod
    allocated: Pod
    after: Shape
    before: Shape
    node: ResizingNode
    release: Release


def resize_verdict(
    allocated: Pod, desired: Pod, others: Sequence[Pod], node: ResizingNode, release: Release
) -> ResizeVerdict:
    """What a kubelet answers when a pod that runs with `allocated` is to become `desired`.

    `others` are the other pods of the node, with what is allocated to them.
    """
    known = _as_allocated(allocated, desired, release)
    after, before = shape_of(desired, release), shape_of(known, release)
    if not _differs(known, desired):
        return ResizeVerdict(verdict="Unchanged")
    resize = _Resize(
        desired=desired, allocated=known, after=after, before=before, node=node, release=release
    )
    for check in _CHECKS.at(release.minor):
        found = check(resize)
        if found is not None:
            obstacle, message = found
            return ResizeVerdict(
                verdict="Infeasible", reason=INFEASIBLE, message=message, obstacle=obstacle
            )
    uid = desired.metadata.uid
    beside = [other for other in others if uid is None or other.metadata.uid != uid]
    admission = admit_pod(desired, beside, node.admission, release, resizing=True)
    if admission.admitted:
        return ResizeVerdict(verdict="Accepted", preempted=admission.preempted)
    return ResizeVerdict(
        verdict="Deferred",
        reason=admission.reason,
        message=admission.message,
        preempted=admission.preempted,
    )


def resize_admission(
    old: Pod, new: Pod, node: AdmittingNode, release: Release
) -> ResizeAdmission | None:
    """What the API server's plugin answers to a valid resize; None where it has no such plugin."""
    if not _VALIDATES_NODE.at(release.minor):
        return None
    if not _differs(old, new):
        return ResizeAdmission()
    forbidden = f'pods "{new.metadata.name or ""}" is forbidden: '
    label = node.labels.get(OS_LABEL, LINUX)
    if label != LINUX:
        return ResizeAdmission(
            "UnsupportedPlatform",
            f'{forbidden}pod resize is only supported on linux nodes, node "{node.name}" is '
            f'"{label}"',
        )
    # `release` has the kubelet's gates: the API server counts pod-level requests all the same.
    release = Release.of(release.minor)
    requests = pod_requests(shape_of(new, release), release)
    short = [
        f"{name}, requested: {_counted(name, requests.get(name, 0))}, "
        f"allocatable: {_counted(name, node.allocatable.get(name, 0))}"
        for name in (CPU, MEMORY)
        if requests.get(name, 0) > node.allocatable.get(name, 0)
    ]
    if not short:
        return ResizeAdmission()
    return ResizeAdmission(
        "NodeCapacity",
        f"{forbidden}node didn't have enough allocatable resources: {'; '.join(short)}",
    )


# PodResizeValidator, plugin/pkg/admission/podresize: on by default since 1.36, when the kubelet
# stopped to refuse what is larger than its node.
_VALIDATES_NODE: Final = Since({22: False, 36: True})


def _counted(name: str, amount: int) -> int:
    return amount if name == CPU else whole(amount)


def _as_allocated(allocated: Pod, desired: Pod, release: Release) -> Pod:
    """The desired pod with all that the kubelet keeps allocations of taken from `allocated`."""
    granted = {container.name: container for container in containers_in(allocated.spec)}

    def with_allocation(container: Container) -> Container:
        known = granted.get(container.name, container)
        return msgspec.structs.replace(container, resources=known.resources)

    all_init = release.is_enabled("InPlacePodVerticalScalingInitContainers")
    levels = release.is_enabled("InPlacePodLevelResourcesVerticalScaling")
    volumes = release.is_enabled("InPlacePodVerticalScalingMemoryBackedVolumes")
    spec = msgspec.structs.replace(
        desired.spec,
        containers=tuple(map(with_allocation, desired.spec.containers or ())),
        init_containers=tuple(
            with_allocation(each) if all_init or each.restart_policy == "Always" else each
            for each in desired.spec.init_containers or ()
        ),
        resources=(allocated if levels else desired).spec.resources,
        volumes=(allocated if volumes else desired).spec.volumes,
    )
    return msgspec.structs.replace(desired, spec=spec)


def _differs(one: Pod, other: Pod) -> bool:
    return _resources_of(one) != _resources_of(other) or _volume_sizes(one) != _volume_sizes(other)


def _resources_of(pod: Pod) -> list[tuple[Amounts, Amounts] | None]:
    stanzas = [container.resources for container in containers_in(pod.spec)]
    level = None if pod.spec.resources is None else _amounts(pod.spec.resources)
    return [level, *map(_amounts, stanzas)]


def _amounts(stanza: ResourceRequirements | None) -> tuple[Amounts, Amounts]:
    if stanza is None:
        return {}, {}
    return amounts_of(stanza.requests, "requests"), amounts_of(stanza.limits, "limits")


def _volume_sizes(pod: Pod) -> list[int]:
    """The sizes that a resize may change: those of memory-backed volumes that have one."""
    return [
        size
        for volume in pod.spec.volumes or ()
        if is_memory_backed(volume)
        and volume.empty_dir is not None
        and (size := milli_of(volume.empty_dir.size_limit))
    ]


_Found = tuple[ResizeObstacle, str] | None


def _check_platform(resize: _Resize) -> _Found:
    if resize.node.admission.os == LINUX:
        return None
    return "windows", "In-place pod resize is not supported on Windows"


def _check_static_pod(resize: _Resize) -> _Found:
    if not is_static(resize.desired):
        return None
    return "static pod", "In-place resize of static-pods is not supported"


def _check_swap(resize: _Resize) -> _Found:
    """A container's swap follows from its request, and no kubelet changes it while it runs."""
    before = {name: (part, container) for name, part, container in _named(resize.before, resize)}
    for name, part, _ in _named(resize.after, resize):
        if name not in before:
            continue
        old, container = before[name]
        if part.requests.get(MEMORY, 0) == old.requests.get(MEMORY, 0) or _restarts(container):
            continue
        if _may_swap(part, resize.after, resize) or _may_swap(old, resize.before, resize):
            return "swap", "In-place resize of containers with swap is not supported."
    return None


def _named(shape: Shape, resize: _Resize) -> Iterator[tuple[str, Part, Container]]:
    containers = containers_in(resize.allocated.spec)
    for part, container in zip(shape.init_containers + shape.containers, containers, strict=False):
        yield container.name, part, container


def _restarts(container: Container) -> bool:
    """Whether a change of memory restarts the container: the first policy for it counts."""
    for policy in container.resize_policy or ():
        if policy.resource_name == MEMORY:
            return policy.restart_policy == _POLICY_RESTART
    return False


def _may_swap(part: Part, shape: Shape, resize: _Resize) -> bool:
    qos = qos_class(shape, resize.release)
    swap = container_swap(
        part,
        qos,
        resize.node.swap,
        resize.release,
        limit=memory_in(part.limits),
        critical=shape.critical,
    )
    return swap.behavior != "NoSwap"


def _check_volumes(resize: _Resize) -> _Found:
    if resize.node.swap.cgroup_version != 1 or _volume_sizes(resize.allocated) == _volume_sizes(
        resize.desired
    ):
        return None
    message = "Memory-backed emptyDir volume resize is not supported on cgroups v1"
    return "volume on cgroup v1", message


def _check_managers(resize: _Resize) -> _Found:
    """Exclusive cpus and NUMA memory are assigned once, when a container starts."""
    if qos_class(resize.after, resize.release) != "Guaranteed":
        return None
    node, release = resize.node, resize.release
    if (
        node.cpu_manager_policy == _STATIC_CPU
        and not release.is_enabled("InPlacePodVerticalScalingExclusiveCPUs")
        and _CHANGES_EXCLUSIVE.at(release.minor)(resize, CPU)
    ):
        return "cpu manager", _manager_message("CPU", node.cpu_manager_policy)
    if (
        node.memory_manager_policy == _STATIC_MEMORY
        and not release.is_enabled("InPlacePodVerticalScalingExclusiveMemory")
        and _CHANGES_EXCLUSIVE.at(release.minor)(resize, MEMORY)
    ):
        return "memory manager", _manager_message("Memory", node.memory_manager_policy)
    return None


def _manager_message(manager: str, policy: str) -> str:
    return f'Resize is infeasible for Guaranteed Pods alongside {manager} Manager policy "{policy}"'


def _always(resize: _Resize, name: str) -> bool:
    return True


def _changes_request(resize: _Resize, name: str) -> bool:
    pairs = zip(_named(resize.before, resize), _named(resize.after, resize), strict=True)
    return any(
        before.requests.get(name, 0) != after.requests.get(name, 0)
        for (_, before, _), (_, after, _) in pairs
    )


# Until 1.33 a static manager ruled out every resize of a Guaranteed pod; since 1.34 only that of
# what it manages.
_CHANGES_EXCLUSIVE: Final[Since[Callable[[_Resize, str], bool]]] = Since(
    {22: _always, 34: _changes_request}
)


def _check_capacity(resize: _Resize) -> _Found:
    """Until 1.35 the kubelet refused for good what its node could never give."""
    node = resize.node
    has = node.admission.allocatable
    if node.unreserved is not None and _WITHOUT_THRESHOLDS.at(resize.release.minor):
        has = node.unreserved
    requests = pod_requests(resize.after, resize.release)
    for name in (MEMORY, CPU):
        if requests.get(name, 0) > has.get(name, 0):
            return "node", (
                f"Node didn't have enough capacity: {name}, requested: "
                f"{_counted(name, requests[name])}, capacity: {_counted(name, has.get(name, 0))}"
            )
    return None


# canResizePod(), kubelet allocation_manager.go: GetNodeAllocatableAbsolute() since 1.34.
_WITHOUT_THRESHOLDS: Final = Since({22: False, 34: True})

_CHECKS: Final[Since[tuple[Callable[[_Resize], _Found], ...]]] = Since(
    {
        22: (_check_platform, _check_static_pod, _check_swap, _check_managers, _check_capacity),
        36: (_check_platform, _check_swap, _check_managers),
        37: (_check_platform, _check_swap, _check_volumes, _check_managers),
    }
)
"""Reasons for which a kubelet refuses for good, in its order."""
