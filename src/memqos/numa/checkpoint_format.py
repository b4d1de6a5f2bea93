"""The text of a checkpoint that Kubernetes hashes for the checksums of its older formats.

It is Go's view of the structure: types, field names, maps with sorted keys, all in one line.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, TypeVar

import msgspec

_K = TypeVar("_K", int, str)
_V = TypeVar("_V")
UnsignedInt = Annotated[int, msgspec.Meta(ge=0)]


class _Wire(msgspec.Struct, frozen=True, rename="camel"):
    """What the structures of the file share."""


class WireTable(_Wire, frozen=True):
    """A memory table as the file spells it."""

    total: UnsignedInt = 0
    system_reserved: UnsignedInt = 0
    allocatable: UnsignedInt = 0
    reserved: UnsignedInt = 0
    free: UnsignedInt = 0


class WireNode(_Wire, frozen=True):
    """A NUMA node as the file spells it."""

    number_of_assignments: int = 0
    memory_map: dict[str, WireTable] | None = None
    cells: tuple[int, ...] | None = None


class WireBlock(_Wire, frozen=True):
    """A block as the file spells it."""

    numa_affinity: tuple[int, ...] | None = None
    type: str = ""
    size: UnsignedInt = 0


class WirePool(_Wire, frozen=True, omit_defaults=True):
    """A pod's blocks as the file spells them."""

    memory_blocks: tuple[WireBlock, ...] = ()


WireNodes = dict[int, WireNode]
WireEntries = dict[str, dict[str, tuple[WireBlock, ...]]]
WirePools = dict[str, WirePool]


def checksum_text(
    policy: str,
    nodes: WireNodes | None,
    entries: WireEntries | None,
    pools: WirePools | None,
    *,
    with_pools: bool,
) -> str:
    """The text that is hashed; only the second format has pools in it."""
    fields = [
        f"PolicyName:(string){policy}",
        f"MachineState:(state.NUMANodeMap){_map(nodes, _node)}",
        f"Entries:(state.ContainerMemoryAssignments){_map(entries, _containers)}",
        *([f"PodEntries:(state.PodMemoryAssignments){_map(pools, _pool)}"] if with_pools else []),
        "Checksum:(checksum.Checksum)0",
    ]
    return f"(*state.MemoryManagerCheckpoint){{{' '.join(fields)}}}"


def _node(node: WireNode) -> str:
    return (
        f"<*>{{NumberOfAssignments:(int){node.number_of_assignments}"
        f" MemoryMap:(map[v1.ResourceName]*state.MemoryTable){_map(node.memory_map, _table)}"
        f" Cells:([]int){_numbers(node.cells)}}}"
    )


def _table(table: WireTable) -> str:
    return (
        f"<*>{{TotalMemSize:(uint64){table.total}"
        f" SystemReserved:(uint64){table.system_reserved}"
        f" Allocatable:(uint64){table.allocatable}"
        f" Reserved:(uint64){table.reserved}"
        f" Free:(uint64){table.free}}}"
    )


def _containers(containers: dict[str, tuple[WireBlock, ...]]) -> str:
    return _map(containers, _blocks)


def _pool(pool: WirePool) -> str:
    blocks = _blocks(pool.memory_blocks) if pool.memory_blocks else "<nil>"
    return f"{{MemoryBlocks:([]state.Block){blocks}}}"


def _blocks(blocks: tuple[WireBlock, ...]) -> str:
    return f"[{' '.join([_block(block) for block in blocks])}]"


def _block(block: WireBlock) -> str:
    return (
        f"{{NUMAAffinity:([]int){_numbers(block.numa_affinity)}"
        f" Type:(v1.ResourceName){block.type} Size:(uint64){block.size}}}"
    )


def _numbers(numbers: tuple[int, ...] | None) -> str:
    return "<nil>" if numbers is None else f"[{' '.join(map(str, numbers))}]"


def _map(entries: Mapping[_K, _V] | None, text: Callable[[_V], str]) -> str:
    if entries is None:
        return "<nil>"
    return f"map[{' '.join([f'{key}:{text(entries[key])}' for key in sorted(entries)])}]"
