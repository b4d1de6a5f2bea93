"""The kubelet's memory_manager_state file: reading, verifying and writing its three formats.

    v1   until 1.35       policyName, machineState, entries, checksum
    v2   1.36 with pools  podEntries as well
    v3   since 1.37       v1, then all of v2 again as text (data) with a checksum of that text

Where there is `data`, it alone decides; v1 around it is for kubelets that are rolled back.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, Literal

import msgspec

from memqos.errors import InputError
from memqos.numa.checkpoint_format import (
    WireBlock,
    WireEntries,
    WireNode,
    WireNodes,
    WirePool,
    WirePools,
    WireTable,
    checksum_text,
)
from memqos.numa.machine_state import (
    MemoryBlock,
    MemoryBlocks,
    MemoryManagerState,
    MemoryTable,
    NumaNodeState,
)
from memqos.release import Release, Since

CheckpointVersion = Literal["v1", "v2", "v3"]
CheckpointFault = Literal["checkpoint_invalid_json", "checkpoint_corrupt"]

_OFFSET: Final = 0x811C9DC5
_PRIME: Final = 0x01000193


class LoadedCheckpoint(msgspec.Struct, frozen=True):
    """A state that was read, and the format it was in."""

    state: MemoryManagerState
    version: CheckpointVersion


class UnreadableCheckpoint(msgspec.Struct, frozen=True):
    """A file the kubelet does not start over.

    Of a corrupt one: the checksum stored and the one computed; of one that is not JSON: where.
    """

    kind: CheckpointFault
    detail: str
    stored: int | None = None
    computed: int | None = None


class _CheckpointData(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The fields of the second format, which are also those of the text in `data`."""

    policy_name: str = ""
    machine_state: WireNodes | None = {}
    entries: WireEntries | None = {}
    pod_entries: WirePools | None = {}


class CheckpointFields(_CheckpointData, frozen=True, kw_only=True):
    """A file's fields, unverified."""

    checksum: int = 0
    data: str = ""
    data_checksum: int = 0

    @property
    def is_v3(self) -> bool:
        return bool(self.data or self.data_checksum)

    @property
    def v1_text(self) -> str:
        """What the checksum of the first format is the hash of."""
        return checksum_text(
            self.policy_name, self.machine_state, self.entries, None, with_pools=False
        )

    @property
    def v2_text(self) -> str:
        """What the checksum of the second format is the hash of."""
        return checksum_text(
            self.policy_name, self.machine_state, self.entries, self.pod_entries, with_pools=True
        )

    @property
    def data_text(self) -> str:
        """What the checksum of the third format is the hash of."""
        return f"(string){self.data}"


def fnv1a32(text: str) -> int:
    """The 32-bit FNV-1a hash of a text."""
    value = _OFFSET
    for byte in text.encode("utf-8", "surrogatepass"):
        value = (value ^ byte) * _PRIME & 0xFFFFFFFF
    return value


def decode_checkpoint(text: str) -> CheckpointFields | UnreadableCheckpoint:
    """The fields of a file, unverified."""
    try:
        return msgspec.json.decode(text, type=CheckpointFields)
    except msgspec.DecodeError as error:
        return UnreadableCheckpoint("checkpoint_invalid_json", str(error))


def read_checkpoint(text: str) -> LoadedCheckpoint | UnreadableCheckpoint:
    """Read and verify a state file as the newest kubelet does."""
    found = decode_checkpoint(text)
    if isinstance(found, UnreadableCheckpoint):
        return found
    if not found.is_v3:
        return _read_older(found)
    try:
        data = msgspec.json.decode(found.data, type=_CheckpointData)
    except msgspec.DecodeError as error:
        return UnreadableCheckpoint("checkpoint_invalid_json", f"data: {error}")
    computed = fnv1a32(found.data_text)
    if found.data_checksum != computed:
        return _corrupt("dataChecksum", found.data_checksum, computed)
    return LoadedCheckpoint(_state(data), "v3")


def encode_checkpoint(state: MemoryManagerState, release: Release) -> str:
    """The file a kubelet of a release writes, to the letter."""
    return _WRITE.at(release.minor)(state, release.is_enabled("PodLevelResourceManagers"))


def _read_older(found: CheckpointFields) -> LoadedCheckpoint | UnreadableCheckpoint:
    if found.checksum == fnv1a32(found.v2_text):
        return LoadedCheckpoint(_state(found), "v2")
    computed = fnv1a32(found.v1_text)
    # 0 is accepted for the sake of the file backend that had no checksum (memorymanager
    # state/checkpoint.go, MemoryManagerCheckpointV1.VerifyChecksum). Only V1 does.
    if found.checksum not in (0, computed):
        return _corrupt("checksum", found.checksum, computed)
    return LoadedCheckpoint(msgspec.structs.replace(_state(found), pools={}), "v1")


def _corrupt(field: str, stored: int, computed: int) -> UnreadableCheckpoint:
    return UnreadableCheckpoint(
        "checkpoint_corrupt",
        f"{field} is {stored}, but the content's is {computed}",
        stored,
        computed,
    )


def _state(found: _CheckpointData) -> MemoryManagerState:
    return MemoryManagerState(
        policy=found.policy_name,
        nodes={
            i: NumaNodeState(
                node.number_of_assignments,
                {
                    name: MemoryTable(
                        table.total,
                        table.system_reserved,
                        table.allocatable,
                        table.reserved,
                        table.free,
                    )
                    for name, table in (node.memory_map or {}).items()
                },
                node.cells or (),
            )
            for i, node in (found.machine_state or {}).items()
        },
        assignments={
            uid: {name: _read_blocks(blocks) for name, blocks in containers.items()}
            for uid, containers in (found.entries or {}).items()
        },
        pools={
            uid: _read_blocks(pool.memory_blocks) for uid, pool in (found.pod_entries or {}).items()
        },
    )


def _read_blocks(blocks: tuple[WireBlock, ...]) -> MemoryBlocks:
    return tuple(
        [MemoryBlock(block.type, block.numa_affinity or (), block.size) for block in blocks]
    )


def _wire_blocks(blocks: MemoryBlocks) -> tuple[WireBlock, ...]:
    return tuple([WireBlock(block.nodes, block.type, block.size) for block in blocks])


def _checkpoint_fields(state: MemoryManagerState, *, with_pools: bool) -> CheckpointFields:
    # encoding/json sorts the keys of a map as strings, numbers too ("10" before "2").
    return CheckpointFields(
        policy_name=state.policy,
        machine_state={
            i: WireNode(
                node.assignments,
                {
                    name: WireTable(
                        table.total,
                        table.system_reserved,
                        table.allocatable,
                        table.reserved,
                        table.free,
                    )
                    for name, table in sorted(node.memory.items())
                },
                node.cells,
            )
            for i, node in sorted(state.nodes.items(), key=lambda item: str(item[0]))
        },
        entries={
            uid: {name: _wire_blocks(blocks) for name, blocks in sorted(containers.items())}
            for uid, containers in sorted(state.assignments.items())
        },
        pod_entries={
            uid: WirePool(_wire_blocks(blocks)) for uid, blocks in sorted(state.pools.items())
        }
        if with_pools
        else {},
    )


def _json_fields(found: CheckpointFields, *, with_pools: bool) -> dict[str, object]:
    fields: dict[str, object] = {
        "policyName": found.policy_name,
        "machineState": found.machine_state,
    }
    if found.entries:
        fields["entries"] = found.entries
    if with_pools and found.pod_entries:
        fields["podEntries"] = found.pod_entries
    return fields


def _text(fields: Mapping[str, object]) -> str:
    return msgspec.json.encode(fields).decode()


def _write_v1(state: MemoryManagerState, _pools: bool) -> str:
    found = _checkpoint_fields(state, with_pools=False)
    return _text(_json_fields(found, with_pools=False) | {"checksum": fnv1a32(found.v1_text)})


def _write_v2(state: MemoryManagerState, pools: bool) -> str:
    if not pools:
        return _write_v1(state, pools)
    found = _checkpoint_fields(state, with_pools=True)
    return _text(_json_fields(found, with_pools=True) | {"checksum": fnv1a32(found.v2_text)})


def _write_v3(state: MemoryManagerState, pools: bool) -> str:
    found = _checkpoint_fields(state, with_pools=pools)
    data = _text(_json_fields(found, with_pools=True))
    return _text(
        _json_fields(found, with_pools=False)
        | {
            "checksum": fnv1a32(found.v1_text),
            "data": data,
            "dataChecksum": fnv1a32(f"(string){data}"),
        }
    )


# MemoryManagerCheckpoint, kubelet memorymanager/state/checkpoint.go.
_WRITE: Final[Since[Callable[[MemoryManagerState, bool], str]]] = Since(
    {22: _write_v1, 36: _write_v2, 37: _write_v3}
)


_BYTE: Final = re.compile(r"\(byte (\d+)\)")
_VERIFY: Final = "memqos numa checkpoint verify shows whether a kubelet accepts it"


def load_checkpoint(text: str, file: str) -> LoadedCheckpoint:
    """The state in a file that a kubelet accepts; raise InputError for any other."""
    found = read_checkpoint(text)
    if isinstance(found, UnreadableCheckpoint):
        raise checkpoint_error(found, file, _VERIFY)
    return found


def checkpoint_error(found: UnreadableCheckpoint, file: str, hint: str | None = None) -> InputError:
    """What is wrong with a state file, with its place."""
    what, byte = checkpoint_fault_text(found)
    if byte is None:
        return InputError(what, file=file, hint=hint)
    return InputError(what, file=file, line=1, column=byte + 1, hint=hint)


def checkpoint_fault_text(found: UnreadableCheckpoint) -> tuple[str, int | None]:
    """What is wrong with a state file, and at which byte, if it is at one."""
    if found.kind == "checkpoint_corrupt":
        return f"corrupt: {found.detail}", None
    byte = _BYTE.search(found.detail)
    what = _BYTE.sub("", found.detail).replace("`", "").replace("$.", "").strip()
    inside = what.startswith("data:")
    return f"not a state file: {what}", None if byte is None or inside else int(byte[1])
