"""NUMA memory that memqos gives out itself, on a node whose kubelet gives out none.

Nothing is kept in a file: what containers are bound to is what they were given before. A pod is
counted once, however often it is looked at.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from memqos.api.in_force import in_force
from memqos.api.kubelet import STATIC, KubeletConfiguration
from memqos.api.pod import Pod
from memqos.converge.cpusets import bound_nodes, permitted
from memqos.draw.numa_refusals import reservation_sentences
from memqos.draw.numa_verdicts import refusal_words
from memqos.errors import InputError
from memqos.numa.admission import Refused
from memqos.numa.adoption import adopted, is_spread
from memqos.numa.arriving import arriving
from memqos.numa.equation import equation_of, evenly_reserved
from memqos.numa.machines import NumaMachine, machine_of_kernel, machine_within
from memqos.numa.manager import Manager, Settings
from memqos.numa.masks import mask_of
from memqos.numa.memory import Sizes, empty_nodes
from memqos.numa.requests import wants_of
from memqos.numa.reserved import Unreservable, configured, reserved_in, system_reserved
from memqos.numa.state import State
from memqos.numa.topology import DEFAULT_MAX_NODES, MAX_NODES, Misconfigured, configure
from memqos.plan.mems import Assignment, Place, place_of
from memqos.plan.tree import Tree, cgroup_uid, pod_key
from memqos.release import Release

if TYPE_CHECKING:
    from memqos.converge.observing import Observation


class Allocated(msgspec.Struct, frozen=True):
    """What each container was given, and the pods for which there is nothing."""

    assignments: dict[Place, Assignment]
    notes: tuple[str, ...]


def allocate(
    observation: "Observation", tree: Tree, config: KubeletConfiguration, release: Release
) -> Allocated:
    """Give NUMA memory to all Guaranteed pods of a node, those first that hold some already."""
    bound = {
        place: bound_nodes(observation.cgroups[cgroup.path])
        for cgroup in tree.cgroups.values()
        if (place := place_of(cgroup)) is not None and cgroup.path in observation.cgroups
    }
    manager = _manager(_machine(observation, tree), config, release)
    pods = [_as_running(pod, bound, release) for pod in _in_order(observation.pods, bound)]
    for pod in pods:
        uid = pod.metadata.uid or ""
        own = {name: mask_of(nodes) for (owner, name), nodes in bound.items() if owner == uid}
        wants = wants_of(pod, release)
        if wants.guaranteed and not wants.unmanaged:
            manager = adopted(manager, wants, {name: mask for name, mask in own.items() if mask})
    refused: dict[str, str] = {}
    for pod in pods:
        uid = pod.metadata.uid or ""
        after, outcome = manager.admit(pod)
        if isinstance(outcome, Refused):
            why = "; ".join(refusal_words(outcome, after.state))
            refused[uid] = f"{pod_key(pod)}: left as it is: {why}"
        elif is_spread(after, uid):
            refused[uid] = f"{pod_key(pod)}: left as it is: no nodes have room for all of it"
        else:
            manager = after
    return Allocated(
        {place: _assignment(manager.state, place) for place in bound if place[0] not in refused},
        tuple(refused.values()),
    )


def _machine(observation: "Observation", tree: Tree) -> NumaMachine:
    found = machine_of_kernel(observation.machine)
    if found is None:
        raise InputError(
            "no NUMA node is known, so none can be chosen",
            field="numa",
            hint=observation.machine.missing.get("numa"),
        )
    kubepods = [cgroup.path for cgroup in tree.cgroups.values() if cgroup.level == "kubepods"]
    for path in kubepods:
        # Permitted to those below it, so its own binding counts.
        found = machine_within(found, permitted(f"{path}/", observation.cgroups, found.ids).nodes)
    return found


def _manager(machine: NumaMachine, config: KubeletConfiguration, release: Release) -> Manager:
    # The kubelet's bound on nodes is there for the time its search takes, and ours is bounded.
    bound = {MAX_NODES: str(max(DEFAULT_MAX_NODES, len(machine.nodes)))}
    topology = configure(
        config.topology_manager_policy,
        config.topology_manager_scope,
        {**config.topology_manager_policy_options, **bound},
        machine.ids,
        machine.distances,
    )
    if isinstance(topology, Misconfigured):
        raise InputError(topology.detail, hint="correct it in the kubelet's configuration")
    settings = Settings(machine.nodes, STATIC, topology, release)
    nodes = empty_nodes(machine.nodes, _reserved(machine, config, release))
    return Manager(settings, State(STATIC, nodes))


def _reserved(
    machine: NumaMachine, config: KubeletConfiguration, release: Release
) -> Mapping[int, Sizes]:
    entries = configured(config.reserved_memory)
    if not entries:
        return evenly_reserved(machine, equation_of(config, machine.memory, release))
    reserved = system_reserved(machine.ids, entries, reserved_in(entries))
    if isinstance(reserved, Unreservable):
        raise InputError(
            "; ".join(reservation_sentences(reserved)),
            field="reservedMemory",
            hint="memqos numa check says more, reserve what would do",
        )
    return reserved


def _in_order(pods: Iterable[Pod], bound: Mapping[Place, object]) -> list[Pod]:
    """Pods with a container on this node, the oldest first."""
    present = {uid for uid, _ in bound}
    found = [pod for pod in pods if cgroup_uid(pod) in present]
    return sorted(found, key=lambda pod: (pod.metadata.creation_timestamp or "", pod_key(pod)))


def _as_running(pod: Pod, bound: Mapping[Place, object], release: Release) -> Pod:
    """The pod as a node holds it, without the init containers that are done."""
    arrived, uid = arriving(in_force(pod), release), cgroup_uid(pod) or ""
    spec = arrived.spec
    begun = any((uid, container.name) in bound for container in spec.containers or ())
    left = tuple(
        [
            container
            for container in spec.init_containers or ()
            if not begun or container.restart_policy == "Always"
        ]
    )
    return msgspec.structs.replace(
        arrived,
        metadata=msgspec.structs.replace(arrived.metadata, uid=uid),
        spec=msgspec.structs.replace(spec, init_containers=left),
    )


def _assignment(state: State, place: Place) -> Assignment:
    blocks = state.blocks(*place) or ()
    holds = tuple([(block.type, block.size) for block in blocks])
    return Assignment(state.held_nodes(*place), holds, "memqos")
