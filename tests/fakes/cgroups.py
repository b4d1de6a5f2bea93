"""A cgroup tree in a folder, whose files take values as the kernel does.

Amounts are rounded down to pages, lists are written out in order, nonsense is refused, and a write
either happens or does not. The folder stands for the kernel: it outlives whoever writes to it.
"""

import errno
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from memqos.errors import WriteRefused
from memqos.host.cgroups import CgroupFs

PAGE: Final = 4096
NUMA_NODES: Final = 8
DEFAULTS: Final = {
    "memory.min": "0",
    "memory.low": "0",
    "memory.high": "max",
    "memory.current": "0",
    "memory.stat": "anon 0\nfile 0\nshmem 0",
    "memory.swap.max": "max",
    "memory.swap.current": "0",
    "cpuset.mems": "",
}
_LARGEST: Final = 1 << 63

# Tests put others in their place to see what a writer does; the kernel goes on with its own.
_replace = os.replace
_open, _write, _close = os.open, os.write, os.close


class FakeKernel(CgroupFs):
    """The cgroup files below a folder, and the hand that takes what is written to them."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "cgroup"
        self.folder.mkdir(exist_ok=True)
        self.scratch = str(root / "scratch")
        self.refusals: dict[tuple[str, str], int] = {}
        """(path, file) → what the kernel answers."""
        self.populated: set[str] = set()
        """Cgroups with processes: the kernel does not let go of their NUMA nodes."""
        self.before_write: Callable[[str, str], None] = lambda _path, _file: None
        self.reclaims_for: dict[str, float] = {}
        """Path → seconds that lowering memory.high below usage takes."""
        super().__init__(str(self.folder))

    def make(self, path: str, files: Mapping[str, str] | None = None) -> None:
        """A new cgroup; parents are made with it."""
        folder = self.folder / path.removeprefix("/")
        folder.mkdir(parents=True)
        for file, content in {**DEFAULTS, **(files or {})}.items():
            (folder / file).write_text(f"{content}\n")

    def set(self, path: str, file: str, content: str) -> None:
        """Somebody else's write."""
        (self.folder / path.removeprefix("/") / file).write_text(f"{content}\n")

    def remove(self, path: str) -> None:
        """The cgroup vanishes."""
        folder = self.folder / path.removeprefix("/")
        for child in folder.iterdir():
            if child.is_dir():
                self.remove(f"{path}/{child.name}")
            else:
                child.unlink()
        folder.rmdir()

    def contents(self) -> dict[str, bytes]:
        """Every file of the tree, byte for byte."""
        found: dict[str, bytes] = {}
        for folder, _, files in os.walk(self.root):
            for file in files:
                with open(f"{folder}/{file}", "rb") as opened:
                    found[f"{folder}/{file}".removeprefix(f"{self.root}/")] = opened.read()
        return found

    def write(self, path: str, file: str, value: str) -> None:
        self.before_write(path, file)
        target = self._file(path, file)
        code = self.refusals.get((path, file), 0 if os.path.exists(target) else errno.ENOENT)
        if file == "cpuset.mems" and path in self.populated and not value.strip():
            code = code or errno.ENOSPC
        content = None if code else _kernel_value(file, value.strip())
        if content is None:
            raise WriteRefused(f"{path}/{file}", value, errno=code or errno.EINVAL, hint="a fake")
        scratch = f"{self.scratch}-{os.getpid()}"
        handle = _open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        _write(handle, f"{content}\n".encode())
        _close(handle)
        _replace(scratch, target)
        # The value holds from now on; then the writer is made to reclaim.
        if file == "memory.high" and content != "max":
            usage = int(self.read(path, "memory.current") or "0")
            time.sleep(self.reclaims_for.get(path, 0) if usage > int(content) else 0)


def _kernel_value(file: str, value: str) -> str | None:
    """What a file shows once a value was written to it; None where the value is nonsense."""
    if file == "cpuset.mems":
        return _nodes(value)
    if value == "max" or file == "memory.oom.group":
        return value
    if not (value.isascii() and value.isdigit()):
        return None
    amount = int(value) // PAGE * PAGE
    return "max" if amount >= _LARGEST - PAGE else str(amount)


def _nodes(value: str) -> str | None:
    nodes: set[int] = set()
    for part in value.split(",") if value else ():
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            return None
        nodes |= set(range(int(first), int(last or first) + 1))
    if any(node >= NUMA_NODES for node in nodes):
        return None
    runs: list[list[int]] = []
    for node in sorted(nodes):
        if runs and runs[-1][1] == node - 1:
            runs[-1][1] = node
        else:
            runs.append([node, node])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
