"""The driver that writes cgroup files itself."""

import errno
from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from memqos.converge.records import OwnerState
from memqos.converge.values import clear_cpuset
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
        """Files have no owner that stores their values."""
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
    # memory_high_write() (mm/memcontrol.c) reclaims until usage is below or 16 tries free nothing;
    # cpuset_write_resmask() (kernel/cgroup/cpuset.c) waits for pages to migrate.
    if change.file != "memory.high":
        return change.file == MEMS
    usage = fs.read(change.path, "memory.current") or "0"
    return magnitude(usage) > magnitude(change.new) * _NEAR_HIGH


_FRUITLESS_TRIES: Final = 16
"""Attempts in a row that free nothing, after which there is nothing to free: the kernel's own
MAX_RECLAIM_RETRIES (mm/internal.h), as in memory_high_write() and memory_reclaim()."""
_RECLAIMED: Final = b""
_STUCK: Final = b"stuck"


def reclaim_below_high(change: Change, fs: CgroupFs, timeout: float) -> bool:
    """Have usage fall to what memory.high is to become; False where that took too long.

    Where it will not fall at all, the change is refused.
    """
    # systemd and runtimes write memory.high themselves and would reclaim in their own process,
    # holding up every other call: so memqos reclaims first, in a child that it can bound.
    if change.file != "memory.high" or change.raises or _excess(change, fs) <= 0:
        return True
    answer = run_bounded(lambda: _reclaim(change, fs), timeout)
    if answer == _STUCK:
        raise WriteRefused(
            f"{change.path}/{change.file}",
            change.new,
            hint="usage does not fall below it, and systemd or the runtime would wait for that",
        )
    return answer == _RECLAIMED


def _reclaim(change: Change, fs: CgroupFs) -> bytes:
    fruitless = 0
    while fruitless < _FRUITLESS_TRIES:
        excess = _excess(change, fs)
        if excess <= 0:
            return _RECLAIMED
        try:
            fs.write(change.path, "memory.reclaim", str(excess))
        except WriteRefused as error:
            if error.errno == errno.ENOENT:
                # memory.reclaim is there since 5.19 (cgroup-v2.rst); before, writing memory.high is
                # the only way to reclaim.
                fs.write(change.path, change.file, change.new)
                return _RECLAIMED
            # EAGAIN: less than requested was reclaimed, which may be some (cgroup-v2.rst).
            if error.errno != errno.EAGAIN:
                return _STUCK
        fruitless = fruitless + 1 if _excess(change, fs) >= excess else 0
    return _STUCK


def _excess(change: Change, fs: CgroupFs) -> int:
    usage = fs.read(change.path, "memory.current") or "0"
    return magnitude(usage) - magnitude(change.new)
