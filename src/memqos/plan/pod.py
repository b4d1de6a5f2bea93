"""One pod: the values of its own cgroup and of its containers'.

Everything here follows from the defaulted shape of the pod and the settings of its node.
"""

from typing import Final

import msgspec

from memqos.kube.aggregate import (
    has_pod_level,
    limits_while_starting,
    limits_with_claims,
    memory_request_above_pods,
    pod_limits,
    pod_requests,
    requests_with_claims,
)
from memqos.kube.oom import oom_scores
from memqos.kube.pod import QosClass
from memqos.kube.quantity import MAX_INT64
from memqos.kube.resources import CPU, MEMORY, Amounts, memory_in
from memqos.kube.shape import Shape
from memqos.plan import cpu, hugepages, memory
from memqos.plan.container import ContainerPlan, container_rules, plan_container
from memqos.plan.setting import FileSettings, Rule, Setting
from memqos.release import Release, Since
from memqos.settings.settings import Settings
from memqos.units import format_exact_bytes


class PodPlan(msgspec.Struct, frozen=True, gc=False):
    """The values of a pod's cgroup and of its containers', in the order of `Shape.parts`."""

    qos: QosClass
    requests: Amounts
    limits: Amounts
    settings: FileSettings
    containers: tuple[ContainerPlan, ...]
    memory_above: int | None = None
    """What the QoS cgroups count of its memory, where that is not what it requests."""


POD_SUM: Final = Rule(
    "max/pod",
    "limit of the pod: its containers together, overhead included, are OOM-killed above it",
    "KEP-753, KEP-2837",
    lambda limit: (f"pod limit = {format_exact_bytes(limit)}",),
)
OVERFLOW: Final = Rule(
    "max/overflow",
    "not set: the limit is larger than the kubelet can represent",
    "kubelet, Quantity.Value()",
    lambda: (f"limit > {format_exact_bytes(MAX_INT64)}",),
)
NOT_ALL_MEMORY_LIMITED: Final = Rule(
    "max/not-all-limited",
    "not set: a container has no limit, so the pod has none",
    "kubelet",
)
BEST_EFFORT_MAX: Final = Rule(
    "max/best-effort", "not set: a BestEffort pod is not limited", "kubelet"
)


def plan_pod(shape: Shape, settings: Settings, qos: QosClass) -> PodPlan:
    """Every value of a valid, defaulted pod."""
    release = settings.release
    of_containers = requests_with_claims(shape)
    pod_level = release.is_enabled("PodLevelResources") and has_pod_level(shape, release)
    level_limits = shape.pod.limits if shape.pod is not None and pod_level else {}
    requests = pod_requests(shape, release, of_containers=of_containers)
    limits = pod_limits(shape, release, of_containers=limits_with_claims(shape))
    scores = oom_scores(shape, release, qos, settings.memory_capacity, of_containers=of_containers)
    rules = container_rules(release)
    return PodPlan(
        qos,
        requests,
        limits,
        _pod_values(shape, settings, qos, requests, limits, pod_level, level_limits),
        tuple(
            [
                plan_container(
                    part, score, settings, rules, qos, level_limits, critical=shape.critical
                )
                for part, score in zip(shape.parts, scores, strict=True)
            ]
        ),
        memory_request_above_pods(shape, release),
    )


def _pod_values(
    shape: Shape,
    settings: Settings,
    qos: QosClass,
    requests: Amounts,
    limits: Amounts,
    pod_level: bool,
    level_limits: Amounts,
) -> FileSettings:
    minor = settings.release.minor
    minimum, low, high, maximum = memory_of_pod(
        shape, settings, qos, memory_in(requests), memory_in(limits), pod_level, level_limits
    )
    if qos == "BestEffort":
        shares = Setting(cpu.MIN_SHARES, cpu.LEAST)
        quota = Setting(None, cpu.UNLIMITED)
    else:
        shares = cpu.shares(requests.get(CPU, 0), "request")
        quota = (
            cpu.quota(limits.get(CPU, 0), settings.cpu_period, settings.cpu_quota)
            if qos == "Guaranteed" or level_limits.get(CPU) or _LIMITED.at(minor)(shape, CPU)
            else Setting(None, cpu.NOT_ALL_CPU_LIMITED)
        )
        if settings.driver == "systemd":
            quota = cpu.slice_quota(quota)
    values = {
        "memory.min": minimum,
        "memory.low": low,
        "memory.high": high,
        "memory.max": maximum,
        "cpu.shares": shares,
        "cpu.max": quota,
    }
    for page, amount in hugepages.OF_POD.at(minor)(shape, requests).items():
        values[f"hugetlb.{page}.max"] = Setting(amount, hugepages.HUGE, (amount,))
    return values


def memory_of_pod(
    shape: Shape,
    settings: Settings,
    qos: QosClass,
    request: int,
    limit: int,
    pod_level: bool,
    level_limits: Amounts,
) -> tuple[Setting, Setting, Setting, Setting]:
    """memory.min, memory.low, memory.high and memory.max of a pod's own cgroup."""
    minor = settings.release.minor
    is_limited = bool(level_limits.get(MEMORY)) or _LIMITED.at(minor)(shape, MEMORY)
    if settings.release.is_enabled("MemoryQoS"):
        resources = memory.MemoryResources(qos, request, limit if is_limited else 0, pod_level)
        minimum, low = memory.POD_PROTECTION.at(minor)(resources, settings)
        high = memory.POD_HIGH.at(minor)(
            _without_claims(resources, shape, settings.release) if shape.claimed else resources,
            settings,
        )
    else:
        minimum = low = high = memory.OFF
    if qos == "BestEffort":
        maximum = Setting(None, BEST_EFFORT_MAX)
    elif qos == "Guaranteed" or is_limited:
        maximum = Setting(limit, POD_SUM, (limit,)) if limit else Setting(None, OVERFLOW)
    else:
        maximum = Setting(None, NOT_ALL_MEMORY_LIMITED)
    return minimum, low, high, maximum


def _without_claims(
    resources: memory.MemoryResources, shape: Shape, release: Release
) -> memory.MemoryResources:
    """ApplyPodLevelMemoryHigh(), kubelet cm/helpers_linux.go, does not count claims."""
    return msgspec.structs.replace(
        resources,
        request=memory_in(pod_requests(shape, release)),
        limit=memory_in(pod_limits(shape, release)) if resources.limit else 0,
    )


# Whether a pod as a whole is limited: every container must be (kubelet cm/helpers_linux.go,
# ResourceConfigForPod). Until 1.22 init containers were overlooked; until 1.36 a sidecar's limit
# counted for the init containers after it.


def _regular_limited(shape: Shape, name: str) -> bool:
    return all([part.limits.get(name) for part in shape.containers])


def _is_limited_while_starting(shape: Shape, name: str) -> bool:
    return _regular_limited(shape, name) and all(
        [limits.get(name) for limits in limits_while_starting(shape.init_containers)]
    )


def _all_limited(shape: Shape, name: str) -> bool:
    return _regular_limited(shape, name) and all(
        [part.limits.get(name) for part in shape.init_containers]
    )


_LIMITED: Final = Since({22: _regular_limited, 23: _is_limited_while_starting, 37: _all_limited})
