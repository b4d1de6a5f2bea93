"""The memory half of a pod's plan, as bare numbers: for those who plan thousands.

The rules are those of `plan_pod`; what is left out are the reasons, processors and hugepages.
"""

import msgspec

from memqos.api.aggregate import (
    aggregate_limits,
    aggregate_requests,
    has_pod_level,
    pod_limits,
    pod_requests,
)
from memqos.api.oom import oom_scores
from memqos.api.pod import QosClass
from memqos.api.resources import Amounts, memory_in
from memqos.api.shape import Role, Shape
from memqos.plan.container import container_rules, memory_of_container
from memqos.plan.pod import memory_of_pod
from memqos.plan.setting import Value
from memqos.plan.terms import Terms


class ContainerBrief(msgspec.Struct, frozen=True, gc=False):
    """One container: bytes; None where nothing is written."""

    role: Role
    request: int
    limit: int
    min: Value
    low: Value
    high: Value
    max: Value
    oom_score_adj: int | None


class PodBrief(msgspec.Struct, frozen=True, gc=False):
    """A pod and its containers, in the order of `Shape.parts`."""

    qos: QosClass
    request: int
    limit: int
    min: Value
    low: Value
    high: Value
    max: Value
    containers: tuple[ContainerBrief, ...]


class Sums(msgspec.Struct, frozen=True, gc=False):
    """What of a plan does not depend on the node."""

    of_containers: Amounts
    request: int
    limit: int
    pod_level: bool


def sums_of(shape: Shape, terms: Terms) -> Sums:
    """What the containers of a pod ask for together."""
    release = terms.release
    of_containers = aggregate_requests(shape)
    return Sums(
        of_containers,
        memory_in(pod_requests(shape, release, of_containers=of_containers)),
        memory_in(pod_limits(shape, release, of_containers=aggregate_limits(shape))),
        release.enabled("PodLevelResources") and has_pod_level(shape, release),
    )


def brief_plan(shape: Shape, terms: Terms, qos: QosClass, sums: Sums) -> PodBrief:
    """The memory values of a valid, defaulted pod."""
    level_limits = shape.pod.limits if shape.pod is not None and sums.pod_level else {}
    scores = oom_scores(
        shape, terms.release, qos, terms.memory_capacity, of_containers=sums.of_containers
    )
    rules = container_rules(terms.release)
    minimum, low, high, maximum = memory_of_pod(
        shape, terms, qos, sums.request, sums.limit, sums.pod_level, level_limits
    )
    containers = []
    for part, score in zip(shape.parts, scores, strict=True):
        own = memory_of_container(part, terms, rules, qos, level_limits)
        containers.append(
            ContainerBrief(
                part.role,
                memory_in(part.requests),
                memory_in(part.limits),
                own[0].value,
                own[1].value,
                own[2].value,
                own[3].value,
                score.value,
            )
        )
    return PodBrief(
        qos,
        sums.request,
        sums.limit,
        minimum.value,
        low.value,
        high.value,
        maximum.value,
        tuple(containers),
    )
