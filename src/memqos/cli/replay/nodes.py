"""Replays recorded nodes: the cgroups above the pods."""

from typing import Any

import msgspec

from memqos.cli.replay.pods import Case, terms_of, unified
from memqos.kube.defaulting import defaulted
from memqos.kube.pod import Pod
from memqos.kube.qos import computed_class
from memqos.kube.shape import shape_of
from memqos.plan.cpu import weight_of
from memqos.plan.levels import Levels, demand_of, plan_levels
from memqos.plan.pod import PodPlan, plan_pod
from memqos.plan.setting import Settings
from memqos.plan.terms import Terms


def node_cgroups(case: Case) -> dict[str, Any]:
    """kubepods and the QoS levels, at start and once pods are counted."""
    terms = terms_of(case)
    plans = [
        _planned(pod, terms, as_created=True)
        for pod in msgspec.convert(case["pods"], tuple[Pod, ...])
    ]
    demand = demand_of(plans)
    return {
        "qos_classes": [plan.qos for plan in plans],
        "at_startup": _levels(plan_levels(demand, terms, "start")),
        "after_update": _levels(plan_levels(demand, terms)),
    }


def node_eras(case: Case) -> dict[str, Any]:
    """kubepods and burstable under an older release: their memory files alone."""
    terms = terms_of(case)
    plans = [
        _planned(pod, terms, as_created=False)
        for pod in msgspec.convert(case["pods"], tuple[Pod, ...])
    ]
    levels = plan_levels(demand_of(plans), terms)
    return {"root": unified(levels.kubepods), "burstable": unified(levels.burstable)}


def _planned(pod: Pod, terms: Terms, *, as_created: bool) -> PodPlan:
    shape = defaulted(pod, terms.release) if as_created else shape_of(pod, terms.release)
    return plan_pod(shape, terms, computed_class(shape, terms.release))


def _levels(levels: Levels) -> dict[str, Any]:
    return {
        "root": {"unified": unified(levels.kubepods)},
        "burstable": _with_cpu(levels.burstable),
        "besteffort": _with_cpu(levels.besteffort),
    }


def _with_cpu(settings: Settings) -> dict[str, Any]:
    values: dict[str, Any] = {"unified": unified(settings)}
    if "cpu.shares" in settings:
        shares = settings["cpu.shares"].value
        assert isinstance(shares, int)
        values |= {"cpu_shares": shares, "cpu_weight": weight_of(shares)}
    return values
