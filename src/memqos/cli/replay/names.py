"""Replays recorded cgroup names."""

from typing import Any

from memqos.cli.replay.pods import ReplayCase
from memqos.plan.names import cgroup_names


def replay_cgroup_names(case: ReplayCase) -> dict[str, Any]:
    """Where a pod's cgroups are."""
    names = cgroup_names(case["driver"], case["cgroup_root"])
    qos = case["qos_class"]
    return {
        "kubepods": names.kubepods,
        "burstable": names.burstable,
        "besteffort": names.besteffort,
        "qos": names.qos(qos),
        "pod": names.pod(case["pod_uid"], qos),
    }
