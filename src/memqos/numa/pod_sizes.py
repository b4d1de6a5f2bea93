"""Sizes of memory in a pod, and the pod with other ones."""

from collections.abc import Mapping
from typing import Final

import msgspec

from memqos.kube.pod import Container, Pod, ResourceRequirements
from memqos.kube.quantity import Quantity, as_int64
from memqos.kube.resources import MEMORY, format_amount, hugepage_size, is_hugepages

_MIB: Final = 1 << 20


class SizeTarget(msgspec.Struct, frozen=True):
    """A size in a pod that can be changed; `container` is None for that of the pod level."""

    container: str | None
    resource: str
    size: int

    @property
    def unit(self) -> int:
        """The steps in which it is changed."""
        if is_hugepages(self.resource):
            return hugepage_size(self.resource) or _MIB
        return _MIB if self.size > _MIB else 1


def size_targets(pod: Pod) -> list[SizeTarget]:
    """Every size of memory in a pod, containers first."""
    stanzas: list[tuple[str | None, ResourceRequirements | None]] = [
        (container.name, container.resources)
        for container in (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
    ]
    stanzas.append((None, pod.spec.resources))
    return [
        SizeTarget(name, resource, Quantity.parse(raw).value)
        for name, resources in stanzas
        for resource, raw in ((resources and resources.requests) or {}).items()
        if resource == MEMORY or is_hugepages(resource)
    ]


def is_unreadable_size(pod: Pod, target: SizeTarget) -> bool:
    """Whether the kubelet cannot read the size as bytes."""
    resources = pod.spec.resources
    for container in (*(pod.spec.init_containers or ()), *(pod.spec.containers or ())):
        if container.name == target.container:
            resources = container.resources
    requests = (resources and resources.requests) or {}
    return as_int64(requests.get(target.resource)) is None


def with_sizes(pod: Pod, sizes: Mapping[SizeTarget, int]) -> Pod:
    """The pod with other sizes, requests and limits alike."""
    spec = pod.spec

    def replace_sizes(
        name: str | None, resources: ResourceRequirements | None
    ) -> ResourceRequirements | None:
        texts = {
            target.resource: pod_size_text(target.resource, size)
            for target, size in sizes.items()
            if target.container == name
        }
        if resources is None or not texts:
            return resources
        return ResourceRequirements(
            {**(resources.requests or {}), **texts}, {**(resources.limits or {}), **texts}
        )

    def replace_all(containers: tuple[Container, ...] | None) -> tuple[Container, ...]:
        return tuple(
            [
                msgspec.structs.replace(each, resources=replace_sizes(each.name, each.resources))
                for each in containers or ()
            ]
        )

    return msgspec.structs.replace(
        pod,
        spec=msgspec.structs.replace(
            spec,
            init_containers=replace_all(spec.init_containers),
            containers=replace_all(spec.containers),
            resources=replace_sizes(None, spec.resources),
        ),
    )


def pod_size_text(resource: str, size: int) -> str:
    """A spelling the kubelet reads as bytes: past a size binary units are no integers to it."""
    text = format_amount(resource, size * 1000)
    return text if as_int64(text) is not None else str(size)
