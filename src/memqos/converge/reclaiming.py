"""Make room below a memory.high that somebody else is about to write.

Whoever writes memory.high below usage reclaims until it is so. That may take long, and is not to be
asked of the first process of a machine, nor of its container runtime.
"""

import errno
from typing import Final

from memqos.errors import WriteRefused
from memqos.host.bounded_child import run_bounded
from memqos.host.cgroups import CgroupFs
from memqos.plan.changes import Change, magnitude

_FRUITLESS_TRIES: Final = 16
"""Attempts in a row that free nothing, after which there is nothing to free; the kernel's count."""
_RECLAIMED: Final = b""
_STUCK: Final = b"stuck"


def reclaim_below_high(change: Change, fs: CgroupFs, timeout: float) -> bool:
    """Have usage fall to what memory.high is to become; False where that took too long.

    Where it will not fall at all, the change is refused.
    """
    if change.file != "memory.high" or change.raises or _excess(change, fs) <= 0:
        return True
    answer = run_bounded(lambda: _reclaim(change, fs), timeout)
    if answer == _STUCK:
        raise WriteRefused(
            f"{change.path}/{change.file}",
            change.new,
            hint="usage does not fall to it, and its owner would wait for that",
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
                # Kernels before 5.19 reclaim when memory.high is written.
                fs.write(change.path, change.file, change.new)
                return _RECLAIMED
            if error.errno != errno.EAGAIN:
                return _STUCK
        fruitless = fruitless + 1 if _excess(change, fs) >= excess else 0
    return _STUCK


def _excess(change: Change, fs: CgroupFs) -> int:
    usage = fs.read(change.path, "memory.current") or "0"
    return magnitude(usage) - magnitude(change.new)
