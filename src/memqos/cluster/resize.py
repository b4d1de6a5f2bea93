"""Resizing a running pod in place: what the API server makes of the new resources."""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from memqos.kube.defaulting import decoding_defaults, with_pod_level
from memqos.kube.pod import Container, Pod, QosClass, ResizePolicy
from memqos.kube.qos import compute_qos_class, qos_class
from memqos.kube.resources import CPU, MEMORY, Amounts, Resources, legible
from memqos.kube.shape import Part, Shape, shape_of
from memqos.kube.validation import FieldError, validate
from memqos.release import Release, Since

NO_FIELD: Final = "[]"
"""How the API server prints the path of an error that is about no field."""
_SPEC: Final = "spec"

_MIRROR: Final = "kubernetes.io/config.mirror"
_RESTART: Final = "RestartContainer"
_ONLY_CPU_AND_MEMORY: Final = "only cpu and memory may be resized"


class ResizeRequest(msgspec.Struct, frozen=True):
    """A stored pod and what a resize would make of it."""

    old: Pod
    new: Pod
    before: Shape
    after: Shape
    class_before: QosClass
    class_after: QosClass


def resize_errors(change: ResizeRequest, release: Release) -> list[FieldError]:
    """All field errors of a resize; empty means that it is valid."""
    for reason in _REFUSAL_REASONS.at(release.minor):
        why = reason(change, release)
        if why is not None:
            return [_forbidden(NO_FIELD, why)]
    before, after = change.before, change.after
    # Creation forbids ephemeral containers, but this pod may have been given some since.
    errors = validate(change.new, msgspec.structs.replace(after, ephemeral_containers=()), release)
    errors += _pod_errors(change)
    has_pod_level = has_resources(before.pod) or has_resources(after.pod)
    if has_pod_level:
        if not release.is_enabled("InPlacePodLevelResourcesVerticalScaling"):
            return [*errors, _forbidden(NO_FIELD, _NO_POD_LEVEL)]
        errors += _pod_level_errors(before.pod, after.pod)
    moved = [*_order_errors("containers", change.old.spec.containers, change.new.spec.containers)]
    moved += _order_errors(
        "initContainers", change.old.spec.init_containers, change.new.spec.init_containers
    )
    if moved:
        return errors + moved
    errors += _container_errors(change, release)
    errors += _init_container_errors(change, release)
    if not errors and not has_pod_level and (before.pod is None) != (after.pod is None):
        errors.append(_forbidden(_SPEC, _ONLY_CPU_AND_MEMORY))
    return errors


def has_resources(pod: Resources | None) -> bool:
    """Whether a pod-level stanza has any resource, supported or not."""
    return pod is not None and bool(pod.requests or pod.limits)


_NO_POD_LEVEL: Final = "pods with pod-level resources cannot be resized"


def _no_subresource(_: ResizeRequest, release: Release) -> str:
    return f"Kubernetes {release} has no resize subresource: it came with 1.32"


def _gate_is_off(_: ResizeRequest, release: Release) -> str | None:
    gate = "InPlacePodVerticalScaling"
    return None if release.is_enabled(gate) else f"the gate {gate} is off"


def _has_pod_level(change: ResizeRequest, _: Release) -> str | None:
    return (
        _NO_POD_LEVEL
        if has_resources(change.before.pod) or has_resources(change.after.pod)
        else None
    )


def _is_static(change: ResizeRequest, _: Release) -> str | None:
    mirrored = _MIRROR in (change.old.metadata.annotations or {})
    return "static pods cannot be resized" if mirrored else None


def _is_windows(change: ResizeRequest, _: Release) -> str | None:
    return "Windows pods cannot be resized" if change.before.windows else None


# ValidatePodResize(), pkg/apis/core/validation/validation.go; resize is a subresource since 1.32.
_REFUSAL_REASONS: Final[Since[tuple[Callable[[ResizeRequest, Release], str | None], ...]]] = Since(
    {
        22: (_no_subresource,),
        32: (_gate_is_off, _has_pod_level, _is_static, _is_windows),
        35: (_gate_is_off, _is_static, _is_windows),
    }
)
"""Reasons after which nothing else is checked."""


def _pod_errors(change: ResizeRequest) -> Iterator[FieldError]:
    if change.class_before != change.class_after:
        yield FieldError(
            _SPEC,
            "FieldValueInvalid",
            f"the QoS class is {change.class_before} and may not change",
            change.class_after,
        )
    if not _node_can_resize(change.old):
        yield _forbidden(_SPEC, "the pod runs on a node that cannot resize")


def _node_can_resize(pod: Pod) -> bool:
    """A kubelet that can resize reports the resources of what is running."""
    for status in (pod.status and pod.status.container_statuses) or ():
        if status.state is not None and status.state.running is not None:
            return status.resources is not None
    return True


def _pod_level_errors(before: Resources | None, after: Resources | None) -> Iterator[FieldError]:
    field = f"{_SPEC}.resources"
    if before is not None:
        if after is None:
            yield _forbidden(field, "cannot be removed")
            return
        yield from _removal_errors(field, before, after)
    if _other_resources(before) != _other_resources(after):
        yield _forbidden(_SPEC, _ONLY_CPU_AND_MEMORY)


def _order_errors(
    group: str, before: tuple[Container, ...] | None, after: tuple[Container, ...] | None
) -> Iterator[FieldError]:
    before, after = before or (), after or ()
    if len(before) != len(after):
        yield _forbidden(f"{_SPEC}.{group}", "containers cannot be added or removed")
        return
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        if old.name != new.name:
            yield _forbidden(f"{_SPEC}.{group}[{index}].name", "cannot be renamed or moved")


def _container_errors(change: ResizeRequest, release: Release) -> Iterator[FieldError]:
    checks = _CONTAINER_CHECKS.at(release.minor)
    pairs = zip(change.before.containers, change.after.containers, strict=True)
    for index, (before, after) in enumerate(pairs):
        old = (change.old.spec.containers or ())[index]
        new = (change.new.spec.containers or ())[index]
        for check in checks:
            yield from check(f"{_SPEC}.containers[{index}].resources", before, after, new)
        if _other_resources(before) != _other_resources(after) or _policies(old) != _policies(new):
            yield _forbidden(_SPEC, _ONLY_CPU_AND_MEMORY)


def _init_container_errors(change: ResizeRequest, release: Release) -> Iterator[FieldError]:
    checks = _CONTAINER_CHECKS.at(release.minor)
    all_resizable = release.is_enabled("InPlacePodVerticalScalingInitContainers")
    pairs = zip(change.before.init_containers, change.after.init_containers, strict=True)
    for index, (before, after) in enumerate(pairs):
        old = (change.old.spec.init_containers or ())[index]
        new = (change.new.spec.init_containers or ())[index]
        field = f"{_SPEC}.initContainers[{index}]"
        is_modified = before != after or _policies(old) != _policies(new)
        if after.role != "sidecar" and not all_resizable:
            if is_modified:
                yield _forbidden(_SPEC, "init containers cannot be resized")
            continue
        for check in checks:
            yield from check(f"{field}.resources", before, after, new)
        if _other_resources(before) != _other_resources(after) or _policies(old) != _policies(new):
            yield _forbidden(_ERROR_FIELD.at(release.minor)(field), _ONLY_CPU_AND_MEMORY)
        if is_modified and after.role != "sidecar":
            for policy in _policies(new):
                if policy.restart_policy == _RESTART:
                    yield _forbidden(field, f"cannot be resized with policy {_RESTART}")


def _spec_field(_: str) -> str:
    return _SPEC


def _container_field(field: str) -> str:
    return field


# ValidatePodResize(): until 1.35 the error names spec, since 1.36 the container.
_ERROR_FIELD: Final = Since({22: _spec_field, 36: _container_field})
"""Where a change of an init container beyond cpu and memory is reported."""


def _check_removals(field: str, before: Part, after: Part, _: Container) -> Iterator[FieldError]:
    yield from _removal_errors(field, before, after)


def _check_memory_decrease(
    field: str, before: Part, after: Part, container: Container
) -> Iterator[FieldError]:
    """1.33 does not lower a memory limit, or add one, under a running container."""
    # Below usage the kernel would kill. 1.34 lifts the ban of validation.go, as the kubelet then
    # compares usage first (kuberuntime_manager.go, validateMemoryResizeAction).
    policies = {policy.resource_name: policy.restart_policy for policy in _policies(container)}
    if policies.get(MEMORY) == _RESTART or MEMORY not in after.limits:
        return
    new, old = after.limits[MEMORY], before.limits.get(MEMORY)
    if old is None or new < old:
        was = "was unlimited" if old is None else f"was {legible(MEMORY, old)}"
        yield _forbidden(
            f"{field}.limits[{MEMORY}]",
            f"{was} and cannot become {legible(MEMORY, new)} unless resizePolicy is {_RESTART}",
        )


_CONTAINER_CHECKS: Final[
    Since[tuple[Callable[[str, Part, Part, Container], Iterator[FieldError]], ...]]
] = Since(
    {
        22: (_check_removals,),
        33: (_check_removals, _check_memory_decrease),
        34: (_check_removals,),
    }
)


def _removal_errors(
    field: str, before: Part | Resources, after: Part | Resources
) -> Iterator[FieldError]:
    sides = (("requests", before.requests, after.requests), ("limits", before.limits, after.limits))
    for side, old, new in sides:
        removed = sorted(old.keys() - new.keys())
        if removed:
            yield _forbidden(f"{field}.{side}", f"{', '.join(removed)} cannot be removed")


def _other_resources(resources: Part | Resources | None) -> tuple[Amounts, Amounts]:
    """What is neither cpu nor memory."""
    if resources is None:
        return {}, {}
    return (
        {name: value for name, value in resources.requests.items() if name not in (CPU, MEMORY)},
        {name: value for name, value in resources.limits.items() if name not in (CPU, MEMORY)},
    )


def _policies(container: Container) -> tuple[ResizePolicy, ...]:
    return container.resize_policy or ()


def _forbidden(field: str, detail: str) -> FieldError:
    return FieldError(field, "FieldValueForbidden", detail)


class Resize(msgspec.Struct, frozen=True):
    """A resize and its verdict: the pod before, after, and what is refused about the change."""

    before: Shape
    after: Shape
    class_before: QosClass
    class_after: QosClass
    errors: tuple[FieldError, ...]

    @property
    def valid(self) -> bool:
        """Whether nothing is refused."""
        return not self.errors


def resize_pod(old: Pod, new: Pod, release: Release) -> Resize:
    """What happens when the stored pod `old` is sent to its `resize` subresource as `new`."""
    stored = shape_of(old, release)
    kept = _POD_TO_STORE.at(release.minor)(old, new)
    before, after = _shapes_to_compare(
        stored, decoding_defaults(kept, release), release, as_sent=kept is new
    )
    change = ResizeRequest(
        old, kept, before, after, qos_class(before, release), compute_qos_class(after, release)
    )
    errors = sorted(resize_errors(change, release), key=lambda error: (error.field, error.type))
    return Resize(before, after, change.class_before, change.class_after, tuple(errors))


def _regular_containers(old: Pod, new: Pod) -> Pod:
    """Until 1.32 only regular containers were compared, each found by its name."""
    sent = {container.name: container.resources for container in new.spec.containers or ()}
    containers = tuple(
        msgspec.structs.replace(container, resources=sent.get(container.name, container.resources))
        for container in old.spec.containers or ()
    )
    return msgspec.structs.replace(
        old, spec=msgspec.structs.replace(old.spec, containers=containers)
    )


def _all_resources(old: Pod, new: Pod) -> Pod:
    """All but resources is taken from the old pod, unless containers were added or removed."""
    before, after = old.spec, new.spec
    containers, sent = before.containers or (), after.containers or ()
    init_containers, sent_init = before.init_containers or (), after.init_containers or ()
    if len(containers) != len(sent) or len(init_containers) != len(sent_init):
        return new
    spec = msgspec.structs.replace(
        before,
        containers=_with_sent_resources(containers, sent),
        init_containers=_with_sent_resources(init_containers, sent_init),
        resources=after.resources,
    )
    return msgspec.structs.replace(old, spec=spec)


# dropNonResizeUpdates(), pkg/registry/core/pod/strategy.go.
_POD_TO_STORE: Final[Since[Callable[[Pod, Pod], Pod]]] = Since(
    {22: _regular_containers, 33: _all_resources}
)
"""What is kept of the pod that was sent."""


def _with_sent_resources(
    old: tuple[Container, ...], sent: tuple[Container, ...]
) -> tuple[Container, ...]:
    if [container.name for container in old] != [container.name for container in sent]:
        return sent
    return tuple(
        msgspec.structs.replace(
            before, resources=after.resources, resize_policy=after.resize_policy
        )
        for before, after in zip(old, sent, strict=True)
    )


def _shapes_to_compare(
    stored: Shape, sent: Shape, release: Release, *, as_sent: bool
) -> tuple[Shape, Shape]:
    """The pods that are compared: who may set the pod level, and how it is completed."""
    if not release.is_enabled("PodLevelResources") and not has_resources(stored.pod):
        return stored, msgspec.structs.replace(sent, pod=None)
    is_taken = as_sent or release.is_enabled("InPlacePodLevelResourcesVerticalScaling")
    after = sent if is_taken else msgspec.structs.replace(sent, pod=stored.pod)
    if not release.is_enabled("PodLevelResourcesFixDefaulting"):
        return stored, after
    if after.pod is None:
        # A client older than spec.resources drops the field without meaning to: pod/strategy.go,
        # podResizeStrategy.PrepareForUpdate(), takes the stored one then.
        after = msgspec.structs.replace(after, pod=stored.pod)
    after = with_pod_level(after, release)
    # With that gate off both pods share one pointer to the stored stanza, so defaulting the new pod
    # defaults the stored one as well (registry/core/pod/strategy.go, dropNonResizeUpdates).
    return (stored if is_taken else msgspec.structs.replace(stored, pod=after.pod)), after
