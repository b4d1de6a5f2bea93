"""Replays recorded verdicts under pressure: eviction, admission, scheduler fit."""

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from memqos.cli.replay.pods import ReplayCase, case_release
from memqos.cluster.eviction_loop import (
    EvictionSettings,
    EvictionState,
    EvictionStep,
    evict_once,
)
from memqos.cluster.eviction_order import (
    OffendingUsage,
    PodMemoryUsage,
    RankedPod,
    eviction_order,
    first_evictable,
    offending_usage,
)
from memqos.cluster.eviction_signals import (
    SignalObservation,
    ThresholdReading,
    available_memory,
    memory_observation,
    node_conditions,
    threshold_readings,
    without_hugepages,
)
from memqos.cluster.fit import judge_fit
from memqos.cluster.fit_demand import (
    EPHEMERAL_STORAGE,
    SchedulingDemand,
    is_scalar_resource,
    node_info,
    scheduling_demand,
)
from memqos.cluster.fit_scores import DEFAULT_PROFILE, SchedulerProfile
from memqos.cluster.pressure_admission import pressure_admission
from memqos.kube.duration import SECOND
from memqos.kube.kubelet.thresholds import (
    ALLOCATABLE_MEMORY,
    MEMORY_AVAILABLE,
    Threshold,
    ThresholdAmount,
    Thresholds,
    read_thresholds,
)
from memqos.kube.pod import Pod
from memqos.kube.qos import qos_class
from memqos.kube.quantity import milli_of, whole
from memqos.kube.resources import CPU, MEMORY, Amounts, format_amount, is_hugepages
from memqos.kube.shape import amounts_of, shape_of
from memqos.release import Release


def replay_eviction_rank(case: ReplayCase) -> dict[str, Any]:
    """The order of eviction, and the containers that the event names."""
    release = case_release(case)
    usage = _usage(case.get("stats") or {})
    pods = msgspec.convert(case["pods"], tuple[Pod, ...])
    order = eviction_order([(pod, usage.get(_name(pod))) for pod in pods], release)
    first = first_evictable(order)
    return {
        "order": [_name(ranked.pod) for ranked in order],
        "tie_groups": [[_name(ranked.pod) for ranked in group] for group in tie_groups(order)],
        "first_evicted": None if first is None else _name(first.pod),
        "offending": None
        if first is None
        else _offending_data(
            first.pod, offending_usage(first.pod, usage.get(_name(first.pod)), release)
        ),
        "details": {_name(ranked.pod): _ranked_data(ranked, release) for ranked in order},
    }


def replay_eviction_thresholds(case: ReplayCase) -> dict[str, Any]:
    """The thresholds as they are read, and which of them are met."""
    read = _read_thresholds(case)
    keys = ("thresholds", "met", "met_with_min_reclaim", "node_conditions")
    if read.faults:
        return {"error": read.faults[0].problem, **dict.fromkeys(keys)}
    observations = {
        signal: SignalObservation(
            whole(milli_of(recorded["available"])), whole(milli_of(recorded["capacity"]))
        )
        for signal, recorded in (case.get("observations") or {}).items()
    }
    found = threshold_readings(read.thresholds, observations)
    met = [reading.threshold for reading in found if reading.met]
    return {
        "error": None,
        "thresholds": sorted(map(_reading_data, found), key=_by_signal),
        "met": sorted(map(_label, met)),
        "met_with_min_reclaim": sorted(
            [_label(reading.threshold) for reading in found if reading.met_until_reclaimed]
        ),
        "node_conditions": sorted(node_conditions(met)),
    }


def replay_eviction_sync(case: ReplayCase) -> dict[str, Any]:
    """The eviction loop, step by step; an evicted pod is removed before the next step."""
    release = case_release(case)
    settings = EvictionSettings(
        thresholds=_read_thresholds(case).thresholds,
        transition_period=int(case["pressure_transition_period_seconds"] * SECOND),
        max_pod_grace_period=case["max_pod_grace_period_seconds"],
    )
    pods = list(msgspec.convert(case["pods"], tuple[Pod, ...]))
    state, steps = EvictionState(), []
    for recorded in case["steps"]:
        available = recorded["node_available_bytes"]
        now = int(recorded["at_seconds"] * SECOND)
        node = SignalObservation(available, available + recorded["node_working_set_bytes"], now)
        usage = _usage(recorded.get("stats") or {})
        running = [(pod, usage.get(_name(pod))) for pod in pods]
        step, state = evict_once(state, now, {MEMORY_AVAILABLE: node}, running, settings, release)
        if step.evicted is not None:
            pods.remove(step.evicted.pod)
        steps.append(_step_data(step))
    return {"steps": steps}


def replay_pressure_admission(case: ReplayCase) -> dict[str, Any]:
    """Admission to a node under pressure."""
    release = case_release(case)
    pod = msgspec.convert(case["pod"], Pod)
    answer = pressure_admission(
        pod, shape_of(pod, release), case.get("node_conditions") or (), release
    )
    return {
        "admit": answer.admitted,
        "critical": answer.critical,
        "qos": answer.qos,
        "reason": answer.reason,
    }


def replay_scheduler_fit(case: ReplayCase) -> dict[str, Any]:
    """A pod on one node: the filter, the scores and the requests that each counts."""
    release = case_release(case)
    demand = _demand(msgspec.convert(case["pod"], Pod), release)
    existing = msgspec.convert(case.get("existing_pods") or (), tuple[Pod, ...])
    allocatable = {name: milli_of(raw) for name, raw in case["node"]["allocatable"].items()}
    node = node_info("node", allocatable, [_demand(pod, release) for pod in existing])
    profile = _profile(case)
    verdict = judge_fit(demand, node, release, profile)
    return {
        "insufficient": [
            {
                "resource": shortage.resource,
                "requested": shortage.requested,
                "used": shortage.used,
                "capacity": shortage.capacity,
                "unresolvable": shortage.unresolvable,
            }
            for shortage in sorted(verdict.shortages)
        ],
        "filter_code": verdict.code,
        "pod_requests": _requests_data(demand.filtered),
        "pod_cached_requests": _requests_data(demand.charged),
        "pod_non_zero": _non_zero_data(demand.charged_non_zero),
        "node_requested": _requests_data(node.requested),
        "node_non_zero_requested": _non_zero_data(node.non_zero_requested),
        "fit_score_pod_requests": _score_requests(demand.spread, profile),
        "balanced_pod_requests": _score_requests(demand.charged, profile),
        "scores": {
            "least_allocated": verdict.scores.least_allocated,
            "most_allocated": verdict.scores.most_allocated,
            "balanced_allocation": verdict.scores.balanced,
        },
    }


def _name(pod: Pod) -> str:
    return pod.metadata.name or ""


def _usage(stats: Mapping[str, Any]) -> dict[str, PodMemoryUsage]:
    return {
        name: PodMemoryUsage(of_pod.get("working_set_bytes"), of_pod.get("containers") or {})
        for name, of_pod in stats.items()
    }


def _ranked_data(ranked: RankedPod, release: Release) -> dict[str, Any]:
    return {
        "has_stats": ranked.usage is not None,
        "usage_bytes": ranked.usage,
        "request": format_amount(MEMORY, ranked.request),
        "request_bytes": whole(ranked.request),
        "exceeds_request": ranked.over_request,
        "above_request_bytes": ranked.excess,
        "priority": ranked.priority,
        "critical": ranked.critical,
        "qos": qos_class(shape_of(ranked.pod, release), release),
    }


def _offending_data(pod: Pod, offending: OffendingUsage | None) -> dict[str, Any] | None:
    if offending is None:
        return None
    return {
        "containers": [name for name, _ in offending.containers],
        "containers_usage": [
            format_amount(MEMORY, used * 1000) for _, used in offending.containers
        ],
        "pod": None if offending.pod is None else _name(pod),
        "pod_usage": None if offending.pod is None else format_amount(MEMORY, offending.pod * 1000),
    }


def _read_thresholds(case: ReplayCase) -> Thresholds:
    return read_thresholds(
        case.get("eviction_hard") or {},
        case.get("eviction_soft"),
        case.get("eviction_soft_grace_period"),
        case.get("eviction_minimum_reclaim"),
        case.get("enforce_node_allocatable") or (),
    )


def _reading_data(reading: ThresholdReading) -> dict[str, Any]:
    threshold = reading.threshold
    limit, reclaimed = reading.limit, reading.limit_reclaimed
    return {
        "signal": threshold.signal,
        "operator": "LessThan",
        "kind": _kind(threshold),
        "grace_period_seconds": _seconds(threshold.grace_period),
        "value": _amount_data(threshold.value),
        "min_reclaim": None
        if threshold.min_reclaim is None
        else _amount_data(threshold.min_reclaim),
        "observed": reading.observation is not None,
        "threshold": None if limit is None else limit.value,
        "threshold_plus_min_reclaim": None if reclaimed is None else reclaimed.value,
        "met": reading.met,
        "met_with_min_reclaim": reading.met_until_reclaimed,
    }


def _by_signal(reading: dict[str, Any]) -> tuple[str, str, bytes]:
    """Thresholds of one signal and kind are recorded in the order of their texts."""
    return reading["signal"], reading["kind"], msgspec.json.encode(reading, order="sorted")


def _seconds(nanoseconds: int) -> int | float:
    whole_seconds, rest = divmod(nanoseconds, SECOND)
    return nanoseconds / SECOND if rest else whole_seconds


def _amount_data(amount: ThresholdAmount) -> dict[str, Any]:
    return {
        "quantity": None if amount.quantity is None else amount.quantity.canonical,
        "percentage": None if amount.percentage is None else _shortest(amount.percentage),
    }


def _shortest(single: float) -> float:
    """The shortest decimal that is the same number in single precision."""
    if not math.isfinite(single):
        return single
    packed = struct.pack("f", single)
    texts = [float(f"{single:.{digits}g}") for digits in range(1, 10)]
    return next(number for number in texts if struct.pack("f", number) == packed)


def _kind(threshold: Threshold) -> str:
    return "hard" if threshold.hard else "soft"


def _label(threshold: Threshold) -> str:
    return f"{_kind(threshold)}/{threshold.signal}"


def _step_data(step: EvictionStep) -> dict[str, Any]:
    return {
        "node_conditions": sorted(step.conditions),
        "thresholds_met": sorted(map(_label, step.met)),
        "evicted": None if step.evicted is None else _name(step.evicted.pod),
        "grace_period_override_seconds": step.grace_period,
    }


def replay_hugepage_eviction(case: ReplayCase) -> dict[str, Any]:
    """The memory signals of a node with hugepages, and the thresholds they meet."""
    release = case_release(case)
    capacity = amounts_of(case["node"]["capacity"], "node.capacity")
    hugepages = sum([whole(size) for name, size in capacity.items() if is_hugepages(name)])
    root, pods = case["cgroups"]["root"], case["cgroups"].get("pods")
    left = _left_in(root)
    available = None if left is None else without_hugepages(left, hugepages, release)
    observations = {
        MEMORY_AVAILABLE: None
        if available is None
        else memory_observation(available, root["working_set"]),
        ALLOCATABLE_MEMORY: None
        if (left_to_pods := _left_in(pods)) is None
        else memory_observation(left_to_pods, pods["working_set"]),
    }
    thresholds = read_thresholds(case["eviction_hard"], enforced=("pods",)).thresholds
    observed = {signal: found for signal, found in observations.items() if found is not None}
    met = [each.threshold.signal for each in threshold_readings(thresholds, observed) if each.met]
    return {
        "observations": {
            signal: None if found is None else {"available": found[0], "capacity": found[1]}
            for signal, found in observations.items()
        },
        "met": sorted(met),
        "summary_available_bytes": available,
        "resource_summary_available_bytes": available,
    }


def tie_groups(order: Sequence[RankedPod]) -> list[list[RankedPod]]:
    """The order, pods with equal keys grouped."""
    groups: list[list[RankedPod]] = []
    joins = False
    for ranked in order:
        if joins:
            groups[-1].append(ranked)
        else:
            groups.append([ranked])
        joins = ranked.ahead_by == "input order"
    return groups


def _left_in(cgroup: Mapping[str, Any] | None) -> int | None:
    if cgroup is None or not cgroup.get("has_memory", True):
        return None
    return available_memory(cgroup["memory_limit"], cgroup["working_set"])


def _demand(pod: Pod, release: Release) -> SchedulingDemand:
    return scheduling_demand(pod, shape_of(pod, release), release)


def _profile(case: ReplayCase) -> SchedulerProfile:
    weights = [(each["name"], each["weight"]) for each in case.get("score_resources") or ()]
    return SchedulerProfile(
        weights=tuple(weights) or DEFAULT_PROFILE.weights,
        ignored_resources=frozenset(case.get("ignored_resources") or ()),
        ignored_groups=frozenset(case.get("ignored_resource_groups") or ()),
    )


def _requests_data(amounts: Amounts) -> dict[str, Any]:
    return {
        "milli_cpu": amounts.get(CPU, 0),
        "memory": amounts.get(MEMORY, 0),
        "ephemeral_storage": amounts.get(EPHEMERAL_STORAGE, 0),
        "scalar": {name: amount for name, amount in amounts.items() if is_scalar_resource(name)},
    }


def _non_zero_data(amounts: Amounts) -> dict[str, Any]:
    return {"milli_cpu": amounts[CPU], "memory": amounts[MEMORY]}


def _score_requests(amounts: Amounts, profile: SchedulerProfile) -> dict[str, Any]:
    return {resource: amounts.get(resource, 0) for resource, _ in profile.weights}
