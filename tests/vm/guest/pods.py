"""A pod as a kubelet makes it, under each of the settings that are compared."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from tests.vm.guest.support import Cgroup, Program

from memqos.agent.core.guard import GuardTuning
from memqos.agent.core.node_guard import GUARD_FILES, NodeGuard
from memqos.kernel.file_formats import stall_of
from memqos.plan.memory import ABOVE_REQUEST
from memqos.plan.setting import Setting
from memqos.plan.tree import Cgroup as Planned

Setting_ = Literal["plain", "upstream", "memqos"]
SETTINGS: tuple[Setting_, ...] = ("plain", "upstream", "memqos")

QUICK = GuardTuning(period=1.0, calm=5.0)
"""A machine that is emulated sees little happen in a second, so waiting longer tells no more."""


class Outcome(NamedTuple):
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


class Pod(NamedTuple):
    """The cgroups of a pod with one container, and its pause container."""

    pod: Cgroup
    container: Cgroup


def burstable(parent: Cgroup, setting: Setting_, limit: int, high: int) -> Pod:
    """A pod with request < limit: throttled from `high` on, but for the plain kernel."""
    pod = parent.child("pod", memory_max=limit)
    container = pod.child("container", memory_max=limit, memory_swap_max=0, memory_oom_group=1)
    if setting != "plain":
        container.write(memory_high=high)
    return Pod(pod, container)


def watched(
    container: Cgroup,
    setting: Setting_,
    high: int,
    program: Program,
    gives_up: Callable[[], bool],
    tuning: GuardTuning = QUICK,
    interval: float = 0.2,
) -> Outcome:
    """Let a program run to its end, guarded where the setting is memqos."""
    planned = Planned(container.name, "container", {"memory.high": Setting(high, ABOVE_REQUEST)})
    guard = NodeGuard(tuning)
    start = time.monotonic()
    looked = start - interval
    moves = 0
    while not program.over and not gives_up():
        if setting == "memqos" and time.monotonic() - looked >= interval:
            looked = time.monotonic()
            files = {file: (container.path / file).read_text() for file in GUARD_FILES}
            files = {file: text.strip() for file, text in files.items()}
            if guard.judge_container(planned, files, time.monotonic(), swap_free=0) is not None:
                moves += 1
                wanted = guard.apply_to(planned).settings["memory.high"].value
                container.write(memory_high=wanted or "max")
        time.sleep(0.2)
    events = container.events()
    text = container.read("memory.high")
    return Outcome(
        "finished" if program.finished else "killed" if program.killed else "still throttled",
        program.steps,
        events["high"],
        events["oom_kill"],
        moves,
        time.monotonic() - start,
        stall_of(container.read("memory.pressure")).full.total / 1e6,
        int(text) if text.isdigit() else 0,
    )


@contextmanager
def file_of(folder: Path, size: int) -> Iterator[Path]:
    """A file that takes no disk but fills the page cache."""
    path = folder / "data"
    with path.open("wb") as sparse:
        sparse.truncate(size)
    yield path
    path.unlink()
