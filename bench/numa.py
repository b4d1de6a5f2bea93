"""How long admitting a pod takes as NUMA nodes get more, beside plain enumeration of their sets.

Machines have nodes of several sizes, some of them in use; the pod requests a third of the free
memory, so that the answer is a set of many nodes: the case that is hard to enumerate.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations

from memqos.numa.admission import MEMORY_MANAGER, AdmissionAttempt, AdmissionRules, admit_pod
from memqos.numa.allocation import ReusableMemory
from memqos.numa.hints import Hint, ResourceHints, memory_hint_set
from memqos.numa.machine_state import (
    MemoryManagerState,
    MemorySizes,
    MemoryTable,
    NumaNodeMap,
    NumaNodeState,
)
from memqos.numa.masks import NodeDistances, mask_of
from memqos.numa.requests import ContainerMemoryRequest, PodMemoryRequest
from memqos.numa.topology_manager import MergeContext, TopologySettings, merge_hints

COUNTS = (2, 4, 8, 12, 16, 20, 34, 48, 64)
ENUMERATED = 20
"""With one more node enumeration takes twice as long."""
REPEATED = 16
"""Up to so many nodes enumeration is repeated."""
BOUND_NODES, BOUND_MS = 34, 50.0
ROUNDS = 5
GI = 1 << 30
HUGE = ("hugepages-2Mi", "hugepages-1Gi")


def report() -> Iterator[str]:
    """Milliseconds a pod, best of several rounds."""
    yield "nodes   memory   enumerated   closest   3 resources"
    for count in COUNTS:
        nodes = _nodes(count, 1)
        sizes = _third(nodes)
        fast = _milliseconds(partial(_admit, nodes, sizes, None))
        listed = ""
        if count <= ENUMERATED:
            rounds = ROUNDS if count <= REPEATED else 1
            listed = f"{_milliseconds(partial(_enumerate, nodes, sizes), rounds):.2f}"
            assert _enumerate(nodes, sizes) == _search(nodes, sizes) if count <= REPEATED else True
        near = _milliseconds(partial(_admit, nodes, sizes, _distances(nodes)), 1)
        several = _nodes(count, 3)
        many = _milliseconds(partial(_admit, several, _third(several), None), 1)
        bound = f"   (at most {BOUND_MS:g} asked)" if count == BOUND_NODES else ""
        yield f"{count:5} {fast:8.2f} {listed:>12} {near:9.2f} {many:13.2f}{bound}"


def _nodes(count: int, resources: int) -> dict[int, NumaNodeState]:
    """Every fifth node is in use; sizes go round in sevens."""
    names = ("memory", *HUGE)[:resources]
    nodes = {}
    for i in range(count):
        tables = {}
        for index, name in enumerate(names):
            size = (16 + (i * (3 + 2 * index) + index) % 7) * GI
            used = size // 3 if i % 5 == 4 else 0
            tables[name] = MemoryTable(size, 0, size, used, size - used)
        nodes[i] = NumaNodeState(1 if i % 5 == 4 else 0, tables, (i,))
    return nodes


def _third(nodes: NumaNodeMap) -> MemorySizes:
    idle = [node for node in nodes.values() if not node.assignments]
    return {
        name: sum([node.table(name).free for node in idle]) // 3 or GI for name in nodes[0].memory
    }


def _admit(nodes: NumaNodeMap, sizes: MemorySizes, distances: NodeDistances | None) -> None:
    topology = TopologySettings("restricted", "container", mask_of(nodes), distances)
    request = PodMemoryRequest("uid", True, (ContainerMemoryRequest("c", "regular", sizes),), sizes)
    admit_pod(
        AdmissionRules("Static", topology),
        MemoryManagerState("Static", nodes),
        ReusableMemory(),
        AdmissionAttempt(request),
    )


def _search(nodes: NumaNodeMap, sizes: MemorySizes) -> Hint:
    lists = [
        ResourceHints(MEMORY_MANAGER, name, memory_hint_set(nodes, sizes, {})) for name in sizes
    ]
    return merge_hints(lists, MergeContext(mask_of(nodes)))


def _enumerate(nodes: NumaNodeMap, sizes: MemorySizes) -> Hint:
    """The same answer, mask by mask, as the kubelet finds it for one resource."""
    (name,) = sizes
    requested = sizes[name]
    smallest, fitting = len(nodes), []
    for size in range(1, len(nodes) + 1):
        for members in combinations(nodes, size):
            if sum([nodes[i].table(name).allocatable for i in members]) < requested:
                continue
            smallest = min(smallest, size)
            if size > 1 and any([nodes[i].assignments for i in members]):
                continue
            if sum([nodes[i].table(name).free for i in members]) >= requested:
                fitting.append(mask_of(members))
    preferred = [mask for mask in fitting if mask.bit_count() == smallest]
    return Hint(min(preferred), True) if preferred else _search(nodes, sizes)


def _distances(nodes: NumaNodeMap) -> NodeDistances:
    """Sockets of four nodes."""
    return {
        a: {
            b: 10 if a == b else 12 if a // 4 == b // 4 else 20 + abs(a // 4 - b // 4)
            for b in nodes
        }
        for a in nodes
    }


def _milliseconds(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best * 1000
