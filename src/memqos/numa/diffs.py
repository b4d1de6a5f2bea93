"""Differences between two states, value by value."""

from collections.abc import Iterator

import msgspec

from memqos.numa.state import MemoryManagerState

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
