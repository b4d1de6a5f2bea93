"""Notes of `memqos explain`: what a value alone does not show of a pod, of its node and of both."""

from collections.abc import Iterator

from memqos.errors import UnsupportedRelease
from memqos.kube.aggregate import aggregate_limits, aggregate_requests
from memqos.kube.pod import Pod
from memqos.kube.quantity import MAX_INT64
from memqos.kube.resources import MEMORY, NO_RESOURCES, Resources, whole
from memqos.kube.shape import Part, Shape, with_shape
from memqos.plan.pod import PodPlan
from memqos.plan.semantics import Planner, Semantics, is_stored
from memqos.release import Release, default, stage
from memqos.settings.resolver import NodeSettings
from memqos.settings.settings import Settings
from memqos.units import format_bytes, scientific


def notes_on_pod(
    planner: Planner, node: NodeSettings, pod: Pod, written: Shape, semantics: Semantics
) -> Iterator[str]:
    """What is dropped or does not fit, and whether this kernel and this kubelet take it."""
    release = planner.server
    stored = pod if is_stored(pod) else with_shape(pod, semantics.shape)
    yield from _drop_notes(written, semantics.shape, release)
    yield from _overflow_notes(written)
    yield from _size_notes(semantics.plan, planner.settings)
    yield from _kernel_notes(semantics.plan, node)
    yield from _admission_notes(stored, node, release)
    if is_stored(pod):
        yield "read from the cluster, which has set its defaults and accepted it"


def _drop_notes(written: Shape, shape: Shape, release: Release) -> Iterator[str]:
    if written.pod is None or shape.pod is not None:
        return
    gate = "PodLevelResources"
    since = stage(gate, release.minor)
    if since is None:
        yield f"spec.resources is dropped: Kubernetes {release} does not know it"
    elif default(gate, release.minor):
        yield f"spec.resources is dropped: {gate} is off"
    else:
        yield f"spec.resources is dropped: {gate} is {since} and off by default in {release}"


def _overflow_notes(shape: Shape) -> Iterator[str]:
    stanzas: list[Part | Resources] = [*shape.parts, shape.pod or NO_RESOURCES]
    sides = [side for each in stanzas for side in (each.requests, each.limits)]
    sides += [aggregate_requests(shape), aggregate_limits(shape)]
    amounts = [side.get(MEMORY, 0) for side in sides]
    most = whole(max(amounts, default=0))
    if most > MAX_INT64:
        yield (
            f"{scientific(most)} of memory exceeds 2⁶³ − 1, the maximum in Kubernetes: scheduler "
            f"and kubelet compute with another number, and memqos counts it as 0"
        )


def _admission_notes(pod: Pod, resolved: NodeSettings, server: Release) -> Iterator[str]:
    """Whether the kubelet of the node that is given would run what the API server stores."""
    facts = resolved.facts
    if facts.version is None and facts.os is None:
        return
    from memqos.cluster.node_admission import (
        LINUX,
        AdmittingNode,
        ignores_pod_level,
        kubelet_release,
        refuse_on_node,
    )

    try:
        kubelet = (
            kubelet_release(facts.version, server)
            if resolved.kubelet is None
            else resolved.kubelet.release
        )
    except UnsupportedRelease as error:
        yield f"admission by the kubelet of this node is not checked: {error.what}"
        return
    node = AdmittingNode(name=pod.spec.node_name or "", os=facts.os or LINUX, allocatable={})
    refused = refuse_on_node(pod, node, kubelet)
    if refused is not None:
        yield f"the kubelet of this node, {kubelet}, refuses it: {refused.words}"
    elif ignores_pod_level(pod, kubelet):
        yield (
            f"the kubelet of this node, {kubelet}, does not support spec.resources: it uses the "
            f"resources of the containers only"
        )


def _size_notes(plan: PodPlan | None, settings: Settings) -> Iterator[str]:
    capacity, unreserved = settings.memory_capacity, settings.memory_allocatable
    if plan is None or capacity is None or not plan.requests.get(MEMORY):
        return
    request = whole(plan.requests[MEMORY])
    available = capacity if unreserved is None else min(capacity, unreserved)
    if request > available:
        yield (
            f"it requests {format_bytes(request)} of memory, more than the "
            f"{format_bytes(available)} allocatable on this node: it can never run there"
        )


def _kernel_notes(plan: PodPlan | None, node: NodeSettings) -> Iterator[str]:
    if plan is None or node.high_withheld is None:
        return
    if any(isinstance(each.settings["memory.high"].value, int) for each in plan.containers):
        yield node.high_withheld
