"""The order in which a kubelet evicts pods, as text and as data."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from memqos.cluster.eviction_loop import EvictionStep, SimulatedStep
from memqos.cluster.eviction_order import (
    EvictionKey,
    OffendingUsage,
    QosInversion,
    RankedPod,
    evictions_needed,
    memory_freed,
    qos_inversions,
)
from memqos.cluster.eviction_signals import ThresholdReading, node_conditions
from memqos.cluster.pressure_admission import PressureAdmission, PressureReason
from memqos.draw.text.lines import Line, Table
from memqos.kube.duration import SECOND
from memqos.kube.kubelet.thresholds import MEMORY_AVAILABLE, NodeCondition, Threshold
from memqos.kube.pod import Pod, QosClass
from memqos.kube.resources import MEMORY, format_amount, whole
from memqos.units import duration_words, format_bytes, pluralize

_SHOWN_MISLED: Final = 5
_DROP: Final = {"ahead by": 8, "freed": 7, "request": 4, "class": 2}
_KEY_WORDS: Final[dict[EvictionKey, str]] = {
    "no stats": "its usage is unknown",
    "over request": "it uses more than it requests",
    "priority": "its priority is lower",
    "excess": "it uses more above its request",
    "input order": "they rank equal",
}


class AdmittedUnderPressure(NamedTuple):
    """A new pod, and whether the kubelet admits it."""

    label: str
    admission: PressureAdmission


class EvictionReport(msgspec.Struct, frozen=True):
    """An order of eviction, and the facts it follows from."""

    order: tuple[RankedPod, ...]
    classes: tuple[QosClass, ...]
    """Of the pods, in this order."""
    need: int | None
    """Bytes to be freed; None where that is not given."""
    readings: tuple[ThresholdReading, ...] = ()
    blame: OffendingUsage | None = None
    """What the event about the first one would name."""
    notes: tuple[str, ...] = ()
    simulation: tuple[SimulatedStep, ...] = ()
    admissions: tuple[AdmittedUnderPressure, ...] = ()

    @property
    def conditions(self) -> list[NodeCondition]:
        """What the node reports, by the thresholds that are met now."""
        return node_conditions(each.threshold for each in self.readings if each.met)


def full_pod_name(pod: Pod) -> str:
    """namespace/name."""
    return f"{pod.metadata.namespace or 'default'}/{pod.metadata.name or '(unnamed)'}"


def eviction_text(found: EvictionReport) -> list[Line]:
    """Every pod with the numbers that decided its place, and how far eviction goes."""
    rows = [["", "pod", "class", "priority", "request", "uses", "over", "freed", "ahead by"]]
    place = 0
    for relief, qos in zip(memory_freed(found.order), found.classes, strict=True):
        ranked = relief.ranked
        place += not ranked.critical
        excess = ranked.excess
        rows.append(
            [
                "–" if ranked.critical else str(place),
                full_pod_name(ranked.pod),
                qos,
                str(ranked.priority),
                format_bytes(whole(ranked.request)),
                "?" if ranked.usage is None else format_bytes(ranked.usage),
                "?" if excess is None else format_bytes(excess),
                "critical" if ranked.critical else format_bytes(relief.freed),
                ranked.ahead_by or "",
            ]
        )
    lines: list[Line] = [Table(rows, left=3, drop=_DROP) if found.order else "no pod to evict"]
    for section in (_need_lines(found), _misleading_lines(found)):
        added = list(section)
        lines += ["", *added] if added else []
    return lines


def _need_lines(found: EvictionReport) -> Iterator[str]:
    if found.need is None or not found.order:
        return
    count = evictions_needed(found.order, found.need)
    if count is not None:
        yield (
            f"{format_bytes(found.need)} is needed: freed after {pluralize(count, 'eviction')}, "
            "one at a time, with a new measurement after each"
        )
        return
    *_, last = memory_freed(found.order)
    yield (
        f"{format_bytes(found.need)} is needed: evicting all candidates frees "
        f"{format_bytes(last.freed)}"
    )


def _misleading_lines(found: EvictionReport) -> Iterator[str]:
    pairs = list(qos_inversions(found.order, found.classes))
    if not pairs:
        return
    classes = {id(ranked): qos for ranked, qos in zip(found.order, found.classes, strict=True)}
    yield "The documented order, BestEffort, Burstable, Guaranteed, would mislead:"
    for pair in pairs[:_SHOWN_MISLED]:
        yield (
            f"  {full_pod_name(pair.first.pod)} is {classes[id(pair.first)]} but goes before "
            f"{full_pod_name(pair.then.pod)}, {classes[id(pair.then)]}: {_KEY_WORDS[pair.because]}"
        )
    if len(pairs) > _SHOWN_MISLED:
        yield f"  … {len(pairs) - _SHOWN_MISLED} more: -o json lists all"


def threshold_lines(readings: Sequence[ThresholdReading]) -> Iterator[str]:
    """Each threshold on memory against what was observed."""
    for reading in readings:
        threshold, observed, limit = reading.threshold, reading.observation, reading.limit
        kind = "hard" if threshold.hard else "soft"
        if observed is None or limit is None:
            yield f"{threshold.signal} ({kind}): not observed"
            continue
        met = "met" if reading.met else "not met"
        capacity = f" of {format_bytes(observed.capacity)}" if observed.capacity_known else ""
        yield (
            f"{threshold.signal} ({kind}): {format_bytes(observed.available)}{capacity} available, "
            f"threshold {format_bytes(limit.value)}: {met}"
        )


def simulation_text(steps: Sequence[SimulatedStep]) -> list[Line]:
    """Each step in which something changes: when, what is available, and what the kubelet does."""
    rows = [["after", "available", "condition", ""]]
    for at, observations, step in steps:
        seen = observations.get(MEMORY_AVAILABLE)
        rows.append(
            [
                "now" if not at else duration_words(at * 1000 // SECOND),
                "?" if seen is None else format_bytes(seen.available),
                " ".join(step.conditions) or "–",
                _step_words(step),
            ]
        )
    lines: list[Line] = ["If usage of the pods stays the same:", Table(rows, left=4)]
    last = steps[-1].step
    if last.met and last.evicted is None:
        lines.append("no pod is left to evict: the kernel OOM-kills next (memqos rank oom)")
    return lines


def _step_words(step: EvictionStep) -> str:
    if step.evicted is not None and step.reclaiming is not None:
        kind = "hard" if step.reclaiming.hard else "soft"
        grace = f"grace period {step.grace_period} s" if step.grace_period else "its grace period"
        usage = step.evicted.usage
        frees = "an unknown amount" if usage is None else format_bytes(usage)
        return (
            f"evicts {full_pod_name(step.evicted.pod)} for {step.reclaiming.signal} ({kind}), "
            f"{grace}: frees {frees}"
        )
    if step.met:
        return "the threshold is still met"
    if step.waiting:
        longest = max(each.grace_period for each in step.waiting)
        grace = duration_words(longest * 1000 // SECOND)
        return f"the soft threshold is met: evicts after {grace}"
    if step.conditions:
        return "no threshold is met; the condition stays for the transition period"
    return "no pressure"


_ADMISSION_WORDS: Final[dict[PressureReason, str]] = {
    "no pressure": "the node is not under pressure",
    "critical": "it is critical: a static pod, or one with a system priority",
    "not BestEffort": "it is not BestEffort, and only memory is under pressure",
    "tolerates memory pressure": "it tolerates node.kubernetes.io/memory-pressure",
    "BestEffort under memory pressure": "BestEffort under memory pressure – request memory",
    "pressure other than memory": "not only memory is under pressure: only critical pods are "
    "admitted",
}


def pressure_admission_text(found: EvictionReport) -> list[Line]:
    """The verdict on each new pod."""
    conditions = " and ".join(found.conditions) or "no pressure"
    rows = [["new pod", "class", "", ""]]
    for label, admission in found.admissions:
        verdict = "admitted" if admission.admitted else f"refused ({admission.reason})"
        rows.append([label, admission.qos, verdict, _ADMISSION_WORDS[admission.because]])
    return [f"The kubelet, under {conditions}:", Table(rows, left=4)]


def eviction_reasons(found: EvictionReport) -> list[str]:
    """The keys of every pod, in their order."""
    lines = ["", "why"]
    for ranked in found.order:
        lines.append(f"  {full_pod_name(ranked.pod)}: {_rank_words(ranked)}")
        if ranked.critical:
            lines.append("    never evicted: a static pod, or one with a system priority")
    first = next((ranked for ranked in found.order if not ranked.critical), None)
    if first is not None and found.blame is not None and found.blame.containers:
        named = ", ".join(
            f"{name} with {format_bytes(used)}" for name, used in found.blame.containers
        )
        lines.append(
            f"  the event about {full_pod_name(first.pod)} names {named}: above their request"
        )
    return lines


def _rank_words(ranked: RankedPod) -> str:
    if ranked.usage is None:
        words = f"no statistics, so it is first; priority {ranked.priority}"
    else:
        request, excess = format_bytes(whole(ranked.request)), ranked.excess
        assert excess is not None
        over = f"over request by {format_bytes(excess)}" if excess > 0 else "not over request"
        words = (
            f"uses {format_bytes(ranked.usage)}, requests {request}: {over}; "
            f"priority {ranked.priority}; excess {format_bytes(excess)}"
        )
    if ranked.ahead_by is None:
        return f"{words}; the last"
    return f"{words}; ahead of the next by {ranked.ahead_by}"


def eviction_data(found: EvictionReport, *, why: bool) -> dict[str, Any]:
    """All of it as plain data, amounts in bytes."""
    data: dict[str, Any] = {
        "need": found.need,
        "enoughAfter": None if found.need is None else evictions_needed(found.order, found.need),
        "notes": list(found.notes),
        "thresholds": [_reading_data(reading) for reading in found.readings],
        "order": [
            {
                "pod": full_pod_name(relief.ranked.pod),
                "qosClass": qos,
                "critical": relief.ranked.critical,
                "priority": relief.ranked.priority,
                "request": format_amount(MEMORY, relief.ranked.request),
                "usage": relief.ranked.usage,
                "excess": relief.ranked.excess,
                "overRequest": relief.ranked.over_request,
                "aheadBy": relief.ranked.ahead_by,
                "frees": relief.frees,
                "freed": relief.freed,
            }
            for relief, qos in zip(memory_freed(found.order), found.classes, strict=True)
        ],
        "misledByClass": [
            _misled_data(pair) for pair in qos_inversions(found.order, found.classes)
        ],
    }
    if found.simulation:
        data["simulation"] = [_step_data(each) for each in found.simulation]
    if found.admissions:
        data["conditions"] = found.conditions
        data["admission"] = [
            {
                "pod": label,
                "qosClass": admission.qos,
                "critical": admission.critical,
                "admitted": admission.admitted,
                "reason": admission.reason,
                "because": admission.because,
            }
            for label, admission in found.admissions
        ]
    if why:
        data["why"] = [line.strip() for line in eviction_reasons(found)[2:]]
    return data


def _step_data(simulated: SimulatedStep) -> dict[str, Any]:
    step = simulated.step
    return {
        "afterSeconds": simulated.at / SECOND,
        "available": {signal: seen.available for signal, seen in simulated.available.items()},
        "conditions": list(step.conditions),
        "met": [_threshold_name(each) for each in step.met],
        "waiting": [_threshold_name(each) for each in step.waiting],
        "evicted": None if step.evicted is None else full_pod_name(step.evicted.pod),
        "gracePeriodSeconds": step.grace_period,
        "frees": None if step.evicted is None else step.evicted.usage,
    }


def _threshold_name(threshold: Threshold) -> str:
    return f"{threshold.signal} ({'hard' if threshold.hard else 'soft'})"


def _misled_data(pair: QosInversion) -> dict[str, Any]:
    return {
        "first": full_pod_name(pair.first.pod),
        "then": full_pod_name(pair.then.pod),
        "because": pair.because,
    }


def _reading_data(reading: ThresholdReading) -> dict[str, Any]:
    observed, limit = reading.observation, reading.limit
    return {
        "signal": reading.threshold.signal,
        "hard": reading.threshold.hard,
        "available": None if observed is None else observed.available,
        "capacity": observed.capacity if observed is not None and observed.capacity_known else None,
        "threshold": None if limit is None else limit.value,
        "met": reading.met,
    }
