"""Checks of a reservedMemory: everything that keeps a Static kubelet from starting, at once.

The kubelet stops at the first thing it does not like.
"""

from collections.abc import Iterator, Mapping

import msgspec

from memqos.kube.quantity import Quantity
from memqos.numa.memory import MachineMemory, MemorySizes, empty_node_map, over_reserved
from memqos.numa.reserved import (
    InvalidReservation,
    NumaReservations,
    reservation_totals,
    reserves_no_memory,
    system_reserved,
)


class ExcessReservation(msgspec.Struct, frozen=True):
    """A node that is to reserve more of a resource than it has."""

    node: int
    resource: str
    reserved: int
    available: int


class NothingReserved(msgspec.Struct, frozen=True):
    """No memory is reserved at all."""


ReservedMemoryProblem = InvalidReservation | ExcessReservation | NothingReserved


def reservation_problems(
    machine: MachineMemory, reservations: NumaReservations, required: Mapping[str, Quantity]
) -> Iterator[ReservedMemoryProblem]:
    """What is wrong with reservations on a machine of which so much must be reserved."""
    ids = [node.id for node in machine]
    found = system_reserved(ids, reservations, required)
    if isinstance(found, InvalidReservation) and found.kind == "numa_node_not_found":
        yield found
        ids += found.nodes
        found = system_reserved(ids, reservations, required)
    if isinstance(found, InvalidReservation) and found.kind == "total_mismatch":
        yield found
        found = system_reserved(ids, reservations, reservation_totals(reservations))
    if isinstance(found, InvalidReservation):
        yield found
        return
    yield from _excess_reservations(machine, found)
    if reserves_no_memory(found):
        yield NothingReserved()


def _excess_reservations(
    machine: MachineMemory, reserved: Mapping[int, MemorySizes]
) -> Iterator[ExcessReservation]:
    empty = empty_node_map(machine, {})
    for node, resource in over_reserved(empty_node_map(machine, reserved)):
        yield ExcessReservation(
            node, resource, reserved[node][resource], empty[node].table(resource).allocatable
        )
