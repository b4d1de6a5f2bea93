"""NUMA nodes and the pods that hold their memory, as text and as data."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from memqos.draw.text.lines import Table
from memqos.kernel.file_formats import node_list
from memqos.kube.resources import MEMORY
from memqos.numa.machine_state import MemoryBlock, MemoryBlocks, MemoryManagerState
from memqos.numa.machines import NumaMachine, machine_file_data
from memqos.numa.reserved_memory import (
    NumaReservations,
    ReservationEquation,
    format_reserved_memory,
)
from memqos.units import format_bytes

POD_POOL = "(pod)"
"""Stands for the container where a pod as a whole holds memory."""


class MemoryHolding(NamedTuple):
    """One block, and who holds it."""

    uid: str
    container: str
    block: MemoryBlock


def memory_holdings(state: MemoryManagerState) -> list[MemoryHolding]:
    """Every block that is assigned; containers of a pod with a pool share it and have none."""
    found = []
    for uid, containers in state.assignments.items():
        owners: Mapping[str, MemoryBlocks] = containers
        if state.pools.get(uid):
            owners = {POD_POOL: state.pools[uid]}
        for name, blocks in owners.items():
            found += [MemoryHolding(uid, name, block) for block in blocks]
    return found


def machine_table(machine: NumaMachine) -> Table:
    """The nodes: memory, hugepages by size, distances."""
    sizes = machine.page_sizes
    rows = [["node", MEMORY, *sizes, *(["distances"] if machine.distances else [])]]
    for index, node in enumerate(machine.nodes):
        row = [str(node.id), format_bytes(node.memory)]
        row += [
            format_bytes(node.hugepages[name]) if name in node.hugepages else "–" for name in sizes
        ]
        if machine.distances is not None:
            row.append(" ".join([f"{each:>2}" for each in machine.distances[index]]))
        rows.append(row)
    return Table(rows, drop={"distances": len(rows[0]) - 1} if machine.distances else {})


def usage_table(state: MemoryManagerState) -> Table:
    """What of each node is reserved for the system, held by pods and free."""
    rows = [["node", "resource", "total", "system", "allocatable", "assigned", "free", "used with"]]
    for i, node in sorted(state.nodes.items()):
        shown = {name: each for name, each in node.memory.items() if each.total or name == MEMORY}
        for name, each in sorted(shown.items(), key=lambda item: (item[0] != MEMORY, item[0])):
            others = [other for other in node.cells if other != i]
            amounts = (each.total, each.system_reserved, each.allocatable, each.reserved, each.free)
            rows.append(
                [
                    str(i),
                    name,
                    *map(format_bytes, amounts),
                    node_list(others) if others else "–",
                ]
            )
    return Table(rows, left=2, drop={"total": 2, "system": 3})


def holders_table(state: MemoryManagerState, names: Mapping[str, str]) -> Table:
    """Who holds what where."""
    rows = [["pod", "container", "resource", "nodes", "size"]]
    for uid, container, block in sorted(
        memory_holdings(state),
        key=lambda each: (each.block.nodes, names.get(each.uid, each.uid), each),
    ):
        rows.append(
            [
                names.get(uid, uid),
                container,
                block.type,
                node_list(block.nodes),
                format_bytes(block.size),
            ]
        )
    return Table(rows, left=4)


def machine_data(machine: NumaMachine) -> list[dict[str, Any]]:
    """The nodes in the form of a machine file."""
    return machine_file_data(machine)


def state_data(state: MemoryManagerState, names: Mapping[str, str]) -> dict[str, Any]:
    """A state with the names of its pods."""
    return {
        "policy": state.policy,
        "nodes": [
            {
                "id": i,
                "group": list(node.cells),
                "assignments": node.assignments,
                "memory": {
                    name: {
                        "total": each.total,
                        "systemReserved": each.system_reserved,
                        "allocatable": each.allocatable,
                        "reserved": each.reserved,
                        "free": each.free,
                    }
                    for name, each in sorted(node.memory.items())
                },
            }
            for i, node in sorted(state.nodes.items())
        ],
        "holders": [
            {
                "uid": each.uid,
                "pod": names.get(each.uid),
                "container": None if each.container == POD_POOL else each.container,
                "resource": each.block.type,
                "nodes": list(each.block.nodes),
                "size": each.block.size,
            }
            for each in memory_holdings(state)
        ],
    }


def total_differences(machine: NumaMachine, state: MemoryManagerState) -> Iterator[str]:
    """Where the machine has other nodes, or other totals, than its state says."""
    ids = set(machine.ids)
    for i in sorted(state.nodes.keys() - ids):
        yield f"the state has node {i}, the machine does not"
    for node in machine.nodes:
        if node.id not in state.nodes:
            if state.nodes:
                yield f"the machine has node {node.id}, the state does not"
            continue
        found = {MEMORY: node.memory, **node.hugepages}
        for name, each in sorted(state.nodes[node.id].memory.items()):
            if each.total != found.get(name, 0):
                yield (
                    f"node {node.id} has {found.get(name, 0)} bytes of {name}, "
                    f"the state says {each.total}"
                )


def equation_words(equation: ReservationEquation) -> str:
    """The sum, term by term."""
    return (
        f"kubeReserved {equation.kube.legible} + systemReserved {equation.system.legible} + "
        f"evictionHard memory.available {equation.eviction.legible} = {equation.total.legible}"
    )


def reserved_memory_yaml(
    reservations: NumaReservations, equation: ReservationEquation
) -> list[str]:
    """YAML to paste into a KubeletConfiguration, with the flag as a comment."""
    lines = [f"# {equation_words(equation)}", "reservedMemory:"]
    lines += [
        f"- {{numaNode: {entry.numa_node}, limits: {{{MEMORY}: {entry.limits[MEMORY]}}}}}"
        for entry in reservations
    ]
    return [*lines, f"# or --reserved-memory='{format_reserved_memory(reservations)}'"]
