"""The terms under which a pod is planned: a release, a kubelet's settings, a node's memory."""

from typing import Final, Literal

import msgspec

from memqos.release import Release, Since

Policy = Literal["None", "TieredReservation", "HardReservation"]

Placement = Literal["containers", "pods", "margin"]
"""Which cgroup claims protection: as the kubelet, each container its request; the pod alone, for
all its containers; or each container a little less than its limit."""

Numa = Literal["off", "state", "allocate"]
"""Who assigns NUMA nodes: nobody, the kubelet by its memory_manager_state, or memqos."""

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
