"""The kubelet's memory_manager_state file: reading, verifying and writing its three formats.

    v1   until 1.35       policyName, machineState, entries, checksum
    v2   1.36 with pools  podEntries as well
    v3   since 1.37       v1, then all of v2 again as text (data) with a checksum of that text

Where there is `data`, it alone decides; v1 around it is for kubelets that are rolled back.
"""

from collections.abc import Callable, Mapping
from typing import Final, Literal

import msgspec

from memqos.numa.dump import (
    WireBlock,
    WireEntries,
    WireNode,
    WireNodes,
    WirePool,
    WirePools,
    WireTable,
    dumped,
)
from memqos.numa.memory import Block, Blocks, MemoryTable, NumaNode
from memqos.numa.state import State
from memqos.release import Release, Since

Version = Literal["v1", "v2", "v3"]
Fault = Literal["checkpoint_invalid_json", "checkpoint_corrupt"]

_OFFSET: Final = 0x811C9DC5
_PRIME: Final = 0x01000193


class Loaded(msgspec.Struct, frozen=True):
    """A state that was read, and the format it was in."""

    state: State
    version: Version


class Unreadable(msgspec.Struct, frozen=True):
    """A file the kubelet does not start over.

    A corrupt one says which checksum it carries and which its content has; one that is no JSON says
    where.
    """

    kind: Fault
    detail: str
    stored: int | None = None
    computed: int | None = None


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of the second format, which are also those of the text in `data`."""

    policy_name: str = ""
    machine_state: WireNodes | None = {}
    entries: WireEntries | None = {}
    pod_entries: WirePools | None = {}


class Contents(_Data, frozen=True):
    """A file's fields, whatever they are worth."""

    checksum: int = 0
    data: str = ""
    data_checksum: int = 0

    @property
    def is_v3(self) -> bool:
        return bool(self.data or self.data_checksum)

    @property
    def v1_text(self) -> str:
        """What the checksum of the first format is the hash of."""
        return dumped(self.policy_name, self.machine_state, self.entries, None, with_pools=False)

    @property
    def v2_text(self) -> str:
        """What the checksum of the second format is the hash of."""
        return dumped(
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


def contents(text: str) -> Contents | Unreadable:
    """The fields of a file, unverified."""
    try:
        return msgspec.json.decode(text, type=Contents)
    except msgspec.DecodeError as error:
        return Unreadable("checkpoint_invalid_json", str(error))


def read(text: str) -> Loaded | Unreadable:
    """Read and verify a state file as the newest kubelet does."""
    found = contents(text)
    if isinstance(found, Unreadable):
        return found
    if not found.is_v3:
        return _read_older(found)
    try:
        data = msgspec.json.decode(found.data, type=_Data)
    except msgspec.DecodeError as error:
        return Unreadable("checkpoint_invalid_json", f"data: {error}")
    computed = fnv1a32(found.data_text)
    if found.data_checksum != computed:
        return _corrupt("dataChecksum", found.data_checksum, computed)
    return Loaded(_state(data), "v3")


def write(state: State, release: Release) -> str:
    """The file a kubelet of a release writes, to the letter."""
    return _WRITE.at(release.minor)(state, release.enabled("PodLevelResourceManagers"))


def _read_older(found: Contents) -> Loaded | Unreadable:
    if found.checksum == fnv1a32(found.v2_text):
        return Loaded(_state(found), "v2")
    computed = fnv1a32(found.v1_text)
    # Files from before there were checksums are taken at their word.
    if found.checksum not in (0, computed):
        return _corrupt("checksum", found.checksum, computed)
    return Loaded(msgspec.structs.replace(_state(found), pools={}), "v1")


def _corrupt(field: str, stored: int, computed: int) -> Unreadable:
    return Unreadable(
        "checkpoint_corrupt",
        f"{field} is {stored}, but the content's is {computed}",
        stored,
        computed,
    )


def _state(found: _Data) -> State:
    return State(
        policy=found.policy_name,
        nodes={
            i: NumaNode(
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


def _read_blocks(blocks: tuple[WireBlock, ...]) -> Blocks:
    return tuple([Block(block.type, block.numa_affinity or (), block.size) for block in blocks])


def _written_blocks(blocks: Blocks) -> tuple[WireBlock, ...]:
    return tuple([WireBlock(block.nodes, block.type, block.size) for block in blocks])


def _contents(state: State, *, with_pools: bool) -> Contents:
    # Go sorts the keys of a map as texts, also where they are numbers.
    return Contents(
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
            uid: {name: _written_blocks(blocks) for name, blocks in sorted(containers.items())}
            for uid, containers in sorted(state.assignments.items())
        },
        pod_entries={
            uid: WirePool(_written_blocks(blocks)) for uid, blocks in sorted(state.pools.items())
        }
        if with_pools
        else {},
    )


def _fields(found: Contents, *, with_pools: bool) -> dict[str, object]:
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


def _write_v1(state: State, _pools: bool) -> str:
    found = _contents(state, with_pools=False)
    return _text(_fields(found, with_pools=False) | {"checksum": fnv1a32(found.v1_text)})


def _write_v2(state: State, pools: bool) -> str:
    if not pools:
        return _write_v1(state, pools)
    found = _contents(state, with_pools=True)
    return _text(_fields(found, with_pools=True) | {"checksum": fnv1a32(found.v2_text)})


def _write_v3(state: State, pools: bool) -> str:
    found = _contents(state, with_pools=pools)
    data = _text(_fields(found, with_pools=True))
    return _text(
        _fields(found, with_pools=False)
        | {
            "checksum": fnv1a32(found.v1_text),
            "data": data,
            "dataChecksum": fnv1a32(f"(string){data}"),
        }
    )


_WRITE: Final[Since[Callable[[State, bool], str]]] = Since(
    {22: _write_v1, 36: _write_v2, 37: _write_v3}
)
