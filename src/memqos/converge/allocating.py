"""NUMA memory that memqos gives out itself, on a node whose kubelet gives out none.

Nothing is kept in a file: what containers are bound to is what they were given before. A pod is
counted once, however often it is looked at.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from memqos.converge.cpusets import bound_nodes, container_files, node_permit
from memqos.draw.numa_refusals import reservation_sentences
from memqos.draw.numa_verdicts import refusal_sentences
from memqos.errors import InputError
from memqos.kube.kubelet import STATIC, KubeletConfiguration
from memqos.kube.pod import Pod
from memqos.kube.resources_in_use import with_resources_in_use
from memqos.numa.arriving import pod_for_kubelet
from memqos.numa.equation import even_reservation, kubelet_equation
from memqos.numa.machines import NumaMachine, machine_from_kernel, machine_subset
from memqos.numa.manager import Manager, ManagerSettings
from memqos.numa.masks import mask_of
from memqos.numa.memory import MemorySizes, empty_node_map
from memqos.numa.requests import pod_memory_request
from memqos.numa.reserved import (
    InvalidReservation,
    reservation_totals,
    reservations_from_config,
    system_reserved,
)
from memqos.numa.residents import RunningPod, UnplacedPod, assign_running_pods
from memqos.numa.state import MemoryManagerState
from memqos.numa.topology import (
    DEFAULT_MAX_NODES,
    MAX_NODES_OPTION,
    InvalidTopology,
    configure_topology,
)
from memqos.plan.cpuset import Assignment, ContainerKey
from memqos.plan.tree import Tree, cgroup_uid, pod_key
from memqos.release import Release

if TYPE_CHECKING:
    from memqos.converge.observing import ObservedNode


class NumaAllocation(msgspec.Struct, frozen=True):
    """What each container was given, and the pods for which there is nothing."""

    assignments: dict[ContainerKey, Assignment]
    notes: tuple[str, ...]


def allocate_numa(
    observation: "ObservedNode", tree: Tree, config: KubeletConfiguration, release: Release
) -> NumaAllocation:
    """Give NUMA memory to all Guaranteed pods of a node, those first that hold some already."""
    bound: dict[str, dict[str, frozenset[int]]] = {}
    for cgroup in tree.cgroups.values():
        if cgroup.uid is not None and cgroup.container is not None:
            files = container_files(cgroup.path, observation.cgroups)
            if files is not None:
                bound.setdefault(cgroup.uid, {})[cgroup.container] = bound_nodes(files)
    residents = [
        resident_of(pod, bound[uid], release)
        for pod in observation.pods
        if (uid := cgroup_uid(pod) or "") in bound
    ]
    manager, left_out = assign_running_pods(
        manager_of(_numa_machine(observation, tree), config, release),
        sorted(residents, key=seniority),
    )
    keys = {each.uid: pod_key(each.pod) for each in residents}
    return NumaAllocation(
        {
            (uid, container): assignment_of(manager.state, (uid, container))
            for uid, containers in bound.items()
            if uid not in left_out
            for container in containers
        },
        tuple(f"{keys[uid]}: left as it is: {skip_reason(each)}" for uid, each in left_out.items()),
    )


def resident_of(
    pod: Pod, present: Mapping[str, frozenset[int]], release: Release, *, ours: bool = True
) -> RunningPod:
    """A pod as a node holds it, given what those containers are bound to that have a cgroup.

    Init containers that are done are left out.
    """
    arrived = pod_for_kubelet(with_resources_in_use(pod), release)
    spec = arrived.spec
    begun = any(container.name in present for container in spec.containers or ())
    left = tuple(
        [
            container
            for container in spec.init_containers or ()
            if not begun or container.restart_policy == "Always"
        ]
    )
    running = msgspec.structs.replace(
        arrived,
        metadata=msgspec.structs.replace(arrived.metadata, uid=cgroup_uid(pod) or ""),
        spec=msgspec.structs.replace(spec, init_containers=left),
    )
    masks = {name: mask_of(nodes) for name, nodes in present.items() if nodes}
    return RunningPod(running, pod_memory_request(running, release), masks, ours)


def seniority(resident: RunningPod) -> tuple[str, str]:
    """The oldest pods come first."""
    return resident.pod.metadata.creation_timestamp or "", pod_key(resident.pod)


def skip_reason(left_out: UnplacedPod) -> str:
    """Why there is nothing for a pod."""
    if left_out.refused is None:
        return "no nodes have room for all of it"
    return "; ".join(refusal_sentences(left_out.refused, left_out.state))


def assignment_of(state: MemoryManagerState, place: ContainerKey) -> Assignment:
    """What memqos has given a container; no nodes where that is nothing."""
    blocks = state.blocks(*place) or ()
    holds = tuple([(block.type, block.size) for block in blocks])
    return Assignment(state.container_nodes(*place), holds, "memqos")


def _numa_machine(observation: "ObservedNode", tree: Tree) -> NumaMachine:
    found = machine_from_kernel(observation.machine)
    if found is None:
        raise InputError(
            "no NUMA node is known, so none can be chosen",
            field="numa",
            hint=observation.machine.missing.get("numa"),
        )
    kubepods = [cgroup.path for cgroup in tree.cgroups.values() if cgroup.level == "kubepods"]
    for path in kubepods:
        # Permitted to those below it, so its own binding counts.
        found = machine_subset(found, node_permit(f"{path}/", observation.cgroups, found.ids).nodes)
    return found


def manager_of(machine: NumaMachine, config: KubeletConfiguration, release: Release) -> Manager:
    """Who gives out the memory of a machine on which nothing is given out yet."""
    # The kubelet's bound on nodes is there for the time its search takes, and ours is bounded.
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
    settings = ManagerSettings(machine.nodes, STATIC, topology, release)
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
            hint="memqos numa check says more, reserve what would do",
        )
    return reserved
