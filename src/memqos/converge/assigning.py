"""Which NUMA nodes the containers of a node belong on: as its kubelet's state says, or of our own.

Here the rooms `plan` and `numa` meet: assignments go into the plan as values.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from memqos.converge.allocating import Allocated, allocate
from memqos.converge.cpusets import bound_nodes, container_files, permitted
from memqos.errors import InputError
from memqos.kernel.nodelists import named_nodes
from memqos.kube.kubelet import STATIC, KubeletConfiguration
from memqos.kube.pod import Pod
from memqos.kube.resources_in_use import in_force
from memqos.numa.arriving import arriving
from memqos.numa.requests import PodWants, wants_of
from memqos.numa.state import State
from memqos.numa.unreadable import loaded_from
from memqos.plan.cpuset import MEMS, Assignment, Place, place_of, with_mems
from memqos.plan.tree import Cgroup, Tree, cgroup_uid
from memqos.release import Release

if TYPE_CHECKING:
    from memqos.converge.observing import Observation
    from memqos.plan.terms import Numa

STATE_FILE: Final = "memory_manager_state"
KUBELET_ASSIGNS: Final = "this node's kubelet assigns NUMA memory itself: its policy is Static"


class Assigned(msgspec.Struct, frozen=True):
    """A tree whose containers are bound to NUMA nodes, and what a person should know of it."""

    tree: Tree
    notes: tuple[str, ...] = ()


def assign(
    observation: "Observation",
    tree: Tree,
    numa: "Numa",
    config: KubeletConfiguration,
    release: Release,
) -> Assigned:
    """The plan of a node with cpuset.mems for its containers, as asked."""
    state = _state(observation)
    if numa == "state":
        found = _of_state(state, observation, tree, release)
    elif state is not None and state.policy == STATIC:
        raise InputError(KUBELET_ASSIGNS, hint="--numa state goes by what it has assigned")
    else:
        found = allocate(observation, tree, config, release)
    forbidden = dict(_forbidden(observation, tree, found.assignments))
    free = set(_free(observation, tree))
    kept = {
        place: each
        for place, each in found.assignments.items()
        if place not in forbidden and (each.nodes or place not in free)
    }
    notes = (*found.notes, *forbidden.values(), *_without_cpuset(observation, tree))
    return Assigned(with_mems(tree, kept), notes)


def _state(observation: "Observation") -> State | None:
    text = observation.memory_manager_state
    return None if not text else loaded_from(text, f"{observation.origin} ({STATE_FILE})").state


def _of_state(
    state: State | None, observation: "Observation", tree: Tree, release: Release
) -> Allocated:
    if state is None:
        raise InputError(
            f"no {STATE_FILE} is known of this node",
            hint="name one with --state, or have memqos choose with --numa allocate",
        )
    if state.policy != STATIC:
        return Allocated({}, (f"{STATE_FILE}: {assigns_nothing(state)}",))
    wants = dict(_wants(observation.pods, tree, release))
    assignments: dict[Place, Assignment] = {}
    unknown = []
    for cgroup in tree.cgroups.values():
        place = place_of(cgroup)
        if place is None:
            continue
        assignment = assigned_in(state, place, wants.get(place[0]))
        if assignment is not None:
            assignments[place] = assignment
        elif cgroup.path in observation.cgroups:
            unknown.append(_called(cgroup))
    listed = f"Guaranteed, but not in the {STATE_FILE}, so left as they are: {', '.join(unknown)}"
    return Allocated(assignments, (listed,) if unknown else ())


def assigned_in(state: State, place: Place, wants: PodWants | None) -> Assignment | None:
    """What a Static kubelet's state says of a container; None where it should, and does not."""
    blocks = state.blocks(*place)
    if blocks is not None:
        holds = tuple([(block.type, block.size) for block in blocks])
        return Assignment(state.held_nodes(*place), holds)
    return None if _is_due(wants, place[1]) else Assignment()


def assigns_nothing(state: State) -> str:
    """Why nothing follows from the state of a kubelet that is not Static."""
    note = f"the kubelet's policy is {state.policy}: it assigns no NUMA nodes"
    return f"{note}, and {MEMS} is left as it is"


def beyond(
    assignment: Assignment,
    path: str,
    cgroups: Mapping[str, Mapping[str, str]],
    known: Sequence[int],
) -> str | None:
    """Why a container cannot have its nodes: a cgroup above it, or the machine, lacks some."""
    permit = permitted(path, cgroups, known or assignment.nodes)
    if permit.nodes.issuperset(assignment.nodes):
        return None
    whose = "the machine has" if permit.by == "/" else f"{permit.by} is bound to"
    return (
        f"belongs on {named_nodes(assignment.nodes)}, but {whose} "
        f"{named_nodes(sorted(permit.nodes))}: left as it is"
    )


def is_free(
    bound: frozenset[int], path: str, cgroups: Mapping[str, Mapping[str, str]], known: Sequence[int]
) -> bool:
    """Whether a container is bound to all nodes it could use: nothing is to be taken back then."""
    return bool(bound) and bound.issuperset(permitted(path, cgroups, known or bound).nodes)


def _wants(pods: tuple[Pod, ...], tree: Tree, release: Release) -> Iterator[tuple[str, PodWants]]:
    planned = {cgroup.uid for cgroup in tree.cgroups.values()}
    for pod in pods:
        uid = cgroup_uid(pod)
        if uid is not None and uid in planned:
            yield uid, wants_of(arriving(in_force(pod), release), release)


def _is_due(wants: PodWants | None, container: str) -> bool:
    """Whether a Static kubelet would have given the container memory of its own."""
    if wants is None or not wants.guaranteed or wants.unmanaged:
        return False
    return any(each.name == container and each.sizes for each in wants.containers)


def _forbidden(
    observation: "Observation", tree: Tree, assignments: Mapping[Place, Assignment]
) -> Iterator[tuple[Place, str]]:
    """Containers whose nodes a cgroup above them, or the machine, does not have."""
    known = [node.number for node in observation.machine.numa_nodes]
    for cgroup in tree.cgroups.values():
        place = place_of(cgroup)
        assignment = None if place is None else assignments.get(place)
        if place is None or assignment is None or cgroup.path not in observation.cgroups:
            continue
        why = beyond(assignment, cgroup.path, observation.cgroups, known)
        if why is not None:
            yield place, f"{_called(cgroup)}: {why}"


def _free(observation: "Observation", tree: Tree) -> Iterator[Place]:
    """Containers that are bound, but to all nodes they could use."""
    known = [node.number for node in observation.machine.numa_nodes]
    for cgroup in tree.cgroups.values():
        place, files = place_of(cgroup), container_files(cgroup.path, observation.cgroups) or {}
        bound = bound_nodes(files)
        if place is not None and is_free(bound, cgroup.path, observation.cgroups, known):
            yield place


def _without_cpuset(observation: "Observation", tree: Tree) -> Iterator[str]:
    containers = [
        observation.cgroups[cgroup.path]
        for cgroup in tree.cgroups.values()
        if cgroup.level == "container" and cgroup.path in observation.cgroups
    ]
    if containers and not any(MEMS in files for files in containers):
        yield f"no container has a {MEMS}: the cpuset controller is not enabled for them"


def _called(cgroup: Cgroup) -> str:
    return f"{cgroup.pod} {cgroup.container}"
