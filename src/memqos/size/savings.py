"""What a cluster requests beyond its need, by workload, and how many nodes would be enough."""

from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec

from memqos.cluster.fit import resource_needs
from memqos.cluster.fit_demand import (
    PODS_RESOURCE,
    NodeInfo,
    SchedulingDemand,
    node_info,
    scheduling_demand,
)
from memqos.kube.pod import Pod
from memqos.kube.resources import CPU, MEMORY, whole
from memqos.kube.shape import shape_of
from memqos.release import Release
from memqos.size.consequences import MemorySize, resized_pod, workload_of
from memqos.size.history import HistoryTable
from memqos.size.recommendation import Recommendation, SizeOptions, recommend


class WorkloadSavings(msgspec.Struct, frozen=True, kw_only=True):
    """One container of a workload, in all its running pods."""

    namespace: str
    workload: str
    container: str
    pods: int
    requested: int
    """Bytes that each pod requests on average."""
    recommended: int
    gain: int
    """Bytes that all pods together would give back; below 0 where they request too little."""
    risk: float


class NodeSavings(msgspec.Struct, frozen=True, kw_only=True):
    """The pods of one node together, as the scheduler counts them."""

    node: str
    pods: int
    allocatable: int | None
    """None where the dump has no such Node."""
    requested: int
    recommended: int


class ClusterSavings(msgspec.Struct, frozen=True, kw_only=True):
    """All workloads, the largest gain first, and the nodes that their pods take."""

    workloads: tuple[WorkloadSavings, ...]
    unsized: int
    """Containers of which no history is known, or too little: these stay as they are."""
    nodes: int
    nodes_now: int | None
    nodes_then: int | None
    """Nodes that are enough with today's requests and with the recommended ones; None where the
    pods do not fit."""
    by_node: tuple[NodeSavings, ...] = ()
    """The node with the largest gain first."""


def cluster_savings(
    pods: Sequence[Pod],
    nodes: Sequence[NodeInfo],
    table: HistoryTable,
    options: SizeOptions,
    release: Release,
    staying: Collection[Pod] = (),
) -> ClusterSavings:
    """Compare what pods request with what their histories show; all replicas get the same.

    Those of `staying` go with their node: static pods, and those of DaemonSets.
    """
    needs = _needs_of_workloads(table, options)
    grouped: dict[tuple[str, str, str], list[int]] = {}
    now, then = [], []
    unsized = 0
    for pod in pods:
        namespace = pod.metadata.namespace or "default"
        workload = workload_of(pod.metadata.name or "")
        sizes: dict[str, MemorySize] = {}
        shape = shape_of(pod, release)
        for container, part in zip(pod.spec.containers or (), shape.containers, strict=True):
            key = namespace, workload, container.name
            if key not in needs:
                unsized += 1
                continue
            sizes[container.name] = MemorySize(needs[key].request, needs[key].limit)
            grouped.setdefault(key, []).append(whole(part.requests.get(MEMORY, 0)))
        resized = resized_pod(pod, sizes)
        now.append(scheduling_demand(pod, shape, release))
        then.append(scheduling_demand(resized, shape_of(resized, release), release))
    found = [_savings(key, requests, needs[key]) for key, requests in grouped.items()]
    fixed = {id(pod) for pod in staying}
    places = [pod.spec.node_name if id(pod) in fixed else None for pod in pods]
    return ClusterSavings(
        workloads=tuple(sorted(found, key=lambda each: -each.gain)),
        unsized=unsized,
        nodes=len(nodes),
        nodes_now=nodes_needed(now, places, nodes, release),
        nodes_then=nodes_needed(then, places, nodes, release),
        by_node=tuple(_savings_by_node(pods, now, then, nodes)),
    )


def _savings_by_node(
    pods: Sequence[Pod],
    now: Sequence[SchedulingDemand],
    then: Sequence[SchedulingDemand],
    nodes: Sequence[NodeInfo],
) -> list[NodeSavings]:
    placed: dict[str, list[tuple[int, int]]] = {}
    for pod, before, after in zip(pods, now, then, strict=True):
        if pod.spec.node_name:
            amounts = before.charged.get(MEMORY, 0), after.charged.get(MEMORY, 0)
            placed.setdefault(pod.spec.node_name, []).append(amounts)
    allocatable = {node.name: node.allocatable.get(MEMORY) for node in nodes}
    found = [
        NodeSavings(
            node=node,
            pods=len(amounts),
            allocatable=allocatable.get(node),
            requested=sum(before for before, _ in amounts),
            recommended=sum(after for _, after in amounts),
        )
        for node, amounts in placed.items()
    ]
    return sorted(found, key=lambda each: (each.recommended - each.requested, each.node))


def nodes_needed(
    demands: Iterable[SchedulingDemand],
    places: Iterable[str | None],
    nodes: Sequence[NodeInfo],
    release: Release,
) -> int | None:
    """How many of the nodes the pods fill, the largest first; None where they are too few.

    By the scheduler's resource filter alone, without taints and affinity. A pod that has a place
    takes it from its node, and needs no other if the node is not needed. Which pods are largest
    depends on the resource: the best of four orders counts.
    """
    needs: list[dict[str, int]] = []
    staying: dict[str, list[SchedulingDemand]] = {}
    for demand, place in zip(demands, places, strict=True):
        if place is None:
            needs.append(dict(resource_needs(demand, release)))
        else:
            staying.setdefault(place, []).append(demand)
    nodes = [_left_of(each, staying.get(each.name, ())) for each in nodes]
    largest = {
        resource: max(each.allocatable.get(resource, 0) for each in nodes) or 1
        for resource in (MEMORY, CPU)
        if nodes
    }

    def shares(need: dict[str, int]) -> list[float]:
        return [need.get(resource, 0) / most for resource, most in largest.items()]

    orders: tuple[Callable[[dict[str, int]], float], ...] = (
        lambda need: -need.get(MEMORY, 0),
        lambda need: -need.get(CPU, 0),
        lambda need: -max(shares(need), default=0.0),
        lambda need: -sum(shares(need)),
    )
    counts = [_first_fit(sorted(needs, key=order), nodes) for order in orders]
    return min((count for count in counts if count is not None), default=None)


def _left_of(node: NodeInfo, staying: Iterable[SchedulingDemand]) -> NodeInfo:
    """A node as it is for others, once some pods are on it."""
    full = node_info(node.name, {}, staying)
    left = {name: amount - full.requested.get(name, 0) for name, amount in node.allocatable.items()}
    left[PODS_RESOURCE] = node.allocatable.get(PODS_RESOURCE, 0) - full.pods
    return msgspec.structs.replace(node, allocatable=left)


def _first_fit(needs: Iterable[dict[str, int]], nodes: Sequence[NodeInfo]) -> int | None:
    ordered = sorted(nodes, key=lambda each: -each.allocatable.get(MEMORY, 0))
    free = [dict(each.allocatable) for each in ordered]
    used = 0
    for need in needs:
        for index, node in enumerate(free):
            if all(amount <= node.get(resource, 0) for resource, amount in need.items()):
                for resource, amount in need.items():
                    node[resource] = node.get(resource, 0) - amount
                used = max(used, index + 1)
                break
        else:
            return None
    return used


def _needs_of_workloads(
    table: HistoryTable, options: SizeOptions
) -> dict[tuple[str, str, str], Recommendation]:
    found: dict[tuple[str, str, str], Recommendation] = {}
    for history in table.containers.values():
        name = history.name
        recommended = recommend(history, options)
        key = name.namespace, workload_of(name.pod), name.container
        if recommended.request is None:
            continue
        if key not in found or (found[key].request or 0) < recommended.request:
            found[key] = recommended
    return found


def _savings(
    key: tuple[str, str, str], requests: Sequence[int], need: Recommendation
) -> WorkloadSavings:
    namespace, workload, container = key
    recommended = need.request or 0
    return WorkloadSavings(
        namespace=namespace,
        workload=workload,
        container=container,
        pods=len(requests),
        requested=sum(requests) // len(requests),
        recommended=recommended,
        gain=sum(requests) - recommended * len(requests),
        risk=need.risk or 0.0,
    )
