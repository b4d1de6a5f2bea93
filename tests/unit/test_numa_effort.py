"""A search for nodes ends in time, and reports when it ended early."""

import pytest
from tests.fakes.numa import count_steps

from memqos.numa.admission import (
    AdmissionAttempt,
    AdmissionRules,
    AdmittedPod,
    RefusedPod,
    admit_pod,
)
from memqos.numa.allocation import ReusableMemory
from memqos.numa.machine_state import MemoryManagerState, MemoryTable, NumaNodeMap, NumaNodeState
from memqos.numa.masks import NodeDistances, mask_of
from memqos.numa.requests import ContainerMemoryRequest, PodMemoryRequest
from memqos.numa.topology_manager import TopologySettings

HUGE = "hugepages-2Mi"


def nodes(count: int) -> dict[int, NumaNodeState]:
    """All unlike: the more memory, the fewer hugepages."""
    made = {}
    for i in range(count):
        size = (i * 7919) % 1009 + 1000
        tables = {"memory": size, HUGE: 3000 - size}
        made[i] = NumaNodeState(0, {k: MemoryTable(v, 0, v, 0, v) for k, v in tables.items()}, (i,))
    return made


def outcome(
    on: NumaNodeMap, sizes: dict[str, int], distances: NodeDistances | None = None
) -> AdmittedPod | RefusedPod:
    topology = TopologySettings("best-effort", "container", mask_of(on), distances)
    request = PodMemoryRequest("uid", True, (ContainerMemoryRequest("c", "regular", sizes),), sizes)
    rules = AdmissionRules("Static", topology)
    _, _, found = admit_pod(
        rules, MemoryManagerState("Static", on), ReusableMemory(), AdmissionAttempt(request)
    )
    return found


def exactly(on: NumaNodeMap, count: int) -> dict[str, int]:
    """What some nodes have to the byte, so that only sets of the very same sums will do."""
    memory = sum(sorted(node.table("memory").free for node in on.values())[8 : 8 + count])
    return {"memory": memory, HUGE: 3000 * count - memory}


def test_a_search_among_few_nodes_goes_to_its_end() -> None:
    found = outcome(nodes(12), exactly(nodes(12), 4))
    assert isinstance(found, AdmittedPod)
    assert not found.gave_up


def test_a_search_that_is_given_up_is_marked_and_still_finds_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on = nodes(34)
    steps = count_steps(monkeypatch)
    found = outcome(on, exactly(on, 17))
    assert len(steps) < 1 << 18
    assert found.gave_up
    assert isinstance(found, AdmittedPod)
    assert len(found.blocks["c"][0].nodes) in (17, 18)


def test_a_search_for_close_nodes_ends_too() -> None:
    on = nodes(64)
    far: NodeDistances = {
        a: {b: 10 if a == b else 11 + (a * b + a + b) % 97 for b in on} for a in on
    }
    found = outcome(on, {"memory": 40_000}, far)
    assert isinstance(found, AdmittedPod)
    assert found.gave_up


def test_memory_alone_never_needs_to_be_given_up() -> None:
    on = nodes(64)
    for share in range(1, 10):
        total = sum(node.table("memory").free for node in on.values())
        assert not outcome(on, {"memory": total * share // 10}).gave_up
