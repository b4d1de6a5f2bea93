"""The kubelet's equation: what reservedMemory must add up to, and a split of it as asked."""

from collections.abc import Mapping
from typing import Final

import msgspec

from memqos.kube.kubelet import KubeletConfiguration
from memqos.kube.kubelet.reservations import read_reservations
from memqos.kube.node import Capacity, eviction_reserve
from memqos.kube.quantity import NANOS, Quantity
from memqos.kube.resources import MEMORY, format_amount
from memqos.numa.machines import NumaMachine
from memqos.numa.memory import NumaNodeMap, empty_node_map
from memqos.numa.reserved import (
    NumaReservation,
    NumaReservations,
    even_split,
    reservation_totals,
    system_reserved,
)
from memqos.release import Release

_NOTHING: Final = Quantity(0)


class ReservationEquation(msgspec.Struct, frozen=True):
    """kubeReserved + systemReserved + evictionHard memory.available, of memory."""

    kube: Quantity
    system: Quantity
    eviction: Quantity

    @property
    def total(self) -> Quantity:
        return self.kube + self.system + self.eviction

    @property
    def required(self) -> dict[str, Quantity]:
        """What must be reserved of each resource; hugepages cannot be kept back."""
        return {MEMORY: self.total}


class SplitShortfall(msgspec.Struct, frozen=True):
    """A split that is not possible, and by how many bytes.

    `node` cannot give what is asked of it; None means that the rest has no room, or, if `missing`
    is negative, that more is asked for than must be reserved.
    """

    missing: int
    node: int | None = None


def kubelet_equation(
    config: KubeletConfiguration, memory: int, release: Release
) -> ReservationEquation:
    """The equation of a kubelet on a machine with so many bytes of memory."""
    reserved = read_reservations(config, release.minor)
    return ReservationEquation(
        kube=reserved.kube.get(MEMORY, _NOTHING),
        system=reserved.system.get(MEMORY, _NOTHING),
        eviction=eviction_reserve(Capacity(cpu=0, memory=memory), config),
    )


def even_reservation(
    machine: NumaMachine, equation: ReservationEquation
) -> dict[int, dict[str, int]]:
    """What each node keeps back if all share it evenly; nothing where there is no room for it."""
    split = even_split(empty_node_map(machine.nodes, {}), equation.required) or ()
    reserved = system_reserved(machine.ids, split, reservation_totals(split))
    assert isinstance(reserved, dict)
    return reserved


def split_reservation(
    nodes: NumaNodeMap, total: int, requested: Mapping[int, int]
) -> NumaReservations | SplitShortfall:
    """Reservations of so many bytes; nodes that were not asked for share the rest evenly."""
    for node, size in sorted(requested.items()):
        room = nodes[node].table(MEMORY).allocatable
        if size > room:
            return SplitShortfall(size - room, node)
    rest = total - sum(requested.values())
    others = {i: node for i, node in nodes.items() if i not in requested}
    room = sum([node.table(MEMORY).allocatable for node in others.values()])
    if rest < 0 or rest > room:
        return SplitShortfall(rest if rest < 0 else rest - room)
    split = even_split(others, {MEMORY: Quantity(rest * NANOS, "BinarySI")}) if rest else ()
    assert split is not None
    shares = [
        NumaReservation(node, {MEMORY: format_amount(MEMORY, size * 1000)})
        for node, size in requested.items()
        if size
    ]
    return tuple(sorted([*shares, *split], key=lambda entry: entry.numa_node))
