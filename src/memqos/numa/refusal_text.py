"""Why a kubelet refuses its reservations, topology settings or state, in words."""

from collections.abc import Iterator
from typing import Final

from memqos.kernel.file_formats import describe_nodes, node_list
from memqos.kube.quantity import Quantity
from memqos.kube.resources import MEMORY, legible
from memqos.numa.manager import StartRefused
from memqos.numa.reserved_memory import InvalidReservation, ReservationMismatch
from memqos.numa.restart import MachineStateDifference, UnplacedBlock, UnusableState
from memqos.numa.topology_manager import MAX_NODES_OPTION, InvalidTopology


def exact_bytes(size: int) -> str:
    """Bytes without loss, in the largest binary unit that is even; zero and less included."""
    sign = "−" if size < 0 else ""
    return sign + legible(MEMORY, abs(size) * 1000)


def signed_difference(stored: int, found: int) -> str:
    """How far the second is from the first: `+1Gi`."""
    if stored == found:
        return "±0"
    sign = "+" if found > stored else "−"
    return sign + exact_bytes(abs(found - stored))


_REFUSALS: Final = {
    "unknown_policy": "there is no such Memory Manager policy",
    "policy_not_on_platform": "this policy is not for this system: Static is for Linux, "
    "BestEffort for Windows",
    "gate_off": "BestEffort needs the feature gate WindowsCPUAndMemoryAffinity",
    "no_system_reserved_memory": "nothing is reserved: Static wants some reservedMemory",
    "state_policy_mismatch": "the state was written under another policy",
    "empty_machine_state_with_assignments": "the state has holders, but no NUMA nodes",
}
_HINTS: Final = {
    "too_many_numa_nodes": f"raise it with --option {MAX_NODES_OPTION}=N",
    "no_numa_distances": "give the machine's distances",
}
_FIELDS: Final = {"system_reserved": "systemReserved"}


def topology_sentence(found: InvalidTopology) -> str:
    """Why the Topology Manager does not start."""
    hint = _HINTS.get(found.kind)
    return found.detail if hint is None else f"{found.detail} – {hint}"


def start_sentences(refused: StartRefused) -> Iterator[str]:
    """Everything that keeps a kubelet from starting."""
    if refused.reservations is not None:
        yield from reservation_sentences(refused.reservations)
    elif refused.state is not None:
        yield from state_sentences(refused.state)
    elif refused.kind == "reserved_more_than_there_is":
        for node, resource in refused.places:
            yield f"node {node}: more {resource} is reserved than it has"
    else:
        yield _REFUSALS[refused.kind]


def reservation_sentences(refused: InvalidReservation) -> Iterator[str]:
    """What is wrong with reservedMemory, and by how much."""
    if refused.kind == "numa_node_not_found":
        yield f"the machine has no {describe_nodes(dict.fromkeys(refused.nodes))}"
    elif refused.kind == "not_an_integer":
        yield (
            f"node {node_list(refused.nodes)}: the kubelet cannot read the {refused.resource} as "
            "whole bytes – write it without a decimal point, such as 1536Mi for 1.5Gi"
        )
    for mismatch in refused.mismatches:
        yield mismatch_sentence(mismatch)


def mismatch_sentence(mismatch: ReservationMismatch) -> str:
    """A sum of reservations that does not add up."""
    own, needed = mismatch.reserved, mismatch.required
    off = Quantity(abs(own.nano - needed.nano), "BinarySI")
    return (
        f"{mismatch.resource}: the nodes reserve {own.legible} together, it must be "
        f"{needed.legible}: {off.legible} too {'much' if own > needed else 'little'}"
    )


def state_sentences(unfit: UnusableState) -> Iterator[str]:
    """How a state differs from the machine."""
    if not unfit.differences:
        yield _REFUSALS[unfit.kind]
    for difference in unfit.differences:
        yield difference_sentence(difference)
    for unplaced in unfit.unplaced:
        yield no_room_sentence(unplaced)


def difference_sentence(difference: MachineStateDifference) -> str:
    """One value that differs."""
    node, stored, found = difference.node, difference.stored, difference.found
    if difference.field == "node":
        owner = "the state knows node" if found is None else "the machine has node"
        return f"{owner} {node}, " + ("the machine does not" if found is None else "the state not")
    if difference.field == "cells":
        assert isinstance(stored, tuple)
        assert isinstance(found, tuple)
        return f"node {node} used with: state {node_list(stored)}, machine {node_list(found)}"
    if difference.field == "resource":
        here = "the state" if found is None else "the machine"
        return f"node {node} {difference.resource}: only {here} has it"
    assert isinstance(stored, int)
    assert isinstance(found, int)
    if difference.field == "assignments":
        return f"node {node} assignments: state {stored}, machine {found}"
    field = _FIELDS.get(difference.field, difference.field)
    return (
        f"node {node} {difference.resource} {field}: state {exact_bytes(stored)}, machine "
        f"{exact_bytes(found)} ({signed_difference(stored, found)})"
    )


def no_room_sentence(unplaced: UnplacedBlock) -> str:
    """Assigned memory that does not fit the machine."""
    block = unplaced.block
    who = f"container {unplaced.container} of " if unplaced.container is not None else ""
    return (
        f"{who}pod {unplaced.uid} holds {exact_bytes(block.size)} of {block.type} more than "
        f"{describe_nodes(block.nodes)} can give"
    )
