"""NUMA nodes cut into segments: what is kept for the system, held by pods, free, or hugepages."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from memqos.draw.numa_tables import MemoryHolding, memory_holdings
from memqos.kube.resources import MEMORY
from memqos.numa.machines import NumaMachine
from memqos.numa.memory import NumaMemory
from memqos.numa.state import MemoryManagerState

SegmentKind = Literal["system", "held", "free", "untold"]
"""Untold: nobody says whether it is held."""


class Segment(msgspec.Struct, frozen=True):
    """A stretch of a node's memory. `holder` is the number of the pod that holds it."""

    kind: SegmentKind
    size: int
    resource: str
    holder: int | None = None


class NodeBar(msgspec.Struct, frozen=True):
    """A node from its first byte to its last, and the nodes it is used with."""

    node: int
    segments: tuple[Segment, ...]
    used_with: tuple[int, ...] = ()


class MemoryHolder(msgspec.Struct, frozen=True):
    """A pod that holds memory."""

    number: int
    name: str
    holdings: tuple[MemoryHolding, ...]


def memory_holders(
    state: MemoryManagerState | None, names: Mapping[str, str]
) -> tuple[MemoryHolder, ...]:
    """The pods that hold memory, numbered by where they hold it."""
    if state is None:
        return ()
    held: dict[str, list[MemoryHolding]] = {}
    for each in memory_holdings(state):
        held.setdefault(each.uid, []).append(each)
    order = sorted(held, key=lambda uid: (held[uid][0].block.nodes, names.get(uid, uid)))
    return tuple(
        [
            MemoryHolder(number, names.get(uid, uid), tuple(held[uid]))
            for number, uid in enumerate(order, start=1)
        ]
    )


def node_bars(
    machine: NumaMachine, state: MemoryManagerState | None, holders: Sequence[MemoryHolder]
) -> tuple[NodeBar, ...]:
    """Every node in segments."""
    if state is None:
        return tuple([NodeBar(node.id, _whole_node(node)) for node in machine.nodes])
    left = {
        (i, name): table.reserved
        for i, node in state.nodes.items()
        for name, table in node.memory.items()
    }
    parts: dict[tuple[int, str], list[Segment]] = {}
    for holder in holders:
        for held in holder.holdings:
            block = held.block
            rest = block.size
            for i in block.nodes:
                # A state says how much of each node is held, not by whom: filled in its order.
                part = min(rest, left.get((i, block.type), 0))
                if part:
                    rest -= part
                    left[i, block.type] -= part
                    segment = Segment("held", part, block.type, holder.number)
                    parts.setdefault((i, block.type), []).append(segment)
    return tuple([_node_bar(node, state, parts) for node in machine.nodes])


def _node_bar(
    node: NumaMemory, state: MemoryManagerState, parts: Mapping[tuple[int, str], list[Segment]]
) -> NodeBar:
    found = state.nodes.get(node.id)
    if found is None:
        return NodeBar(node.id, _whole_node(node))
    names = [MEMORY, *sorted(name for name in found.memory if name != MEMORY)]
    segments = []
    for name in names:
        table = found.table(name)
        segments += [
            Segment("system", table.system_reserved, name),
            *parts.get((node.id, name), []),
            Segment("free", table.free, name),
        ]
    used_with = tuple([i for i in found.cells if i != node.id])
    return NodeBar(node.id, tuple([each for each in segments if each.size > 0]), used_with)


def _whole_node(node: NumaMemory) -> tuple[Segment, ...]:
    pages = [Segment("untold", size, name) for name, size in sorted(node.hugepages.items())]
    rest = node.memory - sum([each.size for each in pages])
    return tuple([each for each in (Segment("untold", rest, MEMORY), *pages) if each.size > 0])
