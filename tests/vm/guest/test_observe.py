"""A node on a real kernel is seen as it is."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.machine import deep_folder
from tests.vm.guest.support import MI, ROOT, Cgroup

from memqos.converge.observation import observe_live
from memqos.converge.pod_sources import FilePods
from memqos.converge.snapshots import (
    SNAPSHOT_FILES,
    encode_snapshot,
    observe_snapshot_file,
    take_snapshot,
)
from memqos.host.cgroups import read_tree
from memqos.host.machine import read_machine
from memqos.kernel.file_formats import controllers_of, parse_keyed, stall_of, withheld_at
from memqos.lab.node import protection_is_recursive
from memqos.lab.vm.topology import Topology

MACHINES = {
    "two-nodes": Topology(nodes=(640, 640), distances=((10, 21), (21, 10)), swap=512),
    "not-recursive": Topology(recursive_protection=False),
}
COMPARED = ("memory.min", "memory.low", "memory.high", "memory.max", "memory.oom.group", "cpu.max")
PODS = 10


class TestMachine:
    def test_what_every_machine_has(self) -> None:
        machine = read_machine()
        assert machine.missing == {}
        assert machine.layout == "v2"
        assert machine.kernel_version is not None
        assert machine.kernel_version >= (5, 9, 0)
        assert machine.page_size == 4096
        assert {"memory", "cpu", "io"} == machine.pressure.keys()
        assert {"2MB"} <= {pages.name for pages in machine.huge_pages}
        assert machine.boot_id

    def test_how_its_cgroups_are_mounted(self) -> None:
        assert read_machine().recursive_protection is protection_is_recursive()

    def test_its_memory_is_that_of_its_nodes(self) -> None:
        machine = read_machine()
        assert machine.memory == sum(node.memory for node in machine.numa_nodes)
        numbers = [node.number for node in machine.numa_nodes]
        assert numbers == list(range(len(numbers)))
        if len(numbers) == 2:
            assert [node.distances for node in machine.numa_nodes] == [(10, 21), (21, 10)]
            assert machine.swap
            assert 511 * MI <= machine.swap <= 512 * MI
        else:
            assert machine.swap == 0


class TestTree:
    def test_every_cgroup_is_found(self, kubepods: Cgroup) -> None:
        kubepods.child("burstable").child("pod1").child("c1", memory_low=8 * MI)
        tree = read_tree(str(ROOT), COMPARED)
        folders = {
            "/" if folder == str(ROOT) else folder.removeprefix(str(ROOT))
            for folder, _, _ in os.walk(ROOT)
        }
        assert tree.cgroups.keys() == folders
        assert tree.cgroups["/kubepods/burstable/pod1/c1"]["memory.low"] == str(8 * MI)
        assert tree.unreadable == {}

    def test_what_a_container_makes_is_not_read(self, kubepods: Cgroup) -> None:
        container = kubepods.child("burstable").child("pod1").child("c1")
        with deep_folder(container.path):
            tree = read_tree(str(ROOT), COMPARED)
        assert [path for path in tree.cgroups if path.startswith(f"{container.name}/")] == []
        assert container.name in tree.cgroups
        assert tree.unreadable == {}

    def test_controllers_are_seen_down_the_tree(self, kubepods: Cgroup) -> None:
        pod = kubepods.child("burstable").child("pod1")
        (kubepods.path / "burstable" / "cgroup.subtree_control").write_text("-cpuset")
        seen = observe_live(None, SNAPSHOT_FILES)
        assert seen.driver == "cgroupfs"
        assert "cpuset" not in controllers_of(seen.cgroups[pod.name]).available
        assert withheld_at(seen.cgroups, pod.name, "memory") is None
        assert withheld_at(seen.cgroups, pod.name, "cpuset") == "/kubepods/burstable"

    def test_another_cgroup_of_the_same_name_is_told_apart(self, kubepods: Cgroup) -> None:
        folder = kubepods.path / "pod1"
        folder.mkdir()
        first = read_tree(str(ROOT), ()).identities["/kubepods/pod1"]
        folder.rmdir()
        folder.mkdir()
        second = read_tree(str(ROOT), ()).identities["/kubepods/pod1"]
        folder.rmdir()
        assert first != second

    @pytest.mark.parametrize("moment", range(12))
    def test_a_cgroup_may_vanish_at_any_moment(
        self, kubepods: Cgroup, moment: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = kubepods.path / "pod1"
        folder.mkdir()
        real, left = os.open, [moment]

        def vanishing(*args: Any, **kwargs: Any) -> int:
            handle = real(*args, **kwargs)
            if left[0] == 0 and folder.exists():
                folder.rmdir()
            left[0] -= 1
            return handle

        monkeypatch.setattr(os, "open", vanishing)
        tree = read_tree(str(ROOT), COMPARED, ["/kubepods"])
        monkeypatch.undo()
        if folder.exists():
            folder.rmdir()
        assert tree.unreadable == {}
        assert tree.cgroups["/kubepods"].keys() == set(COMPARED)

    def test_usage_and_pressure_are_numbers(self, kubepods: Cgroup) -> None:
        kubepods.workload().hold(16 * MI)
        files = observe_live(None, SNAPSHOT_FILES).cgroups["/kubepods"]
        assert int(files["memory.current"]) >= 16 * MI
        assert parse_keyed(files["memory.stat"])["anon"] >= 16 * MI
        assert parse_keyed(files["memory.events"])["oom_kill"] == 0
        assert stall_of(files["memory.pressure"]).some.total >= 0


def test_a_snapshot_tells_elsewhere_what_is_here(kubepods: Cgroup, tmp_path: Path) -> None:
    kubepods.child("besteffort")
    kubepods.child("pod1", memory_min=4 * MI).workload(oom_score_adj=500).hold(MI)
    pods = tmp_path / "pods.json"
    pods.write_text('{"kind": "PodList", "apiVersion": "v1", "items": []}')
    file = tmp_path / "node.json"
    snapshot = take_snapshot(FilePods([str(pods)]))
    file.write_bytes(encode_snapshot(snapshot))
    then = observe_snapshot_file(str(file))
    now = observe_live(None, COMPARED)
    assert then.cgroups.keys() == now.cgroups.keys()
    assert all(
        {name: files[name] for name in now.cgroups[path]} == now.cgroups[path]
        for path, files in then.cgroups.items()
    )
    assert then.machine.numa_nodes[0].distances == now.machine.numa_nodes[0].distances
    assert then.machine.recursive_protection == now.machine.recursive_protection
    assert then.driver == now.driver == "cgroupfs"
    (process,) = snapshot.processes["/kubepods/pod1"]
    assert process.oom_score_adj == 500
    assert process.rss is not None
    assert process.rss >= MI


def test_every_file_is_opened_and_read_once(
    kubepods: Cgroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    burstable = kubepods.child("burstable")
    for number in range(PODS):
        pod = burstable.child(f"pod{number}")
        pod.child("c0")
        pod.child("c1")
    calls: Counter[str] = Counter()

    def counted(name: str) -> None:
        real = getattr(os, name)

        def counting(*args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            return real(*args, **kwargs)

        monkeypatch.setattr(os, name, counting)

    for name in ("open", "read", "close"):
        counted(name)
    tree = read_tree(str(ROOT), COMPARED, ["/kubepods"])
    monkeypatch.undo()
    cgroups = 2 + 3 * PODS
    files = cgroups * len(COMPARED)
    assert sum(map(len, tree.cgroups.values())) == files
    # A cgroup's folder is opened once too, and what is below it through that.
    assert calls == {"open": cgroups + files, "read": files, "close": cgroups + files}
