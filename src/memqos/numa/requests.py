"""What memory a pod requests of the Memory Manager, container by container and as a whole."""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from memqos.kube.aggregate import has_pod_level
from memqos.kube.defaulting import apply_defaults
from memqos.kube.pod import Container, Pod, ResourceList, ResourceRequirements
from memqos.kube.qos import qos_class
from memqos.kube.quantity import Quantity, as_int64, milli_of
from memqos.kube.resources import CPU, MEMORY, Amounts, Resources, format_amount, is_hugepages
from memqos.kube.shape import Part, Role, shape_of
from memqos.numa.machine_state import MemorySizes
from memqos.release import Release


class ContainerMemoryRequest(msgspec.Struct, frozen=True):
    """What one container requests; `sizes` is None where the kubelet cannot read it as bytes."""

    name: str
    role: Role
    sizes: MemorySizes | None


class PodMemoryRequest(msgspec.Struct, frozen=True):
    """What a pod requests: its init containers and containers in the order in which they start.

    `pooled` means that pod-level resources decide what the pod gets as a whole; `unmanaged` that it
    has such resources but that this kubelet does not manage such pods.
    """

    uid: str
    guaranteed: bool
    containers: tuple[ContainerMemoryRequest, ...]
    total: MemorySizes | None
    pooled: bool = False
    unmanaged: bool = False


def pod_memory_request(pod: Pod, release: Release) -> PodMemoryRequest:
    """What a pod requests of the Memory Manager of a release."""
    shape = shape_of(pod, release)
    leveled = has_pod_level(shape, release)
    pooled = leveled and release.is_enabled("PodLevelResourceManagers")
    specs = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
    containers = tuple(
        [
            ContainerMemoryRequest(
                spec.name,
                part.role,
                _sizes(spec.resources) if not pooled or is_exclusive(part) else {},
            )
            for spec, part in zip(specs, shape.init_containers + shape.containers, strict=True)
        ]
    )
    return PodMemoryRequest(
        uid=pod.metadata.uid or "",
        guaranteed=qos_class(shape, release) == "Guaranteed",
        containers=containers,
        total=_pool_total(pod) if pooled else _total(containers),
        pooled=pooled,
        unmanaged=leveled and not pooled,
    )


def is_exclusive(part: Part) -> bool:
    """Whether a container of a pod with a pool of its own gets memory for itself alone."""
    return all(
        [
            part.requests.get(name, 0) and part.requests[name] == part.limits.get(name)
            for name in (CPU, MEMORY)
        ]
    )


def _sizes(resources: ResourceRequirements | None) -> MemorySizes | None:
    sizes = {}
    for name, raw in ((resources and resources.requests) or {}).items():
        if name == MEMORY or is_hugepages(name):
            size = as_int64(raw)
            if size is None:
                return None
            sizes[name] = size
    return dict(sorted(sizes.items()))


def _pool_total(pod: Pod) -> MemorySizes | None:
    sizes = _sizes(pod.spec.resources)
    return None if sizes is None else {name: size for name, size in sizes.items() if size > 0}


def _total(containers: tuple[ContainerMemoryRequest, ...]) -> MemorySizes | None:
    """The most that runs at a time; a resource only init containers request is overlooked."""
    # getPodRequestedResources(), kubelet memorymanager/policy_static.go, loops over the resources
    # of the regular containers alone.
    starting: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    running: dict[str, int] = {}
    for container in containers:
        if container.sizes is None:
            return None
        for name, size in container.sizes.items():
            if container.role == "regular":
                running[name] = running.get(name, 0) + size
            elif container.role == "sidecar":
                sidecars[name] = sidecars.get(name, 0) + size
            else:
                starting[name] = max(starting.get(name, 0), sidecars.get(name, 0) + size)
    return {
        name: max(size + sidecars.get(name, 0), starting.get(name, 0))
        for name, size in running.items()
    }


def pod_for_kubelet(pod: Pod, release: Release, *, static: bool = False) -> Pod:
    """A valid new pod as a node gets it."""
    shape, spec = apply_defaults(pod, release), pod.spec
    return msgspec.structs.replace(
        pod,
        spec=msgspec.structs.replace(
            spec,
            containers=_containers(spec.containers, shape.containers, static),
            init_containers=_containers(spec.init_containers, shape.init_containers, static),
            resources=None
            if shape.pod is None
            else _requirements(spec.resources, shape.pod, static),
        ),
    )


def _containers(
    containers: tuple[Container, ...] | None, parts: tuple[Part, ...], static: bool
) -> tuple[Container, ...]:
    return tuple(
        [
            msgspec.structs.replace(
                container, resources=_requirements(container.resources, part, static)
            )
            for container, part in zip(containers or (), parts, strict=True)
        ]
    )


def _requirements(
    written: ResourceRequirements | None, complete: Part | Resources, static: bool
) -> ResourceRequirements:
    requests = (written and written.requests) or {}
    limits = (written and written.limits) or {}
    return ResourceRequirements(
        _texts(complete.requests, (requests, limits), static),
        _texts(complete.limits, (limits,), static),
    )


def _texts(amounts: Amounts, sources: tuple[ResourceList, ...], static: bool) -> ResourceList:
    texts: ResourceList = {}
    for name, amount in amounts.items():
        raw = next((source[name] for source in sources if name in source), None)
        if raw is None or milli_of(raw) != amount:
            texts[name] = format_amount(name, amount)
        else:
            texts[name] = raw if static else str(Quantity.parse(raw))
    return texts


UNALIGNED_NOTICE: Final = (
    "its pod-level resources are ignored for memory alignment while PodLevelResourceManagers is "
    "off: its memory is not aligned to NUMA nodes"
)
UNALIGNED_REMEDY: Final = (
    "set resources of each container instead, or turn on PodLevelResourceManagers (1.36 and newer) "
    "with topologyManagerScope: pod and a topologyManagerPolicy such as single-numa-node"
)
# KEP-2837, Topology Manager: scope=container "will explicitly throw an error" that names scope=pod.
# Released kubelets admit the pod instead (topologymanager/scope_container.go).
SCOPE_NOTICE: Final = (
    "its pod-level resources are not aligned to NUMA nodes: topologyManagerScope is container, or "
    "topologyManagerPolicy none (KEP-2837 specifies an error, the kubelet admits the pod)"
)
SCOPE_REMEDY: Final = (
    "set topologyManagerScope: pod with a topologyManagerPolicy such as single-numa-node, or set "
    "cpu and memory of each container, requests equal to limits"
)


def alignment_texts(release: Release) -> tuple[str, str]:
    """Why memory requested at pod level is not aligned, and what helps."""
    if release.is_enabled("PodLevelResourceManagers"):
        return SCOPE_NOTICE, SCOPE_REMEDY
    return UNALIGNED_NOTICE, UNALIGNED_REMEDY


def is_unaligned(request: PodMemoryRequest) -> bool:
    """Whether a pod would have memory aligned, if it did not request it at pod level."""
    return request.guaranteed and request.unmanaged


def lacks_pod_scope(request: PodMemoryRequest, topology_policy: str, scope: str) -> bool:
    """Whether a pod shares memory at pod level that only the scope pod would align."""
    return (
        request.guaranteed
        and request.pooled
        and (scope != "pod" or topology_policy == "none")
        and any(not container.sizes for container in request.containers)
    )


def pods_without_alignment(
    pods: Iterable[Pod], release: Release, topology_policy: str, scope: str
) -> Iterator[Pod]:
    """The pods whose memory is not aligned because it is requested at pod level."""
    for pod in pods:
        if pod.spec.resources is None:
            continue
        request = pod_memory_request(pod, release)
        if is_unaligned(request) or lacks_pod_scope(request, topology_policy, scope):
            yield pod
