"""Checks of a reservedMemory: everything that keeps a Static kubelet from starting, at once.

The kubelet stops at the first thing it does not like.
"""

from collections.abc import Iterator, Mapping

import msgspec

from memqos.kube.quantity import Quantity
from memqos.numa.memory import Machine, Sizes, empty_nodes, over_reserved
from memqos.numa.reserved import (
    Reservations,
    Unreservable,
    is_empty,
    reserved_in,
    system_reserved,
)


class Overdrawn(msgspec.Struct, frozen=True):
    """A node that is to reserve more of a resource than it has."""

    node: int
    resource: str
    reserved: int
    available: int


class NothingReserved(msgspec.Struct, frozen=True):
    """No memory is reserved at all."""


Problem = Unreservable | Overdrawn | NothingReserved


def problems(
    machine: Machine, reservations: Reservations, required: Mapping[str, Quantity]
) -> Iterator[Problem]:
    """What is wrong with reservations on a machine of which so much must be reserved."""
    ids = [node.id for node in machine]
    found = system_reserved(ids, reservations, required)
    if isinstance(found, Unreservable) and found.kind == "numa_node_not_found":
        yield found
        ids += found.nodes
        found = system_reserved(ids, reservations, required)
    if isinstance(found, Unreservable) and found.kind == "total_mismatch":
        yield found
        found = system_reserved(ids, reservations, reserved_in(reservations))
    if isinstance(found, Unreservable):
        yield found
        return
    yield from _overdrawn(machine, found)
    if is_empty(found):
        yield NothingReserved()


def _overdrawn(machine: Machine, reserved: Mapping[int, Sizes]) -> Iterator[Overdrawn]:
    empty = empty_nodes(machine, {})
    for node, resource in over_reserved(empty_nodes(machine, reserved)):
        yield Overdrawn(
            node, resource, reserved[node][resource], empty[node].table(resource).allocatable
        )
