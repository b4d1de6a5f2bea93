"""Kubernetes' own scenarios of Memory QoS on a node, with memqos in the kubelet's place.

systemd's cgroup driver, containerd and runc, once over CRI and once over NRI: three pods that run
all the time, and are planned under one configuration after the other. What a kubelet does only for
new containers, or never, memqos does for those that run.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.eventually import PATIENCE, eventually
from tests.vm.guest.kubelet import (
    EVERYTHING,
    HIGH,
    LOW,
    MIN,
    OFF,
    ON,
    THROTTLED,
    TIERED,
    Amounts,
    high,
    manifest,
)
from tests.vm.guest.nri_node import UpdatingPlugin
from tests.vm.guest.owner_node import (
    Memqos,
    count,
    dropins,
    ends,
    number,
    systemctl,
    text,
    workload_in,
)
from tests.vm.guest.runtime import Containerd, RunningPod
from tests.vm.guest.support import MI, ROOT

from memqos.agent.nri import NriRuntime
from memqos.kernel.machine import NRI_SOCKET
from memqos.lab.vm.topology import Topology
from memqos.plan.changes import Change
from memqos.plan.names import cgroup_names

MACHINES = {
    "systemd-runc": Topology(nodes=(1536,), init="systemd"),
    "over-nri": Topology(suite="forky", nodes=(1536,), init="systemd"),
}

NAMES = cgroup_names("systemd")
KUBEPODS, BURSTABLE = (ROOT / path.removeprefix("/") for path in (NAMES.kubepods, NAMES.burstable))
LIMIT = 96 * MI
"""memory.max of the container `two`, which is the runtime's to set."""

USUAL: dict[str, Amounts] = {"one": (64 * MI, 128 * MI), "two": (32 * MI, LIMIT)}


class Node:
    """The machine as a node with three pods, whose specifications may change while they run."""

    def __init__(self, folder: Path) -> None:
        self.memqos = Memqos(folder)
        self.containerd = Containerd("systemd")
        if Path(NRI_SOCKET).exists():  # containerd 2 has NRI on
            self.memqos.nri = NriRuntime(UpdatingPlugin(), timeout=60)
        self.burstable = RunningPod(self.containerd, "b", "Burstable")
        self.one = self.burstable.container("one", memory_limit_in_bytes=128 * MI)
        self.two = self.burstable.container("two", memory_limit_in_bytes=LIMIT)
        self.pod = self.one.parent
        guaranteed = RunningPod(self.containerd, "g", "Guaranteed")
        self.exact = guaranteed.container("exact", memory_limit_in_bytes=48 * MI)
        best_effort = RunningPod(self.containerd, "e", "BestEffort")
        self.spare = best_effort.container("spare")
        self._others = [
            manifest(guaranteed, {"exact": (48 * MI, 48 * MI)}, cpu=("100m", "100m")),
            manifest(best_effort, {"spare": (None, None)}),
        ]

    def steps(
        self, burstable: dict[str, Amounts] | None, cpu: tuple[str, str] | None, kubelet: Any
    ) -> Any:
        pods = list(self._others)
        if burstable is not None:
            pods.append(manifest(self.burstable, burstable, cpu))
        return self.memqos.plan(pods, NAMES.kubepods, **kubelet)

    def converge(
        self,
        kubelet: dict[str, Any],
        burstable: dict[str, Amounts] | None = USUAL,
        cpu: tuple[str, str] | None = None,
    ) -> None:
        """Have the node be as this kubelet would have it be."""
        _, steps = self.steps(burstable, cpu, kubelet)
        assert set(ends(self.memqos.apply(steps)).values()) <= {"written"}
        plan, _ = self.steps(burstable, cpu, kubelet)
        assert plan.comparison.changes == ()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    made = Node(tmp_path_factory.mktemp("node"))
    before = made.memqos.files(NAMES.kubepods), dropins()
    yield made
    assert made.memqos.rollback().owner_failures == ()
    made.containerd.kill()
    assert made.memqos.files(NAMES.kubepods) == before[0]
    left = {path: content for path, content in dropins().items() if ".slice" in path}
    assert left == {path: content for path, content in before[1].items() if ".slice" in path}


class TestProtection:
    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def tiered(cls, node: Node) -> None:
        node.converge(TIERED)

    def test_of_a_burstable_container_is_memory_low_of_its_request(self, node: Node) -> None:
        assert [number(each, LOW) for each in (node.one, node.two)] == [64 * MI, 32 * MI]
        assert [number(each, MIN) for each in (node.one, node.two)] == [0, 0]

    def test_of_a_guaranteed_container_is_memory_min_of_its_request(self, node: Node) -> None:
        cgroups = (node.exact, node.exact.parent)
        assert [number(cgroup, MIN) for cgroup in cgroups] == [48 * MI] * 2
        assert [number(cgroup, LOW) for cgroup in cgroups] == [0] * 2

    def test_of_a_besteffort_pod_is_none(self, node: Node) -> None:
        for cgroup in (node.spare, node.spare.parent, node.spare.parent.parent):
            assert (number(cgroup, MIN), number(cgroup, LOW)) == (0, 0)

    def test_of_a_pod_is_the_sum_of_its_containers(self, node: Node) -> None:
        assert number(node.pod, LOW) == 96 * MI

    def test_goes_all_the_way_up(self, node: Node) -> None:
        assert number(BURSTABLE, LOW) == 96 * MI
        assert number(KUBEPODS, LOW) == 96 * MI

    def test_of_all_pods_includes_what_burstable_ones_request(self, node: Node) -> None:
        assert number(KUBEPODS, MIN) == (48 + 96) * MI

    def test_is_there_by_policy_and_throttles_nobody(self, node: Node) -> None:
        assert {text(each, HIGH) for each in (node.one, node.two, node.exact)} == {"max"}

    def test_outlives_a_reload_of_systemd_down_to_the_container(self, node: Node) -> None:
        systemctl("daemon-reload")
        assert (number(node.one, LOW), number(node.exact, MIN)) == (64 * MI, 48 * MI)

    def test_outlives_an_update_of_a_container_s_limit_by_somebody_else(self, node: Node) -> None:
        container = node.burstable.containers["one"]
        (node.one / LOW).write_text(str(MI))
        node.containerd.update(container, memory_limit_in_bytes=120 * MI)
        assert (number(node.one, "memory.max"), number(node.one, LOW)) == (120 * MI, 64 * MI)
        node.containerd.update(container, memory_limit_in_bytes=128 * MI)


def test_a_container_with_request_and_limit_equal_is_burstable_by_its_cpu(node: Node) -> None:
    node.converge(EVERYTHING, {"one": (64 * MI, 64 * MI), "two": (32 * MI, LIMIT)}, ("50m", "1"))
    assert (number(node.one, LOW), number(node.one, MIN)) == (64 * MI, 0)
    assert text(node.one, HIGH) == "max"


class TestThrottling:
    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def throttled(cls, node: Node) -> None:
        node.converge(THROTTLED, {"one": (64 * MI, 128 * MI), "two": (32 * MI, None)})

    def test_is_between_request_and_limit(self, node: Node) -> None:
        assert number(node.one, HIGH) == high(64 * MI, 128 * MI)

    def test_of_a_container_without_limit_is_up_to_what_can_be_allocated(self, node: Node) -> None:
        memory = node.memqos.machine.memory
        assert memory is not None
        assert number(node.two, HIGH) == high(32 * MI, memory)

    def test_spares_a_guaranteed_pod(self, node: Node) -> None:
        assert text(node.exact, HIGH) == "max"

    def test_is_for_containers_not_for_pods(self, node: Node) -> None:
        assert {text(each, HIGH) for each in (node.pod, BURSTABLE, KUBEPODS)} == {"max"}

    def test_is_independent_of_the_policy_of_protection(self, node: Node) -> None:
        for cgroup in (node.one, node.two, node.exact, node.pod, BURSTABLE, KUBEPODS):
            assert (number(cgroup, MIN), number(cgroup, LOW)) == (0, 0)

    def test_can_be_counted(self, node: Node) -> None:
        for event in ("low", "high", "max", "oom", "oom_kill"):
            assert count(node.one, event) == 0


def test_with_a_factor_of_one_the_limit_is_reached_unthrottled(node: Node) -> None:
    node.converge({**ON, "memoryThrottlingFactor": 1.0})
    assert [number(each, HIGH) for each in (node.one, node.two)] == [128 * MI, LIMIT]


def test_without_a_factor_nobody_is_throttled(node: Node) -> None:
    node.converge(ON)
    assert {text(each, HIGH) for each in (node.one, node.two)} == {"max"}


def test_a_factor_that_is_set_later_holds_for_what_runs_and_is_resized(node: Node) -> None:
    node.converge(THROTTLED)
    assert number(node.one, HIGH) == high(64 * MI, 128 * MI)
    node.containerd.update(node.burstable.containers["one"], memory_limit_in_bytes=160 * MI)
    node.converge(THROTTLED, {**USUAL, "one": (80 * MI, 160 * MI)})
    assert number(node.one, HIGH) == high(80 * MI, 160 * MI)
    node.containerd.update(node.burstable.containers["one"], memory_limit_in_bytes=128 * MI)


@pytest.mark.parametrize(
    ("one", "two"),
    [((16 * MI, 128 * MI), (48 * MI, LIMIT)), ((120 * MI, 128 * MI), (LIMIT, LIMIT))],
    ids=["small and half", "large and equal"],
)
def test_the_formula_holds_for_small_and_large_requests(
    node: Node, one: Amounts, two: Amounts
) -> None:
    node.converge(EVERYTHING, {"one": one, "two": two}, ("50m", "100m"))
    for cgroup, (request, limit) in ((node.one, one), (node.two, two)):
        assert request is not None
        assert limit is not None
        expected = "max" if request == limit else str(high(request, limit))
        assert (text(cgroup, HIGH), number(cgroup, LOW)) == (expected, request)


def test_the_values_of_a_pod_follow_a_resize(node: Node) -> None:
    node.converge(TIERED)
    assert number(node.pod, LOW) == 96 * MI
    node.converge(TIERED, {**USUAL, "one": (80 * MI, 128 * MI)})
    assert [number(each, LOW) for each in (node.pod, BURSTABLE)] == [112 * MI] * 2


def test_a_policy_taken_back_takes_protection_back_at_every_level(node: Node) -> None:
    node.converge(TIERED)
    node.converge({**ON, "memoryReservationPolicy": "None"})
    for cgroup in (KUBEPODS, BURSTABLE, node.pod, node.one, node.exact):
        assert (number(cgroup, MIN), number(cgroup, LOW)) == (0, 0)


def test_what_a_pod_contributed_goes_with_it(node: Node) -> None:
    node.converge(TIERED)
    node.converge(TIERED, None)
    assert (number(BURSTABLE, LOW), number(KUBEPODS, LOW)) == (0, 0)
    assert number(KUBEPODS, MIN) == 48 * MI


class TestTheFeatureTurnedOff:
    """Upstream, values of running containers stay until they are resized; memqos clears them."""

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def foreign(cls, node: Node) -> Iterator[None]:
        node.converge(EVERYTHING)
        assert number(node.one, HIGH) == high(64 * MI, 128 * MI)
        files = ("memory.max", "cpu.max", "cpu.weight", "pids.max", "memory.oom.group")
        cgroups = (KUBEPODS, BURSTABLE, node.pod, node.one, node.exact)
        before = [[text(cgroup, file) for file in files] for cgroup in cgroups]
        node.converge(OFF)
        yield
        assert [[text(cgroup, file) for file in files] for cgroup in cgroups] == before

    def test_takes_protection_back_above_pods(self, node: Node) -> None:
        assert [number(cgroup, LOW) for cgroup in (KUBEPODS, BURSTABLE)] == [0, 0]
        assert number(KUBEPODS, MIN) == 0

    def test_takes_throttling_back_without_a_resize(self, node: Node) -> None:
        assert {text(each, HIGH) for each in (node.one, node.two)} == {"max"}

    def test_leaves_no_protection_behind_on_containers(self, node: Node) -> None:
        for cgroup in (node.pod, node.one, node.two, node.exact):
            assert (number(cgroup, MIN), number(cgroup, LOW)) == (0, 0)

    def test_is_not_undone_by_the_runtime_or_systemd(self, node: Node) -> None:
        node.containerd.update(node.burstable.containers["one"], memory_limit_in_bytes=128 * MI)
        systemctl("daemon-reload")
        assert (text(node.one, HIGH), number(node.one, LOW)) == ("max", 0)


class TestTheKernel:
    def test_counts_how_often_a_container_is_throttled(self, node: Node) -> None:
        node.converge(THROTTLED)
        before = count(node.two, "high")
        workload = workload_in(node.two)
        workload.ask(LIMIT - 2 * MI)
        eventually("it is throttled", lambda: count(node.two, "high") > before)
        assert workload.alive
        workload.end()

    def test_kills_at_the_limit(self, node: Node) -> None:
        node.converge(ON)
        workload = workload_in(node.two)
        workload.ask(2 * LIMIT)
        eventually("it is killed", lambda: workload.killed_by == 9)
        assert count(node.two, "oom_kill") == 1
        assert text(node.two, "cgroup.procs")
        workload.end()


class TestARuntimeThatIsLost:
    def test_while_memqos_writes_holds_up_nothing_else_and_a_later_run_finishes(
        self, node: Node
    ) -> None:
        def kill(_done: int, _of: int, change: Change) -> None:
            if change.level == "container" and not lost:
                lost.append(change.path)
                node.containerd.kill()

        lost: list[str] = []
        node.converge(OFF)
        _, steps = node.steps(USUAL, None, EVERYTHING)
        applied = node.memqos.apply(steps, kill)
        unreachable = [each for each in applied.results if each.outcome == "unreachable"]
        assert {each.change.level for each in unreachable} == {"container"}
        assert "Apply again" in (unreachable[0].detail or "")
        assert number(BURSTABLE, LOW) == 96 * MI
        node.containerd.start()
        node.converge(EVERYTHING)
        assert number(node.one, LOW) == 64 * MI

    def test_is_not_waited_for_when_it_hangs(self, node: Node) -> None:
        _, steps = node.steps(USUAL, None, OFF)
        node.memqos.timeout = 20
        try:
            node.containerd.pause()
            found = ends(node.memqos.apply(steps))
        finally:
            node.containerd.go_on()
            node.memqos.timeout = PATIENCE
        assert {end for place, end in found.items() if ".scope/" in place} == {"unreachable"}
        assert {end for place, end in found.items() if ".scope/" not in place} == {"written"}
        # It now does what it was asked before it was given up, and may well overtake a later run.
        eventually("a later run finishes", lambda: self.is_finished(node))

    def is_finished(self, node: Node) -> bool:
        _, steps = node.steps(USUAL, None, OFF)
        return set(ends(node.memqos.apply(steps)).values()) == set()
