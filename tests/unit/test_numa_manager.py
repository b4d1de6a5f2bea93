"""A kubelet allocates memory of NUMA nodes to Guaranteed pods, and releases it."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from tests.builders import GI, Json, box, pod, stanza
from tests.fakes.numa import count_steps

from memqos.kube.pod import Pod
from memqos.kube.quantity import as_int64
from memqos.numa.admission import AdmissionOutcome, AdmittedPod, RefusedPod
from memqos.numa.checkpoint import LoadedCheckpoint, encode_checkpoint, read_checkpoint
from memqos.numa.hints import Hint, HintProvider
from memqos.numa.machine_state import NumaMemory
from memqos.numa.manager import Manager, ManagerSettings, StartRefused, start_manager
from memqos.numa.masks import mask_of
from memqos.numa.topology_manager import TopologySettings, configure_topology
from memqos.release import Release

HUGE = "hugepages-2Mi"
POOLS = {"PodLevelResourceManagers": True}


def settings(
    *sizes: int,
    policy: str = "Static",
    topology: str = "best-effort",
    scope: str = "container",
    pages: int = 0,
    gates: Mapping[str, bool] | None = None,
    **more: Any,
) -> ManagerSettings:
    """Nodes of these sizes in GiB, one of it reserved on the first."""
    options = {"max-allowable-numa-nodes": "64"}
    found = configure_topology(topology, scope, options, range(len(sizes)), None)
    assert isinstance(found, TopologySettings)
    return ManagerSettings(
        machine=tuple(NumaMemory(i, size * GI, {HUGE: pages * GI}) for i, size in enumerate(sizes)),
        policy=policy,
        topology=found,
        release=Release.of("1.38", gates or {}),
        reserved={0: {"memory": GI}},
        **more,
    )


def kubelet(*sizes: int, **more: Any) -> Manager:
    manager = start_manager(settings(*sizes, **more))
    assert isinstance(manager, Manager)
    return manager


def full(size: object, pages: object = None, *, sidecar: bool = False) -> Json:
    """A container whose requests are its limits."""
    more = {} if pages is None else {HUGE: pages}
    return box(size, size, cpu=("1", "1"), requests=more, limits=more, sidecar=sidecar)


def named(uid: str, *containers: Json, **more: Any) -> Pod:
    made = pod(containers, **more)
    return msgspec.structs.replace(
        made, metadata=msgspec.structs.replace(made.metadata, uid=uid, name=uid)
    )


def admitted(manager: Manager, *pods: Pod, **more: Any) -> Manager:
    for each in pods:
        manager, outcome = manager.admit(each, **more)
        assert isinstance(outcome, AdmittedPod), outcome
    return manager


def refused(manager: Manager, pod: Pod, **more: Any) -> RefusedPod:
    _, outcome = manager.admit(pod, **more)
    assert isinstance(outcome, RefusedPod)
    return outcome


def free(manager: Manager, resource: str = "memory") -> list[int]:
    return [node.table(resource).free // GI for node in manager.state.nodes.values()]


def test_a_guaranteed_container_is_pinned_to_the_lowest_node_with_enough() -> None:
    manager = admitted(kubelet(9, 8), named("a", full("8Gi")), named("b", full("3Gi")))
    assert manager.cpuset_nodes("a", "c0") == (0,)
    assert manager.cpuset_nodes("b", "c0") == (1,)
    assert free(manager) == [0, 5]


def test_a_burstable_pod_is_not_pinned() -> None:
    manager = admitted(kubelet(9, 8), named("a", box("1Gi", "2Gi")))
    assert manager.cpuset_nodes("a", "c0") == ()
    assert free(manager) == [8, 8]


def test_what_no_node_holds_alone_spans_a_group_filled_from_its_lowest_node() -> None:
    manager = admitted(kubelet(9, 8, 8), named("a", full("12Gi")))
    assert manager.cpuset_nodes("a", "c0") == (0, 1)
    assert free(manager) == [0, 4, 8]
    assert [node.cells for node in manager.state.nodes.values()] == [(0, 1), (0, 1), (2,)]


def test_hugepages_count_as_an_assignment_of_their_own() -> None:
    manager = admitted(kubelet(9, 8, pages=2), named("a", full("1Gi", "1Gi")))
    assert manager.state.nodes[0].assignments == 2
    assert free(manager, HUGE) == [1, 2]


def test_a_refused_pod_learns_the_resource_and_the_nodes() -> None:
    manager = kubelet(9, 8, pages=1)
    outcome = refused(manager, named("a", full("1Gi", "4Gi")))
    assert (outcome.reason, outcome.cause) == ("UnexpectedAdmissionError", "no_wider_room")
    assert (outcome.container, outcome.resource, outcome.nodes) == ("c0", HUGE, (0, 1))
    assert outcome.calls[0].providers[0].hints == {}


def test_without_a_topology_policy_no_room_is_no_room_on_any_node() -> None:
    outcome = refused(kubelet(9, 8, topology="none"), named("a", full("20Gi")))
    assert (outcome.cause, outcome.resource, outcome.nodes) == ("no_room", "memory", None)


def test_restricted_refuses_nodes_that_an_empty_machine_would_not_need() -> None:
    manager = kubelet(31, 20, 20, topology="restricted")
    manager = admitted(manager, named("a", full("15Gi")))
    outcome = refused(manager, named("b", full("25Gi")))
    assert outcome.reason == "TopologyAffinityError"
    assert outcome.obstruction is not None
    assert outcome.obstruction.obstacle == "not_preferred"
    assert [line.resource for line in outcome.obstruction.lists] == ["memory"]


def test_another_providers_hint_can_refuse_a_pod() -> None:
    cpus = HintProvider("cpumanager", {"cpu": (Hint(mask_of([1]), True),)})
    manager = kubelet(9, 2, topology="single-numa-node")
    outcome = refused(manager, named("a", full("5Gi")), other_providers=(cpus,))
    assert outcome.reason == "TopologyAffinityError"
    assert outcome.obstruction is not None
    assert outcome.obstruction.obstacle == "no_common_nodes"
    assert {line.provider for line in outcome.obstruction.lists} == {"cpumanager", "memorymanager"}


def test_a_refused_pod_keeps_what_it_got_until_the_next_one_comes() -> None:
    manager, outcome = kubelet(9).admit(named("a", full("3Gi"), full("30Gi")))
    assert isinstance(outcome, RefusedPod)
    assert free(manager) == [5]
    assert free(admitted(manager, named("b", full("1Gi")))) == [7]


def test_later_containers_use_the_memory_of_init_containers_again() -> None:
    manager = admitted(kubelet(9), named("a", full("5Gi"), init=[full("6Gi"), full("2Gi")]))
    assert free(manager) == [2]
    assigned = manager.state.assignments["a"]
    assert {name: block.size // GI for name, (block,) in assigned.items()} == {
        "i0": 0, "i1": 1, "c0": 5,
    }  # fmt: skip


def test_a_sidecars_memory_is_never_used_again() -> None:
    pods = named("a", full("3Gi"), init=[full("3Gi", sidecar=True)])
    assert free(admitted(kubelet(9), pods)) == [2]


def test_a_started_container_frees_the_plain_init_containers_before_it() -> None:
    manager = admitted(kubelet(9), named("a", full("1Gi"), init=[full("5Gi")]))
    assert free(manager) == [3]
    assert free(manager.start_container("a", "i0")) == [3]
    assert free(manager.start_container("a", "c0")) == [7]


def test_a_container_that_was_never_started_is_not_removed() -> None:
    manager = admitted(kubelet(9), named("a", full("3Gi")))
    assert free(manager.remove_container("a", "c0")) == [5]
    assert free(manager.start_container("a", "c0").remove_container("a", "c0")) == [8]


def test_a_deleted_pods_memory_returns_with_the_next_admission() -> None:
    manager = admitted(kubelet(9), named("a", full("6Gi"))).delete_pod("a")
    assert free(manager) == [2]
    assert free(admitted(manager, named("b", full("6Gi")))) == [2]


def test_admitting_a_pod_again_changes_nothing() -> None:
    once = admitted(kubelet(9, 8), named("a", full("3Gi"), init=[full("4Gi")]))
    assert admitted(once, named("a", full("3Gi"), init=[full("4Gi")])).state == once.state


def test_memory_that_was_given_back_is_not_used_again_by_a_pod_admitted_again() -> None:
    again = named("a", full("1Gi"), init=[full("5Gi")])
    for as_kubelet, left in ((False, [2]), (True, [6])):
        manager = admitted(kubelet(9, as_kubelet=as_kubelet), again).start_container("a", "c0")
        assert free(manager) == [7]
        assert free(admitted(manager, again)) == left


def test_a_resize_neither_collects_hints_nor_allocates() -> None:
    manager = admitted(kubelet(9), named("a", full("30Gi")), operation="resize")
    assert free(manager) == [8]


def test_a_step_leaves_the_manager_it_starts_from_alone() -> None:
    manager = kubelet(9)
    admitted(manager, named("a", full("3Gi")))
    assert free(manager) == [8]
    assert manager.active == {}


@pytest.mark.parametrize("size", ["1.5Gi", "2000m", "100000Gi", "1.0"])
def test_a_size_that_is_not_stored_as_an_integer_is_refused(size: str) -> None:
    assert as_int64(size) is None
    outcome = refused(kubelet(9), named("a", full(size)))
    assert (outcome.reason, outcome.cause) == ("UnexpectedAdmissionError", "not_an_integer")


@pytest.mark.parametrize(
    ("text", "size"),
    [("1.5G", 1_500_000_000), ("1e3", 1000), ("0", 0), ("99999Gi", 99999 * GI), ("+8Ki", 8192),
     (" 5 ", 5), (7, 7), (None, 0), ("1.Gi", GI)],
)  # fmt: skip
def test_sizes_stored_as_integers_are_read(text: str | int | None, size: int) -> None:
    assert as_int64(text) == size


# Pod-level resources


def pooled(uid: str, size: str, *containers: Json, **more: Any) -> Pod:
    return named(uid, *containers, resources=stanza(size, size, cpu=("4", "4")), **more)


def test_with_the_gate_off_a_pod_with_pod_level_resources_is_admitted_unpinned() -> None:
    manager, outcome = kubelet(9, scope="pod").admit(pooled("a", "4Gi", full("1Gi")))
    assert isinstance(outcome, AdmittedPod)
    assert outcome.unaligned
    assert manager.cpuset_nodes("a", "c0") == ()


def test_in_pod_scope_exclusive_containers_get_their_size_and_the_others_share_the_rest() -> None:
    manager = kubelet(9, scope="pod", gates=POOLS)
    manager = admitted(manager, pooled("a", "6Gi", full("2Gi"), box(), init=[full("3Gi"), box()]))
    assert [block.size for block in manager.state.pools["a"]] == [6 * GI]
    assigned = manager.state.assignments["a"]
    assert {name: block.size // GI for name, (block,) in assigned.items()} == {
        "i0": 3, "i1": 6, "c0": 2, "c1": 4,
    }  # fmt: skip
    assert free(manager) == [2]


def test_a_pool_is_given_back_with_the_last_container() -> None:
    manager = kubelet(9, scope="pod", gates=POOLS)
    manager = admitted(manager, pooled("a", "6Gi", full("2Gi"), box()))
    manager = (
        manager.start_container("a", "c0").start_container("a", "c1").remove_container("a", "c0")
    )
    assert free(manager) == [2]
    manager = manager.remove_container("a", "c1")
    assert free(manager) == [8]
    assert manager.state.pools == {}


def test_in_container_scope_only_exclusive_containers_are_pinned() -> None:
    manager = kubelet(9, scope="container", gates=POOLS)
    manager = admitted(manager, pooled("a", "6Gi", full("2Gi"), box("1Gi", "1Gi")))
    assert (manager.cpuset_nodes("a", "c0"), manager.cpuset_nodes("a", "c1")) == ((0,), ())


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ("best-effort", "EmptyPodSharedPoolError"),
        ("restricted", "TopologyAffinityError"),
        ("single-numa-node", "TopologyAffinityError"),
    ],
)
def test_a_pool_with_nothing_left_to_share_is_refused(policy: str, reason: str) -> None:
    manager = kubelet(9, topology=policy, scope="pod", gates=POOLS)
    assert refused(manager, pooled("a", "2Gi", full("2Gi"), box())).reason == reason


def test_only_as_the_kubelet_is_a_pool_counted_twice_when_its_pod_is_admitted_again() -> None:
    again = pooled("a", "3Gi", full("1Gi"), box())
    for as_kubelet, left in ((False, [5]), (True, [2])):
        given = settings(9, scope="pod", gates=POOLS, as_kubelet=as_kubelet)
        manager = start_manager(given)
        assert isinstance(manager, Manager)
        manager = admitted(manager, again)
        assert free(manager) == [5]
        restarted = manager.restart(given)
        assert isinstance(restarted, Manager)
        assert free(admitted(restarted, again)) == left


# Start and restart


def restarted(manager: Manager, given: ManagerSettings) -> Manager | StartRefused:
    text = encode_checkpoint(manager.state, given.release)
    loaded = read_checkpoint(text)
    assert isinstance(loaded, LoadedCheckpoint)
    return start_manager(given, loaded.state)


def test_a_kubelet_starts_over_the_state_it_left() -> None:
    manager = admitted(kubelet(9, 8, pages=1), named("a", full("12Gi", "2Mi")))
    again = restarted(manager, manager.settings)
    assert isinstance(again, Manager)
    assert again.state == manager.state


def test_after_a_reboot_changed_the_sizes_the_difference_is_reported_and_how_to_go_on() -> None:
    manager = admitted(kubelet(9, 8), named("a", full("5Gi")))
    smaller = settings(8, 8)
    verdict = restarted(manager, smaller)
    assert isinstance(verdict, StartRefused)
    assert verdict.kind == "machine_state_mismatch"
    assert verdict.state is not None
    total = verdict.state.differences[0]
    assert (total.node, total.resource, total.field) == (0, "memory", "total")
    assert (total.stored, total.found) == (9 * GI, 8 * GI)
    assert verdict.state.unplaced == ()
    assert verdict.state.rebuilt is not None
    assert isinstance(
        start_manager(smaller, manager.state.with_nodes(verdict.state.rebuilt)), Manager
    )


def test_what_does_not_fit_a_smaller_machine_is_named() -> None:
    manager = admitted(kubelet(9, 8), named("a", full("7Gi")))
    verdict = restarted(manager, settings(6, 8))
    assert isinstance(verdict, StartRefused)
    assert verdict.state is not None
    (lost,) = verdict.state.unplaced
    assert (lost.uid, lost.container, lost.block.size) == ("a", "c0", 2 * GI)


def test_an_assignment_on_a_removed_node_is_named() -> None:
    manager = admitted(kubelet(5, 8), named("a", full("7Gi")))
    verdict = restarted(manager, settings(5))
    assert isinstance(verdict, StartRefused)
    assert verdict.kind == "assignment_numa_node_not_found"
    assert verdict.state is not None
    assert verdict.state.differences[0].node == 1


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({"policy": "static"}, "unknown_policy"),
        ({"policy": "BestEffort"}, "policy_not_on_platform"),
        ({"windows": True}, "policy_not_on_platform"),
        ({"policy": "BestEffort", "windows": True}, "gate_off"),
        ({"reserved": {0: {}}}, "no_system_reserved_memory"),
        ({"reserved": {0: {"memory": 10 * GI}}}, "reserved_more_than_there_is"),
        ({"policy": "None"}, "state_policy_mismatch"),
    ],
)
def test_a_kubelet_that_cannot_start_has_a_reason(changed: dict[str, Any], kind: str) -> None:
    given = msgspec.structs.replace(settings(9), **changed)
    verdict = start_manager(given, kubelet(9).state)
    assert isinstance(verdict, StartRefused)
    assert verdict.kind == kind


# Windows


def windows(*sizes: int) -> Manager:
    gates = {"WindowsCPUAndMemoryAffinity": True}
    return kubelet(*sizes, policy="BestEffort", windows=True, gates=gates)


def test_on_windows_memory_is_tracked_but_not_pinned() -> None:
    manager = admitted(windows(9, 8), named("a", full("3Gi")))
    assert free(manager) == [5, 8]
    assert manager.state.container_nodes("a", "c0") == (0,)
    assert manager.cpuset_nodes("a", "c0") == ()


def test_on_windows_memory_follows_exclusive_cpus_even_where_it_does_not_fit() -> None:
    given: dict[str, Any] = {"cpu_nodes": {"c0": (1,)}}
    manager = admitted(windows(9, 2), named("a", full("3Gi")), **given)
    assert manager.state.container_nodes("a", "c0") == (1,)
    assert free(manager) == [8, 0]


@pytest.mark.parametrize("topology", ["none", "best-effort", "restricted", "single-numa-node"])
def test_an_admission_on_34_nodes_takes_few_steps(
    topology: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = count_steps(monkeypatch)
    manager = kubelet(*[64] * 34, topology=topology, scope="pod", pages=4)
    outcomes: list[AdmissionOutcome] = []
    for number, size in enumerate(["10Gi", "150Gi", "500Gi", "900Gi", "3000Gi"]):
        manager, outcome = manager.admit(named(f"p{number}", full(size, "1Gi")))
        outcomes.append(outcome)
    assert len(steps) < 1_000
    assert isinstance(outcomes[0], AdmittedPod)
    assert isinstance(outcomes[-1], RefusedPod)


class TestSequences:
    """Over several steps, as the kubelet's own managers (cm/memorymanager/policy_static.go)."""

    def test_a_pool_admitted_again_after_a_restart_is_taken_twice_and_ends_the_next_start(
        self,
    ) -> None:
        """AllocatePod() does not look for an earlier pool; validateState() then compares."""
        given = settings(5, 8, scope="pod", gates=POOLS, as_kubelet=True)
        whole_pod = named("a", box(), resources=stanza("2Gi", "2Gi", cpu=("2", "2")))
        manager = start_manager(given)
        assert isinstance(manager, Manager)
        manager = admitted(manager, whole_pod)
        assert free(manager) == [2, 8]
        again = manager.restart(given)
        assert isinstance(again, Manager)
        assert again.state == manager.state
        twice = admitted(again, whole_pod)
        assert sum(free(twice)) == sum(free(manager)) - 2
        verdict = twice.restart(given)
        assert isinstance(verdict, StartRefused)
        assert verdict.kind == "machine_state_mismatch"

    def test_memqos_itself_takes_a_pool_once(self) -> None:
        given = settings(5, 8, scope="pod", gates=POOLS)
        whole_pod = named("a", box(), resources=stanza("2Gi", "2Gi", cpu=("2", "2")))
        manager = admitted(kubelet(5, 8, scope="pod", gates=POOLS), whole_pod)
        again = manager.restart(given)
        assert isinstance(again, Manager)
        assert free(admitted(again, whole_pod)) == free(manager)

    def test_an_init_container_across_nodes_leaves_its_group_to_the_next(self) -> None:
        """getPodReusableMemory() goes by the mask; the block shrinks and still counts."""
        manager = admitted(kubelet(5, 4), named("a", full("3Gi"), init=[full("7Gi")]))
        state = manager.state
        assert free(manager) == [0, 1]
        assert state.container_nodes("a", "i0") == state.container_nodes("a", "c0") == (0, 1)
        blocks = [state.blocks("a", name) or () for name in ("i0", "c0")]
        assert [[block.size // GI for block in each] for each in blocks] == [[4], [3]]
        assert [node.assignments for node in state.nodes.values()] == [2, 2]
        started = manager.start_container("a", "c0")
        assert free(started) == [4, 1]
        assert [node.cells for node in started.state.nodes.values()] == [(0, 1), (0, 1)]

    @pytest.mark.parametrize(
        ("size", "kind"),
        [("1Gi", "machine_state_mismatch"), ("6Gi", "assignment_numa_node_not_found")],
    )
    def test_a_node_removed_at_restart_keeps_the_kubelet_from_starting(
        self, size: str, kind: str
    ) -> None:
        """validateState(): an assignment to it is found first, else the node map differs."""
        manager = admitted(kubelet(5, 8), named("a", full(size)))
        verdict = manager.restart(settings(5))
        assert isinstance(verdict, StartRefused)
        assert verdict.kind == kind

    def test_of_two_faults_the_lower_node_decides(self) -> None:
        """updateExpectedMachineState() goes node by node, and at each for node, then resource."""
        manager = admitted(kubelet(5, 8, pages=1), named("a", full("10Gi", "2Gi")))
        without_pages = msgspec.structs.replace(settings(5), machine=(NumaMemory(0, 5 * GI, {}),))
        nodes = {block.type: block.nodes for block in manager.state.blocks("a", "c0") or ()}
        assert nodes == {"memory": (0, 1), HUGE: (0, 1)}
        verdict = manager.restart(without_pages)
        assert isinstance(verdict, StartRefused)
        assert verdict.kind == "assignment_resource_not_found"
