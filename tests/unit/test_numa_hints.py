"""Which nodes could satisfy a request depends on their memory and on who uses them already."""

import pytest
from tests.fakes.numa import count_steps

from memqos.numa.hints import Hint, HintSet, ResourceHints, iterate_hints, memory_hint_set
from memqos.numa.largest_fit import largest_fits
from memqos.numa.machine_state import MemoryTable, NumaNodeMap, NumaNodeState
from memqos.numa.masks import mask_of, nodes_of
from memqos.numa.topology_manager import MergeContext, merge_hints


def node(
    *cells: int, size: int = 10, used: int = 0, count: int = 0, pages: int = 0
) -> NumaNodeState:
    tables = {
        "memory": MemoryTable(size, 0, size, used, size - used),
        "hugepages-2Mi": MemoryTable(pages, 0, pages, 0, pages),
    }
    return NumaNodeState(count, tables, cells)


def offered(nodes: NumaNodeMap, memory: int, pages: int | None = None) -> HintSet:
    sizes = {"memory": memory} if pages is None else {"hugepages-2Mi": pages, "memory": memory}
    return memory_hint_set(nodes, sizes, {})


def masks(offer: HintSet) -> list[tuple[int, ...]]:
    return [nodes_of(mask) for mask in offer]


IDLE = {i: node(i) for i in range(3)}


def test_on_an_idle_machine_every_mask_that_is_large_enough_is_offered() -> None:
    assert masks(offered(IDLE, 5)) == [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]
    assert masks(offered(IDLE, 15)) == [(0, 1), (0, 2), (1, 2), (0, 1, 2)]
    assert not offered(IDLE, 31)


def test_preferred_is_what_an_empty_machine_would_need() -> None:
    full = {0: node(0, used=10, count=1), 1: node(1, used=10, count=1), 2: node(2), 3: node(3)}
    crowded = {**full, 2: node(2, used=6, count=1)}
    assert next(iterate_hints(offered(full, 5))) == Hint(mask_of([2]), True)
    assert list(iterate_hints(offered(crowded, 8))) == [Hint(mask_of([3]), True)]
    # Two idle nodes have what one would have on an empty machine: offered, but not preferred.
    small = {0: node(0, size=20, used=20, count=1), 1: node(1), 2: node(2)}
    assert list(iterate_hints(offered(small, 15))) == [Hint(mask_of([1, 2]), False)]


def test_a_node_in_use_alone_is_not_used_with_others() -> None:
    nodes = {**IDLE, 0: node(0, used=2, count=1)}
    assert masks(offered(nodes, 5)) == [(0,), (1,), (2,), (1, 2)]


def test_a_group_in_use_is_used_whole_or_not_at_all() -> None:
    nodes = {
        0: node(0, 1, used=6, count=1),
        1: node(0, 1, used=5, count=1),
        2: node(2),
        3: node(3),
    }
    assert masks(offered(nodes, 4)) == [(2,), (3,), (0, 1), (2, 3)]
    assert masks(offered(nodes, 10)) == [(2,), (3,), (2, 3)]


def test_every_resource_must_fit() -> None:
    nodes = {0: node(0, pages=4), 1: node(1), 2: node(2, pages=2)}
    assert masks(offered(nodes, 5, 3)) == [(0,), (0, 1), (0, 2), (0, 1, 2)]
    assert masks(offered(nodes, 15, 5)) == [(0, 2), (0, 1, 2)]


def test_memory_the_pod_may_use_again_counts_for_its_mask_alone() -> None:
    full = {i: node(i, used=10, count=1) for i in range(2)}
    offer = memory_hint_set(full, {"memory": 4}, {mask_of([1]): {"memory": 4}})
    assert masks(offer) == [(1,)]


def test_a_wider_mask_is_the_narrowest_that_includes_the_given_nodes() -> None:
    offer = offered({i: node(i, size=10 + i) for i in range(4)}, 25)
    assert offer.narrowest() == mask_of([2, 3])
    assert offer.narrowest(including=mask_of([0])) == mask_of([0, 1, 2])
    assert offered(IDLE, 31).narrowest() is None


def test_a_resource_no_node_has_is_not_offered() -> None:
    assert not memory_hint_set(IDLE, {"memory": 1, "hugepages-1Gi": 1}, {})


def test_34_nodes_are_no_harder_than_two(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = count_steps(monkeypatch)
    nodes = {i: node(i, size=100 + i, pages=i % 3) for i in range(34)}
    for memory in (50, 1000, 2000, 3900):
        offer = offered(nodes, memory, 5)
        lists = [ResourceHints("memory", name, offer) for name in ("memory", "hugepages-2Mi")]
        assert merge_hints(lists, MergeContext(mask_of(range(34)))).preferred
    assert len(steps) < 1_000


def test_the_largest_fit_is_given_by_resource() -> None:
    nodes = {
        0: node(0, used=7, count=1, pages=4),
        1: node(1, 2, used=9, count=1),
        2: node(1, 2, used=8, count=1, pages=9),
        3: node(3, pages=1),
        4: node(4, size=8),
    }
    pages, memory = largest_fits(nodes, {"hugepages-2Mi": 2, "memory": 9})
    assert (memory.on_one, memory.one) == (3, (0,))
    assert (memory.on_several, memory.several) == (3, (1, 2))
    assert (pages.on_one, pages.one) == (1, (3,))
    assert (pages.on_several, pages.several) == (1, (3, 4))
