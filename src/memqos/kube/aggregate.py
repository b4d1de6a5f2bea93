"""What the containers of a pod need together.

    max( regular containers + sidecars,
         for each init container: its own need + the sidecars declared before it )

A pod-level value then replaces the aggregate, resource by resource, and overhead comes on top.
"""

from collections.abc import Iterable

from memqos.kube.claims import add_claimed_limits
from memqos.kube.resources import POD_LEVEL, Amounts, memory_in
from memqos.kube.shape import Part, Shape
from memqos.release import Release, stage


def aggregate_requests(shape: Shape) -> Amounts:
    """What the containers request together, regardless of pod-level requests."""
    running = _sum([part.requests for part in shape.containers])
    if shape.init_containers:
        _with_init(
            running, [(part.requests, part.role == "sidecar") for part in shape.init_containers]
        )
    return running


def aggregate_limits(shape: Shape) -> Amounts:
    """What the containers may use together, regardless of pod-level limits."""
    running = _sum([part.limits for part in shape.containers])
    if shape.init_containers:
        _with_init(
            running, [(part.limits, part.role == "sidecar") for part in shape.init_containers]
        )
    return running


def requests_with_claims(shape: Shape) -> Amounts:
    """What the containers request together, and what the pod's DRA claims add to it."""
    total = aggregate_requests(shape)
    if shape.claimed:
        _add(total, shape.claimed)
    return total


def limits_with_claims(shape: Shape) -> Amounts:
    """What the containers may use together, raised by the pod's DRA claims."""
    total = aggregate_limits(shape)
    if shape.claimed:
        add_claimed_limits(total, shape.claimed)
    return total


def pod_requests(
    shape: Shape, release: Release, *, overhead: bool = True, of_containers: Amounts | None = None
) -> Amounts:
    """What the pod requests; `of_containers` is their aggregate where it is computed already."""
    result = aggregate_requests(shape) if of_containers is None else of_containers.copy()
    if shape.pod is not None and release.is_enabled("PodLevelResources"):
        _override(result, shape.pod.requests, release)
    if overhead and shape.overhead:
        _add(result, shape.overhead)
    return result


def memory_request_above_pods(shape: Shape, release: Release) -> int | None:
    """What the QoS cgroups count where the gate PodLevelResources is off; None elsewhere.

    A kubelet with the gate off counts pod-level memory there all the same
    (cm/qos_container_manager_linux.go: PodRequests() without options).
    """
    gate = "PodLevelResources"
    if shape.pod is None or release.is_enabled(gate) or stage(gate, release.minor) is None:
        return None
    result = aggregate_requests(shape)
    _override(result, shape.pod.requests, release)
    _add(result, shape.overhead)
    return memory_in(result)


def pod_limits(shape: Shape, release: Release, *, of_containers: Amounts | None = None) -> Amounts:
    """What the pod may use, overhead included wherever there is a limit at all."""
    result = aggregate_limits(shape) if of_containers is None else of_containers.copy()
    if shape.pod is not None and release.is_enabled("PodLevelResources"):
        _override(result, shape.pod.limits, release)
    for name, amount in shape.overhead.items():
        if result.get(name):
            result[name] += amount
    return result


def has_pod_level(shape: Shape, release: Release) -> bool:
    """Whether the pod-level stanza sets a resource that it may set."""
    pod = shape.pod
    if pod is None:
        return False
    supported = POD_LEVEL.at(release.minor)
    return any(map(supported, pod.requests)) or any(map(supported, pod.limits))


def has_pod_level_requests(shape: Shape, release: Release) -> bool:
    """The same for requests alone."""
    return shape.pod is not None and any(map(POD_LEVEL.at(release.minor), shape.pod.requests))


def limits_while_starting(init_containers: Iterable[Part]) -> Iterable[Amounts]:
    """For each init container, the limits that apply while it starts: its own and the sidecars'."""
    sidecars: Amounts = {}
    for part in init_containers:
        together = sidecars.copy()
        _add(together, part.limits)
        if part.role == "sidecar":
            sidecars = together
        yield together


def _sum(each: list[Amounts]) -> Amounts:
    total = each[0].copy() if each else {}
    for amounts in each[1:]:
        _add(total, amounts)
    return total


def _with_init(running: Amounts, init: list[tuple[Amounts, bool]]) -> None:
    """Add the sidecars to what runs, and raise it to the peak while starting."""
    peak: Amounts = {}
    sidecars: Amounts = {}
    for amounts, is_sidecar in init:
        together = sidecars.copy()
        _add(together, amounts)
        if is_sidecar:
            _add(running, amounts)
            sidecars = together
        _raise(peak, together)
    _raise(running, peak)


def _add(total: Amounts, amounts: Amounts) -> None:
    for name, amount in amounts.items():
        total[name] = total[name] + amount if name in total else amount


def _raise(total: Amounts, amounts: Amounts) -> None:
    for name, amount in amounts.items():
        if name not in total or total[name] < amount:
            total[name] = amount


def _override(total: Amounts, pod_level: Amounts, release: Release) -> None:
    supported = POD_LEVEL.at(release.minor)
    for name, amount in pod_level.items():
        if supported(name):
            total[name] = amount
