"""The kubelet's eviction loop under memory pressure, one step at a time.

A step gets the time, the observations and the running pods; it returns the state for the next step.
Signals of disks and process numbers put the node into their conditions, but which pods they evict
depends on more than memory and is not modelled here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from memqos.cluster.eviction_order import PodMemoryUsage, RankedPod, eviction_order, first_evictable
from memqos.cluster.eviction_signals import SignalObservations, node_conditions, threshold_readings
from memqos.kube.duration import SECOND
from memqos.kube.kubelet.thresholds import (
    ALLOCATABLE_MEMORY,
    MEMORY_AVAILABLE,
    NodeCondition,
    Threshold,
)
from memqos.kube.pod import Pod
from memqos.release import Release, Since

_MONITORING_INTERVAL: Final = 10 * SECOND
"""evictionMonitoringPeriod (kubelet.go)."""
_DEFAULT_GRACE: Final = 30
"""Seconds: corev1.DefaultTerminationGracePeriodSeconds."""
_MEMORY_SIGNALS: Final = frozenset({MEMORY_AVAILABLE, ALLOCATABLE_MEMORY})


class EvictionSettings(msgspec.Struct, frozen=True):
    """How a kubelet evicts."""

    thresholds: tuple[Threshold, ...]
    transition_period: int = 5 * 60 * 1_000_000_000
    """Nanoseconds a node stays in a condition after it was last observed."""
    max_pod_grace_period: int = 0
    """Seconds a pod gets to end after a soft threshold."""


class EvictionState(msgspec.Struct, frozen=True):
    """What the loop remembers from one step to the next; times in nanoseconds."""

    first_met: Mapping[Threshold, int] = {}
    condition_last_observed: Mapping[NodeCondition, int] = {}
    acting: tuple[Threshold, ...] = ()
    """Thresholds whose grace period is over."""
    last_observations: SignalObservations = {}


class EvictionStep(msgspec.Struct, frozen=True, kw_only=True):
    """What one step decided."""

    conditions: tuple[NodeCondition, ...]
    """Reported of the node: observed less than the transition period ago."""
    met: tuple[Threshold, ...]
    """Met, by now or not yet reclaimed, and past their grace period."""
    waiting: tuple[Threshold, ...]
    """Met, but still within their grace period."""
    reclaiming: Threshold | None = None
    """The threshold a pod is evicted for."""
    order: tuple[RankedPod, ...] = ()
    evicted: RankedPod | None = None
    grace_period: int | None = None
    """Seconds the evicted pod gets to end."""


class SimulatedStep(NamedTuple):
    """One step of a simulation in which something changed."""

    at: int
    """Nanoseconds from the start."""
    available: SignalObservations
    """Before the eviction, if there is one."""
    step: EvictionStep


def simulate_eviction(
    pods: Iterable[tuple[Pod, PodMemoryUsage | None]],
    observations: SignalObservations,
    settings: EvictionSettings,
    release: Release,
) -> Iterator[SimulatedStep]:
    """What the loop does from now on if pods go on using what they use.

    The memory of an evicted pod is free when its grace period is over. The kubelet waits for that:
    it looks again then, else after its monitoring interval. Ends when no threshold is met and no
    condition is left, or when nothing changes any more.
    """
    running, state, now = list(pods), EvictionState(), 0
    shown: tuple[object, ...] | None = None
    last_deadline = settings.transition_period + max(
        (threshold.grace_period for threshold in settings.thresholds), default=0
    )
    changed_at = 0
    while now - changed_at <= last_deadline + _MONITORING_INTERVAL:
        step, state = evict_once(state, now, observations, running, settings, release)
        facts = (step.conditions, step.met, step.waiting, step.evicted)
        if facts != shown:
            yield SimulatedStep(now, observations, step)
            shown, changed_at = facts, now
        if step.evicted is None:
            if not (step.conditions or step.met or step.waiting):
                return
            now += _MONITORING_INTERVAL
            continue
        evicted = step.evicted.pod
        running = [each for each in running if each[0] is not evicted]
        freed = step.evicted.usage or 0
        observations = {
            signal: seen._replace(available=min(seen.available + freed, seen.capacity))
            for signal, seen in observations.items()
        }
        grace = step.grace_period or evicted.spec.termination_grace_period_seconds or _DEFAULT_GRACE
        now += grace * SECOND


def evict_once(
    state: EvictionState,
    now: int,
    observations: SignalObservations,
    pods: Iterable[tuple[Pod, PodMemoryUsage | None]],
    settings: EvictionSettings,
    release: Release,
) -> tuple[EvictionStep, EvictionState]:
    """One step: at most one pod is evicted."""
    met = [
        reading.threshold
        for reading in threshold_readings(settings.thresholds, observations)
        if reading.met
    ]
    for reading in threshold_readings(state.acting, observations):
        if reading.met_until_reclaimed and reading.threshold not in met:
            met.append(reading.threshold)
    first_met = {threshold: state.first_met.get(threshold, now) for threshold in met}
    last_observed = {**state.condition_last_observed, **dict.fromkeys(node_conditions(met), now)}
    acting = [
        threshold for threshold, since in first_met.items() if now - since >= threshold.grace_period
    ]
    step = EvictionStep(
        conditions=tuple(
            [name for name, at in last_observed.items() if now - at < settings.transition_period]
        ),
        met=tuple(acting),
        waiting=tuple([threshold for threshold in met if threshold not in acting]),
    )
    fresh = [
        threshold for threshold in acting if _has_new_measurement(threshold, observations, state)
    ]
    reclaiming = _most_urgent(fresh)
    if reclaiming is not None and reclaiming.signal in _MEMORY_SIGNALS:
        step = _with_eviction(step, reclaiming, pods, settings, release)
    return step, EvictionState(first_met, last_observed, tuple(acting), observations)


def _has_new_measurement(
    threshold: Threshold, observations: SignalObservations, state: EvictionState
) -> bool:
    """Whether the signal was measured again since the last step."""
    observation = observations.get(threshold.signal)
    if observation is None:
        return False
    last = state.last_observations.get(threshold.signal)
    return last is None or observation.at is None or last.at is None or observation.at > last.at


def _most_urgent(acting: list[Threshold]) -> Threshold | None:
    """Memory comes first, and of several thresholds on memory the last in order."""
    # byEvictionPriority (kubelet eviction/helpers.go) calls every memory threshold less than any
    # other, so sorting reverses them. thresholdsMetGracePeriod() walks a Go map: now and then
    # another one comes last there, which is not modelled.
    of_memory = [threshold for threshold in acting if threshold.signal in _MEMORY_SIGNALS]
    return of_memory[-1] if of_memory else acting[0] if acting else None


def _with_eviction(
    step: EvictionStep,
    reclaiming: Threshold,
    pods: Iterable[tuple[Pod, PodMemoryUsage | None]],
    settings: EvictionSettings,
    release: Release,
) -> EvictionStep:
    order = eviction_order(pods, release)
    evicted = first_evictable(order)
    grace_period = None
    if evicted is not None:
        hard, soft = _HARD_GRACE.at(release.minor), _SOFT_GRACE.at(release.minor)
        grace_period = (
            hard if reclaiming.hard else soft(settings.max_pod_grace_period, evicted.pod, release)
        )
    return msgspec.structs.replace(
        step,
        reclaiming=reclaiming,
        order=tuple(order),
        evicted=evicted,
        grace_period=grace_period,
    )


def _max_grace(most: int, pod: Pod, release: Release) -> int:
    return most


def _grace_within_pod_limit(most: int, pod: Pod, release: Release) -> int:
    own = pod.spec.termination_grace_period_seconds
    if own is None or release.is_enabled("AllowOverwriteTerminationGracePeriodSeconds"):
        return most
    return min(most, own)


# A hard eviction passed 0, which pod_workers.go took for "not given" and used the pod's own grace
# period; since 1.31 it passes 1 (kubelet eviction_manager.go, immediateEvictionGracePeriodSeconds).
# Since 1.32 a soft eviction grants no more than the pod's own.
_HARD_GRACE: Final = Since({22: 0, 31: 1})
_SOFT_GRACE: Final[Since[Callable[[int, Pod, Release], int]]] = Since(
    {22: _max_grace, 32: _grace_within_pod_limit}
)
