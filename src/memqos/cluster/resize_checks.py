"""What the API server refuses about resizing a pod in place.

Only cpu and memory of containers and, where a gate allows it, of the pod may change. Entries may
be added but never removed, and the QoS class stays what it was when the pod was created.
"""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from memqos.kube.pod import Container, Pod, QosClass, ResizePolicy
from memqos.kube.resources import CPU, MEMORY, Amounts, Resources, legible
from memqos.kube.shape import Part, Shape
from memqos.kube.validation import FieldError, validate
from memqos.release import Release, Since

WHOLE_POD: Final = "[]"
"""How the API server prints the path of an error that is about no field."""
SPEC: Final = "spec"

_MIRROR: Final = "kubernetes.io/config.mirror"
_RESTART: Final = "RestartContainer"
_ONLY_CPU_AND_MEMORY: Final = "only cpu and memory may be resized"


class Change(msgspec.Struct, frozen=True):
    """A stored pod and what a resize would make of it."""

    old: Pod
    new: Pod
    before: Shape
    after: Shape
    class_before: QosClass
    class_after: QosClass


def refused(change: Change, release: Release) -> list[FieldError]:
    """All field errors of a resize; empty means that it is valid."""
    for reason in _OUTRIGHT.at(release.minor):
        why = reason(change, release)
        if why is not None:
            return [_forbidden(WHOLE_POD, why)]
    before, after = change.before, change.after
    # New pods may not bring ephemeral containers, but this pod may have got some since.
    errors = validate(change.new, msgspec.structs.replace(after, ephemeral_containers=()), release)
    errors += _whole_pod(change)
    has_pod_level = is_set(before.pod) or is_set(after.pod)
    if has_pod_level:
        if not release.enabled("InPlacePodLevelResourcesVerticalScaling"):
            return [*errors, _forbidden(WHOLE_POD, _NO_POD_LEVEL)]
        errors += _pod_level(before.pod, after.pod)
    moved = [*_moved("containers", change.old.spec.containers, change.new.spec.containers)]
    moved += _moved(
        "initContainers", change.old.spec.init_containers, change.new.spec.init_containers
    )
    if moved:
        return errors + moved
    errors += _containers(change, release)
    errors += _init_containers(change, release)
    if not errors and not has_pod_level and (before.pod is None) != (after.pod is None):
        errors.append(_forbidden(SPEC, _ONLY_CPU_AND_MEMORY))
    return errors


def is_set(pod: Resources | None) -> bool:
    """Whether a pod-level stanza holds anything, supported or not."""
    return pod is not None and bool(pod.requests or pod.limits)


_NO_POD_LEVEL: Final = "pods with pod-level resources cannot be resized"


def _no_subresource(_: Change, release: Release) -> str:
    return f"Kubernetes {release} has no resize subresource: it came with 1.32"


def _gate_is_off(_: Change, release: Release) -> str | None:
    gate = "InPlacePodVerticalScaling"
    return None if release.enabled(gate) else f"the gate {gate} is off"


def _has_pod_level(change: Change, _: Release) -> str | None:
    return _NO_POD_LEVEL if is_set(change.before.pod) or is_set(change.after.pod) else None


def _is_static(change: Change, _: Release) -> str | None:
    mirrored = _MIRROR in (change.old.metadata.annotations or {})
    return "static pods cannot be resized" if mirrored else None


def _is_windows(change: Change, _: Release) -> str | None:
    return "Windows pods cannot be resized" if change.before.windows else None


_OUTRIGHT: Final[Since[tuple[Callable[[Change, Release], str | None], ...]]] = Since(
    {
        22: (_no_subresource,),
        32: (_gate_is_off, _has_pod_level, _is_static, _is_windows),
        35: (_gate_is_off, _is_static, _is_windows),
    }
)
"""Reasons after which nothing else is looked at."""


def _whole_pod(change: Change) -> Iterator[FieldError]:
    if change.class_before != change.class_after:
        yield FieldError(
            SPEC,
            "FieldValueInvalid",
            f"the QoS class is {change.class_before} and may not change",
            change.class_after,
        )
    if not _node_can_resize(change.old):
        yield _forbidden(SPEC, "the pod runs on a node that cannot resize")


def _node_can_resize(pod: Pod) -> bool:
    """A kubelet that can resize reports the resources of what is running."""
    for status in (pod.status and pod.status.container_statuses) or ():
        if status.state is not None and status.state.running is not None:
            return status.resources is not None
    return True


def _pod_level(before: Resources | None, after: Resources | None) -> Iterator[FieldError]:
    field = f"{SPEC}.resources"
    if before is not None:
        if after is None:
            yield _forbidden(field, "cannot be removed")
            return
        yield from _removed(field, before, after)
    if _others(before) != _others(after):
        yield _forbidden(SPEC, _ONLY_CPU_AND_MEMORY)


def _moved(
    group: str, before: tuple[Container, ...] | None, after: tuple[Container, ...] | None
) -> Iterator[FieldError]:
    before, after = before or (), after or ()
    if len(before) != len(after):
        yield _forbidden(f"{SPEC}.{group}", "containers cannot be added or removed")
        return
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        if old.name != new.name:
            yield _forbidden(f"{SPEC}.{group}[{index}].name", "cannot be renamed or moved")


def _containers(change: Change, release: Release) -> Iterator[FieldError]:
    checks = _OF_A_CONTAINER.at(release.minor)
    pairs = zip(change.before.containers, change.after.containers, strict=True)
    for index, (before, after) in enumerate(pairs):
        old = (change.old.spec.containers or ())[index]
        new = (change.new.spec.containers or ())[index]
        for check in checks:
            yield from check(f"{SPEC}.containers[{index}].resources", before, after, new)
        if _others(before) != _others(after) or _policies(old) != _policies(new):
            yield _forbidden(SPEC, _ONLY_CPU_AND_MEMORY)


def _init_containers(change: Change, release: Release) -> Iterator[FieldError]:
    checks = _OF_A_CONTAINER.at(release.minor)
    all_resizable = release.enabled("InPlacePodVerticalScalingInitContainers")
    pairs = zip(change.before.init_containers, change.after.init_containers, strict=True)
    for index, (before, after) in enumerate(pairs):
        old = (change.old.spec.init_containers or ())[index]
        new = (change.new.spec.init_containers or ())[index]
        field = f"{SPEC}.initContainers[{index}]"
        is_modified = before != after or _policies(old) != _policies(new)
        if after.role != "sidecar" and not all_resizable:
            if is_modified:
                yield _forbidden(SPEC, "init containers cannot be resized")
            continue
        for check in checks:
            yield from check(f"{field}.resources", before, after, new)
        if _others(before) != _others(after) or _policies(old) != _policies(new):
            yield _forbidden(_BLAMED.at(release.minor)(field), _ONLY_CPU_AND_MEMORY)
        if is_modified and after.role != "sidecar":
            for policy in _policies(new):
                if policy.restart_policy == _RESTART:
                    yield _forbidden(field, f"cannot be resized with policy {_RESTART}")


def _the_spec(_: str) -> str:
    return SPEC


def _the_container(field: str) -> str:
    return field


_BLAMED: Final = Since({22: _the_spec, 36: _the_container})
"""Where a change of an init container beyond cpu and memory is reported."""


def _removed_entries(field: str, before: Part, after: Part, _: Container) -> Iterator[FieldError]:
    yield from _removed(field, before, after)


def _lowered_memory_limit(
    field: str, before: Part, after: Part, container: Container
) -> Iterator[FieldError]:
    """1.33 would not lower a memory limit, or add one, under a running container."""
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


_OF_A_CONTAINER: Final[
    Since[tuple[Callable[[str, Part, Part, Container], Iterator[FieldError]], ...]]
] = Since(
    {
        22: (_removed_entries,),
        33: (_removed_entries, _lowered_memory_limit),
        34: (_removed_entries,),
    }
)


def _removed(field: str, before: Part | Resources, after: Part | Resources) -> Iterator[FieldError]:
    sides = (("requests", before.requests, after.requests), ("limits", before.limits, after.limits))
    for side, old, new in sides:
        gone = sorted(old.keys() - new.keys())
        if gone:
            yield _forbidden(f"{field}.{side}", f"{', '.join(gone)} cannot be removed")


def _others(resources: Part | Resources | None) -> tuple[Amounts, Amounts]:
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
