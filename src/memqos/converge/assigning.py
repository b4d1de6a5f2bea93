"""Which NUMA nodes the containers of a node belong on: as its kubelet's state says, or of our own.

Here the rooms `plan` and `numa` meet: assignments go into the plan as values.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from memqos.converge.allocating import NumaAllocation, allocate_numa
from memqos.converge.cpusets import bound_nodes, container_files, node_permit
from memqos.errors import InputError
from memqos.kernel.nodelists import describe_nodes
from memqos.kube.kubelet import STATIC, KubeletConfiguration
from memqos.kube.pod import Pod
from memqos.kube.resources_in_use import with_resources_in_use
from memqos.numa.arriving import pod_for_kubelet
from memqos.numa.requests import PodMemoryRequest, pod_memory_request
from memqos.numa.state import MemoryManagerState
from memqos.numa.unreadable import load_checkpoint
from memqos.plan.cpuset import MEMS, Assignment, ContainerKey, container_key, with_mems
from memqos.plan.tree import Cgroup, Tree, cgroup_uid
from memqos.release import Release

if TYPE_CHECKING:
    from memqos.converge.observing import ObservedNode
    from memqos.plan.terms import Numa

_STATE_FILE: Final = "memory_manager_state"
KUBELET_ASSIGNS: Final = "this node's kubelet assigns NUMA memory itself: its policy is Static"


class NumaPlan(msgspec.Struct, frozen=True):
    """A tree whose containers are bound to NUMA nodes, and what a person should know of it."""

    tree: Tree
    notes: tuple[str, ...] = ()


def assign_numa_nodes(
    observation: "ObservedNode",
    tree: Tree,
    numa: "Numa",
    config: KubeletConfiguration,
    release: Release,
) -> NumaPlan:
    """The plan of a node with cpuset.mems for its containers, as asked."""
    state = _state(observation)
    if numa == "state":
        found = _state_assignments(state, observation, tree, release)
    elif state is not None and state.policy == STATIC:
        raise InputError(KUBELET_ASSIGNS, hint="--numa state goes by what it has assigned")
    else:
        found = allocate_numa(observation, tree, config, release)
    forbidden = dict(_missing_nodes(observation, tree, found.assignments))
    free = set(_unbound_containers(observation, tree))
    kept = {
        place: each
        for place, each in found.assignments.items()
        if place not in forbidden and (each.nodes or place not in free)
    }
    notes = (*found.notes, *forbidden.values(), *_without_cpuset(observation, tree))
    return NumaPlan(with_mems(tree, kept), notes)


def _state(observation: "ObservedNode") -> MemoryManagerState | None:
    text = observation.memory_manager_state
    return (
        None if not text else load_checkpoint(text, f"{observation.origin} ({_STATE_FILE})").state
    )


def _state_assignments(
    state: MemoryManagerState | None, observation: "ObservedNode", tree: Tree, release: Release
) -> NumaAllocation:
    if state is None:
        raise InputError(
            f"no {_STATE_FILE} is known of this node",
            hint="name one with --state, or have memqos choose with --numa allocate",
        )
    if state.policy != STATIC:
        return NumaAllocation({}, (f"{_STATE_FILE}: {no_assignment_reason(state)}",))
    wants = dict(_wants(observation.pods, tree, release))
    assignments: dict[ContainerKey, Assignment] = {}
    unknown = []
    for cgroup in tree.cgroups.values():
        place = container_key(cgroup)
        if place is None:
            continue
        assignment = assignment_in_state(state, place, wants.get(place[0]))
        if assignment is not None:
            assignments[place] = assignment
        elif cgroup.path in observation.cgroups:
            unknown.append(_container_name(cgroup))
    listed = f"Guaranteed, but not in the {_STATE_FILE}, so left as they are: {', '.join(unknown)}"
    return NumaAllocation(assignments, (listed,) if unknown else ())


def assignment_in_state(
    state: MemoryManagerState, place: ContainerKey, wants: PodMemoryRequest | None
) -> Assignment | None:
    """What a Static kubelet's state says of a container; None where it should, and does not."""
    blocks = state.blocks(*place)
    if blocks is not None:
        holds = tuple([(block.type, block.size) for block in blocks])
        return Assignment(state.container_nodes(*place), holds)
    return None if _needs_nodes(wants, place[1]) else Assignment()


def no_assignment_reason(state: MemoryManagerState) -> str:
    """Why nothing follows from the state of a kubelet that is not Static."""
    note = f"the kubelet's policy is {state.policy}: it assigns no NUMA nodes"
    return f"{note}, and {MEMS} is left as it is"


def nodes_fault(
    assignment: Assignment,
    path: str,
    cgroups: Mapping[str, Mapping[str, str]],
    known: Sequence[int],
) -> str | None:
    """Why a container cannot have its nodes: a cgroup above it, or the machine, lacks some."""
    permit = node_permit(path, cgroups, known or assignment.nodes)
    if permit.nodes.issuperset(assignment.nodes):
        return None
    whose = "the machine has" if permit.by == "/" else f"{permit.by} is bound to"
    return (
        f"belongs on {describe_nodes(assignment.nodes)}, but {whose} "
        f"{describe_nodes(sorted(permit.nodes))}: left as it is"
    )


def is_unbound(
    bound: frozenset[int], path: str, cgroups: Mapping[str, Mapping[str, str]], known: Sequence[int]
) -> bool:
    """Whether a container is bound to all nodes it could use: nothing is to be taken back then."""
    return bool(bound) and bound.issuperset(node_permit(path, cgroups, known or bound).nodes)


def _wants(
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


def _needs_nodes(wants: PodMemoryRequest | None, container: str) -> bool:
    """Whether a Static kubelet would have given the container memory of its own."""
    if wants is None or not wants.guaranteed or wants.unmanaged:
        return False
    return any(each.name == container and each.sizes for each in wants.containers)


def _missing_nodes(
    observation: "ObservedNode", tree: Tree, assignments: Mapping[ContainerKey, Assignment]
) -> Iterator[tuple[ContainerKey, str]]:
    """Containers whose nodes a cgroup above them, or the machine, does not have."""
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
        yield f"no container has a {MEMS}: the cpuset controller is not enabled for them"


def _container_name(cgroup: Cgroup) -> str:
    return f"{cgroup.pod} {cgroup.container}"
