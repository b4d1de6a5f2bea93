"""Assign NUMA nodes to containers: as a Static kubelet did, or itself where the kubelet does not.

memqos stores no state of its assignments: the nodes that containers are bound to are those they
were assigned before, so that planning again gives the same.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from memqos.converge.values import bound_nodes, container_files, node_permit
from memqos.errors import InputError
from memqos.kernel.file_formats import describe_nodes
from memqos.kube.kubelet import STATE_FILE, STATIC, KubeletConfiguration
from memqos.kube.kubelet.topology_options import DEFAULT_MAX_NODES, MAX_NODES_OPTION
from memqos.kube.pod import Pod
from memqos.kube.resources_in_use import with_resources_in_use
from memqos.numa.checkpoint import load_checkpoint
from memqos.numa.machine_state import MemoryManagerState, MemorySizes, empty_node_map
from memqos.numa.machines import NumaMachine, machine_from_kernel, machine_subset
from memqos.numa.manager import Manager, ManagerSettings
from memqos.numa.masks import mask_of
from memqos.numa.refusal_text import refusal_sentences, reservation_sentences
from memqos.numa.requests import PodMemoryRequest, pod_for_kubelet, pod_memory_request
from memqos.numa.reserved_memory import (
    InvalidReservation,
    even_reservation,
    kubelet_equation,
    reservation_totals,
    reservations_from_config,
    system_reserved,
)
from memqos.numa.running_pods import RunningPod, UnplacedPod, assign_running_pods
from memqos.numa.topology_manager import InvalidTopology, configure_topology
from memqos.plan.cpuset import MEMS, Assignment, ContainerKey, container_key, with_mems
from memqos.plan.tree import Cgroup, Tree, cgroup_uid, pod_key
from memqos.release import Release

if TYPE_CHECKING:
    from memqos.converge.observation import ObservedNode
    from memqos.settings.settings import Numa


class NumaAllocation(msgspec.Struct, frozen=True):
    """The assignment of each container, and notes on the pods without one."""

    assignments: dict[ContainerKey, Assignment]
    notes: tuple[str, ...]


def allocate_numa(
    observation: "ObservedNode", tree: Tree, config: KubeletConfiguration, release: Release
) -> NumaAllocation:
    """Assign NUMA memory to all Guaranteed pods of a node, first to those that have some."""
    bound: dict[str, dict[str, frozenset[int]]] = {}
    for cgroup in tree.cgroups.values():
        if cgroup.uid is not None and cgroup.container is not None:
            files = container_files(cgroup.path, observation.cgroups)
            if files is not None:
                bound.setdefault(cgroup.uid, {})[cgroup.container] = bound_nodes(files)
    running = [
        running_pod_of(pod, bound[uid], release)
        for pod in observation.pods
        if (uid := cgroup_uid(pod) or "") in bound
    ]
    manager, unplaced = assign_running_pods(
        manager_of(_numa_machine(observation, tree), config, release),
        sorted(running, key=creation_order),
    )
    keys = {each.uid: pod_key(each.pod) for each in running}
    return NumaAllocation(
        {
            (uid, container): assignment_of(manager.state, (uid, container))
            for uid, containers in bound.items()
            if uid not in unplaced
            for container in containers
        },
        tuple(f"{keys[uid]}: not changed: {skip_reason(each)}" for uid, each in unplaced.items()),
    )


def running_pod_of(
    pod: Pod, bound: Mapping[str, frozenset[int]], release: Release, *, managed: bool = True
) -> RunningPod:
    """A pod on a node, by the nodes to which its containers that have a cgroup are bound.

    It has no init containers that have ended.
    """
    received = pod_for_kubelet(with_resources_in_use(pod), release)
    spec = received.spec
    is_initialized = any(container.name in bound for container in spec.containers or ())
    init_containers = tuple(
        [
            container
            for container in spec.init_containers or ()
            if not is_initialized or container.restart_policy == "Always"
        ]
    )
    running = msgspec.structs.replace(
        received,
        metadata=msgspec.structs.replace(received.metadata, uid=cgroup_uid(pod) or ""),
        spec=msgspec.structs.replace(spec, init_containers=init_containers),
    )
    masks = {name: mask_of(nodes) for name, nodes in bound.items() if nodes}
    return RunningPod(running, pod_memory_request(running, release), masks, managed)


def creation_order(running: RunningPod) -> tuple[str, str]:
    """A sort key: the oldest pods first."""
    return running.pod.metadata.creation_timestamp or "", pod_key(running.pod)


def skip_reason(unplaced: UnplacedPod) -> str:
    """Why a pod is assigned no nodes."""
    if unplaced.refused is None:
        return "no nodes have enough memory for all of it"
    return "; ".join(refusal_sentences(unplaced.refused, unplaced.state))


def assignment_of(state: MemoryManagerState, place: ContainerKey) -> Assignment:
    """What memqos has assigned to a container; perhaps no nodes."""
    blocks = state.blocks(*place) or ()
    holds = tuple([(block.type, block.size) for block in blocks])
    return Assignment(state.container_nodes(*place), holds, "memqos")


def _numa_machine(observation: "ObservedNode", tree: Tree) -> NumaMachine:
    found = machine_from_kernel(observation.machine)
    if found is None:
        raise InputError(
            NO_NUMA_NODES,
            field="numa",
            hint=observation.machine.missing.get("numa"),
        )
    kubepods = [cgroup.path for cgroup in tree.cgroups.values() if cgroup.level == "kubepods"]
    for path in kubepods:
        # The trailing "/" is for the nodes of its children: then its own cpuset.mems counts.
        found = machine_subset(found, node_permit(f"{path}/", observation.cgroups, found.ids).nodes)
    return found


def manager_of(machine: NumaMachine, config: KubeletConfiguration, release: Release) -> Manager:
    """A Memory Manager of a machine, without assignments."""
    # The kubelet bounds its search over 2^n masks to 8 nodes (topologymanager/policy_options.go,
    # max-allowable-numa-nodes); memqos bounds its search by effort, so any number is allowed.
    bound = {MAX_NODES_OPTION: str(max(DEFAULT_MAX_NODES, len(machine.nodes)))}
    topology = configure_topology(
        config.topology_manager_policy,
        config.topology_manager_scope,
        {**config.topology_manager_policy_options, **bound},
        machine.ids,
        machine.distances,
    )
    if isinstance(topology, InvalidTopology):
        raise InputError(topology.detail, hint="correct it in the kubelet's configuration")
    settings = ManagerSettings(
        machine=machine.nodes, policy=STATIC, topology=topology, release=release
    )
    nodes = empty_node_map(machine.nodes, _memory_reservations(machine, config, release))
    return Manager(settings, MemoryManagerState(STATIC, nodes))


def _memory_reservations(
    machine: NumaMachine, config: KubeletConfiguration, release: Release
) -> Mapping[int, MemorySizes]:
    entries = reservations_from_config(config.reserved_memory)
    if not entries:
        return even_reservation(machine, kubelet_equation(config, machine.memory, release))
    reserved = system_reserved(machine.ids, entries, reservation_totals(entries))
    if isinstance(reserved, InvalidReservation):
        raise InputError(
            "; ".join(reservation_sentences(reserved)),
            field="reservedMemory",
            hint="memqos numa check shows details, memqos numa reserve prints a valid one",
        )
    return reserved


NO_NUMA_NODES: Final = "no NUMA node is known, so none can be assigned"
NO_CPUSET: Final = f"no container has a {MEMS}: the cpuset controller is not enabled for them"
KUBELET_ASSIGNS: Final = "this node's kubelet assigns NUMA memory itself: its policy is Static"


class NumaPlan(msgspec.Struct, frozen=True):
    """A tree whose containers are bound to NUMA nodes, and notes on it."""

    tree: Tree
    notes: tuple[str, ...] = ()


def assign_numa_nodes(
    observation: "ObservedNode",
    tree: Tree,
    numa: "Numa",
    config: KubeletConfiguration,
    release: Release,
) -> NumaPlan:
    """The plan of a node with cpuset.mems for its containers, as `numa` says."""
    state = _state(observation)
    if numa == "state":
        found = _state_assignments(state, observation, tree, release)
    elif state is not None and state.policy == STATIC:
        raise InputError(KUBELET_ASSIGNS, hint="--numa state uses what it has assigned")
    else:
        found = allocate_numa(observation, tree, config, release)
    forbidden = dict(_missing_nodes(observation, tree, found.assignments))
    unbound = set(_unbound_containers(observation, tree))
    assignments = {
        place: each
        for place, each in found.assignments.items()
        if place not in forbidden and (each.nodes or place not in unbound)
    }
    notes = (*found.notes, *forbidden.values(), *_without_cpuset(observation, tree))
    return NumaPlan(with_mems(tree, assignments), notes)


def _state(observation: "ObservedNode") -> MemoryManagerState | None:
    text = observation.memory_manager_state
    return None if not text else load_checkpoint(text, f"{observation.origin} ({STATE_FILE})").state


def _state_assignments(
    state: MemoryManagerState | None, observation: "ObservedNode", tree: Tree, release: Release
) -> NumaAllocation:
    if state is None:
        raise InputError(
            f"no {STATE_FILE} is known of this node",
            hint="give one with --state, or let memqos assign nodes with --numa allocate",
        )
    if state.policy != STATIC:
        return NumaAllocation({}, (f"{STATE_FILE}: {no_assignment_reason(state)}",))
    requests = dict(_memory_requests(observation.pods, tree, release))
    assignments: dict[ContainerKey, Assignment] = {}
    unknown = []
    for cgroup in tree.cgroups.values():
        place = container_key(cgroup)
        if place is None:
            continue
        assignment = assignment_in_state(state, place, requests.get(place[0]))
        if assignment is not None:
            assignments[place] = assignment
        elif cgroup.path in observation.cgroups:
            unknown.append(_container_name(cgroup))
    listed = f"Guaranteed, but not in the {STATE_FILE}, so not changed: {', '.join(unknown)}"
    return NumaAllocation(assignments, (listed,) if unknown else ())


def assignment_in_state(
    state: MemoryManagerState, place: ContainerKey, request: PodMemoryRequest | None
) -> Assignment | None:
    """A container's assignment in a Static kubelet's state; None where one is missing there."""
    blocks = state.blocks(*place)
    if blocks is not None:
        holds = tuple([(block.type, block.size) for block in blocks])
        return Assignment(state.container_nodes(*place), holds)
    return None if _needs_nodes(request, place[1]) else Assignment()


def no_assignment_reason(state: MemoryManagerState) -> str:
    """Why a kubelet's state has no assignments where its policy is not Static."""
    note = f"the kubelet's policy is {state.policy}: it assigns no NUMA nodes"
    return f"{note}, and {MEMS} is not changed"


def nodes_fault(
    assignment: Assignment,
    path: str,
    cgroups: Mapping[str, Mapping[str, str]],
    known: Sequence[int],
) -> str | None:
    """Why a container cannot use its nodes: a cgroup above it, or the machine, lacks some."""
    permit = node_permit(path, cgroups, known or assignment.nodes)
    if permit.nodes.issuperset(assignment.nodes):
        return None
    whose = "the machine has" if permit.by == "/" else f"{permit.by} is bound to"
    return (
        f"belongs on {describe_nodes(assignment.nodes)}, but {whose} "
        f"{describe_nodes(sorted(permit.nodes))}: not changed"
    )


def is_unbound(
    bound: frozenset[int], path: str, cgroups: Mapping[str, Mapping[str, str]], known: Sequence[int]
) -> bool:
    """Whether a container is bound to all nodes it could use: then there is nothing to clear."""
    return bool(bound) and bound.issuperset(node_permit(path, cgroups, known or bound).nodes)


def _memory_requests(
    pods: tuple[Pod, ...], tree: Tree, release: Release
) -> Iterator[tuple[str, PodMemoryRequest]]:
    planned = {cgroup.uid for cgroup in tree.cgroups.values()}
    for pod in pods:
        uid = cgroup_uid(pod)
        if uid is not None and uid in planned:
            yield (
                uid,
                pod_memory_request(pod_for_kubelet(with_resources_in_use(pod), release), release),
            )


def _needs_nodes(request: PodMemoryRequest | None, container: str) -> bool:
    """Whether a Static kubelet would have assigned memory to the container."""
    if request is None or not request.guaranteed or request.unmanaged:
        return False
    return any(each.name == container and each.sizes for each in request.containers)


def _missing_nodes(
    observation: "ObservedNode", tree: Tree, assignments: Mapping[ContainerKey, Assignment]
) -> Iterator[tuple[ContainerKey, str]]:
    """Containers with nodes that a cgroup above them, or the machine, lacks; and notes on them."""
    known = [node.number for node in observation.machine.numa_nodes]
    for cgroup in tree.cgroups.values():
        place = container_key(cgroup)
        assignment = None if place is None else assignments.get(place)
        if place is None or assignment is None or cgroup.path not in observation.cgroups:
            continue
        why = nodes_fault(assignment, cgroup.path, observation.cgroups, known)
        if why is not None:
            yield place, f"{_container_name(cgroup)}: {why}"


def _unbound_containers(observation: "ObservedNode", tree: Tree) -> Iterator[ContainerKey]:
    """Containers that are bound, but to all nodes they could use."""
    known = [node.number for node in observation.machine.numa_nodes]
    for cgroup in tree.cgroups.values():
        place, files = (
            container_key(cgroup),
            container_files(cgroup.path, observation.cgroups) or {},
        )
        bound = bound_nodes(files)
        if place is not None and is_unbound(bound, cgroup.path, observation.cgroups, known):
            yield place


def _without_cpuset(observation: "ObservedNode", tree: Tree) -> Iterator[str]:
    containers = [
        observation.cgroups[cgroup.path]
        for cgroup in tree.cgroups.values()
        if cgroup.level == "container" and cgroup.path in observation.cgroups
    ]
    if containers and not any(MEMS in files for files in containers):
        yield NO_CPUSET


def _container_name(cgroup: Cgroup) -> str:
    return f"{cgroup.pod} {cgroup.container}"
