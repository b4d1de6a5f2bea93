"""Why a pod has its QoS class, defaults and totals, in sentences."""

from collections.abc import Iterator

from memqos.kube.aggregate import aggregate_limits, aggregate_requests, has_pod_level
from memqos.kube.qos import CLASSES, compute_qos_class
from memqos.kube.resources import CPU, MEMORY, Amounts, is_hugepages, is_overcommitable, legible
from memqos.kube.shape import Part, Shape
from memqos.release import Release


def why_class(shape: Shape, names: list[str], release: Release) -> str:
    """What decides the QoS class."""
    qos = compute_qos_class(shape, release)
    if shape.stored_class in CLASSES and shape.stored_class != qos:
        return f"set at creation and unchanged, though requests and limits would now give {qos}"
    if shape.pod is not None and release.is_enabled("PodLevelResources"):
        if has_pod_level(shape, release):
            return {
                "Guaranteed": "at pod level, request = limit for both cpu and memory",
                "Burstable": "at pod level, request = limit is not true for both cpu and memory",
                "BestEffort": "the pod level sets neither cpu nor memory, and only the pod level "
                "counts",
            }[qos]
        if not release.is_enabled("PodLevelResourcesFixKubeletQOSClass"):
            return "an empty pod-level stanza counts as no requests in this release"
    if qos == "Guaranteed":
        return "request = limit for both cpu and memory in every container"
    if qos == "BestEffort":
        return "no container requests or limits cpu or memory"
    for name, part in zip(names, shape.init_containers + shape.containers, strict=False):
        gap = _gap(part)
        if gap is not None:
            return f"container {name}: {gap}"
    return "some containers request cpu or memory and others do not"


def _gap(part: Part) -> str | None:
    for resource in (CPU, MEMORY):
        request, limit = part.requests.get(resource), part.limits.get(resource)
        if (request or 0) != (limit or 0):
            return (
                f"{resource} request {_format(resource, request)} "
                f"≠ limit {_format(resource, limit)}"
            )
    requested = [resource for resource in (CPU, MEMORY) if part.requests.get(resource)]
    if len(requested) == 1:
        other = MEMORY if requested == [CPU] else CPU
        return f"{requested[0]} is requested but {other} is not"
    return None


def _format(name: str, amount: int | None) -> str:
    return "unset" if amount is None else legible(name, amount)


def why_defaulted(
    written: Shape, defaulted: Shape, names: list[str], release: Release
) -> Iterator[str]:
    """One sentence for every value the API server filled in or dropped."""
    for name, before, after in zip(names, written.parts, defaulted.parts, strict=True):
        for resource, amount in after.requests.items():
            if resource not in before.requests:
                value = legible(resource, amount)
                yield f"{name}: requests.{resource} = {value}, defaulted from its limit"
    if defaulted.pod is None:
        if written.pod is not None:
            yield "spec.resources is dropped: the gate PodLevelResources is off"
        return
    assert written.pod is not None
    of_containers = aggregate_requests(defaulted)
    for resource, amount in defaulted.pod.requests.items():
        if resource not in written.pod.requests:
            source = (
                "the sum of container requests"
                if resource in of_containers and is_overcommitable(resource)
                else "defaulted from the pod limit"
            )
            yield f"pod: requests.{resource} = {legible(resource, amount)}, {source}"
    of_limits = aggregate_limits(defaulted)
    for resource, amount in defaulted.pod.limits.items():
        if resource not in written.pod.limits:
            source = (
                "the sum of container limits"
                if amount == of_limits.get(resource)
                else "the pod request, more than the sum of container limits"
            )
            yield f"pod: limits.{resource} = {legible(resource, amount)}, {source}"


def why_total(shape: Shape, total: Amounts, resource: str, side: str, release: Release) -> str:
    """How the total of one resource comes about; `side` is requests or limits."""
    pod_level = getattr(shape.pod, side, {}) if release.is_enabled("PodLevelResources") else {}
    if resource in pod_level:
        text = "the pod-level value"
    else:
        regular = _amounts(shape.containers, side, resource)
        sidecars = _amounts(
            tuple(part for part in shape.init_containers if part.role == "sidecar"), side, resource
        )
        summands = [legible(resource, amount) for amount in regular + sidecars]
        running = sum(regular) + sum(sidecars)
        together = " + ".join(summands) or "nothing"
        counted = aggregate_requests(shape) if side == "requests" else aggregate_limits(shape)
        peak = counted.get(resource, 0)
        text = (
            f"{together}, containers and sidecars together"
            if peak <= running
            else f"{legible(resource, peak)}, the peak of an init container and the sidecars before"
            f" it, more than {together} later"
        )
        claimed = shape.claimed.get(resource)
        if claimed and (side == "requests" or peak or is_hugepages(resource)):
            text += f"; {legible(resource, claimed)} of DRA claims on top (KEP-5517)"
    overhead = shape.overhead.get(resource)
    if overhead and total.get(resource):
        text += f"; overhead {legible(resource, overhead)} on top"
    return text


def _amounts(parts: tuple[Part, ...], side: str, resource: str) -> list[int]:
    amounts: list[Amounts] = [getattr(part, side) for part in parts]
    return [each[resource] for each in amounts if each.get(resource)]
