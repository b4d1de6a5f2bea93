"""The shape of a pod: everything of it that its resources depend on, as numbers.

Pods of one workload share their shape, and real clusters repeat shapes endlessly, so whatever is
computed from a shape alone can be kept by `shape_key`.
"""

from collections.abc import Callable
from typing import Final, Literal

import msgspec

from memqos.errors import InputError
from memqos.kube.claims import (
    Claims,
    claimed_by_pod,
    claims_of,
    container_limits,
    memory_share,
)
from memqos.kube.pod import Container, Pod, PodSpec, ResourceList, ResourceRequirements
from memqos.kube.quantity import Raw, milli_of
from memqos.kube.resources import NO_RESOURCES, Amounts, Resources, format_amount
from memqos.release import Release

Role = Literal["regular", "init", "sidecar", "ephemeral"]

CRITICAL_PRIORITY: Final = 2_000_000_000  # scheduling.SystemCriticalPriority
NODE_CRITICAL: Final = "system-node-critical"
_STATIC_SOURCE: Final = "kubernetes.io/config.source"
_MIRROR: Final = "kubernetes.io/config.mirror"


class Part(msgspec.Struct, frozen=True, gc=False):
    """One container of a shape."""

    role: Role
    requests: Amounts
    limits: Amounts
    claimed_limits: Amounts | None = None
    """The limits with the DRA claims that the container refers to; None without such a claim."""
    claimed_memory: int = 0
    """Bytes of claimed memory that count for its oom score."""


class Shape(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Resources of a pod and what else decides about them.

    `pod` is None where the pod has no `spec.resources` at all; an empty stanza is not the same.
    """

    containers: tuple[Part, ...]
    init_containers: tuple[Part, ...] = ()
    ephemeral_containers: tuple[Part, ...] = ()
    pod: Resources | None = None
    overhead: Amounts = {}
    claimed: Amounts = {}
    """What DRA claims add to the requests: see `memqos.kube.claims`."""
    windows: bool = False
    node_critical: bool = False
    critical: bool = False
    stored_class: str | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        """Init containers, then regular, then ephemeral ones: the order in which they start."""
        return self.init_containers + self.containers + self.ephemeral_containers


def shape_of(
    pod: Pod,
    release: Release,
    amount: Callable[[Raw], int] = milli_of,
    *,
    as_created: bool = False,
) -> Shape:
    """The shape of a pod as written; `amount` converts quantities to the unit of the shape.

    With `as_created` every missing request of a container takes the container's limit.
    """
    spec, critical = pod.spec, is_critical(pod)
    has_sidecars = release.is_enabled("SidecarContainers")
    shape = Shape(
        containers=tuple(
            [
                Part(
                    "regular",
                    *_amounts(container.resources, amount, "containers", index, as_created),
                )
                for index, container in enumerate(spec.containers or ())
            ]
        ),
        init_containers=tuple(
            [
                Part(
                    "sidecar" if has_sidecars and container.restart_policy == "Always" else "init",
                    *_amounts(container.resources, amount, "initContainers", index, as_created),
                )
                for index, container in enumerate(spec.init_containers)
            ]
        )
        if spec.init_containers
        else (),
        ephemeral_containers=tuple(
            [
                Part("ephemeral", *_amounts(container.resources, amount, "ephemeralContainers", i))
                for i, container in enumerate(spec.ephemeral_containers)
            ]
        )
        if spec.ephemeral_containers
        else (),
        pod=Resources(*_amounts(spec.resources, amount, "", 0))
        if spec.resources is not None
        else None,
        overhead=amounts_of(spec.overhead, "spec.overhead", amount) if spec.overhead else {},
        windows=spec.os is not None and spec.os.name == "windows",
        node_critical=critical and spec.priority_class_name == NODE_CRITICAL,
        critical=critical,
        stored_class=pod.status.qos_class if pod.status is not None else None,
    )
    if pod.status is None or not pod.status.node_allocatable_resource_claim_statuses:
        return shape
    claims = claims_of(pod, release)
    return _with_claims(shape, pod, claims, release) if claims else shape


def _with_claims(shape: Shape, pod: Pod, claims: Claims, release: Release) -> Shape:
    is_level = shape.pod is not None and release.is_enabled("PodLevelResources")
    of_pod = shape.pod.limits if shape.pod is not None and is_level else {}

    def claiming(
        parts: tuple[Part, ...], containers: tuple[Container, ...] | None
    ) -> tuple[Part, ...]:
        return tuple(
            [
                msgspec.structs.replace(
                    part,
                    claimed_limits=container_limits(container.name, part.limits, of_pod, claims),
                    claimed_memory=memory_share(container.name, claims),
                )
                for part, container in zip(parts, containers or (), strict=True)
            ]
        )

    return msgspec.structs.replace(
        shape,
        containers=claiming(shape.containers, pod.spec.containers),
        init_containers=claiming(shape.init_containers, pod.spec.init_containers),
        claimed=claimed_by_pod(claims),
    )


def shape_key(pod: Pod) -> bytes:
    """A key that two pods share only if they have the same shape under every release."""
    spec = pod.spec
    parts = (
        [container.resources for container in spec.containers or ()],
        [(container.resources, container.restart_policy) for container in spec.init_containers]
        if spec.init_containers
        else None,
        [container.resources for container in spec.ephemeral_containers]
        if spec.ephemeral_containers
        else None,
        spec.resources,
        spec.overhead,
        spec.os,
        spec.priority_class_name == NODE_CRITICAL,
        is_critical(pod),
        pod.status.qos_class if pod.status is not None else None,
        pod.status.node_allocatable_resource_claim_statuses if pod.status is not None else None,
    )
    try:
        return _key.encode(parts)
    except OverflowError:  # msgspec encodes integers of up to 64 bits
        return repr(parts).encode()


def is_critical(pod: Pod) -> bool:
    """Static, mirror and system-priority pods.

    Admission turns the class system-node-critical into its priority, so a pod that only names the
    class counts too.
    """
    annotations = pod.metadata.annotations
    if annotations and (annotations.get(_STATIC_SOURCE, "api") != "api" or _MIRROR in annotations):
        return True
    priority = pod.spec.priority
    if priority is None:
        return pod.spec.priority_class_name == NODE_CRITICAL
    return priority >= CRITICAL_PRIORITY


def is_static(pod: Pod) -> bool:
    """Whether the kubelet has the pod from a file or a URL, not from the API server."""
    return (pod.metadata.annotations or {}).get(_STATIC_SOURCE, "api") != "api"


def containers_of(pod: Pod) -> tuple[Container, ...]:
    """All containers in the order of `Shape.parts`."""
    return containers_in(pod.spec)


def containers_in(spec: PodSpec) -> tuple[Container, ...]:
    """The same, of a pod's specification alone."""
    return (
        (spec.init_containers or ()) + (spec.containers or ()) + (spec.ephemeral_containers or ())
    )


def amounts_of(
    amounts: ResourceList | None, field: str, amount: Callable[[Raw], int] = milli_of
) -> Amounts:
    """A resource list as numbers; `field` is named where a quantity cannot be read."""
    result = {}
    for name, raw in (amounts or {}).items():
        try:
            result[name] = amount(raw)
        except InputError as fault:
            raise InputError(fault.what, field=f"{field}[{name}]", hint=fault.hint) from None
    return result


def with_shape(pod: Pod, shape: Shape) -> Pod:
    """The pod with the resources of a shape written into it: the way back from `shape_of`."""
    spec = pod.spec
    return msgspec.structs.replace(
        pod,
        spec=msgspec.structs.replace(
            spec,
            containers=_with_parts(spec.containers, shape.containers),
            init_containers=_with_parts(spec.init_containers, shape.init_containers),
            resources=None if shape.pod is None else _requirements(shape.pod, spec.resources),
        ),
    )


_key: Final = msgspec.msgpack.Encoder()


def _amounts(
    resources: ResourceRequirements | None,
    amount: Callable[[Raw], int],
    group: str,
    index: int,
    as_created: bool = False,
) -> tuple[Amounts, Amounts]:
    if resources is None:
        return NO_RESOURCES.requests, NO_RESOURCES.limits
    requests, limits = resources.requests, resources.limits
    try:
        requested = {name: amount(raw) for name, raw in requests.items()} if requests else {}
        if not limits:
            return requested, {}
        limited = {name: amount(raw) for name, raw in limits.items()}
        return {**limited, **requested} if as_created else requested, limited
    except InputError:
        stanza = f"spec.{group}[{index}].resources" if group else "spec.resources"
        amounts_of(requests, f"{stanza}.requests", amount)
        amounts_of(limits, f"{stanza}.limits", amount)
        raise


def _with_parts(
    containers: tuple[Container, ...] | None, parts: tuple[Part, ...]
) -> tuple[Container, ...]:
    return tuple(
        [
            msgspec.structs.replace(container, resources=_requirements(part, container.resources))
            for container, part in zip(containers or (), parts, strict=True)
        ]
    )


def _requirements(
    resources: Part | Resources, written: ResourceRequirements | None
) -> ResourceRequirements:
    return ResourceRequirements(
        {name: format_amount(name, amount) for name, amount in resources.requests.items()},
        {name: format_amount(name, amount) for name, amount in resources.limits.items()},
        written.claims if written is not None else None,
    )
