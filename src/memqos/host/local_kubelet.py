"""The kubelet that runs on this machine, as /proc shows it: its arguments and its version.

What is believed of a process is what no pod can forge: one of root, in this PID namespace and in no
pod's cgroup. Reading that takes no rights beyond seeing the process.
"""

import os
import stat
from typing import Final, NamedTuple

from memqos.host.versions import kubelet_version

_NAME: Final = "kubelet"
_HOSTS: Final = frozenset({"k3s", "k3s-server", "k3s-agent", "kubelite"})
"""Processes that run a kubelet inside themselves: it has neither flags nor a version of its own."""
_KUBEPODS: Final = "kubepods"
_MAY_BE_CHANGED: Final = stat.S_IWGRP | stat.S_IWOTH
# Fields of /proc/PID/stat after the name, which may hold spaces and ")" itself (proc(5)).
_STATE, _STARTED = 0, 19
_ENDED: Final = "ZX"


class KubeletProcess(NamedTuple):
    """One process, which is another one after a restart."""

    pid: int
    started: int
    """Clock ticks after the boot."""
    arguments: tuple[str, ...]
    """The program's own name first."""


class KubeletSearch(NamedTuple):
    """The kubelet's process, or why it is not known."""

    process: KubeletProcess | None = None
    why: str = "no kubelet process is visible here"


def find_kubelet(proc: str = "/proc") -> KubeletSearch:
    """Look through all processes that can be seen."""
    found: list[KubeletProcess] = []
    embedded: str | None = None
    try:
        names = [name for name in os.listdir(proc) if name.isdigit()]
    except OSError as error:
        return KubeletSearch(why=f"{proc}: {(error.strerror or str(error)).lower()}")
    for name in names:
        folder = f"{proc}/{name}"
        try:
            comm = _text(f"{folder}/comm").strip()
            if comm in _HOSTS and _is_trusted(folder):
                embedded = comm
            if comm == _NAME and _is_trusted(folder):
                process = _read(folder, int(name))
                if process is not None:
                    found.append(process)
        except (OSError, ValueError, IndexError):
            continue  # it has ended meanwhile, or may not be seen
    if len(found) > 1:
        return KubeletSearch(why=f"{len(found)} processes are named kubelet")
    if not found and embedded is not None:
        return KubeletSearch(why=f"{embedded} runs the kubelet inside itself")
    return KubeletSearch(found[0]) if found else KubeletSearch()


def is_running(process: KubeletProcess, proc: str = "/proc") -> bool:
    """Whether a process that was found is still there, and the same."""
    try:
        found = _read(f"{proc}/{process.pid}", process.pid)
    except (OSError, ValueError, IndexError):
        return False
    return found is not None and found.started == process.started


def process_version(process: KubeletProcess, proc: str = "/proc") -> str | None:
    """The version of the program that a kubelet runs from, by its file's --version.

    None where that file is another by now, or could be of anybody's making: it is executed.
    """
    file = process.arguments[0]
    if not os.path.isabs(file):
        return None
    try:
        status = os.stat(file)
        is_own = status.st_uid in (0, os.geteuid()) and not status.st_mode & _MAY_BE_CHANGED
        if not is_own or not _runs_from(process, file, status, proc):
            return None
    except (OSError, ValueError, IndexError):
        return None
    return kubelet_version(file)


def _runs_from(process: KubeletProcess, file: str, status: os.stat_result, proc: str) -> bool:
    try:
        return os.path.samestat(os.stat(f"{proc}/{process.pid}/exe"), status)
    except PermissionError:
        # /proc/PID/exe takes CAP_SYS_PTRACE, or all capabilities of the kubelet (ptrace(2), access
        # mode checks). A file unchanged since the process began is the one it was started from.
        boot = next(
            int(line.split()[1])
            for line in _text(f"{proc}/stat").splitlines()
            if line.startswith("btime ")
        )
        return status.st_ctime < boot + process.started / os.sysconf("SC_CLK_TCK")


def _is_trusted(folder: str) -> bool:
    """Whether a process is root's, of this PID namespace, and no pod's."""
    fields = dict(
        line.split(":", 1) for line in _text(f"{folder}/status").splitlines() if ":" in line
    )
    is_roots = fields["Uid"].split()[0] == "0" if "Uid" in fields else False
    # NSpid lists the PID in every nested namespace: one number means this namespace (proc(5)).
    is_here = len(fields.get("NSpid", "0").split()) == 1
    cgroups = _text(f"{folder}/cgroup")
    return is_roots and is_here and _KUBEPODS not in cgroups


def _read(folder: str, pid: int) -> KubeletProcess | None:
    fields = _text(f"{folder}/stat").rpartition(")")[2].split()
    if fields[_STATE] in _ENDED:
        return None
    arguments = _text(f"{folder}/cmdline").rstrip("\0").split("\0")
    return KubeletProcess(pid, int(fields[_STARTED]), tuple(arguments))


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


POD_LOGS: Final = "/var/log/pods"
"""Of folders namespace_name_uid (kubelet kuberuntime/helpers.go, BuildPodLogsDirectory)."""


def pod_names(folder: str = POD_LOGS) -> dict[str, str]:
    """UID → namespace/name; empty where the folder cannot be read."""
    try:
        entries = os.listdir(folder)
    except OSError:
        return {}
    parts = [entry.split("_") for entry in entries]
    return {found[2]: f"{found[0]}/{found[1]}" for found in parts if len(found) == 3}
