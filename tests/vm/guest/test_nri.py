"""Values that containers have at their first instruction, with each pair of driver and runtime.

On containerd 1.7 (Debian 13) and 2.1 (Debian 14).
"""

import signal
from collections.abc import Iterator

import pytest
from tests.eventually import eventually
from tests.vm.guest.nri_node import HIGH, LIMIT, LOW, OWN, NriNode, values
from tests.vm.guest.owner_node import number, systemctl, text
from tests.vm.guest.runtime import Handler
from tests.vm.guest.support import MI

from memqos.lab.vm.topology import Topology
from memqos.plan.names import Driver

MACHINES = {
    "trixie": Topology(suite="trixie", nodes=(1280,), init="systemd"),
    "forky": Topology(suite="forky", nodes=(1280,), init="systemd"),
}
DRIVERS: tuple[Driver, ...] = ("systemd", "cgroupfs")
HANDLERS: tuple[Handler, ...] = ("runc", "crun")


@pytest.fixture(scope="module", params=DRIVERS)
def node(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NriNode]:
    made = NriNode(tmp_path_factory.mktemp("node"), request.param)
    made.start()
    yield made
    made.stop()


@pytest.mark.parametrize("handler", HANDLERS)
def test_values_are_there_at_the_first_instruction_and_no_update_or_reload_undoes_them(
    node: NriNode, handler: Handler
) -> None:
    pod = node.pod(f"{node.driver}-{handler}", handler)
    cgroup = node.run(pod)
    assert node.first_values(pod) == OWN
    eventually("the answer is counted", lambda: node.count_adjusted() >= 1)
    container = pod.containers["main"]
    stored = node.containerd.stored(container)
    assert (stored[LOW], stored[HIGH]) == OWN
    inner = pod.inner("main")
    processes = inner if inner.exists() else cgroup
    node.containerd.update(container, cpu_shares=512)
    assert values(processes) == OWN
    systemctl("daemon-reload")
    assert values(processes) == OWN


@pytest.mark.parametrize("handler", HANDLERS)
def test_after_rollback_no_update_brings_the_values_back(node: NriNode, handler: Handler) -> None:
    pod = node.pod(f"{node.driver}-{handler}-rolled-back", handler)
    scope = node.run(pod)
    assert node.first_values(pod) == OWN
    assert node.end(signal.SIGTERM) == 0
    node.roll_back()
    inner = pod.inner("main")
    processes = inner if inner.exists() else scope
    assert {values(each) for each in (scope, processes)} == {("0", "max")}
    node.containerd.update(pod.containers["main"], memory_limit_in_bytes=LIMIT + MI)
    assert {values(each) for each in (scope, processes)} == {("0", "max")}
    assert number(processes, "memory.max") == LIMIT + MI
    assert text(processes, "memory.min") == "0"
    node.start()
