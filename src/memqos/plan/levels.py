"""The QoS levels: the values of kubepods, burstable and besteffort, above the pods."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from memqos.kube.quantity import MAX_INT64, wrap_int64
from memqos.kube.resources import CPU, Amounts, memory_in
from memqos.plan import cpu
from memqos.plan.memory import MEMORY_QOS_KEP, OFF
from memqos.plan.names import CgroupNames, names_of
from memqos.plan.pod import PodPlan
from memqos.plan.setting import FileSettings, Rule, Setting
from memqos.release import Since
from memqos.settings.settings import KNOWS_POLICY, Policy, Settings
from memqos.units import format_exact_bytes

if TYPE_CHECKING:
    from memqos.settings.resolver import NodeSettings
    from memqos.settings.settings import RunningKubelet

Phase = Literal["start", "steady"]
"""Just after the kubelet has started, or once it has counted the pods."""
PROTECTION_FILES: Final = ("memory.min", "memory.low")
CgroupFilePath = tuple[str, str]
"""The path of a cgroup, and the name of a file in it."""


class ClassDemand(msgspec.Struct, frozen=True):
    """What the pods of a node request, by class: memory in bytes, cpu in thousandths."""

    guaranteed: int = 0
    burstable: int = 0
    burstable_cpu: int = 0


class Levels(msgspec.Struct, frozen=True):
    """Settings of the three cgroups above the pods."""

    kubepods: FileSettings
    burstable: FileSettings
    besteffort: FileSettings


def _sum_steps(guaranteed: int, burstable: int) -> tuple[str, ...]:
    return (
        f"requests of Guaranteed pods = {format_exact_bytes(guaranteed)}",
        f"requests of Burstable pods = {format_exact_bytes(burstable)}",
        f"together {format_exact_bytes(guaranteed + burstable)}",
    )


def _burstable_steps(guaranteed: int, burstable: int) -> tuple[str, ...]:
    return (f"requests of Burstable pods = {format_exact_bytes(burstable)}",)


ALL_MIN: Final = Rule(
    "level/min-all",
    "a child is protected only as far as its parent: the sum of all requests",
    f"{MEMORY_QOS_KEP}, node",
    _sum_steps,
    differs=f"{MEMORY_QOS_KEP} sets it where enforceNodeAllocatable has pods; kubelet 1.22–1.38 "
    "sets it whatever is enforced",
)
BURSTABLE_MIN: Final = Rule(
    "level/min-burstable",
    "a child is protected only as far as its parent: the requests of Burstable pods",
    f"{MEMORY_QOS_KEP}, QoS",
    _burstable_steps,
)
BURSTABLE_LOW: Final = Rule(
    "level/low-burstable",
    "TieredReservation: the requests of Burstable pods are reclaimed last",
    "kubelet 1.36, memoryReservationPolicy",
    _burstable_steps,
)
LEVEL_OVERFLOW: Final = Rule(
    "level/overflow",
    "not set: the sum of requests overflows an int64 in the kubelet, which then computes with "
    "another, possibly negative, number",
    "kubelet, getQoSMemoryRequests()",
    lambda amount: (
        f"requests = {amount:,} bytes, the maximum is {MAX_INT64:,}",
        f"the kubelet's sum is {wrap_int64(amount):,}",
    ),
)
LEVEL_RESET: Final = Rule(
    "level/reset",
    "no memory is reserved on this node, so protection is reset to 0",
    "kubelet 1.36",
    resets=True,
)
NOTHING_REQUESTED: Final = Rule("level/nothing", "not set: nothing is requested", MEMORY_QOS_KEP)
NOT_COUNTED: Final = Rule(
    "level/not-counted",
    "not set yet: the kubelet has just started and has not counted pods",
    "kubelet",
)
NO_LEVEL_LOW: Final = Rule("level/low-unused", "not set by this release", "kubelet")
CPU_SUM: Final = Rule(
    "level/cpu",
    "weight of all Burstable pods together",
    "kubelet",
    lambda milli: (f"requests of Burstable pods = {milli}m",),
)


NO_LEVEL_LOW_SETTING: Final = Setting(None, NO_LEVEL_LOW)


def class_demand(
    plans: Iterable[PodPlan], memory: Callable[[Amounts], int] = memory_in
) -> ClassDemand:
    """What the pods request, by class; BestEffort pods request nothing by definition."""
    guaranteed = burstable = burstable_cpu = 0
    for plan in plans:
        above = plan.memory_above
        amount = memory(plan.requests) if above is None else above
        if plan.qos == "Guaranteed":
            guaranteed += amount
        elif plan.qos == "Burstable":
            burstable += amount
            burstable_cpu += plan.requests.get(CPU, 0)
    return ClassDemand(guaranteed, burstable, burstable_cpu)


def plan_levels(demand: ClassDemand, settings: Settings, phase: Phase = "steady") -> Levels:
    """What the kubelet writes on the three levels."""
    minor = settings.release.minor
    if settings.release.is_enabled("MemoryQoS"):
        kubepods, burstable = _LEVELS.at(minor)(settings.policy, demand, phase)
    else:
        kubepods, burstable = _LEVELS_OFF.at(minor)
    # The settings of a gate that is off are module constants: add to a copy.
    burstable = burstable.copy()
    if phase == "steady":
        burstable["cpu.shares"] = Setting(
            cpu.shares_of(demand.burstable_cpu), CPU_SUM, (demand.burstable_cpu,)
        )
    return Levels(kubepods, burstable, {"cpu.shares": Setting(cpu.MIN_SHARES, cpu.LEAST)})


def protection_gauges(demand: ClassDemand, settings: Settings) -> tuple[int, int]:
    """kubelet_memory_qos_node_memory_min_bytes and …_low_bytes: sums of requests, by the policy.

    Under TieredReservation the first is that of Guaranteed pods alone, though memory.min of
    kubepods covers Burstable pods too; where all requests are reserved hard, it is all of them.
    """
    if not settings.release.is_enabled("MemoryQoS"):
        return 0, 0
    policy = settings.policy if KNOWS_POLICY.at(settings.release.minor) else "HardReservation"
    if policy == "None":
        return 0, 0
    if policy == "HardReservation":
        return demand.guaranteed + demand.burstable, 0
    return demand.guaranteed, demand.burstable


_Pair = tuple[FileSettings, FileSettings]
"""kubepods and burstable."""


def _protection(amount: int, rule: Rule, demand: ClassDemand) -> Setting:
    if 0 <= amount <= MAX_INT64:
        return Setting(amount, rule, (demand.guaranteed, demand.burstable))
    return Setting(None, LEVEL_OVERFLOW, (amount,))


def _hard(demand: ClassDemand, phase: Phase) -> _Pair:
    if phase == "start":
        return {"memory.min": Setting(None, NOT_COUNTED)}, {
            "memory.min": Setting(None, NOT_COUNTED)
        }
    together = demand.guaranteed + demand.burstable
    return (
        {
            "memory.min": _protection(together, ALL_MIN, demand)
            if together
            else Setting(None, NOTHING_REQUESTED),
        },
        {
            "memory.min": _protection(demand.burstable, BURSTABLE_MIN, demand)
            if demand.burstable
            else Setting(None, NOTHING_REQUESTED),
        },
    )


def _always_hard(policy: Policy, demand: ClassDemand, phase: Phase) -> _Pair:
    return _hard(demand, phase)


def _without_low(policy: Policy, demand: ClassDemand, phase: Phase) -> _Pair:
    if policy == "HardReservation":
        return _hard(demand, phase)
    if phase == "start":
        waiting = Setting(None, NOT_COUNTED)
        return {"memory.min": waiting, "memory.low": NO_LEVEL_LOW_SETTING}, {"memory.low": waiting}
    kubepods, burstable = _with_low(policy, demand, phase)
    kubepods["memory.low"] = NO_LEVEL_LOW_SETTING
    return kubepods, burstable


def _with_low(policy: Policy, demand: ClassDemand, phase: Phase) -> _Pair:
    if policy == "HardReservation":
        return _hard(demand, phase)
    if policy == "None":
        reset = Setting(0, LEVEL_RESET)
        return {"memory.min": reset, "memory.low": reset}, {"memory.low": reset}
    if phase == "start":
        waiting = Setting(None, NOT_COUNTED)
        return {"memory.min": waiting, "memory.low": waiting}, {"memory.low": waiting}
    low = _protection(demand.burstable, BURSTABLE_LOW, demand)
    together = _protection(demand.guaranteed + demand.burstable, ALL_MIN, demand)
    return {"memory.min": together, "memory.low": low}, {"memory.low": low}


# setMemoryQoS(), kubelet cm/qos_container_manager_linux.go: until 1.35 memory.min by class and only
# above 0; 1.36 memory.low for burstable, 0 written too; 1.37 memory.low on kubepods as well.
_LEVELS: Final = Since({22: _always_hard, 36: _without_low, 37: _with_low})

_UNTOUCHED: Final[_Pair] = ({"memory.min": OFF}, {"memory.min": OFF})
_TAKEN_BACK: Final[_Pair] = (
    {"memory.min": Setting(0, LEVEL_RESET), "memory.low": Setting(0, LEVEL_RESET)},
    {"memory.low": Setting(0, LEVEL_RESET)},
)
# Since 1.37 a kubelet with the gate off resets what one with the gate on has left, once when it
# starts (qos_container_manager_linux.go, Start; node_container_manager_linux.go).
_LEVELS_OFF: Final = Since({22: _UNTOUCHED, 37: _TAKEN_BACK})


def kubelet_levels(
    node_settings: "NodeSettings", plans: Iterable[PodPlan]
) -> dict[CgroupFilePath, Setting]:
    """Protection above pods that the running kubelet writes itself, once a minute."""
    kubelet, settings = node_settings.kubelet, node_settings.kubelet_settings
    if kubelet is None or settings is None or not kubelet.writes_levels:
        return {}
    levels = plan_levels(class_demand(plans), settings)
    return _protection_files(levels, names_of(node_settings.config))


def files_kept_by(kubelet: "RunningKubelet", names: CgroupNames) -> frozenset[CgroupFilePath]:
    """The files above pods that a kubelet writes once a minute where it runs pods of each class."""
    if not kubelet.writes_levels:
        return frozenset()
    settings = Settings(kubelet.release, kubelet.factor, kubelet.policy)
    return frozenset(_protection_files(plan_levels(ClassDemand(1, 1, 1), settings), names))


def _protection_files(levels: Levels, names: CgroupNames) -> dict[CgroupFilePath, Setting]:
    """What of a kubelet's levels it writes to the files of protection."""
    return {
        (path, file): setting
        for path, of_level in (
            (names.kubepods, levels.kubepods),
            (names.burstable, levels.burstable),
        )
        for file, setting in of_level.items()
        if file in PROTECTION_FILES and setting.value is not None
    }
