"""Cgroups, workloads and patience, for the tests that run in the machine.

The machine is slow and its speed means nothing: wait for what the kernel shows, never for a time.
"""

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Self

from tests.eventually import eventually

ROOT: Final = Path("/sys/fs/cgroup")
WORKLOAD: Final = Path(__file__).with_name("workload.py")
PROGRAMS: Final = Path(__file__).with_name("programs.py")
CONTROLLERS: Final = ("cpuset", "cpu", "memory", "hugetlb", "pids")
MI: Final = 1 << 20


def protection_is_recursive() -> bool:
    """Whether the cgroups of this machine are mounted with memory_recursiveprot."""
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    [options] = [mount[3] for mount in mounts if mount[2] == "cgroup2"]
    return "memory_recursiveprot" in options.split(",")


def killed_in_order(workloads: Mapping[str, "Workload"]) -> list[str]:
    """Those the kernel has killed for want of memory, in its own order.

    One death may follow the other before a test has looked, so the kernel's log is asked.
    """
    names = {workload.pid: name for name, workload in workloads.items()}
    killed = (int(pid) for pid in re.findall(r"Killed process (\d+) ", _kernel_log()))
    return list(dict.fromkeys(names[pid] for pid in killed if pid in names))


def _kernel_log() -> str:
    records = []
    log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    try:
        while True:
            try:
                records.append(os.read(log, 1 << 13).decode("utf-8", "replace"))
            except BrokenPipeError:  # overwritten by newer records
                continue
    except BlockingIOError:
        return "".join(records)
    finally:
        os.close(log)


class Workload:
    """A process in a cgroup that holds as much memory of its own as it is told to."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, size: int, *, huge: bool = False) -> None:
        """Have it take more memory, which it may never finish."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{size} huge\n" if huge else f"{size}\n")
        self._process.stdin.flush()

    def hold(self, size: int, *, huge: bool = False) -> None:
        """Have it take more memory; returns when it has touched all of it."""
        self.ask(size, huge=huge)
        eventually(f"{size} bytes are held", self.answered)

    def answered(self) -> bool:
        """Whether it says that it holds what was asked for; each answer is heard once."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], 0)
        return bool(ready) and self._process.stdout.readline() == "held\n"

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def killed_by(self) -> int | None:
        """The signal that ended it, if one did."""
        code = self._process.poll()
        return -code if code is not None and code < 0 else None

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


class Program:
    """A process that goes its own way, and tells of its progress."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._told = ""

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def steps(self) -> int:
        """How far it has come."""
        return self._heard().count("step\n")

    @property
    def finished(self) -> bool:
        """Whether it has done all it wanted to."""
        return self._heard().endswith("finished\n")

    @property
    def killed(self) -> bool:
        return self._process.poll() == -signal.SIGKILL

    @property
    def over(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _heard(self) -> str:
        assert self._process.stdout is not None
        try:
            while more := os.read(self._process.stdout.fileno(), 1 << 16):
                self._told += more.decode()
        except BlockingIOError:  # it runs on
            pass
        return self._told


class Cgroup:
    """A cgroup of a test's own, and what was made in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._children: list[Cgroup] = []
        self._workloads: list[Workload | Program] = []
        path.mkdir()

    @classmethod
    def at_root(cls, name: str) -> Self:
        """A cgroup directly below the root, with all controllers."""
        _enable(ROOT)
        return cls(ROOT / name)

    def child(self, name: str, **files: int | str) -> "Cgroup":
        """A cgroup in this one; memory_min=4096 writes to memory.min."""
        _enable(self.path)
        child = Cgroup(self.path / name)
        self._children.append(child)
        child.write(**files)
        return child

    @property
    def name(self) -> str:
        """Its path in the hierarchy."""
        return f"/{self.path.relative_to(ROOT)}"

    def write(self, **files: int | str) -> None:
        for file, value in files.items():
            (self.path / file.replace("_", ".")).write_text(str(value))

    def read(self, file: str) -> str:
        return (self.path / file).read_text().strip()

    def number(self, file: str) -> int:
        return int(self.read(file))

    def counts(self, file: str) -> dict[str, int]:
        """A file of names and numbers, such as memory.events and memory.stat."""
        return {name: int(value) for name, value in map(str.split, self.read(file).splitlines())}

    def by_node(self, file: str, name: str) -> dict[int, int]:
        """A line of a file about NUMA nodes, such as memory.numa_stat: node → bytes, if any."""
        (line,) = [each for each in self.read(file).splitlines() if each.split()[0] == name]
        parts = [part.partition("=") for part in line.split()[1:]]
        return {int(node[1:]): int(size) for node, _, size in parts if node[1:] and int(size)}

    def events(self) -> dict[str, int]:
        return self.counts("memory.events")

    def run(self, *command: str) -> None:
        """Run a command in the cgroup to its end."""
        subprocess.run(self._inside(command), stdout=subprocess.DEVNULL, check=True)

    def cache(self, file: Path, size: int) -> None:
        """Fill the page cache on the cgroup's account, with a file that takes no disk."""
        with file.open("wb") as sparse:
            sparse.truncate(size)
        self.run("busybox", "cat", str(file))

    def workload(self, *, oom_score_adj: int = 0) -> Workload:
        """Start a process that holds memory when told to."""
        command = [sys.executable, "-I", "-S", "-u", str(WORKLOAD)]
        workload = Workload(self._popen(command, oom_score_adj))
        self._workloads.append(workload)
        return workload

    def program(self, *arguments: object) -> Program:
        """Start one of the programs."""
        command = [sys.executable, "-I", "-S", "-u", str(PROGRAMS), *map(str, arguments)]
        program = Program(self._popen(command, 0, stdin=subprocess.DEVNULL))
        self._workloads.append(program)
        return program

    def idle(self) -> Workload:
        """Start a process that does nothing and takes little, as pause does."""
        workload = Workload(self._popen(["busybox", "sleep", "86400"], 0))
        self._workloads.append(workload)
        return workload

    def burn(self) -> Workload:
        """Start a process that keeps a processor busy."""
        workload = Workload(self._popen(["busybox", "sh", "-c", "while :; do :; done"], 0))
        self._workloads.append(workload)
        return workload

    def remove(self) -> None:
        """Kill what is in it and take it away, children first."""
        self.write(cgroup_kill=1)
        for child in self._children:
            child.remove()
        for workload in self._workloads:
            workload.end()
        eventually(f"{self.name} is empty", lambda: not self.read("cgroup.procs"))
        self.path.rmdir()

    def forget(self, child: "Cgroup") -> None:
        """A child was taken away by its path."""
        self._children.remove(child)

    def _popen(
        self, command: Iterable[str], oom_score_adj: int, stdin: int = subprocess.PIPE
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._inside(command, oom_score_adj),
            stdin=stdin,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _inside(self, command: Iterable[str], oom_score_adj: int = 0) -> list[str]:
        enter = f"echo $$ >{self.path}/cgroup.procs; echo {oom_score_adj} >/proc/$$/oom_score_adj"
        return ["sh", "-ec", f'{enter}; exec "$@"', "sh", *command]


def _enable(cgroup: Path) -> None:
    (cgroup / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in CONTROLLERS))
