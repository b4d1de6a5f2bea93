"""Replays recorded kubelets: their configuration, its defaults, what is allocatable to pods."""

from collections.abc import Mapping
from typing import Any

import msgspec

from memqos.cli.replay.pods import ReplayCase, case_release, case_settings, memory_files
from memqos.errors import InputError
from memqos.kube.defaulting import apply_defaults
from memqos.kube.duration import duration_text
from memqos.kube.kubelet import KubeletConfiguration, KubeletFault, with_defaults
from memqos.kube.kubelet.reading import Reading, read_kubelet
from memqos.kube.node import Capacity, NodeCgroup, allocatable, node_cgroups
from memqos.kube.pod import Pod
from memqos.kube.qos import compute_qos_class
from memqos.kube.quantity import Quantity, wrap_int64
from memqos.kube.resources import hugepage_size, kubelet_memory
from memqos.kube.shape import shape_of
from memqos.numa.topology_manager import InvalidTopology, configure_topology
from memqos.plan.cpu import shares_of, weight_of
from memqos.plan.levels import (
    LEVEL_OVERFLOW,
    Levels,
    class_demand,
    plan_levels,
    protection_gauges,
)
from memqos.plan.names import cgroup_names
from memqos.plan.pod import PodPlan, plan_pod
from memqos.plan.setting import FileSettings
from memqos.release import Since
from memqos.settings.settings import Settings

_CHECKED_TOGETHER = {
    "evictionSoftGracePeriod": "evictionSoft",
    "evictionMinimumReclaim": "evictionSoft",
}
"""At start the kubelet reads these as one, and stops at the first fault."""


def replay_kubelet_config(case: ReplayCase) -> dict[str, Any]:
    """Whether a configuration is refused, how far it gets, and which fields are blamed."""
    reading = _on_recorded_machine(read_kubelet(case["config"], case_release(case)))
    stage = reading.refused_at
    if stage == "decode":
        count, mentions = 1, set()
    elif stage == "start":
        mentions = {_CHECKED_TOGETHER.get(name, name) for name in map(_top_field, reading.faults)}
        # run(), cmd/kubelet/app/server.go, reads evictionHard before all other thresholds.
        if "evictionHard" in mentions:
            mentions.discard("evictionSoft")
        count = len(mentions)
    else:
        mentions = {
            name for fault in reading.faults for name in (_top_field(fault), *fault.involves)
        }
        count = len(reading.faults)
    actual = {
        "valid": stage is None,
        "stage": stage,
        "error_count": count,
        "mentions": sorted(mentions),
    }
    if reading.unknown and stage != "decode":
        actual["unknown_fields_ignored"] = True
    return actual


def _on_recorded_machine(reading: Reading) -> Reading:
    """The reading on the machine of the recordings, whose NUMA distances are not known."""
    config = reading.config
    if config is None or reading.refused_at not in (None, "start"):
        return reading
    topology = configure_topology(
        config.topology_manager_policy,
        config.topology_manager_scope,
        config.topology_manager_policy_options,
        [0],
        None,
    )
    if not isinstance(topology, InvalidTopology):
        return reading
    fault = KubeletFault("start", "topologyManagerPolicyOptions", topology.detail)
    return msgspec.structs.replace(reading, faults=(*reading.faults, fault))


def replay_defaults(case: ReplayCase) -> dict[str, Any]:
    """A configuration with its defaults; what is empty is not written out."""
    reading = read_kubelet(case["config"], case_release(case))
    config = reading.config
    if config is None:
        raise InputError(f"what cannot be decoded has no defaults: {reading.faults[0]}")
    return {
        "cgroupDriver": config.cgroup_driver,
        "cgroupRoot": config.cgroup_root or None,
        "cgroupsPerQOS": config.cgroups_per_qos,
        "cpuCFSQuota": config.cpu_cfs_quota,
        "cpuCFSQuotaPeriod": duration_text(config.cpu_cfs_quota_period),
        "enforceNodeAllocatable": [*config.enforce_node_allocatable] or None,
        "evictionHard": config.eviction_hard or None,
        "evictionMinimumReclaim": config.eviction_minimum_reclaim or None,
        "evictionPressureTransitionPeriod": duration_text(
            config.eviction_pressure_transition_period
        ),
        "evictionSoft": config.eviction_soft or None,
        "evictionSoftGracePeriod": config.eviction_soft_grace_period or None,
        "failSwapOn": config.fail_swap_on,
        "kubeReserved": config.kube_reserved or None,
        "kubeReservedCgroup": config.kube_reserved_cgroup or None,
        "memoryManagerPolicy": config.memory_manager_policy,
        "memoryReservationPolicy": config.memory_reservation_policy,
        "memorySwap": {"swapBehavior": config.memory_swap.swap_behavior}
        if config.memory_swap.swap_behavior
        else {},
        "memoryThrottlingFactor": config.memory_throttling_factor,
        "mergeDefaultEvictionSettings": config.merge_default_eviction_settings,
        "podPidsLimit": config.pod_pids_limit,
        "reservedMemory": _reservation_data(config),
        "singleProcessOOMKill": config.single_process_oom_kill,
        "systemReserved": config.system_reserved or None,
        "systemReservedCgroup": config.system_reserved_cgroup or None,
        "topologyManagerPolicy": config.topology_manager_policy,
        "topologyManagerPolicyOptions": config.topology_manager_policy_options or None,
        "topologyManagerScope": config.topology_manager_scope,
    }


def replay_node_allocatable(case: ReplayCase) -> dict[str, Any]:
    """A node's reservation, what is allocatable, and the cgroups that enforce it."""
    release = case_release(case)
    config = with_defaults(
        {
            "cgroup_driver": case["cgroupDriver"],
            "cgroup_root": case["cgroupRoot"],
            "enforce_node_allocatable": tuple(case["enforceNodeAllocatable"]),
            "eviction_hard": case["evictionHard"],
            "kube_reserved": case["kubeReserved"],
            "kube_reserved_cgroup": case["kubeReservedCgroup"],
            "system_reserved": case["systemReserved"],
            "system_reserved_cgroup": case["systemReservedCgroup"],
        },
        release.minor,
    )
    recorded = case["capacity"]
    capacity = Capacity(
        cpu=recorded["cpu"] * 1000,
        memory=recorded["memory"],
        hugepages={
            name: pages * (hugepage_size(name) or 0)
            for name, pages in recorded["hugepages"].items()
        },
        pids=recorded["pid"],
    )
    remaining = allocatable(capacity, config, release)
    enforced = node_cgroups(capacity, config, release)
    names = cgroup_names(config.driver, config.cgroup_root)
    actual = {
        "cgroups": {
            names.kubepods
            if cgroup.kind == "kubepods"
            else names.reserved_cgroup(cgroup.name): _cgroup_data(cgroup)
            for cgroup in enforced.cgroups
        },
        "config_valid": not remaining.over_reserved,
        "enforced_allocatable": _quantity_texts(remaining.enforced),
        "enforced_allocatable_memory": remaining.enforced_memory,
        "reservation": _quantity_texts(remaining.reservation),
        "status_allocatable": _quantity_texts(remaining.published),
        "status_allocatable_memory": remaining.published_memory,
    }
    return actual | {"enforce_error": True} if enforced.failed else actual


def _top_field(fault: KubeletFault) -> str:
    return fault.field.partition(".")[0].partition("[")[0]


def _reservation_data(config: KubeletConfiguration) -> list[dict[str, Any]] | None:
    return [
        {
            "numaNode": entry.numa_node,
            "limits": None
            if entry.limits is None
            else _quantity_texts({name: Quantity.parse(raw) for name, raw in entry.limits.items()}),
        }
        for entry in config.reserved_memory
    ] or None


def _quantity_texts(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


def _cgroup_data(cgroup: NodeCgroup) -> dict[str, Any]:
    values: dict[str, Any] = {
        "unified": {
            name: str(value)
            for name, value in (
                ("memory.min", cgroup.memory_min),
                ("memory.low", cgroup.memory_low),
            )
            if value is not None
        }
    }
    if cgroup.memory_max is not None:
        values["memory_max"] = cgroup.memory_max
    if cgroup.cpu is not None:
        shares = shares_of(cgroup.cpu)
        values |= {"cpu_shares": shares, "cpu_weight": weight_of(shares)}
    if cgroup.pids_max is not None:
        values["pids_max"] = cgroup.pids_max
    if cgroup.hugepages:
        values["hugepage_limits"] = {str(page): size for page, size in cgroup.hugepages.items()}
    return values


def replay_node_cgroups(case: ReplayCase) -> dict[str, Any]:
    """kubepods and the QoS levels, at start and once pods are counted."""
    settings = case_settings(case)
    plans = [
        _plan_case_pod(pod, settings, as_created=True)
        for pod in msgspec.convert(case["pods"], tuple[Pod, ...])
    ]
    demand = class_demand(plans, kubelet_memory)
    return {
        "qos_classes": [plan.qos for plan in plans],
        "at_startup": _levels_data(plan_levels(demand, settings, "start"), settings),
        "after_update": _levels_data(plan_levels(demand, settings), settings),
    }


def replay_node_eras(case: ReplayCase) -> dict[str, Any]:
    """kubepods and burstable in an older release: their memory files alone."""
    settings = case_settings(case)
    plans = [
        _plan_case_pod(pod, settings, as_created=False)
        for pod in msgspec.convert(case["pods"], tuple[Pod, ...])
    ]
    levels = plan_levels(class_demand(plans, kubelet_memory), settings)
    return {
        "root": _level_files(levels.kubepods, settings),
        "burstable": _level_files(levels.burstable, settings),
    }


def replay_qos_metrics(case: ReplayCase) -> dict[str, Any]:
    """The kubelet's two gauges, beside what kubepods and burstable have."""
    settings = case_settings(case)
    plans = [
        _plan_case_pod(pod, settings, as_created=False)
        for pod in msgspec.convert(case["pods"], tuple[Pod, ...])
    ]
    demand = class_demand(plans)
    levels = plan_levels(demand, settings)
    minimum, low = protection_gauges(demand, settings)
    return {
        "qos_classes": [plan.qos for plan in plans],
        "kubelet_memory_qos_node_memory_min_bytes": minimum,
        "kubelet_memory_qos_node_memory_low_bytes": low,
        "root": memory_files(levels.kubepods),
        "burstable": memory_files(levels.burstable),
    }


def _plan_case_pod(pod: Pod, settings: Settings, *, as_created: bool) -> PodPlan:
    shape = apply_defaults(pod, settings.release) if as_created else shape_of(pod, settings.release)
    return plan_pod(shape, settings, compute_qos_class(shape, settings.release))


def _levels_data(levels: Levels, settings: Settings) -> dict[str, Any]:
    return {
        "root": {"unified": _level_files(levels.kubepods, settings)},
        "burstable": _with_cpu(levels.burstable, settings),
        "besteffort": _with_cpu(levels.besteffort, settings),
    }


# setMemoryQoS(), kubelet cm/qos_container_manager_linux.go: until 1.35 only a sum above 0.
_WRITES_NEGATIVE = Since({22: False, 36: True})


def _level_files(files: FileSettings, settings: Settings) -> dict[str, str]:
    """What the kubelet writes: of a sum that overflows the lowest 64 bits, memqos nothing."""
    written = memory_files(files)
    for name, setting in files.items():
        if setting.rule is LEVEL_OVERFLOW:
            total = wrap_int64(setting.inputs[0])
            if total > 0 or _WRITES_NEGATIVE.at(settings.release.minor):
                written[name] = str(total)
    return written


def _with_cpu(files: FileSettings, settings: Settings) -> dict[str, Any]:
    values: dict[str, Any] = {"unified": _level_files(files, settings)}
    if "cpu.shares" in files:
        shares = files["cpu.shares"].value
        assert isinstance(shares, int)
        values |= {"cpu_shares": shares, "cpu_weight": weight_of(shares)}
    return values
