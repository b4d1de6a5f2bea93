"""Memory of Guaranteed containers is where memqos said it would be."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.eventually import eventually
from tests.vm.guest.support import MI, Cgroup

from memqos.cli.main import cli
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

PAGES = Path("/sys/devices/system/node/node3/hugepages/hugepages-2048kB/nr_hugepages")
HUGE = "hugepages-2Mi"
CONFIGURATION = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "cgroupDriver": "cgroupfs",
    "evictionHard": {"memory.available": "20Mi"},
    "kubeReserved": {"memory": "20Mi"},
    "memoryManagerPolicy": "Static",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "40Mi"}}],
    "topologyManagerPolicy": "single-numa-node",
}


@pytest.fixture(autouse=True)
def huge_pages() -> Iterator[None]:
    """Eight huge pages, and all on the last node."""
    PAGES.write_text("8")
    assert PAGES.read_text().strip() == "8"
    yield
    PAGES.write_text("0")


def pod(name: str, **sizes: int) -> dict[str, Any]:
    amounts = {"cpu": "1", **{each.replace("_", "-"): str(size) for each, size in sizes.items()}}
    resources = {"requests": amounts, "limits": amounts}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {
            "nodeName": "node",
            "containers": [{"name": "c", "image": "i", "resources": resources}],
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": "c", "containerID": f"containerd://{name}c"}],
        },
    }


PODS = [
    pod("a", memory=250 * MI),
    pod("b", memory=250 * MI),
    pod("c", memory=100 * MI, **{HUGE: 8 * MI}),
]


class Site:
    """The pods on this machine, in cgroups as a kubelet makes them."""

    def __init__(self, kubepods: Cgroup, folder: Path) -> None:
        kubepods.child("burstable")
        kubepods.child("besteffort")
        self.kubepods = kubepods
        self.containers = {
            each["metadata"]["name"]: kubepods.child(f"pod{each['metadata']['name']}").child(
                f"{each['metadata']['name']}c"
            )
            for each in PODS
        }
        self.folder = folder
        self.pods = self.file("pods.json", {"apiVersion": "v1", "kind": "List", "items": PODS})
        self.kubelet = self.file("kubelet.json", CONFIGURATION)
        self.journal = str(folder / "journal")

    def file(self, name: str, data: object) -> str:
        path = self.folder / name
        path.write_text(data if isinstance(data, str) else json.dumps(data))
        return str(path)

    def memqos(self, *arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(
            cli, list(arguments), standalone_mode=False, catch_exceptions=False
        )
        return done.return_value or 0, done.output

    def apply(self, *arguments: str) -> tuple[int, str]:
        flags = ("--pods", self.pods, "--kubelet", self.kubelet, "--release", "1.38")
        return self.memqos("apply", "--yes", *flags, "--journal", self.journal, *arguments)

    def rollback(self) -> int:
        return self.memqos("rollback", "--journal", self.journal)[0]

    def foretold(self) -> dict[str, str]:
        """Pod → what `memqos numa admit` says of its container's cpuset.mems."""
        flags = ("--kubelet", self.kubelet, "--release", "1.38", "-o", "json")
        _, text = self.memqos("numa", "admit", self.pods, "--machine", "/sys", *flags)
        pods = json.loads(text)["pods"]
        return {
            each["name"].removeprefix("pod/"): each["containers"]["c"]["cpusetMems"]
            for each in pods
        }

    def bound(self) -> dict[str, str]:
        return {name: each.read("cpuset.mems") for name, each in self.containers.items()}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    kubepods = Cgroup.at_root("kubepods")
    try:
        yield Site(kubepods, tmp_path)
    finally:
        kubepods.remove()


def test_memory_and_huge_pages_come_from_the_nodes_that_were_foretold(site: Site) -> None:
    foretold = site.foretold()
    assert foretold == {"a": "0", "b": "1", "c": "3"}
    code, output = site.apply("--numa", "allocate")
    assert code == 0, output
    assert site.bound() == foretold
    for name, container in site.containers.items():
        workload = container.workload()
        workload.hold(16 * MI)
        (node,) = container.by_node("memory.numa_stat", "anon")
        assert str(node) == foretold[name]
        assert container.by_node("memory.numa_stat", "anon")[node] >= 16 * MI
        if name == "c":
            workload.hold(8 * MI, huge=True)
            assert container.by_node("hugetlb.2MB.numa_stat", "total=8388608") == {3: 8 * MI}
    assert site.apply("--numa", "allocate") == (0, "converged: nothing to change\n")


def test_memory_moves_with_the_assignment_and_back_with_the_rollback(site: Site) -> None:
    container = site.containers["a"]
    container.write(cpuset_mems="2")
    container.workload().hold(32 * MI)
    assert set(container.by_node("memory.numa_stat", "anon")) == {2}
    blocks = (MemoryBlock("memory", (1,), 250 * MI),)
    state = MemoryManagerState("Static", {}, {"a": {"c": blocks}})
    file = site.file("memory_manager_state", encode_checkpoint(state, Release.of("1.38")))
    code, output = site.apply("--state", file)
    assert code == 0, output
    assert "not in the memory_manager_state, so not changed: default/b c, default/c c" in output
    assert site.bound() == {"a": "1", "b": "", "c": ""}
    eventually("it has moved", lambda: set(container.by_node("memory.numa_stat", "anon")) == {1})
    assert site.rollback() == 0
    assert site.bound() == {"a": "2", "b": "", "c": ""}
    eventually("it is back", lambda: set(container.by_node("memory.numa_stat", "anon")) == {2})


def test_a_node_that_the_parent_does_not_have_is_refused_as_the_kernel_would_not_heed_it(
    site: Site,
) -> None:
    container = site.containers["a"]
    site.kubepods.write(cpuset_mems="0-1")
    container.write(cpuset_mems="3")
    assert container.read("cpuset.mems.effective") == "0-1"
    container.write(cpuset_mems="\n")
    plan = site.folder / "plan.json"
    site.kubepods.write(cpuset_mems="\n")
    flags = ("--pods", site.pods, "--kubelet", site.kubelet, "--release", "1.38")
    site.memqos("plan", *flags, "--numa", "allocate", "--out", str(plan))
    site.kubepods.write(cpuset_mems="0-1")
    code, output = site.memqos("apply", str(plan), "--yes", "--journal", site.journal)
    assert code == 1
    assert "/kubepods/podc has no node 3: it may use 0-1" in output
    assert site.bound() == {"a": "0", "b": "1", "c": ""}
    assert site.rollback() == 0
