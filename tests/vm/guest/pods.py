"""A pod as a kubelet makes it, under each of the settings that are compared."""

from collections.abc import Callable
from typing import Literal, NamedTuple

from tests.vm.guest.support import Cgroup

from memqos.agent.core.guard import GuardTuning
from memqos.lab.processes import RunningProgram
from memqos.lab.throttled import QUICK_GUARD, ThrottledRun, follow_program
from memqos.plan.memory import ABOVE_REQUEST
from memqos.plan.setting import Setting
from memqos.plan.tree import Cgroup as Planned

Setting_ = Literal["plain", "upstream", "memqos"]
SETTINGS: tuple[Setting_, ...] = ("plain", "upstream", "memqos")


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
    program: RunningProgram,
    gives_up: Callable[[], bool],
    tuning: GuardTuning = QUICK_GUARD,
    interval: float = 0.2,
) -> ThrottledRun:
    """Let a program run to its end, guarded where the setting is memqos."""
    planned = Planned(container.name, "container", {"memory.high": Setting(high, ABOVE_REQUEST)})
    return follow_program(
        container,
        planned,
        program,
        gives_up,
        guarded=setting == "memqos",
        tuning=tuning,
        interval=interval,
    )
