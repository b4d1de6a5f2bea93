"""Restart: whether a kubelet starts with the state of its last run, and if not, what differs."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from memqos.numa.machine_state import (
    MemoryBlock,
    MemoryBlocks,
    MemoryManagerState,
    NumaNodeMap,
    NumaNodeState,
    assign_block,
    free_memory,
)

StateFault = Literal[
    "empty_machine_state_with_assignments",
    "assignment_numa_node_not_found",
    "assignment_resource_not_found",
    "machine_state_mismatch",
]
MachineStateField = Literal[
    "node", "assignments", "cells", "resource", "total", "system_reserved", "allocatable", "free",
    "reserved",
]  # fmt: skip


class MachineStateDifference(msgspec.Struct, frozen=True):
    """How the state differs from the machine; free and reserved are those of a group."""

    node: int
    field: MachineStateField
    stored: int | tuple[int, ...] | None
    found: int | tuple[int, ...] | None
    resource: str | None = None


class UnplacedBlock(msgspec.Struct, frozen=True):
    """Memory of a container, or with None of a pod's pool, that does not fit the machine."""

    uid: str
    container: str | None
    block: MemoryBlock


class UnusableState(msgspec.Struct, frozen=True):
    """A state with which the kubelet does not start.

    `rebuilt` is the node map the same assignments give on the machine as it is; where everything is
    placed, a state with this map lets the kubelet start.
    """

    kind: StateFault
    differences: tuple[MachineStateDifference, ...] = ()
    rebuilt: NumaNodeMap | None = None
    unplaced: tuple[UnplacedBlock, ...] = ()


def resume_state(
    state: MemoryManagerState, machine: NumaNodeMap
) -> MemoryManagerState | UnusableState:
    """The state a Static kubelet continues with, given the empty node map of its machine."""
    if not state.nodes:
        if state.assignments:
            return UnusableState("empty_machine_state_with_assignments")
        return state.with_nodes(machine)
    rebuilt: Mapping[int, NumaNodeState] = machine
    unplaced = []
    for uid, container, blocks in _holders(state):
        for block in blocks:
            # Node by node, as updateExpectedMachineState() (policy_static.go) does.
            for node in block.nodes:
                if node not in machine:
                    lost = [each for each in block.nodes if each not in machine]
                    return UnusableState(
                        "assignment_numa_node_not_found",
                        tuple([MachineStateDifference(each, "node", each, None) for each in lost]),
                    )
                if block.type not in machine[node].memory:
                    lack = MachineStateDifference(node, "resource", block.size, None, block.type)
                    return UnusableState("assignment_resource_not_found", (lack,))
            short = block.size - free_memory(rebuilt, block.nodes, block.type)
            if short > 0:
                unplaced.append(
                    UnplacedBlock(uid, container, MemoryBlock(block.type, block.nodes, short))
                )
            rebuilt = assign_block(rebuilt, block)
    differences = tuple(_differences(state.nodes, rebuilt))
    if differences:
        return UnusableState("machine_state_mismatch", differences, rebuilt, tuple(unplaced))
    return state


def _holders(state: MemoryManagerState) -> list[tuple[str, str | None, MemoryBlocks]]:
    """Whose blocks make up the node map: pools where there are some, else containers."""
    holders: list[tuple[str, str | None, MemoryBlocks]] = []
    for uid, containers in state.assignments.items():
        if state.pools.get(uid):
            holders.append((uid, None, state.pools[uid]))
        else:
            holders += [(uid, name, blocks) for name, blocks in containers.items()]
    return holders


def _differences(stored: NumaNodeMap, found: NumaNodeMap) -> list[MachineStateDifference]:
    differences = [
        MachineStateDifference(
            node, "node", node if node in stored else None, node if node in found else None
        )
        for node in sorted(stored.keys() ^ found.keys())
    ]
    for i in sorted(stored.keys() & found.keys()):
        one, other = stored[i], found[i]
        if one.assignments != other.assignments:
            differences.append(
                MachineStateDifference(i, "assignments", one.assignments, other.assignments)
            )
        if sorted(one.cells) != sorted(other.cells):
            differences.append(MachineStateDifference(i, "cells", one.cells, other.cells))
        differences += [
            MachineStateDifference(
                i,
                "resource",
                one.memory[name].total if name in one.memory else None,
                other.memory[name].total if name in other.memory else None,
                name,
            )
            for name in sorted(one.memory.keys() ^ other.memory.keys())
        ]
        for name in sorted(one.memory.keys() & other.memory.keys()):
            differences += _table_differences(i, name, stored, found)
    return differences


def _table_differences(
    node: int, resource: str, stored: NumaNodeMap, found: NumaNodeMap
) -> list[MachineStateDifference]:
    one, other = stored[node].table(resource), found[node].table(resource)
    # areMachineStatesEqual() (policy_static.go) compares free and reserved as sums of the group:
    # how they are spread over its nodes depends on the order of allocations.
    group = [i for i in stored[node].cells if i in stored and i in found]
    fields: tuple[tuple[MachineStateField, int, int], ...] = (
        ("total", one.total, other.total),
        ("system_reserved", one.system_reserved, other.system_reserved),
        ("allocatable", one.allocatable, other.allocatable),
        ("free", free_memory(stored, group, resource), free_memory(found, group, resource)),
        (
            "reserved",
            sum([stored[i].table(resource).reserved for i in group]),
            sum([found[i].table(resource).reserved for i in group]),
        ),
    )
    return [
        MachineStateDifference(node, field, before, now, resource)
        for field, before, now in fields
        if before != now
    ]
