"""Which recorded area is replayed by what; a replay is imported only when its area comes up."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

from memqos.errors import InputError

ReplayFunction = Callable[[Mapping[str, Any]], dict[str, Any]]

AREAS: Final = {
    "quantity": "quantities",
    "quantity_arith": "quantities",
    "pod_semantics": "pods",
    "pod_semantics_qos_off": "pods",
    "pod_eras": "pods",
    "cgroup_names": "names",
    "node_cgroups": "nodes",
    "node_eras": "nodes",
    "node_allocatable": "kubelet",
    "kubelet_config": "kubelet",
    "defaults": "kubelet",
    "topology_merge": "numa",
    "topology_config": "numa",
    "memory_manager": "numa",
    "reserved_memory": "numa",
    "memory_state_checkpoint": "numa",
    "limitrange": "cluster_admission",
    "quota_usage": "cluster_admission",
    "quota_admission": "cluster_admission",
    "resize": "cluster_admission",
    "hpa_requests": "cluster_admission",
    "scheduler_fit": "cluster_pressure",
    "pressure_admission": "cluster_pressure",
    "eviction_sync": "cluster_pressure",
    "eviction_thresholds": "cluster_pressure",
    "eviction_rank": "cluster_pressure",
}


def area_of(file: str) -> str:
    """The area a file records: its name up to the first dot."""
    return file.rsplit("/", 1)[-1].split(".", 1)[0]


def find_replay(file: str) -> ReplayFunction:
    """What replays the cases of a file."""
    area = area_of(file)
    if area not in AREAS:
        raise InputError(
            f"no area is called {area!r}",
            file=file,
            hint=f"the name up to the first dot is one of {', '.join(AREAS)}",
        )
    module = import_module(f"memqos.cli.replay.{AREAS[area]}")
    replay: ReplayFunction = getattr(module, f"replay_{area}")
    return replay
