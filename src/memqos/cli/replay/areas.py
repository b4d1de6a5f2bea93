"""Which recorded area is replayed by what; a replay is imported only when its area comes up."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

from memqos.errors import InputError

Replay = Callable[[Mapping[str, Any]], dict[str, Any]]

_AREAS: Final = {
    "quantity": "quantities:quantity",
    "quantity_arith": "quantities:quantity_arith",
    "pod_semantics": "pods:pod_semantics",
    "pod_semantics_qos_off": "pods:pod_semantics",
    "pod_eras": "pods:pod_eras",
    "cgroup_names": "names:cgroup_names_of",
    "node_cgroups": "nodes:node_cgroups",
    "node_eras": "nodes:node_eras",
    "node_allocatable": "kubelet:node_allocatable",
    "kubelet_config": "kubelet:kubelet_config",
    "defaults": "kubelet:defaults",
    "topology_merge": "numa:topology_merge",
    "topology_config": "numa:topology_config",
    "memory_manager": "numa:memory_manager",
    "reserved_memory": "numa:reserved_memory",
    "memory_state_checkpoint": "numa:memory_state_checkpoint",
    "limitrange": "cluster_admission:limitrange",
    "quota_usage": "cluster_admission:quota_usage",
    "quota_admission": "cluster_admission:quota_admission",
    "resize": "cluster_admission:resize",
    "hpa_requests": "cluster_admission:hpa_requests",
    "scheduler_fit": "cluster_pressure:scheduler_fit",
    "pressure_admission": "cluster_pressure:pressure_admission",
    "eviction_sync": "cluster_pressure:eviction_sync",
    "eviction_thresholds": "cluster_pressure:eviction_thresholds",
    "eviction_rank": "cluster_pressure:eviction_rank",
}


def area_of(file: str) -> str:
    """The area a file records: its name up to the first dot."""
    return file.rsplit("/", 1)[-1].split(".", 1)[0]


def replay_of(file: str) -> Replay:
    """What replays the cases of a file."""
    area = area_of(file)
    if area not in _AREAS:
        raise InputError(
            f"no area is called {area!r}",
            file=file,
            hint=f"the name up to the first dot is one of {', '.join(_AREAS)}",
        )
    module, function = _AREAS[area].split(":")
    replay: Replay = getattr(import_module(f"memqos.cli.replay.{module}"), function)
    return replay
