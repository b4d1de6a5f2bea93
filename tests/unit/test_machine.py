"""A machine's facts, as the kernel shows them; what is missing is reported, never raised."""

import os
from pathlib import Path

import pytest
from tests.fakes.machine import PROC, SYS, UNIFIED, put, roots

from memqos.host.machine import Roots, read_machine
from memqos.host.versions import kubelet_version, runtime_version
from memqos.kernel.file_formats import (
    Controllers,
    Stall,
    Stalled,
    controllers_of,
    lines_about,
    parse_keyed,
    processes_killed,
    stall_of,
    withheld_at,
)
from memqos.kernel.machine import (
    CgroupLayout,
    HugePages,
    Machine,
    Mount,
    NumaNode,
    VersionNumbers,
    cgroup_layout,
    mounts_of,
    version_numbers,
)
from memqos.kube.kubelet.drivers import kubepods_in

KI, MI, GI = 1 << 10, 1 << 20, 1 << 30
V1 = "cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0"
BESIDE = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0"


class TestReading:
    def test_everything_there_is_found(self, tmp_path: Path) -> None:
        machine = read_machine(roots(tmp_path))
        assert machine.kernel_version == (6, 1, 0)
        assert machine.page_size == os.sysconf("SC_PAGE_SIZE")
        assert machine.memory == 2994788 * KI
        assert machine.swap == GI
        assert machine.boot_id == "b-1"
        assert machine.mount == (UNIFIED,)
        assert machine.recursive_protection is True
        assert machine.huge_pages == (HugePages(2 * MI, 8, 3), HugePages(GI, 8, 3))
        assert [pages.name for pages in machine.huge_pages] == ["2MB", "1GB"]
        assert machine.numa_nodes == (
            NumaNode(0, 1514420 * KI, (10, 20), (HugePages(2 * MI, 8, 3),)),
            NumaNode(1, 1480360 * KI, (20, 10), ()),
        )
        assert stall_of(machine.pressure["memory"]) == Stall(
            Stalled(1.5, 0.25, 0.0, 4242), Stalled(0.5, 0.0, 0.0, 42)
        )
        assert machine.missing == {}

    def test_of_what_is_not_there_the_reason_is_given(self, tmp_path: Path) -> None:
        machine = read_machine(Roots(*[f"{tmp_path}/{name}" for name in "abcd"]))
        assert machine == Machine(
            page_size=machine.page_size, layout="none", missing=machine.missing
        )
        assert set(machine.missing) == {
            "kernel",
            "boot_id",
            "meminfo",
            "mount",
            "numa",
            "hugepages",
            "pressure",
        }
        assert machine.missing["meminfo"] == f"{tmp_path}/a/meminfo: no such file or directory"
        assert machine.memory is None
        assert machine.swap is None
        assert machine.kernel_version is None
        assert machine.recursive_protection is None

    def test_this_machine_can_be_read_by_anybody(self) -> None:
        machine = read_machine()
        assert machine.memory
        assert machine.kernel_version
        assert machine.layout

    def test_pressure_that_was_turned_off_at_boot_is_missing(self, tmp_path: Path) -> None:
        proc = {**PROC, "pressure": {}}
        machine = read_machine(roots(tmp_path, proc=proc))
        assert machine.pressure == {}
        assert machine.missing["pressure"].endswith("pressure/memory: no such file or directory")

    def test_ten_numa_nodes_are_in_the_order_of_their_numbers(self, tmp_path: Path) -> None:
        node = {"meminfo": "Node 0 MemTotal: 4 kB\n", "distance": "10\n"}
        nodes = {f"node{number}": node for number in range(11)}
        machine = read_machine(roots(tmp_path, sys={"devices": {"system": {"node": nodes}}}))
        assert [node.number for node in machine.numa_nodes] == list(range(11))


class TestLayout:
    @pytest.mark.parametrize(
        ("mounts", "layout"),
        [([UNIFIED], "v2"), ([V1], "v1"), ([V1, BESIDE], "hybrid"), ([], "none")],
    )
    def test_is_detected_by_the_mounts(self, mounts: list[str], layout: CgroupLayout) -> None:
        assert cgroup_layout(mounts_of(mounts)) == layout

    @pytest.mark.parametrize(
        "root", ["/sys/fs/cgroup", "/sys/fs/cgroup/", "/sys/fs/cgroup/unified"]
    )
    def test_a_hierarchy_beside_v1_is_not_cgroup_v2(self, tmp_path: Path, root: str) -> None:
        proc = put(tmp_path, {**PROC, "mounts": f"{V1}\n{BESIDE}\n"})
        assert read_machine(Roots(proc=str(proc), cgroup=root)).layout == "hybrid"

    @pytest.mark.parametrize("name", ["kubepods", "kubepods.slice"])
    def test_a_folder_is_judged_by_what_is_in_it(self, tmp_path: Path, name: str) -> None:
        proc = str(put(tmp_path / "proc", {**PROC, "mounts": f"{V1}\n"}))
        (tmp_path / "copy").mkdir()
        assert read_machine(Roots(proc=proc, cgroup=f"{tmp_path}/copy")).layout == "none"
        (tmp_path / "copy" / name).mkdir()
        assert read_machine(Roots(proc=proc, cgroup=f"{tmp_path}/copy")).layout == "v2"

    def test_the_hosts_hierarchy_may_be_mounted_elsewhere(self, tmp_path: Path) -> None:
        mounts = UNIFIED.replace("/sys/fs/cgroup", "/host/cgroup")
        proc = str(put(tmp_path, {**PROC, "mounts": mounts}))
        assert read_machine(Roots(proc=proc, cgroup="/host/cgroup")).layout == "v2"

    def test_mount_points_with_spaces_are_understood(self) -> None:
        (mount,) = mounts_of([r"cgroup2 /my\040folder cgroup2 rw,nsdelegate 0 0"])
        assert mount == Mount("cgroup2", "/my folder", "cgroup2", ("rw", "nsdelegate"))

    def test_protection_is_not_recursive_unless_mounted_so(self) -> None:
        assert Machine(mount=(BESIDE,)).recursive_protection is False


class TestVersions:
    @pytest.mark.parametrize(
        ("text", "version"),
        [
            ("6.1.0-54-cloud-amd64", (6, 1, 0)),
            ("5.9", (5, 9, 0)),
            ("5.10.0-rc1+", (5, 10, 0)),
            ("1.6.20~ds1", (1, 6, 20)),
            ("unknown", None),
            (None, None),
        ],
    )
    def test_a_version_is_the_numbers_it_starts_with(
        self, text: str | None, version: VersionNumbers | None
    ) -> None:
        assert version_numbers(text) == version

    @pytest.mark.parametrize(
        ("runtime", "found"),
        [
            ("containerd 1.6.20", ("containerd", (1, 6, 20))),
            ("containerd v2.0.0", ("containerd", (2, 0, 0))),
            ("cri-o 1.28.1", ("cri-o", (1, 28, 1))),
            (None, None),
        ],
    )
    def test_a_runtime_has_a_name_and_a_version(
        self, runtime: str | None, found: tuple[str, VersionNumbers] | None
    ) -> None:
        assert Machine(runtime=runtime).runtime_version == found

    @pytest.mark.parametrize(
        ("programs", "found"),
        [
            ({"containerd": "containerd github.com/containerd/containerd 1.6.20~ds1 x"},
             "containerd 1.6.20~ds1"),
            ({"containerd": "containerd github.com/containerd/containerd/v2 v2.0.0 abc"},
             "containerd 2.0.0"),
            ({"crio": "crio version 1.28.1\nGitCommit: x"}, "cri-o 1.28.1"),
            ({"containerd": "something else"}, None),
            ({}, None),
            ({"containerd": "containerd x 1.7.0", "crio": "crio version 1.28.1"}, None),
        ],
    )  # fmt: skip
    def test_programs_report_their_own(
        self,
        programs: dict[str, str],
        found: str | None,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        _install(tmp_path, programs)
        monkeypatch.setenv("PATH", str(tmp_path))
        assert runtime_version() == found

    def test_and_so_does_the_kubelet(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        assert kubelet_version() is None
        _install(tmp_path, {"kubelet": "Kubernetes v1.38.0-alpha.1"})
        assert kubelet_version() == "v1.38.0-alpha.1"


def _install(folder: Path, programs: dict[str, str]) -> None:
    for name, text in programs.items():
        (folder / name).write_text(f"#!/bin/sh\necho '{text}'\n")
        (folder / name).chmod(0o755)


class TestDriver:
    @pytest.mark.parametrize(
        ("paths", "driver"),
        [
            (["/", "/kubepods", "/kubepods/burstable"], "cgroupfs"),
            (["/", "/kubepods.slice"], "systemd"),
            (["/a.slice/a-kubepods.slice"], "systemd"),
            (["/a/kubepods"], "cgroupfs"),
            (["/", "/system.slice"], None),
            (["/not-kubepods", "/kubepodss.slice"], None),
        ],
    )
    def test_is_detected_by_the_names(self, paths: list[str], driver: str | None) -> None:
        assert [each.driver for each in kubepods_in(paths)][:1] == ([driver] if driver else [])

    def test_a_kubelet_within_a_container_is_not_the_nodes(self) -> None:
        paths = ["/docker/abc/kubepods.slice", "/docker/abc/kubepods.slice/x", "/kubepods"]
        assert kubepods_in(paths)[0].driver == "cgroupfs"

    def test_what_an_earlier_driver_left_behind_counts_less(self) -> None:
        paths = ["/kubepods", "/kubepods.slice", "/kubepods.slice/kubepods-burstable.slice"]
        assert [(each.driver, each.below) for each in kubepods_in(paths)] == [
            ("systemd", 1),
            ("cgroupfs", 0),
        ]


class TestFiles:
    def test_lines_of_names_and_numbers(self) -> None:
        text = "anon 4096\nfile 0\n\nodd\nworse x\n"
        assert parse_keyed(text) == {"anon": 4096, "file": 0}
        assert lines_about(text, {"file", "odd"}) == "file 0\nodd"

    @pytest.mark.parametrize(
        ("events", "killed"),
        [
            ({}, 0),
            ({"oom_kill": 3}, 3),
            ({"oom_kill": 3, "oom_group_kill": 0}, 3),
            ({"oom_kill": 2, "oom_group_kill": 1}, 1),
            ({"oom_kill": 9, "oom_group_kill": 3}, 6),
            ({"oom_kill": 1, "oom_group_kill": 1}, 1),
        ],
    )
    def test_the_first_process_of_a_group_is_counted_once(
        self, events: dict[str, int], killed: int
    ) -> None:
        assert processes_killed(events) == killed

    def test_pressure_that_is_no_pressure_counts_as_nothing(self) -> None:
        assert stall_of("what?\nsome avg10=x total=") == Stall()

    def test_controllers(self) -> None:
        files = {"cgroup.controllers": "cpu memory", "cgroup.subtree_control": "memory"}
        assert controllers_of(files) == Controllers(
            available=frozenset({"cpu", "memory"}), enabled=frozenset({"memory"})
        )

    def test_where_a_controller_is_withheld(self) -> None:
        given, withheld = {"cgroup.subtree_control": "memory"}, {"cgroup.subtree_control": "cpu"}
        cgroups = {"/": given, "/a": given, "/a/b": withheld, "/a/b/c": withheld}
        assert withheld_at(cgroups, "/a/b", "memory") is None
        assert withheld_at(cgroups, "/a/b/c", "memory") == "/a/b"
        assert withheld_at(cgroups, "/a/b/c/d", "memory") == "/a/b"
        assert withheld_at(cgroups, "/", "memory") is None


def test_the_fakes_are_of_the_form_this_machine_has() -> None:
    assert set(PROC) <= set(os.listdir("/proc"))
    assert set(SYS) <= set(os.listdir("/sys"))
