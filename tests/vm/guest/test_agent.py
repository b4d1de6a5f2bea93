"""An agent on a real kernel: pods come and go, others write, and the agent itself is killed."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.eventually import eventually
from tests.vm.guest.agent import Agent, BareNode
from tests.vm.guest.owner_node import dropins, number, scope, systemctl, text
from tests.vm.guest.runtime import make_cgroups, remove_cgroup
from tests.vm.guest.support import MI, ROOT, Cgroup

from memqos.agent.kernel_counters import read_counters
from memqos.lab.vm.topology import Topology
from memqos.plan.names import cgroup_names

MACHINES = {"systemd": Topology(init="systemd", seconds_a_test=2000)}

PODS = 102
"""Of three cgroups each."""
LOW, HIGH = "memory.low", "memory.high"
REQUEST, LIMIT = 4 * MI, 12 * MI
THROTTLED_AT = 8 * MI


def a_pod(uid: str) -> dict[str, Any]:
    resources = {"requests": {"memory": str(REQUEST)}, "limits": {"memory": str(LIMIT)}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": uid, "namespace": "default", "uid": uid},
        "spec": {
            "nodeName": "node",
            "containers": [
                {"name": name, "image": "i", "resources": resources} for name in ("a", "b")
            ],
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [
                {"name": name, "containerID": f"containerd://{uid}{name}"} for name in ("a", "b")
            ],
        },
    }


class Node(BareNode):
    """Pods of two containers each."""

    def __init__(self, folder: Path, kubepods: Cgroup) -> None:
        super().__init__(folder, kubepods)
        self.pods: dict[str, tuple[Cgroup, list[Cgroup]]] = {}
        self.left: list[Cgroup] = []
        """Cgroups of pods that are not written to any more."""

    def run_pods(self, numbers: range) -> None:
        for uid in (f"u{each}" for each in numbers):
            self.tell(a_pod(uid))
            pod = self.burstable.child(f"pod{uid}")
            self.pods[uid] = pod, [pod.child(f"{uid}{name}") for name in ("a", "b")]

    def end_pods(self, numbers: range) -> None:
        for uid in (f"u{each}" for each in numbers):
            pod, containers = self.pods.pop(uid)
            for cgroup in (*containers, pod):
                cgroup.path.rmdir()
            self.burstable.forget(pod)
            (self.folder / "pods" / f"{uid}.json").unlink()

    def leave_pods(self, numbers: range) -> None:
        """They ask to be observed."""
        for uid in (f"u{each}" for each in numbers):
            manifest = a_pod(uid)
            manifest["metadata"]["annotations"] = {"memqos.io/mode": "observe"}
            self.tell(manifest)
            pod, containers = self.pods.pop(uid)
            self.left += [pod, *containers]

    def is_converged(self) -> bool:
        above = len(self.pods) * 2 * REQUEST
        return (
            are_default(self.left)
            and all(each.number(LOW) == above for each in (self.kubepods, self.burstable))
            and all(
                pod.number(LOW) == 2 * REQUEST
                and all(each.number(LOW) == REQUEST for each in containers)
                and all(each.read(HIGH) == str(THROTTLED_AT) for each in containers)
                for pod, containers in self.pods.values()
            )
        )

    def is_as_before(self) -> bool:
        pods = [each for pod, containers in self.pods.values() for each in (pod, *containers)]
        return are_default([self.kubepods, self.burstable, *pods, *self.left])


def are_default(cgroups: list[Cgroup]) -> bool:
    return all((each.read(LOW), each.read(HIGH)) == ("0", "max") for each in cgroups)


@pytest.fixture
def node(tmp_path: Path, kubepods: Cgroup, loopback: None) -> Iterator[Node]:
    with Node(tmp_path, kubepods) as made:
        yield made


def test_pods_come_and_go_while_others_write_and_the_agent_is_killed(node: Node) -> None:
    # What happens to a cgroup counts from its first moment, on a quick machine too.
    node.start(fight_grace="0s")
    node.run_pods(range(PODS // 2))
    eventually("the first half is as planned", node.is_converged)
    # Others write, the agent dies in the midst of new pods, and comes back.
    node.run_pods(range(PODS // 2, PODS))
    node.end(signal.SIGKILL)
    pod, containers = node.pods["u1"]
    for cgroup in (node.kubepods, node.burstable, pod, *containers):
        cgroup.write(memory_low=0)
    node.start(fight_grace="0s")
    eventually("all are as planned", node.is_converged)
    node.end_pods(range(0, PODS, 2))
    eventually("the sums follow", node.is_converged)
    node.leave_pods(range(1, 21, 2))
    eventually("pods that are left have their values back", node.is_converged)
    # A kubelet that starts takes all protection away at the top.
    node.kubepods.write(memory_low=0)
    node.burstable.write(memory_low=0)
    eventually("protection is back", node.is_converged)
    causes = {each["cause"] for each in node.state()["drift"]}
    assert causes == {"kubelet-restart"}
    assert node.end(signal.SIGTERM) == 0
    assert node.is_converged()
    # What others wrote was 0 as well, so all of it is as it was.
    node.roll_back()
    assert node.is_as_before()


def test_systemd_knows_of_the_values_and_keeps_them(tmp_path: Path) -> None:
    names = cgroup_names("systemd")
    pod = names.pod("u0", "Burstable")
    make_cgroups(names, pod)
    slice_ = ROOT / pod.removeprefix("/")
    before = dropins()
    agent = Agent(tmp_path, "systemd")
    agent.tell(a_pod("u0"))
    agent.start()
    container, process = scope("cri-containerd-u0a.scope", slice_.name)
    try:

        def is_converged() -> bool:
            levels = [number(each, LOW) for each in (slice_, slice_.parent, slice_.parent.parent)]
            own = number(container, LOW), text(container, HIGH)
            return levels == [2 * REQUEST] * 3 and own == (REQUEST, str(THROTTLED_AT))

        eventually("the pod is as planned", is_converged)
        systemctl("daemon-reload")
        assert is_converged()
        # Somebody writes past systemd and the agent.
        (slice_.parent / LOW).write_text("0")
        eventually("it is put back", is_converged)
        assert agent.end(signal.SIGTERM) == 0
        agent.roll_back()
        assert (number(slice_, LOW), text(container, HIGH)) == (0, "max")
        assert dropins() == before
    finally:
        if agent.agent is not None:
            agent.end(signal.SIGKILL)
        process.kill()
        process.wait()
        eventually("the scope is gone", lambda: not container.exists())
        remove_cgroup(pod)


def test_the_kernel_counts_what_is_sampled(node: Node) -> None:
    node.run_pods(range(1))
    _, (container, _) = node.pods["u0"]
    container.write(memory_high=8 * MI)
    container.workload().hold(24 * MI)
    samples = read_counters("/sys/fs/cgroup", "/kubepods")
    found = samples[container.name]
    assert found.current is not None
    assert found.events["high"] > 0
    assert set(found.pressure) == {"some", "full"}
