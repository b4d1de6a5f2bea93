"""Replays recorded nodes: the cgroups above the pods."""

from typing import Any

import msgspec

from memqos.cli.replay.pods import ReplayCase, case_settings, memory_files
from memqos.kube.defaulting import apply_defaults
from memqos.kube.pod import Pod
from memqos.kube.qos import compute_qos_class
from memqos.kube.shape import shape_of
from memqos.plan.cpu import weight_of
from memqos.plan.levels import Levels, class_demand, plan_levels
from memqos.plan.pod import PodPlan, plan_pod
from memqos.plan.setting import FileSettings
from memqos.plan.terms import Settings


def replay_node_cgroups(case: ReplayCase) -> dict[str, Any]:
    """kubepods and the QoS levels, at start and once pods are counted."""
    terms = case_settings(case)
    plans = [
        _plan_case_pod(pod, terms, as_created=True)
        for pod in msgspec.convert(case["pods"], tuple[Pod, ...])
    ]
    demand = class_demand(plans)
    return {
        "qos_classes": [plan.qos for plan in plans],
        "at_startup": _levels_data(plan_levels(demand, terms, "start")),
        "after_update": _levels_data(plan_levels(demand, terms)),
    }


def replay_node_eras(case: ReplayCase) -> dict[str, Any]:
    """kubepods and burstable under an older release: their memory files alone."""
    terms = case_settings(case)
    plans = [
        _plan_case_pod(pod, terms, as_created=False)
        for pod in msgspec.convert(case["pods"], tuple[Pod, ...])
    ]
    levels = plan_levels(class_demand(plans), terms)
    return {"root": memory_files(levels.kubepods), "burstable": memory_files(levels.burstable)}


def _plan_case_pod(pod: Pod, terms: Settings, *, as_created: bool) -> PodPlan:
    shape = apply_defaults(pod, terms.release) if as_created else shape_of(pod, terms.release)
    return plan_pod(shape, terms, compute_qos_class(shape, terms.release))


def _levels_data(levels: Levels) -> dict[str, Any]:
    return {
        "root": {"unified": memory_files(levels.kubepods)},
        "burstable": _with_cpu(levels.burstable),
        "besteffort": _with_cpu(levels.besteffort),
    }


def _with_cpu(settings: FileSettings) -> dict[str, Any]:
    values: dict[str, Any] = {"unified": memory_files(settings)}
    if "cpu.shares" in settings:
        shares = settings["cpu.shares"].value
        assert isinstance(shares, int)
        values |= {"cpu_shares": shares, "cpu_weight": weight_of(shares)}
    return values
