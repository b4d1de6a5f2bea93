"""The memory half of a pod's plan, as bare numbers: for planning thousands of pods.

The rules are those of `plan_pod`, without reasons, CPU and hugepages. What does not depend on the
node is computed once: the outline.
"""

import msgspec

from memqos.kube.aggregate import (
    has_pod_level,
    limits_with_claims,
    pod_limits,
    pod_requests,
    requests_with_claims,
)
from memqos.kube.oom import Score, burstable_value, oom_scores
from memqos.kube.pod import QosClass
from memqos.kube.resources import MEMORY, memory_in
from memqos.kube.shape import Role, Shape
from memqos.plan.container import container_rules, memory_of_container
from memqos.plan.memory import MemoryResources
from memqos.plan.pod import memory_of_pod
from memqos.plan.setting import NEEDS_NODE, FileValue
from memqos.settings.settings import Settings


class ContainerMemory(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One container: bytes; None where nothing is written."""

    role: Role
    request: int
    limit: int
    min: FileValue
    low: FileValue
    high: FileValue
    max: FileValue
    oom_score_adj: int | None


class PodMemory(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A pod and its containers, in the order of `Shape.parts`."""

    qos: QosClass
    request: int
    limit: int
    min: FileValue
    low: FileValue
    high: FileValue
    max: FileValue
    containers: tuple[ContainerMemory, ...]


class Outline(msgspec.Struct, frozen=True, gc=False):
    """A plan for an unknown node, and what is needed to complete it for a known one."""

    memory: PodMemory
    scores: tuple[Score, ...]
    under_pod_level: bool
    needs_node: bool


def outline_of(shape: Shape, settings: Settings, qos: QosClass) -> Outline:
    """The memory values of a valid, defaulted pod, under settings without a node."""
    assert settings.memory_capacity is None and settings.memory_allocatable is None
    release = settings.release
    of_containers = requests_with_claims(shape)
    request = memory_in(pod_requests(shape, release, of_containers=of_containers))
    limit = memory_in(pod_limits(shape, release, of_containers=limits_with_claims(shape)))
    pod_level = release.is_enabled("PodLevelResources") and has_pod_level(shape, release)
    level_limits = shape.pod.limits if shape.pod is not None and pod_level else {}
    scores = oom_scores(shape, release, qos, None, of_containers=of_containers)
    rules = container_rules(release)
    own = memory_of_pod(shape, settings, qos, request, limit, pod_level, level_limits)
    containers = []
    for part, score in zip(shape.parts, scores, strict=True):
        minimum, low, high, maximum = memory_of_container(part, settings, rules, qos, level_limits)
        containers.append(
            ContainerMemory(
                role=part.role,
                request=memory_in(part.requests),
                limit=memory_in(part.limits),
                min=minimum.value,
                low=low.value,
                high=high.value,
                max=maximum.value,
                oom_score_adj=score.value,
            )
        )
    memory = PodMemory(
        qos=qos,
        request=request,
        limit=limit,
        min=own[0].value,
        low=own[1].value,
        high=own[2].value,
        max=own[3].value,
        containers=tuple(containers),
    )
    needs_node = any([each.oom_score_adj is None or each.high == NEEDS_NODE for each in containers])
    return Outline(memory, tuple(scores), bool(level_limits.get(MEMORY)), needs_node)


def memory_on_node(outline: Outline, settings: Settings) -> PodMemory:
    """The same on the node of these settings."""
    if not outline.needs_node:
        return outline.memory
    memory, capacity = outline.memory, settings.memory_capacity
    high_of = container_rules(settings.release).high
    containers = []
    for each, score in zip(memory.containers, outline.scores, strict=True):
        adjustment, high = each.oom_score_adj, each.high
        if adjustment is None and capacity:
            adjustment = burstable_value(
                score.request, score.share, score.smallest_regular, capacity
            )
        if high == NEEDS_NODE:
            resources = MemoryResources(
                memory.qos, each.request, each.limit, outline.under_pod_level
            )
            high = high_of(resources, settings).value
        containers.append(
            ContainerMemory(
                role=each.role,
                request=each.request,
                limit=each.limit,
                min=each.min,
                low=each.low,
                high=high,
                max=each.max,
                oom_score_adj=adjustment,
            )
        )
    return PodMemory(
        qos=memory.qos,
        request=memory.request,
        limit=memory.limit,
        min=memory.min,
        low=memory.low,
        high=memory.high,
        max=memory.max,
        containers=tuple(containers),
    )
