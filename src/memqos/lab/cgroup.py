"""Cgroups of an experiment, and what runs in them."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Self, TypeVar

from memqos.lab.processes import HOLD_FILE, PROGRAMS_FILE, HoldingProcess, RunningProgram
from memqos.lab.waiting import wait_until

CGROUP_ROOT: Final = Path("/sys/fs/cgroup")
CONTROLLERS: Final = ("cpuset", "cpu", "memory", "hugetlb", "pids")
_P = TypeVar("_P", HoldingProcess, RunningProgram)
_PYTHON: Final = (sys.executable, "-I", "-S", "-u")


class ScratchCgroup:
    """A cgroup that was made to be removed, and what was made in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._children: list[ScratchCgroup] = []
        self._processes: list[HoldingProcess | RunningProgram] = []
        path.mkdir()

    @classmethod
    def at_root(cls, name: str) -> Self:
        """A cgroup directly below the root, with all controllers."""
        enable_controllers(CGROUP_ROOT)
        return cls(CGROUP_ROOT / name)

    def child(self, name: str, **files: int | str) -> "ScratchCgroup":
        """A cgroup in this one; memory_min=4096 writes to memory.min."""
        enable_controllers(self.path)
        child = ScratchCgroup(self.path / name)
        self._children.append(child)
        child.write(**files)
        return child

    @property
    def name(self) -> str:
        """Its path in the hierarchy."""
        return f"/{self.path.relative_to(CGROUP_ROOT)}"

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

    def kills(self) -> int:
        """How many containers in it the kernel has killed for want of memory, each as a whole.

        oom_kill counts processes, and the first of a container twice: oom_kill_process() kills
        it, then every process of a group with memory.oom.group (mm/oom_kill.c).
        """
        events = self.events()
        return events.get("oom_group_kill", events["oom_kill"])  # since 5.17

    def run(self, *command: str) -> None:
        """Run a command in the cgroup to its end."""
        subprocess.run(self._inside(command), stdout=subprocess.DEVNULL, check=True)

    def cache(self, file: Path, size: int) -> None:
        """Fill the page cache on the cgroup's account, with a file that takes no disk."""
        with file.open("wb") as sparse:
            sparse.truncate(size)
        self.run("cat", str(file))

    def workload(self, *, oom_score_adj: int = 0) -> HoldingProcess:
        """Start a process that holds memory on request."""
        return self._add(HoldingProcess(self._popen([*_PYTHON, str(HOLD_FILE)], oom_score_adj)))

    def program(self, *arguments: object, oom_score_adj: int = 0) -> RunningProgram:
        """Start one of the programs."""
        command = [*_PYTHON, str(PROGRAMS_FILE), *map(str, arguments)]
        return self._add(
            RunningProgram(self._popen(command, oom_score_adj, stdin=subprocess.DEVNULL))
        )

    def idle(self) -> HoldingProcess:
        """Start a process that does nothing and takes little, as pause does."""
        return self._add(HoldingProcess(self._popen(["sleep", "86400"], 0)))

    def burn(self) -> HoldingProcess:
        """Start a process that keeps a processor busy."""
        return self._add(HoldingProcess(self._popen(["sh", "-c", "while :; do :; done"], 0)))

    def kill(self) -> None:
        """Kill all that is in it, and wait until it is empty."""
        self.write(cgroup_kill=1)
        for process in self._processes:
            process.end()
        wait_until(f"{self.name} is empty", lambda: "populated 0" in self.read("cgroup.events"))

    def remove(self) -> None:
        """Kill what is in it and remove it, children first."""
        self.write(cgroup_kill=1)
        for child in self._children:
            child.remove()
        for process in self._processes:
            process.end()
        wait_until(f"{self.name} is empty", lambda: not self.read("cgroup.procs"))
        self.path.rmdir()

    def forget(self, child: "ScratchCgroup") -> None:
        """A child was removed by its path."""
        self._children.remove(child)

    def _add(self, process: _P) -> _P:
        self._processes.append(process)
        return process

    def _popen(
        self, command: Iterable[str], oom_score_adj: int, stdin: int = subprocess.PIPE
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._inside(command, oom_score_adj),
            stdin=stdin,
            stdout=subprocess.PIPE,
            text=True,
            # Ctrl-C is for the process that started it, which then removes the cgroup.
            start_new_session=True,
        )

    def _inside(self, command: Iterable[str], oom_score_adj: int = 0) -> list[str]:
        enter = f"echo $$ >{self.path}/cgroup.procs; echo {oom_score_adj} >/proc/$$/oom_score_adj"
        return ["sh", "-ec", f'{enter}; exec "$@"', "sh", *command]


def enable_controllers(cgroup: Path) -> None:
    """Hand what there is of the controllers on to the cgroups below."""
    there = (cgroup / "cgroup.controllers").read_text().split()
    words = " ".join(f"+{name}" for name in CONTROLLERS if name in there)
    (cgroup / "cgroup.subtree_control").write_text(words)
