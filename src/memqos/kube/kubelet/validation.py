"""What the kubelet refuses in its configuration, before it runs and as it starts.

Only fields that memqos uses are checked. What depends on the machine (NUMA nodes and their
distances, capacity) is checked elsewhere.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Literal

from memqos.errors import UnsupportedRelease
from memqos.kube.duration import SECOND, duration_text
from memqos.kube.kubelet import (
    DEFAULT_CPU_PERIOD,
    FaultStage,
    KubeletConfiguration,
    KubeletFault,
    MemoryReservation,
)
from memqos.kube.kubelet.reservations import (
    COMPRESSIBLE,
    KUBE_RESERVED,
    SYSTEM_RESERVED,
    cpu_count,
    read_reservations,
)
from memqos.kube.kubelet.thresholds import PODS, read_thresholds
from memqos.kube.kubelet.topology_options import option_fault
from memqos.kube.quantity import Quantity
from memqos.kube.resources import MEMORY, is_hugepages
from memqos.release import Release, Since, dependencies, stage

CheckProfile = Literal["kubelet", "memqos"]
"""Whose rules apply: those of the release's kubelet, or of memqos, which has more policies."""

NONE: Final = "none"

MANAGER_POLICIES: Final[Mapping[CheckProfile, tuple[str, ...]]] = {
    "kubelet": ("None", "TieredReservation"),
    "memqos": ("None", "TieredReservation", "HardReservation"),
}
TOPOLOGY_POLICIES: Final = ("none", "best-effort", "restricted", "single-numa-node")
TOPOLOGY_SCOPES: Final = ("container", "pod")
MEMORY_MANAGER_POLICIES: Final = ("None", "Static")
# 1.30 removed UnlimitedSwap (KEP-2400). Until 1.25 the shortest period of CFS was checked against
# 1 µs, though the kernel takes no less than 1 ms (validation.go, ValidateKubeletConfiguration).
SWAP_BEHAVIORS: Final = Since({22: ("LimitedSwap", "UnlimitedSwap"), 30: ("NoSwap", "LimitedSwap")})
SHORTEST_CPU_PERIOD: Final = Since({22: 1_000, 26: SECOND // 1000})
FORMER_DEFAULT_FACTOR: Final = 0.9

_CGROUP_OF: Final = {KUBE_RESERVED: "kubeReservedCgroup", SYSTEM_RESERVED: "systemReservedCgroup"}
_UNTIL_31: Final = (PODS, SYSTEM_RESERVED, KUBE_RESERVED, NONE)
# The compressible ones enforce cpu alone, since 1.32 (validation.go).
ENFORCEMENTS: Final[Since[tuple[str, ...]]] = Since(
    {22: _UNTIL_31, 32: (*_UNTIL_31, SYSTEM_RESERVED + COMPRESSIBLE, KUBE_RESERVED + COMPRESSIBLE)}
)

ReservedMemoryFault = Literal["unsupported_resource", "zero_value", "duplicate"]
KubeletCheck = Callable[[KubeletConfiguration, Release], Iterator[KubeletFault]]


def gate_faults(config: KubeletConfiguration, release: Release) -> list[KubeletFault]:
    """Gates the release does not have, does not allow to be set so, or that need others."""
    stage_of_check = _GATES_CHECKED_AT.at(release.minor)
    faults = []
    for name, on in config.feature_gates.items():
        try:
            release.with_gates({name: on})
        except UnsupportedRelease as error:
            field = f"featureGates[{name}]"
            faults.append(KubeletFault(stage_of_check, field, error.what, hint=error.hint))
    return faults or _GATE_CONFLICTS.at(release.minor)(config, release)


def validation_faults(
    config: KubeletConfiguration, release: Release, profile: CheckProfile = "kubelet"
) -> list[KubeletFault]:
    """What is refused before anything runs; `release` has the configuration's gates set."""
    faults = [fault for check in _CHECKS for fault in check(config, release)]
    return [*faults, *_reservation_policy(config, release, profile)]


def start_faults(config: KubeletConfiguration, release: Release) -> list[KubeletFault]:
    """What a valid configuration fails on when the kubelet starts on Linux."""
    faults = [*read_reservations(config, release.minor).faults]
    thresholds = read_thresholds(
        config.eviction_hard,
        config.eviction_soft,
        config.eviction_soft_grace_period,
        config.eviction_minimum_reclaim,
    )
    faults += [
        KubeletFault("start", f"{fault.field}[{fault.signal}]", fault.what, hint=fault.hint)
        for fault in thresholds.faults
    ]
    option = option_fault(config.topology_manager_policy_options)
    # NewManager(), kubelet cm/topologymanager/topology_manager.go: `none` reads no option.
    if option is not None and config.topology_manager_policy != "none":
        field = f"topologyManagerPolicyOptions[{option.name}]"
        faults.append(KubeletFault("start", field, option.detail))
    policy = config.memory_manager_policy
    if policy not in MEMORY_MANAGER_POLICIES:
        faults.append(_choice("start", "memoryManagerPolicy", policy, MEMORY_MANAGER_POLICIES))
    return faults


def _choice(stage: FaultStage, field: str, value: str, choices: Iterable[str]) -> KubeletFault:
    allowed = [*choices]
    same = [choice for choice in allowed if choice.casefold() == value.casefold()]
    hint = f"did you mean {same[0]}?" if same else f"write {' or '.join(allowed)}"
    return KubeletFault(stage, field, f"{value!r} is unknown", hint=hint)


def _fault(field: str, what: str, *involves: str, hint: str | None = None) -> KubeletFault:
    return KubeletFault("validate", field, what, involves, hint)


# Since 1.32 SetDefaults_KubeletConfiguration() evaluates the gates, and panics at a bad one before
# anything is validated (kubelet apis/config/v1beta1/defaults.go).
_GATES_CHECKED_AT: Final[Since[FaultStage]] = Since({22: "validate", 32: "decode"})


_STAGE_SWITCHES: Final[Mapping[str | None, str]] = {"alpha": "AllAlpha", "beta": "AllBeta"}


def _no_conflicts(config: KubeletConfiguration, release: Release) -> list[KubeletFault]:
    return []


def _gate_conflicts(config: KubeletConfiguration, release: Release) -> list[KubeletFault]:
    """Gates that stay on by default or by name although one they depend on is off."""
    usual = Release.of(release.minor).on
    configured = dict(release.with_gates(config.feature_gates).gates)

    def on(name: str) -> bool:
        switch = _STAGE_SWITCHES.get(stage(name, release.minor), "")
        return configured.get(name, configured.get(switch, name in usual))

    candidates = {name for name, is_on in configured.items() if is_on} | usual
    conflicts = {
        name: [needed for needed in dependencies(name, release.minor) if not on(needed)]
        for name in sorted(candidates)
        if on(name)
    }
    return [
        KubeletFault(
            _GATES_CHECKED_AT.at(release.minor),
            f"featureGates[{name}]",
            f"is on, but needs {', '.join(missing)}",
            hint=f"set {name}: false as well",
        )
        for name, missing in conflicts.items()
        if missing
    ]


# featuregate.AddDependencies(), component-base 1.35: a gate that is on needs those it depends on.
_GATE_CONFLICTS: Final = Since({22: _no_conflicts, 35: _gate_conflicts})


def _cpu_period(config: KubeletConfiguration, release: Release) -> Iterator[KubeletFault]:
    period, shortest = config.cpu_cfs_quota_period, SHORTEST_CPU_PERIOD.at(release.minor)
    written = duration_text(period)
    if not release.is_enabled("CustomCPUCFSQuotaPeriod"):
        if period != DEFAULT_CPU_PERIOD:
            yield _fault(
                "cpuCFSQuotaPeriod", f"{written} needs the feature gate CustomCPUCFSQuotaPeriod"
            )
    elif not shortest <= period <= SECOND:
        yield _fault(
            "cpuCFSQuotaPeriod", f"{written} is not between {duration_text(shortest)} and 1s"
        )


def _topology(config: KubeletConfiguration, release: Release) -> Iterator[KubeletFault]:
    choices = (
        ("topologyManagerPolicy", config.topology_manager_policy, TOPOLOGY_POLICIES),
        ("topologyManagerScope", config.topology_manager_scope, TOPOLOGY_SCOPES),
    )
    for field, value, allowed in choices:
        if value not in allowed:
            yield _choice("validate", field, value, allowed)
        if value != allowed[0] and not release.is_enabled("TopologyManager"):
            yield _fault(field, f"{value!r} needs the feature gate TopologyManager")


def _swap(config: KubeletConfiguration, release: Release) -> Iterator[KubeletFault]:
    behavior, allowed = config.memory_swap.swap_behavior, SWAP_BEHAVIORS.at(release.minor)
    if not behavior:
        return
    if not release.is_enabled("NodeSwap"):
        yield _fault("memorySwap.swapBehavior", "cannot be set: the feature gate NodeSwap is off")
    elif behavior not in allowed:
        yield _choice("validate", "memorySwap.swapBehavior", behavior, allowed)


def _enforcement(config: KubeletConfiguration, release: Release) -> Iterator[KubeletFault]:
    return _ENFORCEMENT.at(release.minor)(config, ENFORCEMENTS.at(release.minor))


_ENFORCED: Final = "enforceNodeAllocatable"


def _check_enforced_together(
    config: KubeletConfiguration, allowed: tuple[str, ...]
) -> Iterator[KubeletFault]:
    enforced = config.enforce_node_allocatable
    if enforced and not config.cgroups_per_qos:
        yield _fault(_ENFORCED, "is not possible without cgroupsPerQOS", "cgroupsPerQOS")
    for value in enforced:
        yield from _check_enforced_value(config, value, allowed)


def _check_enforced_one_by_one(
    config: KubeletConfiguration, allowed: tuple[str, ...]
) -> Iterator[KubeletFault]:
    enforced = config.enforce_node_allocatable
    for reserved in (SYSTEM_RESERVED, KUBE_RESERVED):
        both = {reserved, reserved + COMPRESSIBLE}
        if both.issubset(enforced) and both.issubset(allowed):
            yield _fault(_ENFORCED, f"{reserved} and {reserved}{COMPRESSIBLE} exclude each other")
    seen: set[str] = set()
    for value in enforced:
        if value in seen:
            yield _fault(_ENFORCED, f"{value!r} is listed twice")
            continue
        seen.add(value)
        yield from _check_enforced_value(config, value, allowed)
        if value in allowed and value != NONE and not config.cgroups_per_qos:
            yield _fault(
                _ENFORCED, f"{value!r} is not possible without cgroupsPerQOS", "cgroupsPerQOS"
            )


# ValidateKubeletConfiguration(), validation.go: since 1.31 each value is checked on its own, and a
# second one of the same is refused.
_ENFORCEMENT: Final = Since({22: _check_enforced_together, 31: _check_enforced_one_by_one})


def _check_enforced_value(
    config: KubeletConfiguration, value: str, allowed: tuple[str, ...]
) -> Iterator[KubeletFault]:
    cgroups = {
        "kubeReservedCgroup": config.kube_reserved_cgroup,
        "systemReservedCgroup": config.system_reserved_cgroup,
    }
    cgroup = _CGROUP_OF.get(value.removesuffix(COMPRESSIBLE))
    if value not in allowed:
        yield _choice("validate", _ENFORCED, value, allowed)
    elif value == NONE:
        if len(config.enforce_node_allocatable) > 1:
            yield _fault(_ENFORCED, f"{NONE!r} must be the only value")
    elif cgroup is not None and not cgroups[cgroup]:
        yield _fault(_ENFORCED, f"{value!r} needs {cgroup}", cgroup, hint=f"set {cgroup}")


def _check_reserved_cpus(config: KubeletConfiguration, release: Release) -> Iterator[KubeletFault]:
    cpus = config.reserved_system_cpus
    if cpus and (config.system_reserved_cgroup or config.kube_reserved_cgroup):
        yield _fault(
            "reservedSystemCPUs", "excludes reserved cgroups", *sorted(_CGROUP_OF.values())
        )
    if cpu_count(cpus) is None:
        yield _fault(
            "reservedSystemCPUs", f"{cpus!r} is not a list of CPUs", hint="write it like 0-3,8"
        )


def _check_reserved_memory(
    config: KubeletConfiguration, release: Release
) -> Iterator[KubeletFault]:
    for _, fault in reserved_memory_faults(config.reserved_memory):
        yield fault


def reserved_memory_faults(
    reservations: Iterable[MemoryReservation],
) -> Iterator[tuple[ReservedMemoryFault, KubeletFault]]:
    """What the kubelet refuses in `reservedMemory` before it reads the machine."""
    seen: set[tuple[int, str]] = set()
    for index, entry in enumerate(reservations):
        for name, amount in (entry.limits or {}).items():
            field, node = f"reservedMemory[{index}].limits[{name}]", entry.numa_node
            if name != MEMORY and not is_hugepages(name):
                what = "cannot be reserved: only memory and hugepages-* can"
                yield "unsupported_resource", _fault(field, what)
            if not Quantity.parse(amount).nano:
                yield "zero_value", _fault(field, "is zero", hint="remove it")
            if (node, name) in seen:
                yield "duplicate", _fault(field, f"NUMA node {node} has {name} reserved already")
            seen.add((node, name))


def _throttling(config: KubeletConfiguration, release: Release) -> Iterator[KubeletFault]:
    factor = config.memory_throttling_factor
    if factor is None:
        return
    if not release.is_enabled("MemoryQoS") and not _IGNORED_WHILE_OFF.at(release.minor)(factor):
        yield _fault(
            "memoryThrottlingFactor", "must not be set while the feature gate MemoryQoS is off"
        )
    if not 0 < factor <= 1:
        yield _fault("memoryThrottlingFactor", f"{factor} is not above 0 and at most 1")


# Defaulting wrote 0.9 into configurations until 1.36, so 1.37 tolerates it with the gate off
# (validation.go, previousDefaultMemoryThrottlingFactor).
_IGNORED_WHILE_OFF: Final[Since[Callable[[float], bool]]] = Since(
    {22: lambda factor: True, 37: lambda factor: factor == FORMER_DEFAULT_FACTOR}
)


def _reservation_policy(
    config: KubeletConfiguration, release: Release, profile: CheckProfile
) -> Iterator[KubeletFault]:
    policy, allowed = config.memory_reservation_policy, MANAGER_POLICIES[profile]
    if policy not in allowed:
        yield _choice("validate", "memoryReservationPolicy", policy, allowed)
    elif policy != "None" and not release.is_enabled("MemoryQoS"):
        yield _fault("memoryReservationPolicy", f"{policy} needs the feature gate MemoryQoS")


_CHECKS: Final[tuple[KubeletCheck, ...]] = (
    _cpu_period,
    _topology,
    _swap,
    _enforcement,
    _check_reserved_cpus,
    _check_reserved_memory,
    _throttling,
)
