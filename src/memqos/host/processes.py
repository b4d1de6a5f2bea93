"""The processes of this machine, by /proc. Reading them takes no rights beyond seeing them."""

import errno
import os
from typing import Final, NamedTuple

import msgspec

from memqos.errors import Unreachable
from memqos.host.cgroups import CgroupFs
from memqos.kernel.process import Process

_VANISHED: Final = (FileNotFoundError, ProcessLookupError, NotADirectoryError)
_KERNEL_THREAD: Final = 0x0020_0000
"""PF_KTHREAD (include/linux/sched.h) in the flags of /proc/PID/stat."""
_KTHREADD: Final = 2
"""The PID of kthreadd, the second thread that the kernel starts (rest_init(), init/main.c)."""
_ENDED: Final = "ZX"
# Fields of /proc/PID/stat after the name.
_STATE, _FLAGS, _STARTED = 0, 6, 19


class ProcessList(NamedTuple):
    """The processes that can be read, in the order in which they were started."""

    processes: tuple[Process, ...]
    unreadable: int
    """Processes that exist and may not be read."""
    complete: bool
    """Whether these are all of the machine: in a container /proc lists only its own."""


def read_processes(proc: str = "/proc", cgroups: CgroupFs | None = None) -> ProcessList:
    """Every process that can be read; one that ends meanwhile is skipped."""
    groups = _OomGroups(cgroups or CgroupFs())
    found: list[tuple[int, int, Process]] = []
    unreadable = 0
    complete = False
    try:
        names = os.listdir(proc)
    except OSError as error:
        raise Unreachable(
            f"{proc} cannot be read: {error.strerror}", hint="give --from FILE or --snapshot FILE"
        ) from None
    for pid in [int(name) for name in names if name.isdigit()]:
        try:
            read = _read(f"{proc}/{pid}", pid, groups)
        except _VANISHED:
            continue
        except PermissionError:
            unreadable += 1
            continue
        if read is not None:
            started, process = read
            complete |= pid == _KTHREADD and process.kernel_thread
            found.append((started, pid, process))
    found.sort(key=lambda each: each[:2])
    return ProcessList(tuple(process for *_, process in found), unreadable, complete)


def _read(folder: str, pid: int, groups: "_OomGroups") -> tuple[int, Process] | None:
    """When a process was started, and the process; None for one that has ended."""
    stat = read_stat(folder)
    if stat is None:
        return None
    kernel_thread = bool(stat.flags & _KERNEL_THREAD)
    process = Process(
        comm=stat.name,
        oom_score_adj=int(read_text(f"{folder}/oom_score_adj")),
        pid=pid,
        kernel_thread=kernel_thread,
        cgroup=_cgroup(f"{folder}/cgroup"),
    )
    if kernel_thread:
        return stat.started, process
    status = _status(read_text(f"{folder}/status"))
    return stat.started, msgspec.structs.replace(
        process,
        rss=status.get("VmRSS", 0),
        swap=status.get("VmSwap", 0),
        # oom_badness() counts rss, swap and page tables (mm/oom_kill.c).
        page_tables=status.get("VmPTE", 0),
        oom_group=groups.of(process.cgroup),
    )


class ProcessStat(NamedTuple):
    """The fields of /proc/PID/stat that memqos uses."""

    name: str
    flags: int
    started: int
    """Clock ticks after the boot."""


def read_stat(folder: str) -> ProcessStat | None:
    """Read /proc/PID/stat; None for a process that is a zombie or dead, and has no memory left."""
    # The name may have spaces and ")" in it (proc(5)).
    start, _, rest = read_text(f"{folder}/stat").rpartition(")")
    fields = rest.split()
    if fields[_STATE] in _ENDED:
        return None
    return ProcessStat(start.partition("(")[2], int(fields[_FLAGS]), int(fields[_STARTED]))


def read_text(path: str) -> str:
    """The text of a file in /proc."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def _status(text: str) -> dict[str, int]:
    """Bytes by name, of the lines that are amounts of memory."""
    amounts = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if value.endswith(" kB"):
            amounts[name] = int(value.removesuffix(" kB")) << 10
    return amounts


def _cgroup(file: str) -> str | None:
    """The path in the unified hierarchy; in the v1 memory hierarchy where there is none."""
    unified = memory = None
    try:
        lines = read_text(file).splitlines()
    except OSError as error:
        # proc_cgroup_show() (kernel/cgroup/cgroup.c) has a buffer of PATH_MAX, 4096 bytes;
        # containers can nest cgroups deeper.
        if error.errno == errno.ENAMETOOLONG:
            return None
        raise
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":
            unified = path
        elif "memory" in controllers.split(","):
            memory = path
    # In systemd's hybrid layout the unified hierarchy has no controllers (systemd,
    # docs/CGROUP_DELEGATION.md), and runtimes leave their processes at its root: then the path in
    # the v1 memory hierarchy names the container.
    return memory if memory is not None and unified in (None, "/") else unified


class _OomGroups:
    """The cgroup that the OOM killer kills as a whole, by memory.oom.group; each is read once."""

    def __init__(self, cgroups: CgroupFs) -> None:
        self._cgroups = cgroups
        self._known: dict[str, str | None] = {}

    def of(self, path: str | None) -> str | None:
        if path is None or path == "/" or ".." in path:
            return None
        # Not recursive: a container may put its processes thousands of levels down.
        unknown: list[str] = []
        while path and path not in self._known:
            unknown.append(path)
            path = path.rpartition("/")[0]
        group = self._known.get(path)
        for each in reversed(unknown):
            group = group or (each if self._is_set(each) else None)
            self._known[each] = group
        return group

    def _is_set(self, path: str) -> bool:
        try:
            return self._cgroups.read(path, "memory.oom.group") == "1"
        except OSError:
            return False
