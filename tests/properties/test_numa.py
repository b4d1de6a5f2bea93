"""Whatever pods come and go, memory of NUMA nodes is given out once and found again."""

from collections.abc import Callable
from itertools import combinations, product
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import Json, box, pod, stanza

from memqos.kube.pod import Pod
from memqos.kube.quantity import Quantity
from memqos.numa.checkpoint import LoadedCheckpoint, encode_checkpoint, read_checkpoint
from memqos.numa.hints import (
    Hint,
    Hints,
    ResourceHints,
    ReusableByMask,
    iterate_hints,
    memory_hint_set,
)
from memqos.numa.machine_state import (
    MemorySizes,
    MemoryTable,
    NumaMemory,
    NumaNodeMap,
    NumaNodeState,
    empty_node_map,
)
from memqos.numa.manager import Manager, ManagerSettings, start_manager
from memqos.numa.masks import (
    Mask,
    NodeDistances,
    WeightedNodes,
    lowest_mask,
    mask_of,
    total_distance,
)
from memqos.numa.reserved_memory import even_split, reservation_totals, system_reserved
from memqos.numa.topology_manager import (
    TOPOLOGY_POLICY_NAMES,
    MergeContext,
    TopologySettings,
    configure_topology,
    merge_hints,
)
from memqos.release import Release

RESOURCES = ("hugepages-2Mi", "memory")

# Brute force: the rules as documented, mask by mask and hint by hint


def listed_masks(nodes: NumaNodeMap, sizes: MemorySizes, reusable: ReusableByMask) -> list[Hint]:
    minimum, found = len(nodes), []
    for size in range(1, len(nodes) + 1):
        for members in combinations(sorted(nodes), size):
            total = {name: sum(nodes[i].table(name).allocatable for i in members) for name in sizes}
            if any(total[name] < needed for name, needed in sizes.items()):
                continue
            minimum = min(minimum, size)
            if size == 1 and len(nodes[members[0]].cells) > 1:
                continue
            if size > 1 and any(
                nodes[i].assignments and nodes[i].cells != members for i in members
            ):
                continue
            again = reusable.get(mask_of(members), {})
            if all(
                sum(nodes[i].table(name).free for i in members) + again.get(name, 0) >= needed
                for name, needed in sizes.items()
            ):
                found.append(mask_of(members))
    return [Hint(mask, mask.bit_count() == minimum) for mask in found]


def best_of_all(lists: list[Hints], nodes: Mask, distances: NodeDistances | None) -> Hint:
    sizes = [[hint.mask.bit_count() for hint in hints if hint.mask is not None] for hints in lists]
    target = max([min(of_list) for of_list in sizes if of_list], default=0)

    def rank(hint: Hint) -> tuple[Any, ...]:
        assert hint.mask is not None
        size = hint.mask.bit_count()
        apart = 0 if distances is None else total_distance(hint.mask, distances)
        if hint.preferred:
            return (0, 0, size, apart, hint.mask)
        return (1, size > target, size if size > target else -size, apart, hint.mask)

    candidates = []
    for chosen in product(*lists):
        masks = [hint.mask for hint in chosen if hint.mask is not None]
        common = nodes
        for mask in masks:
            common &= mask
        if common:
            preferred = all(hint.preferred for hint in chosen) and len(set(masks)) <= 1
            candidates.append(Hint(common, preferred))
    return min(candidates, key=rank, default=Hint(nodes, False))


@st.composite
def node_maps(draw: st.DrawFn, most: int = 4) -> dict[int, NumaNodeState]:
    """Nodes of small sizes, some used alone, some in groups."""
    ids = sorted(draw(st.sets(st.integers(0, most + 2), min_size=1, max_size=most)))
    cells: dict[int, tuple[int, ...]] = {i: (i,) for i in ids}
    used = draw(st.sets(st.sampled_from(ids)))
    for group in ("one", "other"):
        grouped = {i for i in used if len(cells[i]) == 1}
        members = draw(st.sets(st.sampled_from(sorted(grouped)))) if grouped else set()
        if len(members) > 1 and draw(st.booleans(), label=f"{group} group"):
            cells |= dict.fromkeys(members, tuple(sorted(members)))
    nodes = {}
    for i in ids:
        tables = {}
        for name in RESOURCES:
            size = draw(st.integers(0, 8))
            taken = draw(st.integers(0, size)) if i in used else 0
            tables[name] = MemoryTable(size, 0, size, taken, size - taken)
        nodes[i] = NumaNodeState(draw(st.integers(1, 3)) if i in used else 0, tables, cells[i])
    return nodes


@st.composite
def requests(draw: st.DrawFn) -> dict[str, int]:
    names = draw(st.sampled_from([("memory",), RESOURCES]))
    return {name: draw(st.integers(0, 20)) for name in names}


def masks_in(nodes: NumaNodeMap) -> st.SearchStrategy[Mask]:
    return st.sets(st.sampled_from(sorted(nodes)), min_size=1).map(mask_of)


def hint_lists(nodes: NumaNodeMap) -> st.SearchStrategy[Hints]:
    hint = st.builds(Hint, st.one_of(st.none(), masks_in(nodes)), st.booleans())
    return st.lists(hint, min_size=1, max_size=4).map(tuple)


@given(node_maps(10), requests(), st.data())
def test_an_offer_is_the_list_of_all_masks_that_satisfy_the_request(
    nodes: dict[int, NumaNodeState], sizes: dict[str, int], data: st.DataObject
) -> None:
    amounts = st.fixed_dictionaries({name: st.integers(0, 8) for name in RESOURCES})
    reusable = data.draw(st.dictionaries(masks_in(nodes), amounts, max_size=2))
    offer = memory_hint_set(nodes, sizes, reusable)
    needed = listed_masks(nodes, sizes, reusable)
    assert list(iterate_hints(offer)) == needed
    assert bool(offer) == bool(needed)
    including = data.draw(masks_in(nodes) | st.just(0))
    wide = [hint.mask for hint in needed if hint.mask is not None]
    wide = [mask for mask in wide if mask & including == including]
    narrowest = min(wide, key=lambda mask: (mask.bit_count(), mask), default=None)
    assert offer.narrowest(including=including) == narrowest


@given(node_maps(), requests(), st.data())
def test_a_merge_is_the_best_of_all(
    nodes: dict[int, NumaNodeState], sizes: dict[str, int], data: st.DataObject
) -> None:
    others = data.draw(st.lists(hint_lists(nodes), max_size=2))
    assert_merged_like_all(nodes, sizes, others, data.draw(st.none() | distances_in(nodes)))


@given(node_maps(10), st.integers(0, 40), st.data())
def test_a_merge_on_ten_nodes_is_the_best_of_all(
    nodes: dict[int, NumaNodeState], size: int, data: st.DataObject
) -> None:
    others = data.draw(st.lists(hint_lists(nodes), max_size=1))
    distances = data.draw(st.none() | distances_in(nodes))
    assert_merged_like_all(nodes, {"memory": size}, others, distances)


def distances_in(nodes: NumaNodeMap) -> st.SearchStrategy[NodeDistances]:
    row = st.fixed_dictionaries({i: st.sampled_from([10, 12, 20, 32]) for i in nodes})
    return st.fixed_dictionaries(dict.fromkeys(nodes, row))


def assert_merged_like_all(
    nodes: NumaNodeMap, sizes: MemorySizes, others: list[Hints], distances: NodeDistances | None
) -> None:
    offer = memory_hint_set(nodes, sizes, {})
    lists = [ResourceHints("other", str(index), hints) for index, hints in enumerate(others)]
    plain = list(others)
    if offer:
        lists += [ResourceHints("memory", name, offer) for name in sizes]
        plain += [tuple(iterate_hints(offer))] * len(sizes)
    layout = MergeContext(mask_of(nodes), distances)
    assert merge_hints(lists, layout) == best_of_all(plain, layout.nodes, distances)


@st.composite
def far_apart(draw: st.DrawFn) -> tuple[WeightedNodes, NodeDistances, Mask]:
    """Up to ten nodes, of which few are alike, and up to two more beside them."""
    number = draw(st.integers(2, 10))
    beside = tuple(range(number, number + draw(st.integers(0, 2))))
    weights = draw(st.lists(st.tuples(st.integers(1, 4)), min_size=number, max_size=number))
    away = st.integers(10, 40) if draw(st.booleans()) else st.sampled_from([10, 12, 20])
    everyone = (*range(number), *beside)
    distances: dict[int, dict[int, int]] = {
        i: {j: 10 if i == j else draw(away) for j in everyone} for i in everyone
    }
    return WeightedNodes(tuple(range(number)), tuple(weights)), distances, mask_of(beside)


@given(far_apart(), st.data())
def test_the_nearest_subset_is_the_nearest_of_all(
    machine: tuple[WeightedNodes, NodeDistances, Mask], data: st.DataObject
) -> None:
    pool, distances, beside = machine
    size = data.draw(st.integers(1, len(pool.nodes)))
    need = data.draw(st.integers(0, 3 * size))
    fitting = [
        mask_of(members)
        for members in combinations(pool.nodes, size)
        if sum(pool.weights[i][0] for i in members) >= need
    ]
    nearest = min(
        fitting, key=lambda mask: (total_distance(mask | beside, distances), mask), default=None
    )
    assert lowest_mask(pool, (need,), size, beside=beside, distances=distances) == nearest


# Lives of a kubelet

Step = Callable[[Manager], Manager]


@st.composite
def containers(draw: st.DrawFn, *, init: bool = False) -> Json:
    size = str(draw(st.integers(1, 12)))
    pages = draw(st.one_of(st.none(), st.integers(0, 4)))
    more = {} if pages is None else {"hugepages-2Mi": str(pages)}
    kind = draw(st.sampled_from(["full", "full", "full", "empty"]))
    sidecar = init and draw(st.booleans())
    if kind == "empty":
        return box(sidecar=sidecar)
    return box(size, size, cpu=("1", "1"), requests=more, limits=more, sidecar=sidecar)


@st.composite
def new_pods(draw: st.DrawFn, uid: str) -> Pod:
    pooled = draw(st.integers(0, 3)) == 0
    size = str(draw(st.integers(1, 20)))
    made = pod(
        draw(st.lists(containers(), min_size=1, max_size=2)),
        init=draw(st.lists(containers(init=True), max_size=2)),
        resources=stanza(size, size, cpu=("4", "4")) if pooled else None,
    )
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, uid=uid))


@st.composite
def lives(draw: st.DrawFn) -> list[Step]:
    """Pods that come, maybe more than once, and go, and containers that start and end."""
    pods = [draw(new_pods(f"pod-{number}")) for number in range(draw(st.integers(1, 4)))]

    def step() -> Step:
        kind = draw(st.sampled_from(["admit", "admit", "admit", "start", "remove", "delete"]))
        chosen = draw(st.sampled_from(pods))
        uid = chosen.metadata.uid or ""
        container = draw(st.sampled_from(["i0", "i1", "c0", "c1"]))
        if kind == "admit":
            return lambda manager: manager.admit(chosen)[0]
        if kind == "start":
            return lambda manager: manager.start_container(uid, container)
        if kind == "remove":
            return lambda manager: manager.remove_container(uid, container)
        return lambda manager: manager.delete_pod(uid)

    return [step() for _ in range(draw(st.integers(0, 8)))]


@st.composite
def kubelets(draw: st.DrawFn) -> Manager:
    sizes = draw(st.lists(st.integers(8, 16), min_size=1, max_size=4))
    machine = tuple(
        NumaMemory(i, size, {"hugepages-2Mi": draw(st.integers(0, 5))})
        for i, size in enumerate(sizes)
    )
    scope = draw(st.sampled_from(["container", "pod"]))
    topology = configure_topology(
        draw(st.sampled_from(TOPOLOGY_POLICY_NAMES)), scope, {}, range(len(sizes)), None
    )
    assert isinstance(topology, TopologySettings)
    gates = {"PodLevelResourceManagers": draw(st.booleans())}
    settings = ManagerSettings(
        machine=machine,
        policy="Static",
        topology=topology,
        release=Release.of("1.38", gates),
        reserved={0: {"memory": 1}},
    )
    manager = start_manager(settings)
    assert isinstance(manager, Manager)
    return manager


def lived(manager: Manager, life: list[Step]) -> Manager:
    for step in life:
        manager = step(manager)
    return manager


def allocated(manager: Manager, resource: str) -> int:
    """What is allocated to containers and pools; the containers of a pool have parts of it."""
    state = manager.state
    blocks = [block for pool in state.pools.values() for block in pool]
    for uid, of_pod in state.assignments.items():
        if uid not in state.pools:
            blocks += [block for own in of_pod.values() for block in own]
    return sum(block.size for block in blocks if block.type == resource)


@given(kubelets(), lives())
def test_no_memory_is_allocated_twice(manager: Manager, life: list[Step]) -> None:
    for step in life:
        manager = step(manager)
        nodes = manager.state.nodes.values()
        for name in RESOURCES:
            tables = [node.table(name) for node in nodes]
            assert all(table.free >= 0 and table.reserved >= 0 for table in tables)
            assert all(table.free + table.reserved == table.allocatable for table in tables)
            assert sum(table.reserved for table in tables) == allocated(manager, name)


@given(kubelets(), lives())
def test_when_all_pods_are_removed_the_machine_is_as_new(
    manager: Manager, life: list[Step]
) -> None:
    fresh = manager.state
    manager = lived(manager, life)
    for uid in list(manager.active):
        manager = manager.delete_pod(uid)
    nothing = msgspec.structs.replace(pod([box()]), status=None)
    assert manager.admit(nothing)[0].state == fresh


@given(kubelets(), lives())
def test_a_kubelet_goes_on_from_the_file_it_wrote(manager: Manager, life: list[Step]) -> None:
    manager = lived(manager, life)
    loaded = read_checkpoint(encode_checkpoint(manager.state, manager.settings.release))
    assert loaded == LoadedCheckpoint(manager.state, "v3")
    again = start_manager(manager.settings, loaded.state)
    assert isinstance(again, Manager)
    assert again.state == manager.state


@given(kubelets(), lives(), new_pods("new"))
def test_admitting_a_running_pod_again_takes_nothing_more(
    manager: Manager, life: list[Step], new: Pod
) -> None:
    once = lived(manager, life).admit(new)[0]
    if new.metadata.uid in once.active:
        assert once.admit(new)[0].state.nodes == once.state.nodes


# Reservations


@given(
    st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(0, 512)), min_size=1, max_size=8),
    st.integers(0, 1 << 41),
    st.integers(0, 1024),
)
def test_a_split_adds_up_to_what_the_kubelet_requires_and_fits_the_nodes(
    sizes: list[tuple[int, int]], memory: int, pages: int
) -> None:
    page = 1 << 21
    machine = tuple(
        NumaMemory(i, size + count * page, {"hugepages-2Mi": count * page})
        for i, (size, count) in enumerate(sizes)
    )
    required = {"memory": Quantity.of(memory), "hugepages-2Mi": Quantity.of(pages * page)}
    split = even_split(empty_node_map(machine, {}), required)
    if memory > sum(size for size, _ in sizes) or pages > sum(count for _, count in sizes):
        assert split is None
        return
    assert split is not None
    total = reservation_totals(split)
    assert all(total.get(name, Quantity(0)) == amount for name, amount in required.items())
    reserved = system_reserved(range(len(sizes)), split, required)
    assert isinstance(reserved, dict)
    nodes = empty_node_map(machine, reserved)
    assert all(table.free >= 0 for node in nodes.values() for table in node.memory.values())
