"""Why NUMA memory is refused, in words: to a kubelet that starts, and to a pod."""

from collections.abc import Iterator, Mapping
from typing import Final

from memqos.kernel.file_formats import describe_nodes, node_list
from memqos.kube.kubelet.topology_options import MAX_NODES_OPTION
from memqos.kube.quantity import Quantity
from memqos.kube.resources import MEMORY, legible
from memqos.numa.admission import MEMORY_MANAGER, RefusedPod
from memqos.numa.allocation import AllocationCause
from memqos.numa.hints import HintSet, ResourceHints
from memqos.numa.largest_fit import LargestFit, largest_fits
from memqos.numa.machine_state import MemoryManagerState, MemorySizes
from memqos.numa.manager import StartRefused
from memqos.numa.masks import nodes_of
from memqos.numa.reserved_memory import InvalidReservation, ReservationMismatch
from memqos.numa.restart import MachineStateDifference, UnplacedBlock, UnusableState
from memqos.numa.topology_manager import InvalidTopology, Obstruction
from memqos.units import format_bytes, pluralize


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
    "no_system_reserved_memory": "nothing is reserved, but policy Static requires reservedMemory",
    "state_policy_mismatch": "the state was written by another policy",
    "empty_machine_state_with_assignments": "the state has assignments, but no NUMA nodes",
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
        owner = "the state has node" if found is None else "the machine has node"
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
        f"{who}pod {unplaced.uid} is assigned {exact_bytes(block.size)} of {block.type} more than "
        f"{describe_nodes(block.nodes)} can give"
    )


_CAUSE_WORDS: Final[Mapping[AllocationCause, str]] = {
    "not_an_integer": "a size is written so that the kubelet cannot read it as whole bytes",
    "no_room": "no nodes have enough {resource}",
    "no_preferred_room": "{nodes} have enough, but on an empty machine fewer nodes would",
    "no_wider_room": "{nodes} lack {resource}, and adding other nodes does not help",
    "no_preferred_wider_room": "it needs {nodes}, but on an empty machine fewer nodes would be "
    "enough",
    "bound_otherwise": "{nodes} cannot be used together: some are in use alone, or in another "
    "group",
    "empty_pool": "containers with exclusive {resource} leave nothing of the pod's for the other "
    "containers",
}


def refusal_sentences(refused: RefusedPod, state: MemoryManagerState) -> Iterator[str]:
    """Why a pod is refused: what it requests, what prevents it, where it would fit."""
    whose = "the pod" if refused.container is None else f"container {refused.container}"
    if refused.sizes:
        yield f"{whose} requests {_amounts(refused.sizes)}"
    else:
        yield f"{whose} requests memory"
    if refused.obstruction is not None:
        yield from _obstruction_lines(refused.obstruction)
    elif refused.cause is not None:
        if refused.cause != "no_room" and _found_nothing(refused):
            yield "no nodes have enough free memory now"
        yield _CAUSE_WORDS[refused.cause].format(
            resource=refused.resource or "memory",
            nodes="any nodes" if refused.nodes is None else describe_nodes(refused.nodes),
        )
    nowhere = refused.obstruction is not None and refused.obstruction.obstacle == "nowhere"
    if not nowhere and refused.cause not in ("not_an_integer", "empty_pool"):
        yield from [_room_words(room) for room in largest_fits(state.nodes, refused.sizes)]


def _found_nothing(refused: RefusedPod) -> bool:
    """Whether the Memory Manager had no nodes to offer, so that others decided where to look."""
    return any([provider.hints == {} for call in refused.calls[-1:] for provider in call.providers])


def _obstruction_lines(obstruction: Obstruction) -> Iterator[str]:
    if obstruction.obstacle == "no_common_nodes":
        listed = ", ".join([_list_name(line) for line in obstruction.lists])
        yield f"no nodes are preferred by all of {listed}"
        return
    for line in obstruction.lists:
        yield f"{_list_name(line)}: {_obstacle_words(obstruction, line)}"


def _obstacle_words(obstruction: Obstruction, line: ResourceHints) -> str:
    if obstruction.obstacle == "nowhere" and line.provider == MEMORY_MANAGER:
        return (
            f"no nodes are enough, as {_CAUSE_WORDS['empty_pool'].format(resource=line.resource)}"
        )
    if not isinstance(line.hints, HintSet):
        return "no nodes are enough"
    narrowest = line.hints.narrowest()
    assert narrowest is not None
    best = describe_nodes(nodes_of(narrowest))
    if obstruction.obstacle == "more_than_one_node":
        return f"it needs {line.hints.minimum} nodes, such as {best}; the policy allows one"
    size = line.hints.minimum
    return (
        f"the smallest set of nodes with enough memory is {best}; on an empty machine "
        f"{pluralize(size, 'node')} would be enough, and the policy allows no more"
    )


def _list_name(line: ResourceHints) -> str:
    return line.provider if line.resource is None else f"{line.resource} ({line.provider})"


def _room_words(room: LargestFit) -> str:
    parts = []
    if room.on_one:
        parts.append(f"{format_bytes(room.on_one)} on {describe_nodes(room.one)}")
    if room.on_several:
        parts.append(f"{format_bytes(room.on_several)} on {describe_nodes(room.several)} together")
    if not parts:
        return f"free {room.resource}: none on nodes where the other sizes fit"
    return f"free {room.resource}: at most {', or '.join(parts)}"


def _amounts(sizes: MemorySizes) -> str:
    return ", ".join(
        [f"{name} {Quantity.of(size, 'BinarySI').canonical}" for name, size in sizes.items()]
    )
