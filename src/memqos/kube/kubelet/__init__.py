"""The kubelet's configuration: what decides about memory, and its defaults in each release."""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from memqos.kube.duration import SECOND
from memqos.kube.kubelet.thresholds import PODS, hard_with_defaults
from memqos.kube.pod import ResourceList
from memqos.release import Since

FaultStage = Literal["decode", "validate", "start"]
ReservationPolicy = Literal["None", "TieredReservation", "HardReservation"]
CgroupDriver = Literal["cgroupfs", "systemd"]

UNLIMITED_PIDS: Final = -1
DEFAULT_CPU_PERIOD: Final = SECOND // 10
STATIC: Final = "Static"
"""The memoryManagerPolicy that binds containers to NUMA nodes."""
STATE_FILE: Final = "memory_manager_state"
"""Where a kubelet with that policy stores what it has assigned, in its own folder."""


class KubeletFault(msgspec.Struct, frozen=True):
    """One thing the kubelet refuses: where, why, and at which stage."""

    stage: FaultStage
    field: str
    what: str
    involves: tuple[str, ...] = ()
    """Other fields that are part of the conflict."""
    hint: str | None = None

    def __str__(self) -> str:
        where = f"{self.field}: " if self.field else ""
        return where + self.what + (f" – {self.hint}" if self.hint else "")


class MemorySwapConfiguration(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`memorySwap`."""

    swap_behavior: str = ""


class MemoryReservation(msgspec.Struct, frozen=True, rename="camel"):
    """One entry of `reservedMemory`, its quantities as written: some spellings are refused."""

    numa_node: int = 0
    limits: ResourceList | None = None


class KubeletConfiguration(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A KubeletConfiguration with its defaults; see `with_defaults`. Durations are nanoseconds."""

    cgroup_driver: str = "cgroupfs"
    cgroup_root: str = ""
    cgroups_per_qos: bool = msgspec.field(default=True, name="cgroupsPerQOS")
    cpu_cfs_quota: bool = msgspec.field(default=True, name="cpuCFSQuota")
    cpu_manager_policy: str = "none"
    cpu_cfs_quota_period: int = msgspec.field(default=DEFAULT_CPU_PERIOD, name="cpuCFSQuotaPeriod")
    enforce_node_allocatable: tuple[str, ...] = (PODS,)
    eviction_hard: dict[str, str]
    eviction_max_pod_grace_period: int = 0
    eviction_minimum_reclaim: dict[str, str] = {}
    eviction_pressure_transition_period: int = 300 * SECOND
    eviction_soft: dict[str, str] = {}
    eviction_soft_grace_period: dict[str, str] = {}
    fail_swap_on: bool = True
    feature_gates: dict[str, bool] = {}
    kube_reserved: dict[str, str] = {}
    kube_reserved_cgroup: str = ""
    memory_manager_policy: str = "None"
    memory_reservation_policy: str = "None"
    memory_swap: MemorySwapConfiguration = MemorySwapConfiguration()
    memory_throttling_factor: float | None
    merge_default_eviction_settings: bool = False
    pod_pids_limit: int = UNLIMITED_PIDS
    reserved_memory: tuple[MemoryReservation, ...] = ()
    reserved_system_cpus: str = msgspec.field(default="", name="reservedSystemCPUs")
    single_process_oom_kill: bool | None = msgspec.field(default=None, name="singleProcessOOMKill")
    system_reserved: dict[str, str] = {}
    system_reserved_cgroup: str = ""
    topology_manager_policy: str = "none"
    topology_manager_policy_options: dict[str, str] = {}
    topology_manager_scope: str = "container"

    @property
    def driver(self) -> CgroupDriver:
        """The kubelet takes any driver but systemd for cgroupfs."""
        return "systemd" if self.cgroup_driver == "systemd" else "cgroupfs"

    @property
    def policy(self) -> ReservationPolicy:
        """memoryReservationPolicy of a valid configuration."""
        return _POLICIES.get(self.memory_reservation_policy, "None")


_POLICIES: Final[Mapping[str, ReservationPolicy]] = {
    "TieredReservation": "TieredReservation",
    "HardReservation": "HardReservation",
}

# KEP-2570: 0.8 in Alpha v1.22, 0.9 in Alpha v1.27. 1.37 has no default (kubelet
# apis/config/v1beta1/defaults.go): without a factor no memory.high is set.
DEFAULT_THROTTLING_FACTOR: Final[Since[float | None]] = Since({22: 0.8, 27: 0.9, 37: None})

ATTRIBUTES: Final[Mapping[str, str]] = dict(
    zip(
        KubeletConfiguration.__struct_encode_fields__,
        KubeletConfiguration.__struct_fields__,
        strict=True,
    )
)
"""A field's name in the configuration → in the struct."""


def with_defaults(written: Mapping[str, Any], minor: int) -> KubeletConfiguration:
    """What a kubelet of that release runs with, given what is written, by the struct's names."""
    settings = dict(written)
    settings["eviction_hard"] = hard_with_defaults(
        settings.get("eviction_hard"),
        merge=settings.get("merge_default_eviction_settings", False),
        minor=minor,
    )
    settings.setdefault("memory_throttling_factor", DEFAULT_THROTTLING_FACTOR.at(minor))
    settings["pod_pids_limit"] = max(settings.get("pod_pids_limit", UNLIMITED_PIDS), UNLIMITED_PIDS)
    return KubeletConfiguration(**settings)
