"""Repairing a state file: what it still tells, made into a state over which a kubelet starts.

Assignments are kept and the node map is made anew from them on the machine as it is. A pod whose
memory is not there any more is left out as a whole: the kubelet admits it anew when it starts.
"""

import json
from typing import Literal

import msgspec

from memqos.numa.checkpoint import Contents, Loaded, Unreadable, Version, contents, fnv1a32, read
from memqos.numa.memory import Blocks, NodeMap, free_in, taken
from memqos.numa.restart import Unfit, resumed
from memqos.numa.state import State
from memqos.release import Release

Salvage = Literal["whole", "without_garbage", "first_format", "unverified"]
"""What a state was taken from.

whole             the file as it is
without_garbage   the file up to the end of its JSON
first_format      the fields for older kubelets, whose checksum holds while that of `data` does not
unverified        what the file says, though no checksum vouches for it
"""

_WRITERS: dict[Version, Release] = {
    "v1": Release.of(35),
    "v2": Release.of(36, {"PodLevelResourceManagers": True}),
    "v3": Release.of(37, {"PodLevelResourceManagers": True}),
}


class Checksum(msgspec.Struct, frozen=True):
    """One checksum of a file; the deciding one is what a kubelet looks at."""

    field: str
    stored: int
    computed: int
    decides: bool

    @property
    def holds(self) -> bool:
        return self.stored == self.computed


class Salvaged(msgspec.Struct, frozen=True):
    """The state that was found in a file, its format, and how it was found."""

    loaded: Loaded
    how: Salvage


class Rebuilt(msgspec.Struct, frozen=True):
    """A state over which a kubelet starts, and the pods that are not in it any more."""

    state: State
    left_out: tuple[str, ...] = ()


def checksums(found: Contents) -> list[Checksum]:
    """The checksums of a file, the deciding one first."""
    first = fnv1a32(found.v1_text)
    if found.is_v3:
        return [
            Checksum("dataChecksum", found.data_checksum, fnv1a32(found.data_text), True),
            Checksum("checksum", found.checksum, first, False),
        ]
    second = fnv1a32(found.v2_text)
    return [
        Checksum("checksum", found.checksum, second if found.checksum == second else first, True)
    ]


def salvaged(text: str) -> Salvaged | Unreadable:
    """The state of a file, also of one no kubelet would take."""
    loaded = read(text)
    if isinstance(loaded, Loaded):
        return Salvaged(loaded, "whole")
    trimmed = _first_value(text)
    if trimmed is None:
        return loaded
    again = read(trimmed)
    if isinstance(again, Loaded):
        return Salvaged(again, "without_garbage")
    found = contents(trimmed)
    if isinstance(found, Unreadable):
        return found
    if found.is_v3:
        older = msgspec.structs.replace(found, data="", data_checksum=0)
        if found.checksum == fnv1a32(found.v1_text):
            first = read(_as_text(older))
            if isinstance(first, Loaded):
                return Salvaged(Loaded(first.state, "v3"), "first_format")
        newer = read(
            _as_text(msgspec.structs.replace(found, data_checksum=fnv1a32(found.data_text)))
        )
        return newer if isinstance(newer, Unreadable) else Salvaged(newer, "unverified")
    version: Version = "v2" if found.pod_entries else "v1"
    sum_of = found.v2_text if version == "v2" else found.v1_text
    taken_as_is = read(_as_text(msgspec.structs.replace(found, checksum=fnv1a32(sum_of))))
    if isinstance(taken_as_is, Unreadable):
        return taken_as_is
    return Salvaged(taken_as_is, "unverified")


def rebuilt(state: State, machine: NodeMap) -> Rebuilt | Unfit:
    """A state of the same assignments on a machine, given its empty node map."""
    nodes: NodeMap = machine
    assignments, pools, left_out = {}, {}, []
    for uid, containers in state.assignments.items():
        pool = state.pools.get(uid)
        blocks = pool or tuple([block for own in containers.values() for block in own])
        placed = _placed(nodes, blocks)
        if placed is None:
            left_out.append(uid)
            continue
        nodes = placed
        assignments[uid] = containers
        if pool:
            pools[uid] = pool
    made = State(state.policy, nodes, assignments, pools)
    proof = resumed(made, machine)
    return proof if isinstance(proof, Unfit) else Rebuilt(made, tuple(left_out))


def writer_of(version: Version) -> Release:
    """A release that writes this format."""
    return _WRITERS[version]


def _placed(nodes: NodeMap, blocks: Blocks) -> NodeMap | None:
    for block in blocks:
        if any([i not in nodes or block.type not in nodes[i].memory for i in block.nodes]):
            return None
        if block.size > free_in(nodes, block.nodes, block.type):
            return None
        nodes = taken(nodes, block)
    return nodes


def _first_value(text: str) -> str | None:
    """The text up to the end of the JSON object it starts with."""
    try:
        value, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return text[:end] if isinstance(value, dict) else None


def _as_text(found: Contents) -> str:
    return msgspec.json.encode(found).decode()
