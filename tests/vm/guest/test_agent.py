"""An agent on a real kernel: pods come and go, others write, and the agent itself is killed."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.vm.guest.support import MI, Cgroup, wait_until
from tests.vm.harness.topology import Topology

from memqos.agent.sampling import sampled

MACHINES = {"plain": Topology(nodes=(1024,), swap=256)}

PODS = 60
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


class Node:
    """Bare cgroups laid out as a kubelet does, and an agent that keeps them."""

    def __init__(self, folder: Path, kubepods: Cgroup) -> None:
        self.folder = folder
        self.kubepods = kubepods
        self.burstable = kubepods.child("burstable")
        kubepods.child("besteffort")
        self.pods: dict[str, tuple[Cgroup, list[Cgroup]]] = {}
        (folder / "pods").mkdir()
        (folder / "kubelet.yaml").write_text(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
            "featureGates: {MemoryQoS: true}\nmemoryReservationPolicy: TieredReservation\n"
            "memoryThrottlingFactor: 0.5\n"
        )
        self.agent: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "memqos.cli.main", "agent", "--mode", "enforce"]
        for name, value in {
            "pods": self.folder / "pods",
            "kubelet": self.folder / "kubelet.yaml",
            "journal": self.folder / "run",
            "state-socket": self.folder / "state.sock",
            "listen": "127.0.0.1:0",
            "release": "1.38",
            "resync": "1h",
        }.items():
            command += [f"--{name}", str(value)]
        with (self.folder / "log").open("a") as log:
            self.agent = subprocess.Popen(command, stderr=log, text=True)
        wait_until("the agent has looked at the node", self.has_looked)

    def end(self, how: signal.Signals) -> int:
        assert self.agent is not None
        self.agent.send_signal(how)
        code = self.agent.wait()
        self.agent = None
        return code

    def has_looked(self) -> bool:
        assert self.agent is not None
        assert self.agent.poll() is None, (self.folder / "log").read_text()
        try:
            return bool(self.state()["levels"])
        except (OSError, ValueError):
            return False

    def state(self) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(self.folder / "state.sock"))
            client.sendall(b"GET /state HTTP/1.0\r\n\r\n")
            answer = b""
            while more := client.recv(1 << 16):
                answer += more
        found: dict[str, Any] = json.loads(answer.partition(b"\r\n\r\n")[2])
        return found

    def run_pods(self, numbers: range) -> None:
        for uid in (f"u{number}" for number in numbers):
            fresh = self.folder / "pods" / f"{uid}.tmp"
            fresh.write_text(json.dumps(a_pod(uid)))
            fresh.rename(fresh.with_suffix(".json"))
            pod = self.burstable.child(f"pod{uid}")
            self.pods[uid] = pod, [pod.child(f"{uid}{name}") for name in ("a", "b")]

    def end_pods(self, numbers: range) -> None:
        for uid in (f"u{number}" for number in numbers):
            pod, containers = self.pods.pop(uid)
            for cgroup in (*containers, pod):
                cgroup.path.rmdir()
            self.burstable.forget(pod)
            (self.folder / "pods" / f"{uid}.json").unlink()

    def is_converged(self) -> bool:
        above = len(self.pods) * 2 * REQUEST
        return all(each.number(LOW) == above for each in (self.kubepods, self.burstable)) and all(
            pod.number(LOW) == 2 * REQUEST
            and all(each.number(LOW) == REQUEST for each in containers)
            and all(each.read(HIGH) == str(THROTTLED_AT) for each in containers)
            for pod, containers in self.pods.values()
        )

    def is_as_before(self) -> bool:
        cgroups = [self.kubepods, self.burstable]
        cgroups += [each for pod, containers in self.pods.values() for each in (pod, *containers)]
        return all((each.read(LOW), each.read(HIGH)) == ("0", "max") for each in cgroups)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    subprocess.run(["busybox", "ifconfig", "lo", "127.0.0.1", "up"], check=True)
    kubepods = Cgroup.at_root("kubepods")
    made = Node(tmp_path, kubepods)
    try:
        yield made
    finally:
        if made.agent is not None:
            made.end(signal.SIGKILL)
        kubepods.remove()


def test_pods_come_and_go_while_others_write_and_the_agent_is_killed(node: Node) -> None:
    node.start()
    node.run_pods(range(PODS // 2))
    wait_until("the first half is as planned", node.is_converged)
    # Others write, the agent dies in the midst of new pods, and comes back.
    node.run_pods(range(PODS // 2, PODS))
    node.end(signal.SIGKILL)
    pod, containers = node.pods["u1"]
    for cgroup in (node.kubepods, node.burstable, pod, *containers):
        cgroup.write(memory_low=0)
    node.start()
    wait_until("all are as planned", node.is_converged)
    node.end_pods(range(0, PODS, 2))
    wait_until("the sums follow", node.is_converged)
    # A kubelet that starts takes all protection away at the top.
    node.kubepods.write(memory_low=0)
    node.burstable.write(memory_low=0)
    wait_until("protection is back", node.is_converged)
    causes = {each["cause"] for each in node.state()["drift"]}
    assert causes == {"kubelet-restart"}
    assert node.end(signal.SIGTERM) == 0
    assert node.is_converged()
    command = [sys.executable, "-m", "memqos.cli.main", "rollback", "--journal"]
    # What others wrote was 0 as well, so all of it is as it was.
    subprocess.run([*command, str(node.folder / "run")], check=True, stdout=subprocess.DEVNULL)
    assert node.is_as_before()


def test_the_kernel_counts_what_is_sampled(node: Node) -> None:
    node.run_pods(range(1))
    _, (container, _) = node.pods["u0"]
    container.write(memory_high=8 * MI)
    container.workload().hold(24 * MI)
    samples = sampled("/sys/fs/cgroup", "/kubepods")
    found = samples[container.name]
    assert found.current is not None
    assert found.events["high"] > 0
    assert set(found.pressure) == {"some", "full"}
