"""reservedMemory: reading it, validating it, and a split that satisfies the kubelet.

The kubelet requires, for memory and each hugepage size,

    Σ reservedMemory[i] = kubeReserved + systemReserved + evictionHard memory.available
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from memqos.errors import InputError
from memqos.kube.kubelet import KubeletConfiguration, MemoryReservation
from memqos.kube.kubelet.reservations import read_reservations
from memqos.kube.node import Capacity, eviction_reserve
from memqos.kube.pod import ResourceList
from memqos.kube.quantity import NANOS, Quantity, as_int64
from memqos.kube.resources import MEMORY, format_amount, hugepage_size, is_hugepages
from memqos.numa.machine_state import (
    MachineMemory,
    MemorySizes,
    NumaNodeMap,
    empty_node_map,
    over_reserved,
)
from memqos.numa.machines import NumaMachine
from memqos.release import Release

ReservationFault = Literal["numa_node_not_found", "total_mismatch", "not_an_integer"]

_NODE: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_MIB: Final = 1 << 20


class NumaReservation(msgspec.Struct, frozen=True):
    """What one node reserves, its quantities as written: the verdict depends on their spelling."""

    numa_node: int
    limits: ResourceList = {}


NumaReservations = tuple[NumaReservation, ...]


class ReservationMismatch(msgspec.Struct, frozen=True):
    """A resource whose reservations do not add up: what they are, and what they must be."""

    resource: str
    reserved: Quantity
    required: Quantity


class InvalidReservation(msgspec.Struct, frozen=True):
    """Reservations with which a Memory Manager does not start."""

    kind: ReservationFault
    nodes: tuple[int, ...] = ()
    mismatches: tuple[ReservationMismatch, ...] = ()
    resource: str | None = None


def reservations_from_config(entries: Iterable[MemoryReservation]) -> NumaReservations:
    """The reservations of a KubeletConfiguration."""
    return tuple([NumaReservation(entry.numa_node, entry.limits or {}) for entry in entries])


def parse_reserved_memory(text: str) -> NumaReservations:
    """Read the flag's spelling: `0:memory=1Gi,hugepages-2Mi=64Mi;1:memory=2Gi`."""
    return tuple([_parse_node(part) for part in text.split(";")]) if text else ()


def system_reserved(
    nodes: Sequence[int], reservations: Iterable[NumaReservation], required: Mapping[str, Quantity]
) -> dict[int, dict[str, int]] | InvalidReservation:
    """What each node reserves for the system, in bytes, or why the Memory Manager refuses it.

    `required` is what the node keeps back for system, kubelet and eviction together.
    """
    entries = tuple(reservations)
    unknown = tuple([entry.numa_node for entry in entries if entry.numa_node not in nodes])
    if unknown:
        return InvalidReservation("numa_node_not_found", nodes=unknown)
    mismatches = tuple(_mismatches(reservation_totals(entries), required))
    if mismatches:
        return InvalidReservation("total_mismatch", mismatches=mismatches)
    sizes: dict[int, dict[str, int]] = {node: {} for node in nodes}
    for entry in entries:
        for name, raw in entry.limits.items():
            size = as_int64(raw)
            if size is None:
                return InvalidReservation("not_an_integer", nodes=(entry.numa_node,), resource=name)
            sizes[entry.numa_node][name] = size
    return sizes


def reservation_totals(reservations: Iterable[NumaReservation]) -> dict[str, Quantity]:
    """What reservations add up to."""
    totals: dict[str, Quantity] = {}
    for entry in reservations:
        for name, raw in entry.limits.items():
            totals[name] = totals.get(name, Quantity(0)) + Quantity.parse(raw)
    return totals


def reserves_no_memory(reserved: Mapping[int, MemorySizes]) -> bool:
    """Whether no memory is reserved at all, which the Static policy refuses."""
    return not any(sizes.get(MEMORY, 0) for sizes in reserved.values())


def even_split(nodes: NumaNodeMap, required: Mapping[str, Quantity]) -> NumaReservations | None:
    """Reservations that satisfy the kubelet, as even as the nodes' sizes allow.

    Memory is split in whole MiB as far as possible, hugepages in whole pages. None if the machine
    is too small, or if the sum is no whole number of bytes. The node map is that of the machine
    with nothing reserved.
    """
    parts: dict[int, ResourceList] = {node: {} for node in sorted(nodes)}
    for name, quantity in required.items():
        if not _is_memory(name):
            continue
        free = {node: nodes[node].table(name).allocatable for node in parts}
        unit = _MIB if name == MEMORY else hugepage_size(name) or 1
        shares = None if quantity.nano % NANOS else _shares(quantity.value, free, unit)
        if shares is None:
            return None
        for node, share in shares.items():
            if share:
                parts[node][name] = format_amount(name, share * 1000)
    return tuple([NumaReservation(node, limits) for node, limits in parts.items() if limits])


def format_reserved_memory(reservations: Iterable[NumaReservation]) -> str:
    """The flag's spelling of reservations."""
    return ";".join(
        [
            f"{entry.numa_node}:"
            + ",".join([f"{name}={raw}" for name, raw in sorted(entry.limits.items())])
            for entry in reservations
        ]
    )


def _shares(total: int, free: Mapping[int, int], unit: int) -> dict[int, int] | None:
    """Shares of a total, each within what is free, in whole units as far as possible."""
    shares = dict.fromkeys(free, 0)
    left = total
    # Smallest node first: what it cannot take is shared among the larger ones.
    order = sorted(free, key=lambda node: (free[node], -node))
    for index, node in enumerate(order):
        even = left // (len(order) - index) // unit * unit
        shares[node] = min(even, free[node] // unit * unit)
        left -= shares[node]
    for node in reversed(order):
        rest = min(left, free[node] - shares[node])
        shares[node] += rest
        left -= rest
    return None if left else shares


def _mismatches(
    reserved: Mapping[str, Quantity], required: Mapping[str, Quantity]
) -> Iterable[ReservationMismatch]:
    none = Quantity(0)
    for name in sorted({*reserved, *filter(_is_memory, required)}):
        own, needed = reserved.get(name, none), required.get(name, none)
        if own.nano != needed.nano:
            yield ReservationMismatch(name, own, needed)


def _parse_node(text: str) -> NumaReservation:
    node, colon, limits = text.partition(":")
    if not colon or ":" in limits or not _NODE.fullmatch(node):
        raise InputError(f"{text!r} is not a memory reservation", hint="write it like 0:memory=1Gi")
    entries: ResourceList = {}
    for limit in limits.split(","):
        name, equals, quantity = limit.partition("=")
        if not equals or "=" in quantity or not _is_memory(name):
            raise InputError(
                f"{limit!r} reserves no memory",
                hint="write it like memory=1Gi or hugepages-2Mi=64Mi",
            )
        Quantity.parse_bare(quantity)
        entries[name] = quantity
    return NumaReservation(int(node), entries)


def _is_memory(name: str) -> bool:
    return name == MEMORY or is_hugepages(name)


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

    `node` has less than it is to reserve; None means that the rest does not fit, or, if `missing`
    is negative, that more is to be reserved than must be.
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
    """What each node reserves if all share it evenly; nothing where that does not fit."""
    split = even_split(empty_node_map(machine.nodes, {}), equation.required) or ()
    reserved = system_reserved(machine.ids, split, reservation_totals(split))
    assert isinstance(reserved, dict)
    return reserved


def split_reservation(
    nodes: NumaNodeMap, total: int, requested: Mapping[int, int]
) -> NumaReservations | SplitShortfall:
    """Reservations of so many bytes; nodes that are not named share the rest evenly."""
    for node, size in sorted(requested.items()):
        free = nodes[node].table(MEMORY).allocatable
        if size > free:
            return SplitShortfall(size - free, node)
    rest = total - sum(requested.values())
    others = {i: node for i, node in nodes.items() if i not in requested}
    free = sum([node.table(MEMORY).allocatable for node in others.values()])
    if rest < 0 or rest > free:
        return SplitShortfall(rest if rest < 0 else rest - free)
    split = even_split(others, {MEMORY: Quantity(rest * NANOS, "BinarySI")}) if rest else ()
    assert split is not None
    shares = [
        NumaReservation(node, {MEMORY: format_amount(MEMORY, size * 1000)})
        for node, size in requested.items()
        if size
    ]
    return tuple(sorted([*shares, *split], key=lambda entry: entry.numa_node))
