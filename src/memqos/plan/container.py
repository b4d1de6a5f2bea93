"""The values of one container's cgroup, and its oom_score_adj."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import msgspec

from memqos.kube.oom import GUARANTEED, LOWEST_BURSTABLE, Score
from memqos.kube.pod import QosClass
from memqos.kube.resources import CPU, MEMORY, Amounts, memory_in
from memqos.kube.shape import Part, Role
from memqos.kube.swap import MEANS_NO_SWAP
from memqos.plan import cpu, hugepages, memory
from memqos.plan.setting import MAX, NEEDS_NODE, FileSettings, Rule, Setting
from memqos.plan.swap import NO_SWAP_SETTING, swap_maximum
from memqos.release import Release, Since
from memqos.settings.settings import Settings
from memqos.units import format_exact_bytes


class ContainerPlan(msgspec.Struct, frozen=True, gc=False):
    """The values of one container."""

    role: Role
    settings: FileSettings


def _claims_text(claimed: int) -> str:
    return f"of that {format_exact_bytes(claimed)} from its DRA claims (KEP-5517)"


LIMIT: Final = Rule(
    "max/limit",
    "OOM-killed above its limit",
    "kubelet",
    lambda limit, claimed=0: (
        f"limit = {format_exact_bytes(limit)}",
        *([_claims_text(claimed)] if claimed else []),
    ),
)
POD_LIMIT: Final = Rule(
    "max/pod-limit",
    "without a limit of its own the pod-level limit applies",
    "KEP-2837",
    lambda limit: (f"pod-level limit = {format_exact_bytes(limit)}",),
)
NO_LIMIT: Final = Rule("max/none", "there is no limit", "kubelet")
KILL_TOGETHER: Final = Rule(
    "oom-group/together", "an OOM kill ends all processes of the container together", "kubelet 1.28"
)
KILL_ONE: Final = Rule("oom-group/single", "not set: singleProcessOOMKill is on", "kubelet 1.32")
BEFORE_OOM_GROUP: Final = Rule("oom-group/none", "not set before 1.28", "kubelet 1.28")
_NO_LIMIT: Final = Setting(MAX, NO_LIMIT)
_KILL_TOGETHER: Final = Setting(1, KILL_TOGETHER)
_KILL_ONE: Final = Setting(None, KILL_ONE)
_BEFORE_OOM_GROUP: Final = Setting(None, BEFORE_OOM_GROUP)
SCORE_CLASS: Final = Rule(
    "oom/class", "determined by the QoS class of the pod", "kubelet", lambda why: (why,)
)
SCORE_NEEDS_NODE: Final = Rule(
    "oom/needs-node",
    "depends on the requested share of the node's memory, which is unknown",
    "kubelet",
)


def _score_steps(score: Score, capacity: int) -> tuple[str, ...]:
    steps = [
        f"request = {format_exact_bytes(score.request)}, capacity = {format_exact_bytes(capacity)}"
    ]
    if score.claimed:
        steps.append(_claims_text(score.claimed))
    counted = score.request
    if score.smallest_regular is not None and score.smallest_regular > counted:
        counted = score.smallest_regular
        steps.append(
            f"a sidecar counts as much as the smallest regular container: "
            f"{format_exact_bytes(counted)}"
        )
    if score.share:
        counted += score.share
        steps.append(
            f"share of the rest of the pod-level request = {format_exact_bytes(score.share)}"
        )
    steps.append(f"1000 − 1000 × {counted:,} / {capacity:,}, between {LOWEST_BURSTABLE} and 999")
    return tuple(steps)


SCORE: Final = Rule(
    "oom/burstable",
    "Burstable: the larger its share of the node's memory, the later it is killed",
    "KEP-2837",
    _score_steps,
    differs="KEP-2837 has 1000 for a container that requests nothing; kubelet 1.22–1.38 has 999, "
    "so that it is killed after BestEffort pods",
)


class ContainerRules(msgspec.Struct, frozen=True, kw_only=True):
    """What decides a container's values in one release, looked up once."""

    memory_qos: bool
    protection: Callable[[memory.MemoryResources, Settings], memory.ContainerProtection]
    high: Callable[[memory.MemoryResources, Settings], Setting]
    high_off: Setting
    oom_group: Callable[[Settings], Setting]
    swaps_only_if_configured: bool
    shares: Callable[[Amounts, int], Setting]
    hugepages: Callable[[Amounts, Amounts], hugepages.PageLimits]


def plan_container(
    part: Part,
    score: Score,
    settings: Settings,
    rules: ContainerRules,
    qos: QosClass,
    pod_limits: Amounts,
    *,
    critical: bool = False,
) -> ContainerPlan:
    """Every value of one container; `pod_limits` are the pod-level limits that apply."""
    limits = part.limits if part.claimed_limits is None else part.claimed_limits
    cpu_limit = cpu_bound = part.limits.get(CPU) or pod_limits.get(CPU, 0)
    if limits is not part.limits:
        cpu_bound = limits.get(CPU) or cpu_limit
    minimum, low, high, maximum = memory_of_container(part, settings, rules, qos, pod_limits)
    values: FileSettings = {
        "memory.min": minimum,
        "memory.low": low,
        "memory.high": high,
        "memory.max": maximum,
        "memory.swap.max": NO_SWAP_SETTING
        if rules.swaps_only_if_configured and not settings.swap_behavior
        else swap_maximum(part, settings, qos, maximum, critical=critical),
        "memory.oom.group": rules.oom_group(settings),
        "cpu.shares": rules.shares(part.requests, cpu_limit),
        "cpu.max": cpu.quota(cpu_bound, settings.cpu_period, settings.cpu_quota),
        "oom_score_adj": _oom_score_adj(score, qos, settings.memory_capacity),
    }
    values.update(hugepages.none_of(settings.hugepage_sizes))
    for page, amount in rules.hugepages(limits, pod_limits).items():
        if page in settings.hugepage_sizes:
            values[f"hugetlb.{page}.max"] = Setting(amount, hugepages.HUGE, (amount,))
    return ContainerPlan(part.role, values)


def memory_of_container(
    part: Part, settings: Settings, rules: ContainerRules, qos: QosClass, pod_limits: Amounts
) -> tuple[Setting, Setting, Setting, Setting]:
    """memory.min, memory.low, memory.high and memory.max of one container."""
    limit = memory_in(part.limits)
    bound = limit if part.claimed_limits is None else memory_in(part.claimed_limits)
    if rules.memory_qos:
        resources = memory.MemoryResources(
            qos, memory_in(part.requests), limit, bool(pod_limits.get(MEMORY)), bound - limit
        )
        minimum, low = rules.protection(resources, settings)
        if settings.placement != "containers":
            minimum, low = memory.place_protection(minimum, low, resources, settings)
        high = rules.high(resources, settings)
    else:
        minimum, low, high = memory.OFF, memory.OFF, rules.high_off
    return minimum, low, high, _maximum(bound, pod_limits, bound - limit)


def _maximum(limit: int, pod_limits: Amounts, claimed: int) -> Setting:
    if limit:
        return Setting(limit, LIMIT, (limit, claimed) if claimed else (limit,))
    inherited = memory_in(pod_limits)
    if inherited:
        return Setting(inherited, POD_LIMIT, (inherited,))
    return _NO_LIMIT


def _oom_score_adj(score: Score, qos: QosClass, capacity: int | None) -> Setting:
    if score.value is None:
        return Setting(NEEDS_NODE, SCORE_NEEDS_NODE)
    if qos == "Burstable" and score.value >= LOWEST_BURSTABLE:
        return Setting(score.value, SCORE, (score, capacity))
    critical = score.value == GUARANTEED and qos != "Guaranteed"
    return Setting(score.value, SCORE_CLASS, ("system-node-critical" if critical else qos,))


def _no_oom_group(settings: Settings) -> Setting:
    return _BEFORE_OOM_GROUP


def _oom_group_always(settings: Settings) -> Setting:
    return _KILL_TOGETHER


def _oom_group_unless_single(settings: Settings) -> Setting:
    return _KILL_ONE if settings.single_process_oom_kill else _KILL_TOGETHER


# kuberuntime_container_linux.go, generateLinuxContainerResources(): memory.oom.group since 1.28,
# unless singleProcessOOMKill is set, since 1.32.
_OOM_GROUP: Final = Since({22: _no_oom_group, 28: _oom_group_always, 32: _oom_group_unless_single})


@lru_cache(maxsize=64)
def container_rules(release: Release) -> ContainerRules:
    """The rules of a release."""
    minor = release.minor
    return ContainerRules(
        memory_qos=release.is_enabled("MemoryQoS"),
        protection=memory.CONTAINER_PROTECTION.at(minor),
        high=memory.CONTAINER_HIGH.at(minor),
        high_off=memory.CONTAINER_OFF.at(minor),
        oom_group=_OOM_GROUP.at(minor),
        swaps_only_if_configured=MEANS_NO_SWAP.at(minor),
        shares=cpu.CONTAINER_SHARES.at(minor),
        hugepages=hugepages.OF_CONTAINER.at(minor),
    )
