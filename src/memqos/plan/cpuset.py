"""cpuset.mems of containers, from NUMA assignments passed in as values."""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from memqos.kernel.file_formats import describe_nodes, node_list
from memqos.plan.setting import Rule, Setting
from memqos.plan.tree import Cgroup, Tree
from memqos.units import format_exact_bytes

MEMS: Final = "cpuset.mems"

ContainerKey = tuple[str, str]
"""The pod's UID, as its cgroup has it, and the container's name."""
Chosen = Literal["kubelet", "memqos"]


class Assignment(msgspec.Struct, frozen=True):
    """The NUMA nodes a container is bound to, and its allocations there; empty: any node."""

    nodes: tuple[int, ...] = ()
    amounts: tuple[tuple[str, int], ...] = ()
    """Resource and bytes."""
    chosen_by: Chosen = "kubelet"


def _steps(assignment: Assignment) -> tuple[str, ...]:
    nodes = describe_nodes(assignment.nodes)
    return tuple(
        [f"{name} {format_exact_bytes(amount)} of {nodes}" for name, amount in assignment.amounts]
    )


ASSIGNED_BY_KUBELET: Final = Rule(
    "numa/kubelet",
    "the NUMA nodes that the kubelet's Memory Manager has assigned",
    "memory_manager_state, KEP-1769",
    _steps,
)
ASSIGNED_BY_MEMQOS: Final = Rule(
    "numa/memqos",
    "the NUMA nodes that memqos has chosen, by the rules of the Static policy",
    "KEP-1769",
    _steps,
)
ASSIGNED: Final[dict[Chosen, Rule]] = {
    "kubelet": ASSIGNED_BY_KUBELET,
    "memqos": ASSIGNED_BY_MEMQOS,
}
UNASSIGNED: Final = Rule(
    "numa/unassigned", "the container has no exclusive NUMA memory: any node is allowed", "KEP-1769"
)


def with_mems(tree: Tree, assignments: Mapping[ContainerKey, Assignment]) -> Tree:
    """The tree with containers bound as assigned; others stay as they are."""
    return msgspec.structs.replace(
        tree,
        cgroups={path: _with_mems(cgroup, assignments) for path, cgroup in tree.cgroups.items()},
    )


def container_key(cgroup: Cgroup) -> ContainerKey | None:
    """The container whose cgroup it is; None where it belongs to none."""
    if cgroup.uid is None or cgroup.container is None:
        return None
    return cgroup.uid, cgroup.container


def _with_mems(cgroup: Cgroup, assignments: Mapping[ContainerKey, Assignment]) -> Cgroup:
    place = container_key(cgroup)
    assignment = None if place is None else assignments.get(place)
    return cgroup if assignment is None else bound_to(cgroup, assignment)


def bound_to(cgroup: Cgroup, assignment: Assignment) -> Cgroup:
    """A container bound as assigned."""
    rule = ASSIGNED[assignment.chosen_by] if assignment.nodes else UNASSIGNED
    setting = Setting(node_list(assignment.nodes), rule, (assignment,) if assignment.nodes else ())
    return msgspec.structs.replace(cgroup, settings={**cgroup.settings, MEMS: setting})
