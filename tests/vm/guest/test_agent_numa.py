"""An agent keeps the memory of Guaranteed containers on the nodes it says, on a real kernel."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.eventually import eventually
from tests.vm.guest.agent import BareNode
from tests.vm.guest.support import MI, Cgroup, Workload
from tests.vm.guest.test_numa import CONFIGURATION, HUGE, PAGES, pod

from memqos.lab.vm.topology import Topology
from memqos.numa.checkpoint import encode_checkpoint
from memqos.numa.machine_state import MemoryBlock, MemoryManagerState
from memqos.release import Release

MACHINES = {
    "four-nodes": Topology(
        nodes=(512, 384, 384, 384),
        distances=((10, 12, 20, 20), (12, 10, 20, 20), (20, 20, 10, 12), (20, 20, 12, 10)),
    )
}

MEMS = "cpuset.mems"
ALL = "0-3"
"""The nodes of the machine."""
HELD = 16 * MI


class Node(BareNode):
    """A process in each container."""

    def __init__(self, folder: Path, kubepods: Cgroup) -> None:
        super().__init__(folder, kubepods)
        kubelet = {**CONFIGURATION, "featureGates": {"MemoryQoS": False}}
        del kubelet["memoryManagerPolicy"]
        (folder / "gate-off.yaml").write_text(json.dumps(kubelet))
        self.pods: dict[str, Cgroup] = {}
        self.containers: dict[str, Cgroup] = {}
        self.workloads: dict[str, Workload] = {}

    def start(self, **more: object) -> None:
        super().start(policy=None, factor=None, **more)

    def run_pod(self, name: str, **sizes: int) -> None:
        """A pod's container starts, and holds memory before anybody has bound it."""
        self.pods[name] = self.kubepods.child(f"pod{name}")
        container = self.containers[name] = self.pods[name].child(f"{name}c")
        self.workloads[name] = container.workload()
        self.workloads[name].hold(HELD)
        self.tell(pod(name, **sizes))

    def end_pod(self, name: str) -> None:
        (self.folder / "pods" / f"{name}.json").unlink()
        del self.containers[name], self.workloads[name]
        ended = self.pods.pop(name)
        ended.remove()
        self.kubepods.forget(ended)

    def bound(self) -> dict[str, str]:
        return {name: each.read(MEMS) for name, each in self.containers.items()}

    def allowed(self) -> dict[str, str]:
        """Container → the nodes on which the kernel lets its memory be."""
        return {name: each.read(f"{MEMS}.effective") for name, each in self.containers.items()}

    def anonymous(self) -> dict[str, set[int]]:
        """Container → the nodes on which its anonymous memory is."""
        return {
            name: set(each.by_node("memory.numa_stat", "anon"))
            for name, each in self.containers.items()
        }

    def assigned(self) -> dict[str, list[int]]:
        found: list[dict[str, Any]] = self.state()["numa"]["assigned"]
        return {each["pod"].removeprefix("default/"): each["nodes"] for each in found}

    def wait_for(self, **nodes: int) -> None:
        """Until containers are bound so, and their memory is there, too."""
        expected = {name: str(node) for name, node in nodes.items()}
        eventually(f"bound to {expected}", lambda: self.bound() == expected)
        eventually("moved", lambda: self.anonymous() == {name: {n} for name, n in nodes.items()})
        # The state is published at the end of a turn, after its writes.
        reported = {name: [node] for name, node in nodes.items()}
        eventually("reported", lambda: self.assigned() == reported)


@pytest.fixture
def huge_pages() -> Iterator[None]:
    PAGES.write_text("8")
    yield
    PAGES.write_text("0")


@pytest.fixture
def node(tmp_path: Path, huge_pages: None, kubepods: Cgroup, loopback: None) -> Iterator[Node]:
    """What holds huge pages is taken away before they are."""
    with Node(tmp_path, kubepods) as made:
        yield made


def test_pods_come_and_go_and_the_agent_is_killed_and_all_is_taken_back(node: Node) -> None:
    node.run_pod("a", memory=250 * MI)
    node.run_pod("b", memory=250 * MI)
    node.start(numa="allocate")
    node.run_pod("c", memory=100 * MI, **{HUGE: 8 * MI})
    node.wait_for(a=0, b=1, c=3)
    node.workloads["c"].hold(8 * MI, huge=True)
    pages = node.containers["c"].by_node("hugetlb.2MB.numa_stat", "total=8388608")
    assert pages == {3: 8 * MI}
    # Counted twice after a restart, those that run would leave no room for two of this size.
    node.end(signal.SIGKILL)
    node.end_pod("b")
    node.start(numa="allocate")
    node.wait_for(a=0, c=3)
    node.run_pod("d", memory=300 * MI)
    node.run_pod("e", memory=300 * MI)
    eventually("both are bound", lambda: {node.bound()["d"], node.bound()["e"]} == {"1", "2"})
    node.run_pod("f", memory=300 * MI)
    eventually("the last is refused", lambda: "NumaRefused" in json.dumps(node.state()["pods"]))
    assert node.bound()["f"] == ""
    # Others bind a container elsewhere, and its memory comes back.
    node.containers["a"].write(cpuset_mems="2")
    eventually("its memory is there", lambda: node.anonymous()["a"] == {2})
    node.reload()
    eventually("it is put back", lambda: node.bound()["a"] == "0")
    eventually("its memory is back", lambda: node.anonymous()["a"] == {0})
    assert node.end(signal.SIGTERM) == 0
    node.roll_back()
    # To the journal the last word of others is what was there before. Of a list that was empty
    # kernel 6.1 does not let processes go: it names all nodes instead. 7.2 empties it.
    assert node.bound()["a"] == "2"
    assert node.allowed() == {"a": "2", "c": ALL, "d": ALL, "e": ALL, "f": ALL}


def test_memory_follows_the_state_of_the_kubelet(node: Node) -> None:
    file = node.folder / "memory_manager_state"

    def assign(number: int) -> str:
        blocks = {"a": {"c": (MemoryBlock("memory", (number,), 250 * MI),)}}
        text = encode_checkpoint(MemoryManagerState("Static", {}, blocks), Release.of("1.38"))
        fresh = file.with_suffix(".tmp")
        fresh.write_text(text)
        fresh.rename(file)
        return text

    node.run_pod("a", memory=250 * MI)
    assign(1)
    node.start(numa="state", state=file)
    node.wait_for(a=1)
    text = assign(2)
    node.wait_for(a=2)
    file.write_text(text[:40])
    eventually("the damage is told", lambda: bool(node.state()["numa"]["faults"]))
    assert node.bound() == {"a": "2"}
    assert node.end(signal.SIGTERM) == 0
    node.roll_back()
    assert node.allowed() == {"a": ALL}
