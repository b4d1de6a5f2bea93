"""Containers of every other pair of cgroup driver and runtime: written, kept, taken back."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.vm.guest.kubelet import EVERYTHING, HIGH, LOW, OFF, high, manifest
from tests.vm.guest.owner_node import Memqos, ends, number, systemctl, text
from tests.vm.guest.runtime import Containerd, Handler, RunningPod
from tests.vm.guest.support import MI

from memqos.lab.vm.topology import Topology
from memqos.plan.names import Driver

MACHINES = {"systemd": Topology(nodes=(1280,), init="systemd")}

PAIRS: list[tuple[Driver, Handler]] = [
    ("systemd", "crun"),
    ("cgroupfs", "runc"),
    ("cgroupfs", "crun"),
]
SIZES = {"main": (32 * MI, 96 * MI)}


class Pair:
    """One pod with one container, which a kubelet has given values of its own."""

    def __init__(self, containerd: Containerd, handler: Handler, folder: Path) -> None:
        self.memqos = Memqos(folder)
        self.containerd = containerd
        self.pod = RunningPod(containerd, f"{handler}1", "Burstable", handler)
        self.scope = self.pod.container(
            "main",
            memory_limit_in_bytes=96 * MI,
            unified={LOW: str(8 * MI), "memory.oom.group": "1"},
        )
        self.kubepods = self.pod.names.kubepods
        inner = self.pod.inner("main")
        self.cgroup = inner if inner.exists() else self.scope
        self.id = self.pod.containers["main"]

    def steps(self, kubelet: dict[str, Any]) -> Any:
        pods = [manifest(self.pod, SIZES)]
        return self.memqos.plan(pods, self.kubepods, **kubelet)

    def converge(self, kubelet: dict[str, Any]) -> None:
        _, steps = self.steps(kubelet)
        assert set(ends(self.memqos.apply(steps)).values()) == {"written"}
        plan, _ = self.steps(kubelet)
        assert plan.comparison.changes == ()


@pytest.fixture(scope="module", params=PAIRS, ids="-".join)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    driver, handler = request.param
    containerd = Containerd(driver)
    pair = Pair(containerd, handler, tmp_path_factory.mktemp("pair"))
    before = pair.memqos.files(pair.kubepods), containerd.stored(pair.id)
    yield pair
    assert pair.memqos.rollback().owner_failures == ()
    assert pair.memqos.files(pair.kubepods) == before[0]
    stored = containerd.stored(pair.id)
    assert {key: stored[key] for key in before[1]} == before[1]
    pair.pod.remove()
    containerd.kill()


def test_crun_in_a_scope_has_a_cgroup_of_its_own(pair: Pair) -> None:
    is_crun_in_scope = (pair.containerd.driver, pair.pod.handler) == ("systemd", "crun")
    assert (pair.cgroup != pair.scope) == is_crun_in_scope


def test_a_plan_holds_where_the_processes_are_and_all_the_way_up(pair: Pair) -> None:
    pair.converge(EVERYTHING)
    for cgroup in {pair.cgroup, pair.scope}:
        assert (number(cgroup, LOW), number(cgroup, HIGH)) == (32 * MI, high(32 * MI, 96 * MI))
    assert text(pair.cgroup, "memory.oom.group") == "1"
    assert number(pair.scope.parent, LOW) == 32 * MI


def test_others_do_not_undo_it(pair: Pair) -> None:
    (pair.cgroup / LOW).write_text(str(MI))
    pair.containerd.update(pair.id, memory_limit_in_bytes=100 * MI)
    assert number(pair.cgroup, "memory.max") == 100 * MI
    systemctl("daemon-reload")
    for cgroup in {pair.cgroup, pair.scope}:
        assert (number(cgroup, LOW), number(cgroup, HIGH)) == (32 * MI, high(32 * MI, 96 * MI))
    pair.containerd.update(pair.id, memory_limit_in_bytes=96 * MI)


def test_values_are_cleared_once_the_feature_is_off(pair: Pair) -> None:
    pair.converge(OFF)
    for cgroup in {pair.cgroup, pair.scope}:
        assert (number(cgroup, LOW), text(cgroup, HIGH)) == (0, "max")
