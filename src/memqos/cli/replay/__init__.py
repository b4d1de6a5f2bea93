"""Replays of recorded cases: each module answers the cases of some areas as memqos does."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

from memqos.errors import InputError

ReplayFunction = Callable[[Mapping[str, Any]], dict[str, Any]]

AREAS: Final = {
    "quantity": "pods",
    "quantity_arith": "pods",
    "pod_semantics": "pods",
    "pod_semantics_qos_off": "pods",
    "pod_eras": "pods",
    "dra_node_allocatable": "pods",
    "cgroup_names": "pods",
    "node_cgroups": "node",
    "node_eras": "node",
    "qos_metrics": "node",
    "node_allocatable": "node",
    "kubelet_config": "node",
    "defaults": "node",
    "topology_merge": "numa",
    "topology_config": "numa",
    "memory_manager": "numa",
    "reserved_memory": "numa",
    "memory_state_checkpoint": "numa",
    "limitrange": "admission",
    "quota_usage": "admission",
    "quota_admission": "admission",
    "resize": "admission",
    "hpa_requests": "admission",
    "scheduler_fit": "pressure",
    "pressure_admission": "pressure",
    "eviction_sync": "pressure",
    "eviction_thresholds": "pressure",
    "eviction_rank": "pressure",
    "hugepage_eviction": "pressure",
    "swap": "kubelet",
    "memory_volumes": "kubelet",
    "pod_os_admission": "kubelet",
    "resize_verdict": "kubelet",
}


def area_of(file: str) -> str:
    """The area a file records: its name up to the first dot."""
    return file.rsplit("/", 1)[-1].split(".", 1)[0]


def find_replay(file: str) -> ReplayFunction:
    """The function that replays the cases of a file."""
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
