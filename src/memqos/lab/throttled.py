"""A program in a container with a memory.high, with the agent's guard or without it."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import msgspec

from memqos.agent.core.guard import GuardTuning
from memqos.agent.core.node_guard import GUARD_FILES, NodeGuard
from memqos.kernel.file_formats import stall_of
from memqos.lab.cgroup import ScratchCgroup
from memqos.lab.processes import RunningProgram
from memqos.lab.scenario import MIB
from memqos.plan.tree import Cgroup

QUICK_GUARD: Final = GuardTuning(period=1.0, calm=5.0)
"""A machine that is emulated does little in a second, so a longer period shows no more."""
_PAUSE: Final = 0.2


class ThrottledRun(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a program, and what the kernel counted meanwhile."""

    end: Literal["finished", "killed", "still throttled"]
    steps: int
    high_events: int
    kills: int
    guard_steps: int
    seconds: float
    """In the machine, where nothing takes as long as elsewhere."""
    asleep: float
    """Seconds in which nothing in the container ran, as it waited for memory (PSI full)."""
    highest: int
    """memory.high at the end; 0 is none."""


def follow_program(
    container: ScratchCgroup,
    planned: Cgroup,
    program: RunningProgram,
    gives_up: Callable[[], bool],
    *,
    guarded: bool,
    tuning: GuardTuning = QUICK_GUARD,
    interval: float = _PAUSE,
) -> ThrottledRun:
    """Let a program run to its end, or until it is given up; the guard moves memory.high."""
    guard = NodeGuard(tuning)
    start = time.monotonic()
    looked = start - interval
    moves = 0
    while not program.over and not gives_up():
        if guarded and time.monotonic() - looked >= interval:
            looked = time.monotonic()
            files = {file: container.read(file) for file in GUARD_FILES}
            if guard.judge_container(planned, files, time.monotonic(), swap_free=0) is not None:
                moves += 1
                high = guard.apply_to(planned).settings["memory.high"].value
                container.write(memory_high=high or "max")
        time.sleep(_PAUSE)
    events = container.events()
    text = container.read("memory.high")
    return ThrottledRun(
        end="finished" if program.finished else "killed" if program.killed else "still throttled",
        steps=program.steps,
        high_events=events["high"],
        kills=events["oom_kill"],
        guard_steps=moves,
        seconds=time.monotonic() - start,
        asleep=seconds_asleep(container),
        highest=int(text) if text.isdigit() else 0,
    )


def seconds_asleep(cgroup: ScratchCgroup) -> float:
    """Seconds in which nothing in a cgroup ran, as it waited for memory (PSI full)."""
    return stall_of(cgroup.read("memory.pressure")).full.total / 1e6


@contextmanager
def sparse_file(path: Path, size: int) -> Iterator[Path]:
    """A file that takes no disk but fills the page cache; reading it again costs little."""
    with path.open("wb") as sparse:
        sparse.truncate(size)
    yield path
    path.unlink()


@contextmanager
def file_on_disk(path: Path, size: int) -> Iterator[Path]:
    """A file that is read from the disk, each time that its pages are not in the page cache."""
    with path.open("wb") as file:
        for _ in range(size // MIB):
            file.write(bytes(MIB))
        file.flush()
        os.fsync(file.fileno())
        # Who wrote pages is charged for them: whoever reads them next is to be.
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    yield path
    path.unlink()
