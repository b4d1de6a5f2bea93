"""A machine's NUMA nodes: out of a machine file, of what the kernel shows, or of a state file."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import msgspec

from memqos.errors import InputError
from memqos.kernel.file_formats import meminfo_of
from memqos.kernel.machine import Machine as KernelMachine
from memqos.kernel.machine import NumaNode as KernelNode
from memqos.kube.quantity import NANOS, Quantity, Raw
from memqos.kube.resources import HUGEPAGES, MEMORY, hugepage_size
from memqos.manifests.documents import Document, decoding_error
from memqos.numa.machine_state import MachineMemory, MemoryManagerState, NumaMemory

MAX_NUMA_NODES: Final = 1024
"""More than any kernel is built for."""
MAX_NODE_BYTES: Final = 1 << 60
_PAGES_OF_NODE: Final = "HugePages_Total:"

DistanceRows = tuple[tuple[int, ...], ...]
"""A row a node, in the nodes' order; each node's distance to itself included."""


class NumaMachine(msgspec.Struct, frozen=True):
    """NUMA nodes in ascending order, and their distances, None where unknown."""

    nodes: MachineMemory
    distances: DistanceRows | None = None

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple([node.id for node in self.nodes])

    @property
    def memory(self) -> int:
        """Bytes of all nodes together."""
        return sum([node.memory for node in self.nodes])

    @property
    def page_sizes(self) -> tuple[str, ...]:
        """The hugepage resources of any node, smallest pages first."""
        return _by_size({name for node in self.nodes for name in node.hugepages})


class _Node(msgspec.Struct, frozen=True):
    """A node as a machine file describes it; hugepages are counted."""

    id: int
    memory: Raw
    hugepages: dict[str, int] | None = None
    distances: tuple[int, ...] | None = None


class _File(msgspec.Struct, frozen=True):
    numa: tuple[_Node, ...]


def machine_from_file(document: Document) -> NumaMachine:
    """The machine a file describes: `numa: [{id: 0, memory: 64Gi, hugepages: {2Mi: 512}}, …]`."""
    try:
        file = msgspec.convert(document.data, _File)
    except msgspec.ValidationError as error:
        raise decoding_error(error, document.data, document) from None
    if not 0 < len(file.numa) <= MAX_NUMA_NODES:
        what = f"{len(file.numa)} NUMA nodes" if file.numa else "no NUMA node"
        raise document.error(what, ("numa",), f"a machine has 1 to {MAX_NUMA_NODES}")
    index_of: dict[int, int] = {}
    for index, node in enumerate(file.numa):
        if node.id in index_of:
            what = f"node {node.id} is given by numa[{index_of[node.id]}] already"
            raise document.error(what, ("numa", index, "id"), "number the nodes apart")
        if not 0 <= node.id < MAX_NUMA_NODES:
            what = f"{node.id} is not the number of a node"
            raise document.error(what, ("numa", index, "id"), f"0 to {MAX_NUMA_NODES - 1} are")
        index_of[node.id] = index
    order = sorted(index_of)
    return NumaMachine(
        tuple([_memory(document, index_of[i], file.numa[index_of[i]]) for i in order]),
        _distances(document, file.numa, [index_of[i] for i in order]),
    )


def machine_from_kernel(machine: KernelMachine) -> NumaMachine | None:
    """The machine a kernel shows; None where it shows no NUMA node."""
    nodes = machine.numa_nodes
    if not nodes:
        return None
    if len({node.number for node in nodes}) < len(nodes):
        raise InputError(f"NUMA nodes that share a number: {', '.join(machine.numa)}", field="numa")
    pages = meminfo_of(machine.meminfo or "").get("Hugepagesize", 0)
    complete = all([len(node.distances) == len(nodes) for node in nodes])
    return NumaMachine(
        tuple(
            [
                NumaMemory(
                    node.number,
                    node.memory,
                    _hugepages(node) or _default_hugepages(machine, node.number, pages),
                )
                for node in nodes
            ]
        ),
        tuple([node.distances for node in nodes]) if complete else None,
    )


def machine_from_state(state: MemoryManagerState) -> NumaMachine:
    """The machine a state file was written on."""
    return NumaMachine(
        tuple(
            [
                NumaMemory(
                    i,
                    node.table(MEMORY).total,
                    {name: node.memory[name].total for name in node.memory if name != MEMORY},
                )
                for i, node in sorted(state.nodes.items())
            ]
        )
    )


def with_page_sizes(machine: NumaMachine, state: MemoryManagerState) -> NumaMachine:
    """The machine with no pages of those sizes that a state lists and the machine does not.

    A description of a machine omits page sizes of which it has no page; the kubelet lists them, and
    does not start with a state that does not.
    """
    nodes = []
    for node in machine.nodes:
        listed = state.nodes[node.id].memory if node.id in state.nodes else {}
        pages = {name: 0 for name in listed if name != MEMORY} | node.hugepages
        nodes.append(NumaMemory(node.id, node.memory, pages))
    return NumaMachine(tuple(nodes), machine.distances)


def machine_subset(machine: NumaMachine, allowed: Collection[int]) -> NumaMachine:
    """The machine reduced to the nodes that may be used."""
    kept = [index for index, node in enumerate(machine.nodes) if node.id in allowed]
    rows = machine.distances
    return NumaMachine(
        tuple([machine.nodes[index] for index in kept]),
        None if rows is None else tuple([tuple([rows[i][j] for j in kept]) for i in kept]),
    )


def machine_file_data(machine: NumaMachine) -> list[dict[str, Any]]:
    """The nodes as a machine file lists them."""
    nodes: list[dict[str, Any]] = []
    for index, node in enumerate(machine.nodes):
        pages = {
            name.removeprefix(HUGEPAGES): size // (hugepage_size(name) or 1)
            for name, size in node.hugepages.items()
        }
        nodes.append({"id": node.id, "memory": node.memory, "hugepages": pages})
        if machine.distances is not None:
            nodes[-1]["distances"] = list(machine.distances[index])
    return nodes


def _memory(document: Document, index: int, node: _Node) -> NumaMemory:
    place = ("numa", index)
    try:
        memory = Quantity.parse(node.memory)
    except InputError as error:
        raise document.error(error.what, (*place, "memory"), error.hint) from None
    if memory.nano % NANOS or not 0 <= memory.value <= MAX_NODE_BYTES:
        what = f"{node.memory} is not an amount of memory"
        raise document.error(what, (*place, "memory"), "write it like 64Gi")
    sizes = {}
    for text, pages in (node.hugepages or {}).items():
        name = HUGEPAGES + text.removeprefix(HUGEPAGES)
        page, field = hugepage_size(name), (*place, "hugepages", text)
        if page is None:
            raise document.error(f"{text!r} is no size of a page", field, "2Mi and 1Gi are")
        if pages < 0:
            raise document.error(f"{pages} pages", field, "count the pages of this size")
        sizes[name] = page * pages
    if sum(sizes.values()) > memory.value:
        what = f"the hugepages take {sum(sizes.values())} bytes, the node has {memory.value}"
        raise document.error(what, (*place, "hugepages"), "pages are counted, not measured")
    return NumaMemory(node.id, memory.value, sizes)


def _distances(
    document: Document, nodes: Sequence[_Node], order: Sequence[int]
) -> DistanceRows | None:
    if all([node.distances is None for node in nodes]):
        return None
    for index in order:
        row, field = nodes[index].distances, ("numa", index, "distances")
        if row is None or len(row) != len(nodes):
            what = f"{0 if row is None else len(row)} distances, but there are {len(nodes)} nodes"
            hint = "give each node its distance to every node, as in /sys/…/node0/distance"
            raise document.error(what, field, hint)
        if not all([0 < each < 256 for each in row]):
            raise document.error("a distance is a number from 1 to 255", field)
    return tuple([nodes[index].distances or () for index in order])


def _hugepages(node: KernelNode) -> dict[str, int]:
    return {
        HUGEPAGES + Quantity.of(pages.size, "BinarySI").canonical: pages.size * pages.total
        for pages in node.hugepages
    }


def _default_hugepages(machine: KernelMachine, number: int, page: int) -> dict[str, int]:
    """Pages of the default size, as a node's meminfo counts them where nothing else does."""
    for line in machine.numa[f"node{number}"].meminfo.splitlines():
        _, found, count = line.partition(_PAGES_OF_NODE)
        if found and page and count.strip().isdigit():
            return {HUGEPAGES + Quantity.of(page, "BinarySI").canonical: page * int(count)}
    return {}


def _by_size(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=lambda name: (hugepage_size(name) or 0, name)))
