"""What the API server fills in when a pod is created.

1. Every quantity is rounded up to thousandths; a container's missing request takes its limit.
2. Pod-level values are completed from the containers, if the pod sets any.

The gate PodLevelResourcesFixDefaulting decides how and when step 2 happens: without it the pod
level is completed before quantities are rounded, and limits are not completed at all.
"""

import msgspec

from memqos.kube.aggregate import aggregate_limits, aggregate_requests
from memqos.kube.pod import Pod
from memqos.kube.quantity import MILLI, nano_of, whole
from memqos.kube.resources import POD_LEVEL, Amounts, Resources, is_hugepages, is_overcommitable
from memqos.kube.shape import Part, Shape, shape_of
from memqos.release import Release


def apply_defaults(pod: Pod, release: Release) -> Shape:
    """The shape of a newly created pod after all defaulting."""
    return prepare_for_storage(decoding_defaults(pod, release), release)


def decoding_defaults(pod: Pod, release: Release) -> Shape:
    """What is filled in while a pod is read, before admission sees it."""
    if (
        pod.spec.resources is None
        or not release.is_enabled("PodLevelResources")
        or release.is_enabled("PodLevelResourcesFixDefaulting")
    ):
        return shape_of(pod, release, as_created=True)
    unrounded = shape_of(pod, release, nano_of, as_created=True)
    return _round_up(_with_pod_level_unfixed(unrounded, release))


def prepare_for_storage(shape: Shape, release: Release) -> Shape:
    """What is completed or dropped before a new pod is stored, after admission changed it."""
    if shape.pod is None:
        return shape
    if not release.is_enabled("PodLevelResources"):
        return msgspec.structs.replace(shape, pod=None)
    if release.is_enabled("PodLevelResourcesFixDefaulting"):
        return with_pod_level(shape, release)
    return shape


def with_pod_level(shape: Shape, release: Release) -> Shape:
    """Pod-level values completed: hugepage limits, then requests, then the remaining limits."""
    pod = shape.pod
    if pod is None or not (pod.requests or pod.limits):
        return shape
    of_limits = aggregate_limits(shape)
    limits = _hugepage_limits(pod, of_limits, release)
    requests = _requests(pod.requests, limits, aggregate_requests(shape), release)
    supported = POD_LEVEL.at(release.minor)
    for name, amount in requests.items():
        if name in limits or not supported(name):
            continue
        if name in of_limits and all([name in part.limits for part in shape.parts]):
            limits[name] = max(amount, of_limits[name])
    return msgspec.structs.replace(shape, pod=Resources(requests, limits))


def _with_pod_level_unfixed(shape: Shape, release: Release) -> Shape:
    pod = shape.pod
    if pod is None or not (pod.requests or pod.limits):
        return shape
    limits = _hugepage_limits(pod, aggregate_limits(shape), release)
    requests = pod.requests
    if limits:
        requests = _requests(requests, limits, aggregate_requests(shape), release)
    return msgspec.structs.replace(shape, pod=Resources(requests, limits))


def _hugepage_limits(pod: Resources, of_containers: Amounts, release: Release) -> Amounts:
    supported = POD_LEVEL.at(release.minor)
    limits = dict(pod.limits)
    for name, amount in of_containers.items():
        if is_hugepages(name) and supported(name) and name not in pod.requests:
            limits.setdefault(name, amount)
    return limits


def _requests(
    written: Amounts, limits: Amounts, of_containers: Amounts, release: Release
) -> Amounts:
    supported = POD_LEVEL.at(release.minor)
    requests = dict(written)
    for name, amount in of_containers.items():
        if supported(name) and is_overcommitable(name):
            requests.setdefault(name, amount)
    for name, amount in limits.items():
        if supported(name):
            requests.setdefault(name, amount)
    return requests


def _round_up(shape: Shape) -> Shape:
    """A shape in nanos, rounded up to thousandths."""
    return msgspec.structs.replace(
        shape,
        containers=tuple([_round_up_part(part) for part in shape.containers]),
        init_containers=tuple([_round_up_part(part) for part in shape.init_containers]),
        ephemeral_containers=tuple([_round_up_part(part) for part in shape.ephemeral_containers]),
        pod=None
        if shape.pod is None
        else Resources(_to_milli(shape.pod.requests), _to_milli(shape.pod.limits)),
        overhead=_to_milli(shape.overhead),
    )


def _round_up_part(part: Part) -> Part:
    return Part(part.role, _to_milli(part.requests), _to_milli(part.limits))


def _to_milli(nanos: Amounts) -> Amounts:
    return {name: whole(amount, MILLI) for name, amount in nanos.items()}
