"""The node map: what memory each NUMA node has, how much of it is taken, and by which groups."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from memqos.kube.resources import MEMORY

MemorySizes = Mapping[str, int]
"""Memory resource (memory, hugepages-2Mi, …) → bytes."""


class NumaMemory(msgspec.Struct, frozen=True):
    """The memory of one NUMA node of a machine: all bytes, and those reserved as hugepages."""

    id: int
    memory: int
    hugepages: dict[str, int] = {}


MachineMemory = tuple[NumaMemory, ...]


class MemoryTable(msgspec.Struct, frozen=True):
    """One memory resource of one node, in bytes."""

    total: int
    system_reserved: int = 0
    allocatable: int = 0
    reserved: int = 0
    free: int = 0


_ABSENT = MemoryTable(0)


class NumaNodeState(msgspec.Struct, frozen=True):
    """One node: its tables, how many assignments use it, and the group of nodes it is used with."""

    assignments: int
    memory: dict[str, MemoryTable]
    cells: tuple[int, ...]

    def table(self, resource: str) -> MemoryTable:
        """The table of a resource; the kubelet crashes over one that the node does not have."""
        return self.memory.get(resource, _ABSENT)


NumaNodeMap = Mapping[int, NumaNodeState]


class MemoryBlock(msgspec.Struct, frozen=True, order=True):
    """Memory of one resource assigned from some nodes."""

    type: str
    nodes: tuple[int, ...]
    size: int


MemoryBlocks = tuple[MemoryBlock, ...]


def empty_node_map(
    machine: MachineMemory, reserved: Mapping[int, MemorySizes]
) -> dict[int, NumaNodeState]:
    """The node map of a machine on which nothing is assigned."""
    nodes = {}
    for numa in machine:
        kept = reserved.get(numa.id, {})
        tables = {
            name: _table(size, kept.get(name, 0), size) for name, size in numa.hugepages.items()
        }
        usable = numa.memory - sum(numa.hugepages.values())
        tables[MEMORY] = _table(numa.memory, kept.get(MEMORY, 0), usable)
        nodes[numa.id] = NumaNodeState(0, tables, (numa.id,))
    return nodes


def over_reserved(nodes: NumaNodeMap) -> list[tuple[int, str]]:
    """Nodes and resources of which more is reserved than there is."""
    return [
        (node, name)
        for node, of_node in nodes.items()
        for name, table in of_node.memory.items()
        if table.allocatable < 0
    ]


def free_memory(nodes: NumaNodeMap, members: Iterable[int], resource: str) -> int:
    """What is free of a resource on some nodes together."""
    return sum([nodes[i].table(resource).free for i in members])


def assign_block(
    nodes: NumaNodeMap, block: MemoryBlock, size: int | None = None
) -> dict[int, NumaNodeState]:
    """The node map once a block is assigned, filling its nodes in ascending order.

    Every node of the block counts the assignment, also where nothing is taken from it. `size` is
    what to take if the block includes memory that was taken before.
    """
    left = block.size if size is None else size
    result = dict(nodes)
    for i in block.nodes:
        node = nodes[i]
        part = min(left, node.table(block.type).free)
        left -= part
        result[i] = NumaNodeState(
            node.assignments + 1, _reserve(node.memory, block.type, part), block.nodes
        )
    return result


def release_blocks(nodes: NumaNodeMap, blocks: MemoryBlocks) -> dict[int, NumaNodeState]:
    """The node map once blocks are released, emptying their nodes in ascending order."""
    result = dict(nodes)
    for block in blocks:
        left = block.size
        for i in block.nodes:
            node = result[i]
            part = min(left, node.table(block.type).reserved)
            left -= part
            count = node.assignments - 1
            result[i] = NumaNodeState(
                count, _reserve(node.memory, block.type, -part), node.cells if count else (i,)
            )
    return result


def _table(total: int, system_reserved: int, usable: int) -> MemoryTable:
    allocatable = usable - system_reserved
    return MemoryTable(total, system_reserved, allocatable, 0, allocatable)


def _reserve(tables: dict[str, MemoryTable], resource: str, size: int) -> dict[str, MemoryTable]:
    if not size:
        return tables
    table = tables[resource]
    return {
        **tables,
        resource: MemoryTable(
            table.total,
            table.system_reserved,
            table.allocatable,
            table.reserved + size,
            table.free - size,
        ),
    }


class MemoryManagerState(msgspec.Struct, frozen=True):
    """What the kubelet keeps in its state file.

    `assignments` has the blocks of containers by pod, `pools` those of pods which got memory as a
    whole; the containers of such a pod share its pool.
    """

    policy: str
    nodes: NumaNodeMap = {}
    assignments: Mapping[str, Mapping[str, MemoryBlocks]] = {}
    pools: Mapping[str, MemoryBlocks] = {}

    def blocks(self, uid: str, container: str) -> MemoryBlocks | None:
        """The blocks of a container; None if it has no entry, which may be an empty one."""
        return self.assignments.get(uid, {}).get(container)

    def container_nodes(self, uid: str, container: str) -> tuple[int, ...]:
        """The nodes from which a container has memory, ascending."""
        blocks = self.blocks(uid, container) or ()
        return tuple(sorted({node for block in blocks for node in block.nodes}))

    def with_nodes(self, nodes: Mapping[int, NumaNodeState]) -> "MemoryManagerState":
        return msgspec.structs.replace(self, nodes=nodes)

    def with_blocks(self, uid: str, container: str, blocks: MemoryBlocks) -> "MemoryManagerState":
        of_pod = {**self.assignments.get(uid, {}), container: blocks}
        return msgspec.structs.replace(self, assignments={**self.assignments, uid: of_pod})

    def with_pool(self, uid: str, blocks: MemoryBlocks) -> "MemoryManagerState":
        return msgspec.structs.replace(self, pools={**self.pools, uid: blocks})

    def without_container(self, uid: str, container: str) -> "MemoryManagerState":
        """The state once a container is removed and its memory free.

        A pool is released with the pod's last container.
        """
        own = self.blocks(uid, container)
        left = self._without_entry(uid, container)
        pool = self.pools.get(uid)
        if pool is None:
            return left if own is None else left.with_nodes(release_blocks(left.nodes, own))
        if uid in left.assignments:
            return left
        pools = {other: blocks for other, blocks in left.pools.items() if other != uid}
        return msgspec.structs.replace(left, nodes=release_blocks(left.nodes, pool), pools=pools)

    def _without_entry(self, uid: str, container: str) -> "MemoryManagerState":
        if self.blocks(uid, container) is None:
            return self
        of_pod = {
            name: blocks for name, blocks in self.assignments[uid].items() if name != container
        }
        assignments = {**self.assignments, uid: of_pod}
        if not of_pod:
            del assignments[uid]
        return msgspec.structs.replace(self, assignments=assignments)


StateValue = int | str | tuple[int, ...]


class StateDifference(msgspec.Struct, frozen=True):
    """A value that only one state has, or that they have otherwise."""

    where: str
    what: str
    one: StateValue | None
    other: StateValue | None
    is_size: bool = False


def state_differences(one: MemoryManagerState, other: MemoryManagerState) -> list[StateDifference]:
    """All that differs, the node map first."""
    ours, theirs = dict(_values(one)), dict(_values(other))
    return [
        StateDifference(
            where, what, ours.get((where, what)), theirs.get((where, what)), _is_size(what)
        )
        for where, what in dict.fromkeys([*ours, *theirs])
        if ours.get((where, what)) != theirs.get((where, what))
    ]


_COUNTS = frozenset({"policy", "assignments", "used with"})


def _is_size(what: str) -> bool:
    return what not in _COUNTS


def _values(state: MemoryManagerState) -> Iterator[tuple[tuple[str, str], StateValue]]:
    yield ("state", "policy"), state.policy
    for i, node in sorted(state.nodes.items()):
        yield (f"node {i}", "assignments"), node.assignments
        yield (f"node {i}", "used with"), node.cells
        for name, table in sorted(node.memory.items()):
            for field in table.__struct_fields__:
                what = "systemReserved" if field == "system_reserved" else field
                yield (f"node {i} {name}", what), getattr(table, field)
    for uid, containers in sorted(state.assignments.items()):
        for container, blocks in sorted(containers.items()):
            for block in blocks:
                where = f"pod {uid} container {container}"
                yield (where, f"{block.type} on {_join_nodes(block.nodes)}"), block.size
    for uid, blocks in sorted(state.pools.items()):
        for block in blocks:
            yield (f"pod {uid}", f"{block.type} on {_join_nodes(block.nodes)}"), block.size


def _join_nodes(nodes: tuple[int, ...]) -> str:
    return ",".join(map(str, nodes))
