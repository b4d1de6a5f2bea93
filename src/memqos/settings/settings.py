"""Settings that pods are planned by, options that state some of them, and a kubelet's own."""

from typing import Final, Literal, get_args

import msgspec

from memqos.errors import InputError
from memqos.kube.kubelet import CgroupDriver
from memqos.release import Release, Since

Policy = Literal["None", "TieredReservation", "HardReservation"]
POLICIES: Final = get_args(Policy)
PolicyName = Policy | Literal["Disabled"]
"""A policy as people write it: KEP-2570 calls None Disabled in places; no kubelet takes that."""

Placement = Literal["containers", "pods", "margin"]
"""Which cgroup claims protection: as the kubelet, each container its request; the pod alone, for
all its containers; or each container a little less than its limit."""

Numa = Literal["off", "state", "allocate"]
"""What assigns NUMA nodes: nothing, the kubelet by its memory_manager_state, or memqos."""

KNOWS_POLICY: Final = Since({22: False, 36: True})
"""Whether the release has a memoryReservationPolicy; before it, requests are always reserved."""

PAGE_SIZE: Final = 4096
HUGEPAGE_SIZES: Final = ("2MB", "1GB")


class Settings(msgspec.Struct, frozen=True):
    """What a plan depends on besides the pods. Memory is None where no node is given."""

    release: Release
    factor: float | None
    policy: Policy = "None"
    single_process_oom_kill: bool = False
    memory_capacity: int | None = None
    memory_allocatable: int | None = None
    """Capacity less reservations, eviction thresholds not subtracted: the one memory.high uses."""
    page_size: int = PAGE_SIZE
    hugepage_sizes: tuple[str, ...] = HUGEPAGE_SIZES
    cpu_quota: bool = True
    cpu_period: int = 100_000
    """Microseconds."""
    placement: Placement = "containers"
    swap_behavior: str = ""
    """As configured."""
    swap_capacity: int | None = None
    driver: CgroupDriver = "cgroupfs"
    """The kubelet's cgroup driver: systemd rounds the cpu.max of pods."""

    def __post_init__(self) -> None:
        """Refuse what type checkers refuse, before it becomes an error somewhere else."""
        if not isinstance(self.release, Release):
            raise InputError(
                f"{self.release!r} is not a Release",
                field="release",
                hint='write Release.of("1.36"), or call memqos.explain(pod, release="1.36")',
            )
        if self.policy not in POLICIES:
            raise InputError(
                f"{self.policy!r} is not a policy",
                field="policy",
                hint=f"one of {', '.join(POLICIES)}",
            )

    @property
    def reservation(self) -> str:
        """What is reserved, in words: a release without policies reserves every request."""
        knows_policy = KNOWS_POLICY.at(self.release.minor)
        return f"policy {self.policy}" if knows_policy else "hard reservation"


class SettingsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings as a person states them; what is None follows from the node."""

    release: str | None = None
    gates: dict[str, bool] = {}
    policy: PolicyName | None = None
    factor: float | None = None
    placement: Placement = "containers"
    capacity: int | None = None
    allocatable: int | None = None
    page_size: int | None = None
    assume_gate_on: bool = False
    """Whether MemoryQoS counts as on where nothing names a node, a kubelet configuration or a
    cluster, and nothing states the gate (decision 18)."""
    allow_old_kernel: bool = False
    """Whether memory.high is written on a kernel that can stop a container there for good."""


class RunningKubelet(msgspec.Struct, frozen=True, kw_only=True):
    """The kubelet at work on a node, with its own configuration and no option of memqos's."""

    release: Release
    """Its version, with the gates that it sets."""
    policy: Policy
    factor: float | None = None
    is_newer: bool = False
    """Whether its configuration has fields that its version does not know: one of them is old."""

    @property
    def writes_levels(self) -> bool:
        """Whether it writes protection to the cgroups above pods, once a minute."""
        return self.release.is_enabled("MemoryQoS")

    @property
    def withholds_protection(self) -> bool:
        """Whether what it writes there is always 0."""
        knows_policy = KNOWS_POLICY.at(self.release.minor)
        return self.writes_levels and knows_policy and self.policy == "None"
