"""Repairing a state file: turn what can be read of it into a state that a kubelet starts with.

Assignments are kept and the node map is computed again from them on the machine as it is. A pod
whose memory does not exist any more is skipped as a whole: the kubelet admits it again when it
starts.
"""

import json
from typing import Literal

import msgspec

from memqos.numa.checkpoint import (
    CheckpointFields,
    CheckpointVersion,
    LoadedCheckpoint,
    UnreadableCheckpoint,
    decode_checkpoint,
    fnv1a32,
    read_checkpoint,
)
from memqos.numa.machine_state import (
    MemoryBlocks,
    MemoryManagerState,
    NumaNodeMap,
    assign_block,
    free_memory,
)
from memqos.numa.restart import UnusableState, resume_state
from memqos.release import Release

SalvageSource = Literal["whole", "without_garbage", "first_format", "unverified"]
"""What a state was taken from.

whole             the file as it is
without_garbage   the file up to the end of its JSON
first_format      the fields for older kubelets: their checksum matches, that of `data` does not
unverified        the content of the file, though no checksum matches
"""

_WRITERS: dict[CheckpointVersion, Release] = {
    "v1": Release.of(35),
    "v2": Release.of(36, {"PodLevelResourceManagers": True}),
    "v3": Release.of(37, {"PodLevelResourceManagers": True}),
}


class CheckpointChecksum(msgspec.Struct, frozen=True):
    """One checksum of a file; the deciding one is what a kubelet compares."""

    field: str
    stored: int
    computed: int
    decides: bool

    @property
    def holds(self) -> bool:
        return self.stored == self.computed


class SalvagedState(msgspec.Struct, frozen=True):
    """The state that was found in a file, its format, and how it was found."""

    loaded: LoadedCheckpoint
    how: SalvageSource


class RebuiltState(msgspec.Struct, frozen=True):
    """A state that a kubelet starts with, and the pods that were skipped."""

    state: MemoryManagerState
    excluded: tuple[str, ...] = ()


def checkpoint_checksums(found: CheckpointFields) -> list[CheckpointChecksum]:
    """The checksums of a file, the deciding one first."""
    first = fnv1a32(found.v1_text)
    if found.is_v3:
        return [
            CheckpointChecksum("dataChecksum", found.data_checksum, fnv1a32(found.data_text), True),
            CheckpointChecksum("checksum", found.checksum, first, False),
        ]
    second = fnv1a32(found.v2_text)
    return [
        CheckpointChecksum(
            "checksum", found.checksum, second if found.checksum == second else first, True
        )
    ]


def salvage_state(text: str) -> SalvagedState | UnreadableCheckpoint:
    """The state of a file, also of one that no kubelet accepts."""
    loaded = read_checkpoint(text)
    if isinstance(loaded, LoadedCheckpoint):
        return SalvagedState(loaded, "whole")
    trimmed = _first_value(text)
    if trimmed is None:
        return loaded
    again = read_checkpoint(trimmed)
    if isinstance(again, LoadedCheckpoint):
        return SalvagedState(again, "without_garbage")
    found = decode_checkpoint(trimmed)
    if isinstance(found, UnreadableCheckpoint):
        return found
    if found.is_v3:
        older = msgspec.structs.replace(found, data="", data_checksum=0)
        if found.checksum == fnv1a32(found.v1_text):
            first = read_checkpoint(_as_text(older))
            if isinstance(first, LoadedCheckpoint):
                return SalvagedState(LoadedCheckpoint(first.state, "v3"), "first_format")
        newer = read_checkpoint(
            _as_text(msgspec.structs.replace(found, data_checksum=fnv1a32(found.data_text)))
        )
        return (
            newer if isinstance(newer, UnreadableCheckpoint) else SalvagedState(newer, "unverified")
        )
    version: CheckpointVersion = "v2" if found.pod_entries else "v1"
    sum_of = found.v2_text if version == "v2" else found.v1_text
    taken_as_is = read_checkpoint(
        _as_text(msgspec.structs.replace(found, checksum=fnv1a32(sum_of)))
    )
    if isinstance(taken_as_is, UnreadableCheckpoint):
        return taken_as_is
    return SalvagedState(taken_as_is, "unverified")


def rebuild_state(state: MemoryManagerState, machine: NumaNodeMap) -> RebuiltState | UnusableState:
    """A state of the same assignments on a machine, given its empty node map."""
    nodes: NumaNodeMap = machine
    assignments, pools, skipped = {}, {}, []
    for uid, containers in state.assignments.items():
        pool = state.pools.get(uid)
        blocks = pool or tuple([block for own in containers.values() for block in own])
        placed = _place_blocks(nodes, blocks)
        if placed is None:
            skipped.append(uid)
            continue
        nodes = placed
        assignments[uid] = containers
        if pool:
            pools[uid] = pool
    rebuilt = MemoryManagerState(state.policy, nodes, assignments, pools)
    proof = resume_state(rebuilt, machine)
    return proof if isinstance(proof, UnusableState) else RebuiltState(rebuilt, tuple(skipped))


def release_writing(version: CheckpointVersion) -> Release:
    """A release that writes this format."""
    return _WRITERS[version]


def _place_blocks(nodes: NumaNodeMap, blocks: MemoryBlocks) -> NumaNodeMap | None:
    for block in blocks:
        if any([i not in nodes or block.type not in nodes[i].memory for i in block.nodes]):
            return None
        if block.size > free_memory(nodes, block.nodes, block.type):
            return None
        nodes = assign_block(nodes, block)
    return nodes


def _first_value(text: str) -> str | None:
    """The text up to the end of the JSON object it starts with."""
    try:
        value, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return text[:end] if isinstance(value, dict) else None


def _as_text(found: CheckpointFields) -> str:
    return msgspec.json.encode(found).decode()
