"""The kubelet that runs on this machine, as /proc shows it: its arguments and its version.

A process is trusted by what no pod can forge: it runs as root, in this PID namespace and in no
pod's cgroup. Reading that takes no rights beyond seeing the process.
"""

import os
from stat import S_IWGRP, S_IWOTH
from typing import Final, NamedTuple

from memqos.errors import os_reason
from memqos.host.processes import read_stat, read_text
from memqos.host.versions import kubelet_version

_NAME: Final = "kubelet"
_HOSTS: Final = frozenset({"k3s", "k3s-server", "k3s-agent", "kubelite"})
"""Processes that embed a kubelet, which has neither flags nor a version of its own."""
_KUBEPODS: Final = "kubepods"
_WRITABLE_BY_OTHERS: Final = S_IWGRP | S_IWOTH


class KubeletProcess(NamedTuple):
    """One process; a restarted kubelet is another one."""

    pid: int
    started: int
    """Clock ticks after the boot."""
    arguments: tuple[str, ...]
    """The program's own name first."""


class KubeletSearch(NamedTuple):
    """The kubelet's process, or why none was found."""

    process: KubeletProcess | None = None
    why: str = "no kubelet process is visible here"


def find_kubelet(proc: str = "/proc") -> KubeletSearch:
    """Search all visible processes."""
    found: list[KubeletProcess] = []
    embedded: str | None = None
    try:
        names = [name for name in os.listdir(proc) if name.isdigit()]
    except OSError as error:
        return KubeletSearch(why=f"{proc}: {os_reason(error)}")
    for name in names:
        folder = f"{proc}/{name}"
        try:
            comm = read_text(f"{folder}/comm").strip()
            if comm in _HOSTS and _is_trusted(folder):
                embedded = comm
            if comm == _NAME and _is_trusted(folder):
                process = _read(folder, int(name))
                if process is not None:
                    found.append(process)
        except (OSError, ValueError, IndexError):
            continue  # it has ended meanwhile, or is not readable
    if len(found) > 1:
        return KubeletSearch(why=f"{len(found)} processes are named kubelet")
    if not found and embedded is not None:
        return KubeletSearch(why=f"{embedded} runs the kubelet inside itself")
    return KubeletSearch(found[0]) if found else KubeletSearch()


def is_running(process: KubeletProcess, proc: str = "/proc") -> bool:
    """Whether a process that was found still runs."""
    try:
        found = _read(f"{proc}/{process.pid}", process.pid)
    except (OSError, ValueError, IndexError):
        return False
    return found is not None and found.started == process.started


def process_version(process: KubeletProcess, proc: str = "/proc") -> str | None:
    """The version of the program that a kubelet runs from, by its file's --version.

    The file is executed: None where it has been replaced since, or where users other than root can
    write to it.
    """
    file = process.arguments[0]
    if not os.path.isabs(file):
        return None
    try:
        status = os.stat(file)
        is_own = status.st_uid in (0, os.geteuid()) and not status.st_mode & _WRITABLE_BY_OTHERS
        if not is_own or not _runs_from(process, file, status, proc):
            return None
    except (OSError, ValueError, IndexError):
        return None
    return kubelet_version(file)


def _runs_from(process: KubeletProcess, file: str, status: os.stat_result, proc: str) -> bool:
    try:
        return os.path.samestat(os.stat(f"{proc}/{process.pid}/exe"), status)
    except PermissionError:
        # Reading /proc/PID/exe takes CAP_SYS_PTRACE, or all capabilities of the kubelet (ptrace(2),
        # access mode checks). A file unchanged since the process began is the one it started from.
        boot = next(
            int(line.split()[1])
            for line in read_text(f"{proc}/stat").splitlines()
            if line.startswith("btime ")
        )
        return status.st_ctime < boot + process.started / os.sysconf("SC_CLK_TCK")


def _is_trusted(folder: str) -> bool:
    """Whether a process runs as root, in this PID namespace, and in no pod."""
    fields = dict(
        line.split(":", 1) for line in read_text(f"{folder}/status").splitlines() if ":" in line
    )
    is_root = fields["Uid"].split()[0] == "0" if "Uid" in fields else False
    # NSpid lists the PID in every nested namespace: one number means this namespace (proc(5)).
    is_here = len(fields.get("NSpid", "0").split()) == 1
    cgroups = read_text(f"{folder}/cgroup")
    return is_root and is_here and _KUBEPODS not in cgroups


def _read(folder: str, pid: int) -> KubeletProcess | None:
    stat = read_stat(folder)
    if stat is None:
        return None
    arguments = read_text(f"{folder}/cmdline").rstrip("\0").split("\0")
    return KubeletProcess(pid, stat.started, tuple(arguments))


POD_LOGS: Final = "/var/log/pods"
"""Its folders are named namespace_name_uid (kubelet kuberuntime/helpers.go,
BuildPodLogsDirectory)."""


def pod_names(folder: str = POD_LOGS) -> dict[str, str]:
    """UID → namespace/name; empty where the folder cannot be read."""
    try:
        entries = os.listdir(folder)
    except OSError:
        return {}
    parts = [entry.split("_") for entry in entries]
    return {found[2]: f"{found[0]}/{found[1]}" for found in parts if len(found) == 3}
