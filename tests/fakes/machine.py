"""A machine's /proc, /sys and cgroups in a folder."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from memqos.host.machine import Roots

UNIFIED: Final = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev,memory_recursiveprot 0 0"
MEMINFO: Final = "MemTotal:        2994788 kB\nSwapTotal:       1048576 kB\nHugePages_Total:   0\n"
STALL: Final = (
    "some avg10=1.50 avg60=0.25 avg300=0.00 total=4242\n"
    "full avg10=0.50 avg60=0.00 avg300=0.00 total=42\n"
)
PAGES: Final = {"nr_hugepages": "8\n", "free_hugepages": "3\n"}

Files = Mapping[str, Any]
"""Name → content, or the files of a folder."""

PROC: Final[Files] = {
    "meminfo": MEMINFO,
    "mounts": f"proc /proc proc rw 0 0\n{UNIFIED}\n",
    "pressure": {"memory": STALL, "cpu": STALL, "io": STALL},
    "sys": {"kernel": {"osrelease": "6.1.0-54-cloud-amd64\n", "random": {"boot_id": "b-1\n"}}},
}
SYS: Final[Files] = {
    "kernel": {"mm": {"hugepages": {"hugepages-1048576kB": PAGES, "hugepages-2048kB": PAGES}}},
    "devices": {
        "system": {
            "node": {
                "online": "0-1\n",
                "node0": {
                    "meminfo": "Node 0 MemTotal:        1514420 kB\n",
                    "distance": "10 20\n",
                    "hugepages": {"hugepages-2048kB": PAGES},
                },
                "node1": {
                    "meminfo": "Node 1 MemTotal:        1480360 kB\n",
                    "distance": "20 10\n",
                },
            }
        }
    },
}


def put(folder: Path, files: Files) -> Path:
    """Write files, and folders of files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if isinstance(content, Mapping):
            put(folder / name, content)
        else:
            (folder / name).write_text(content)
    return folder


def put_tree(folder: Path, cgroups: Mapping[str, Mapping[str, str]]) -> Path:
    """Write cgroups, path → file → content, as the kernel shows them."""
    for path, files in cgroups.items():
        put(folder / path.lstrip("/"), {name: f"{content}\n" for name, content in files.items()})
    return folder


@contextmanager
def deep_folder(folder: Path, levels: int = 1100) -> Iterator[Path]:
    """Folders within folders, as a container can make cgroups; Python's own rmtree gives up here.

    The innermost is given.
    """
    made = [folder]
    for _ in range(levels):
        made.append(made[-1] / "n")
        made[-1].mkdir()
    try:
        yield made[-1]
    finally:
        for each in reversed(made[1:]):
            each.rmdir()


def roots(
    folder: Path,
    proc: Files = PROC,
    sys: Files = SYS,
    cgroups: Mapping[str, Mapping[str, str]] | None = None,
    kubelet: Files | None = None,
) -> Roots:
    """A machine out of files; one without a tree of its own has a single cgroup."""
    tree = {"/": {"cgroup.controllers": "memory"}} if cgroups is None else cgroups
    return Roots(
        proc=str(put(folder / "proc", proc)),
        sys=str(put(folder / "sys", sys)),
        cgroup=str(put_tree(folder / "cgroup", tree)),
        kubelet=str(put(folder / "kubelet", kubelet or {})),
    )


def put_kubelet_process(
    proc: Path,
    program: Path,
    *flags: str,
    pid: int = 812,
    started: int = 2000,
    uid: int = 0,
    pids: str | None = None,
    cgroup: str = "/system.slice/kubelet.service",
    comm: str = "kubelet",
    state: str = "S",
) -> Path:
    """A process as /proc shows it; the one that has its PID makes room."""
    numbers = " ".join(["0"] * 18)
    folder = put(
        proc / str(pid),
        {
            "comm": f"{comm}\n",
            "stat": f"{pid} ({comm}) {state} {numbers} {started} 0\n",
            "status": f"Name:\t{comm}\nUid:\t{uid}\t{uid}\t0\t0\nNSpid:\t{pids or pid}\n",
            "cgroup": f"0::{cgroup}\n",
            "cmdline": "\0".join([str(program), *flags, ""]),
        },
    )
    (folder / "exe").unlink(missing_ok=True)
    (folder / "exe").symlink_to(program)
    return folder


def put_kubelet_program(file: Path, version: str) -> Path:
    """A program that says which version it is; one that is there already is replaced."""
    put(file.parent, {f".{file.name}": f"#!/bin/sh\necho Kubernetes {version}\n"})
    (file.parent / f".{file.name}").chmod(0o755)
    return (file.parent / f".{file.name}").replace(file)
