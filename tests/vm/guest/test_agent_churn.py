"""An agent beside a runtime with many pods: they come and go, others write, and it is killed.

The module runs on two machines. On one systemd owns the cgroups, on the other nobody does.
"""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.eventually import eventually
from tests.vm.guest.agent import Agent
from tests.vm.guest.kubelet import HIGH, LOW, high, manifest
from tests.vm.guest.owner_node import dropins, number, systemctl, text
from tests.vm.guest.runtime import Containerd, RunningPod, make_cgroups
from tests.vm.guest.support import MI, ROOT

from memqos.lab.vm.topology import Topology
from memqos.plan.names import Driver, cgroup_names

MACHINES = {
    "systemd": Topology(nodes=(1536,), init="systemd", seconds_a_test=4000, seconds_in_all=6000),
    "cgroupfs": Topology(nodes=(1536,), seconds_a_test=4000, seconds_in_all=6000),
}

PODS: dict[Driver, int] = {"systemd": 20, "cgroupfs": 8}
REQUEST, LIMIT = 8 * MI, 24 * MI
THROTTLED_AT = high(REQUEST, LIMIT, 0.5)


class Node:
    """Pods of a runtime, and an agent that is told of them."""

    def __init__(self, folder: Path, driver: Driver) -> None:
        self.driver = driver
        self.agent = Agent(folder, driver)
        self.containerd = Containerd(driver)
        names = cgroup_names(driver)
        make_cgroups(names)
        self.levels = [ROOT / path.removeprefix("/") for path in (names.kubepods, names.burstable)]
        self.pods: dict[int, RunningPod] = {}

    def run_pod(self, each: int) -> None:
        pod = RunningPod(self.containerd, f"u{each}", "Burstable")
        pod.container("main", memory_limit_in_bytes=LIMIT)
        self.agent.tell(manifest(pod, {"main": (REQUEST, LIMIT)}))
        self.pods[each] = pod

    def end_pod(self, each: int) -> None:
        pod = self.pods.pop(each)
        pod.remove()
        (self.agent.folder / "pods" / f"{pod.uid}.json").unlink()

    @property
    def containers(self) -> list[Path]:
        return [pod.cgroup("main") for pod in self.pods.values()]

    def is_converged(self) -> bool:
        above = len(self.pods) * REQUEST
        return (
            all(number(level, LOW) == above for level in self.levels)
            and all(number(each.parent, LOW) == REQUEST for each in self.containers)
            and all(number(each, LOW) == REQUEST for each in self.containers)
            and all(text(each, HIGH) == str(THROTTLED_AT) for each in self.containers)
        )

    def is_as_before(self) -> bool:
        cgroups = [*self.levels, *self.containers, *(each.parent for each in self.containers)]
        return all((text(each, LOW), text(each, HIGH)) == ("0", "max") for each in cgroups)


@pytest.fixture
def node(tmp_path: Path, loopback: None) -> Iterator[Node]:
    """Its pods end with the machine."""
    has_systemd = Path("/run/systemd/system").exists()
    made = Node(tmp_path, "systemd" if has_systemd else "cgroupfs")
    yield made
    if made.agent.agent is not None:
        made.agent.end(signal.SIGKILL)
    made.containerd.kill()


def test_pods_of_a_runtime_come_and_go_while_others_write_and_the_agent_is_killed(
    node: Node,
) -> None:
    before, pods = of_slices(), PODS[node.driver]
    node.agent.start()
    with ThreadPoolExecutor(2) as hands:
        list(hands.map(node.run_pod, range(pods // 2)))
        eventually("the first half is as planned", node.is_converged)
        # The agent dies in the midst of new pods, others write, and it comes back.
        running = [hands.submit(node.run_pod, each) for each in range(pods // 2, pods)]
        running[0].result()
        node.agent.end(signal.SIGKILL)
        for container in node.containers[:3]:
            (container / LOW).write_text("0")
            (container / HIGH).write_text("max")
        for level in node.levels:
            (level / LOW).write_text("0")
        node.agent.start()
        for pod in running:
            pod.result()
    eventually("all are as planned", node.is_converged)
    assert len(node.pods) == pods
    for each in range(0, pods, 5):
        node.end_pod(each)
    eventually("the sums follow", node.is_converged)
    if node.driver == "systemd":
        systemctl("daemon-reload")
    # A kubelet resizes a container: what memqos has told the runtime stays.
    resized = node.pods[1].containers["main"]
    node.containerd.update(resized, memory_limit_in_bytes=LIMIT)
    assert node.is_converged()
    assert node.containerd.stored(resized)[LOW] == str(REQUEST)
    assert node.agent.end(signal.SIGTERM) == 0
    node.agent.roll_back()
    assert node.is_as_before()
    assert node.containerd.stored(resized)[LOW] == "0"
    assert of_slices() == before


def of_slices() -> dict[str, str]:
    """What systemd was told of pods and what is above them; of scopes their runtime tells it."""
    return {path: content for path, content in dropins().items() if ".slice.d/" in path}
