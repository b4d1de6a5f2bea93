"""The driver that writes cgroup files itself."""

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from memqos.converge.cpusets import clear_cpuset
from memqos.converge.records import OwnerState
from memqos.errors import WriteRefused
from memqos.host.bounded_child import run_bounded
from memqos.host.cgroups import CgroupFs
from memqos.plan.changes import Change, magnitude
from memqos.plan.cpuset import MEMS

WRITE_TIMEOUT: Final = 10.0
"""Seconds a write may take."""
_NEAR_HIGH: Final = 7 / 8
"""Usage above this part of memory.high may have passed it by the time it is written."""


class DirectDriver:
    """Writes files below a cgroup root; what may block is written aside and bounded."""

    def __init__(self, fs: CgroupFs, timeout: float = WRITE_TIMEOUT) -> None:
        self.fs = fs
        self.timeout = timeout

    def batch_key(self, change: Change) -> str:
        return f"{change.path}/{change.file}"

    def read_owner_state(self, change: Change) -> None:
        return None

    def write(self, changes: Sequence[Change]) -> bool:
        finished = [self._write_bounded(change) for change in changes]
        return all(finished)

    def restore_owner(
        self, path: str, owner_state: OwnerState, files: Collection[str]
    ) -> Sequence[str]:
        """Files have nobody who keeps their values."""
        return ()

    def read(self, path: str, file: str) -> str | None:
        return self.fs.read(path, file)

    def _write_bounded(self, change: Change) -> bool:
        if not may_block(change, self.fs):
            self.fs.write(change.path, change.file, change.new)
            return True
        answer = run_bounded(lambda: self._write_in_child(change), self.timeout)
        if answer is None:
            return False
        if answer:
            errno, hint = msgspec.json.decode(answer, type=tuple[int | None, str | None])
            raise WriteRefused(f"{change.path}/{change.file}", change.new, errno=errno, hint=hint)
        return True

    def _write_in_child(self, change: Change) -> bytes:
        try:
            if change.file == MEMS and not change.new:
                clear_cpuset(change.path, self.fs)
            else:
                self.fs.write(change.path, change.file, change.new)
        except WriteRefused as error:
            return msgspec.json.encode((error.errno, error.hint))
        return b""


def may_block(change: Change, fs: CgroupFs) -> bool:
    """Whether the kernel may work for long before a write returns.

    Below its usage memory.high makes the writer reclaim, and usage grows until the very write;
    cpuset.mems makes the writer wait until pages have moved.
    """
    if change.file != "memory.high":
        return change.file == MEMS
    usage = fs.read(change.path, "memory.current") or "0"
    return magnitude(usage) > magnitude(change.new) * _NEAR_HIGH
