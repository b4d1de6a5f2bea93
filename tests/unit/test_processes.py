"""Processes out of /proc."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from memqos.errors import Unreachable
from memqos.host.cgroups import CgroupFs
from memqos.host.processes import ProcessList, read_processes
from memqos.kernel.process import Process

STATUS = """Name:\t{name}
VmPeak:\t  999999 kB
VmRSS:\t    {rss} kB
VmPTE:\t      {pte} kB
VmSwap:\t     {swap} kB
Threads:\t4
"""


class Machine:
    """A folder that looks like /proc."""

    def __init__(self, root: Path) -> None:
        self.proc = root / "proc"
        self.proc.mkdir()
        (self.proc / "meminfo").write_text("MemTotal: 1 kB\n")
        (root / "cgroup").mkdir()
        self.cgroups = root / "cgroup"

    def add(
        self,
        pid: int,
        comm: str = "app",
        *,
        started: int = 100,
        state: str = "S",
        flags: int = 0x400000,
        adj: int = 0,
        cgroup: str = "0::/app\n",
        status: str | None = None,
    ) -> Path:
        folder = self.proc / str(pid)
        folder.mkdir()
        middle = f"1 1 1 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 4 0"
        (folder / "stat").write_text(f"{pid} ({comm}) {state} {middle} {started} 1 1\n")
        (folder / "oom_score_adj").write_text(f"{adj}\n")
        (folder / "cgroup").write_text(cgroup)
        (folder / "status").write_text(status or STATUS.format(name=comm, rss=2048, pte=8, swap=16))
        return folder

    def seen(self) -> ProcessList:
        return read_processes(str(self.proc), CgroupFs(str(self.cgroups)))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_memory_is_read_in_bytes(machine: Machine) -> None:
    machine.add(42, "java", adj=985)
    assert machine.seen().processes == (
        Process(
            comm="java",
            oom_score_adj=985,
            pid=42,
            rss=2 << 20,
            swap=16 << 10,
            page_tables=8 << 10,
            cgroup="/app",
        ),
    )


def test_processes_come_in_the_order_they_were_started(machine: Machine) -> None:
    machine.add(9, "late", started=300)
    machine.add(70, "early", started=100)
    machine.add(8, "middle", started=200)
    assert [each.comm for each in machine.seen().processes] == ["early", "middle", "late"]


def test_a_name_may_hold_anything(machine: Machine) -> None:
    machine.add(5, ") S 1 (evil")
    (found,) = machine.seen().processes
    assert found.comm == ") S 1 (evil"


def test_kernel_threads_are_known_by_their_flag(machine: Machine) -> None:
    machine.add(2, "kthreadd", flags=0x208040, cgroup="0::/\n", status="Name:\tkthreadd\n")
    seen = machine.seen()
    assert seen.processes[0].kernel_thread
    assert seen.complete


def test_without_the_kernels_own_threads_the_list_is_not_the_machines(machine: Machine) -> None:
    machine.add(1, "sh")
    machine.add(2, "app")
    assert not machine.seen().complete


def test_the_dead_hold_nothing(machine: Machine) -> None:
    machine.add(5, "zombie", state="Z")
    assert machine.seen().processes == ()


def test_one_that_vanishes_meanwhile_is_excluded(machine: Machine) -> None:
    (machine.add(5) / "status").unlink()
    machine.add(6, "stays")
    assert [each.comm for each in machine.seen().processes] == ["stays"]


def test_one_may_be_thousands_of_cgroups_deep(machine: Machine) -> None:
    deep = "/app" + "/n" * 2000
    (machine.cgroups / "app").mkdir()
    (machine.cgroups / "app" / "memory.oom.group").write_text("1\n")
    machine.add(5, cgroup=f"0::{deep}\n")
    (found,) = machine.seen().processes
    assert (found.cgroup, found.oom_group) == (deep, "/app")


def test_one_whose_cgroup_is_too_deep_to_be_named_is_seen_all_the_same(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.add(5)
    real = open

    def too_long(path: str, **more: Any) -> Any:
        if path.endswith("/cgroup"):
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        return real(path, **more)

    monkeypatch.setattr("builtins.open", too_long)
    seen = machine.seen()
    assert [each.cgroup for each in seen.processes] == [None]
    assert seen.unreadable == 0


def test_one_that_may_not_be_looked_at_is_counted(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(path: str) -> str:
        raise PermissionError(path)

    machine.add(5)
    monkeypatch.setattr("memqos.host.processes.read_text", forbidden)
    assert machine.seen() == ProcessList((), unreadable=1, complete=False)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("0::/kubepods/pod1\n", "/kubepods/pod1"),
        ("12:cpu:/x\n4:memory:/kubepods/pod1\n0::/\n", "/kubepods/pod1"),
        ("4:memory:/legacy\n0::/unified\n", "/unified"),
        ("4:memory,cpu:/legacy\n", "/legacy"),
        ("0::/a:b\n", "/a:b"),
        ("", None),
    ],
)
def test_the_cgroup_is_that_of_the_unified_hierarchy_or_of_memory(
    machine: Machine, text: str, path: str | None
) -> None:
    machine.add(5, cgroup=text)
    assert machine.seen().processes[0].cgroup == path


def test_the_highest_cgroup_with_oom_group_dies_as_a_whole(machine: Machine) -> None:
    for path, value in (("pod", "1"), ("pod/c", "1"), ("pod/d", "0"), ("free", "0")):
        (machine.cgroups / path).mkdir()
        (machine.cgroups / path / "memory.oom.group").write_text(f"{value}\n")
    for pid, path in ((5, "/pod/c"), (6, "/pod/d"), (7, "/free"), (8, "/none"), (9, "/../x")):
        machine.add(pid, cgroup=f"0::{path}\n")
    groups = {each.pid: each.oom_group for each in machine.seen().processes}
    assert groups == {5: "/pod", 6: "/pod", 7: None, 8: None, 9: None}


def test_without_proc_the_way_out_is_reported(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="--from FILE"):
        read_processes(str(tmp_path / "none"))


def test_this_very_process_is_seen() -> None:
    own = next(each for each in read_processes().processes if each.pid == os.getpid())
    assert own.rss is not None
    assert own.rss > 1 << 20
