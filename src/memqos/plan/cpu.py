"""cpu.shares and cpu.max: planned because they share the cgroups, compared and never written."""

from functools import lru_cache
from typing import Final

from memqos.kube.resources import CPU, Amounts, storable
from memqos.plan.setting import MAX, Rule, Setting
from memqos.release import Since

# kubelet cm/helpers_linux.go: the kernel's bounds on shares (kernel/sched/sched.h), and the least
# quota it accepts, 1 ms (kernel/sched/core.c, min_cfs_quota_period).
MIN_SHARES: Final = 2
MAX_SHARES: Final = 262_144
MIN_QUOTA: Final = 1000


def _shares_steps(milli: int, taken_from: str) -> tuple[str, ...]:
    return (f"{taken_from} = {milli}m", f"{milli} × 1024 / 1000 shares, at least {MIN_SHARES}")


SHARES: Final = Rule(
    "cpu/shares", "weight relative to siblings, by the cpu request", "kubelet", _shares_steps
)
LEAST: Final = Rule("cpu/least", "BestEffort: the smallest weight", "kubelet")
QUOTA: Final = Rule(
    "cpu/quota",
    "cpu time in each period, by the cpu limit",
    "kubelet",
    lambda milli, period: (f"limit = {milli}m, period = {period} µs",),
)
SLICE_QUOTA: Final = Rule(
    "cpu/slice-quota",
    "cpu time of the pod's slice, by the cpu limit, rounded up to 10 ms per second",
    "kubelet, systemd driver",
    lambda allowed, period, milli: (
        f"limit = {milli}m, period = {period} µs: {allowed} µs",
        "rounded up to a whole percent of a CPU",
    ),
)
UNLIMITED: Final = Rule("cpu/unlimited", "no cpu limit", "kubelet")
NOT_ENFORCED: Final = Rule("cpu/not-enforced", "cpuCFSQuota is off", "kubelet configuration")
NOT_ALL_CPU_LIMITED: Final = Rule(
    "cpu/not-all-limited", "not set: a container has no cpu limit", "kubelet"
)


def shares_of(milli: int) -> int:
    """CPU shares of a request in thousandths of a core."""
    return min(max(milli * 1024 // 1000, MIN_SHARES), MAX_SHARES)


@lru_cache(maxsize=4096)
def shares(milli: int, taken_from: str) -> Setting:
    """cpu.shares of thousandths of a core, and which of the pod's numbers they are."""
    milli = storable(milli)
    return Setting(shares_of(milli), SHARES, (milli, taken_from))


def weight_of(shares: int) -> int:
    """cpu.weight as the kubelet and runc before 1.3.2 make it of shares."""
    # Linear from [2, 262144] to [1, 10000]: kubelet cm/cgroup_manager_linux.go, getCPUWeight().
    return 1 + (shares - 2) * 9999 // 262_142 if shares else 0


@lru_cache(maxsize=4096)
def quota(milli: int, period: int, enforced: bool) -> Setting:
    """cpu.max of a limit in thousandths of a core; 0 is no limit."""
    if not enforced:
        return Setting(f"{MAX} {period}", NOT_ENFORCED)
    milli = storable(milli)
    if not milli:
        return Setting(f"{MAX} {period}", UNLIMITED)
    allowed = max(milli * period // 1000, MIN_QUOTA)
    return Setting(f"{allowed} {period}", QUOTA, (milli, period))


_SLICE_STEP: Final = 10_000
"""Microseconds in a second: the least that CPUQuotaPerSecUSec of a slice is set by."""


def slice_quota(setting: Setting) -> Setting:
    """cpu.max of a pod's slice, which systemd takes as whole percents of a CPU.

    The kubelet's systemd driver rounds up, as systemd would round down (opencontainers/cgroups
    systemd/common.go, addCPUQuota).
    """
    quota_text, _, period_text = str(setting.value).partition(" ")
    if not quota_text.isdigit():
        return setting
    allowed, period = int(quota_text), int(period_text)
    per_second = -(-(allowed * 1_000_000 // period) // _SLICE_STEP) * _SLICE_STEP
    rounded = per_second * period // 1_000_000
    if rounded == allowed:
        return setting
    return Setting(f"{rounded} {period}", SLICE_QUOTA, (allowed, period, *setting.inputs[:1]))


def _zero_request_takes_limit(requests: Amounts, limit: int) -> Setting:
    request = requests.get(CPU, 0)
    return shares(limit, "limit") if not request and limit else shares(request, "request")


def _missing_request_takes_limit(requests: Amounts, limit: int) -> Setting:
    request = requests.get(CPU)
    return shares(limit, "limit") if request is None else shares(request, "request")


# calculateLinuxResources(), kuberuntime_container_linux.go: since 1.26 a request of 0 counts, and
# only a missing one takes the limit.
CONTAINER_SHARES: Final = Since({22: _zero_request_takes_limit, 26: _missing_request_takes_limit})
