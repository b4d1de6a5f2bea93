"""The order in which a kubelet evicts pods, for people and for scripts."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from memqos.cluster.eviction_blame import Blame
from memqos.cluster.eviction_rank import Key, Ranked
from memqos.cluster.eviction_relief import Misled, enough, misled, reliefs
from memqos.cluster.eviction_signals import Reading
from memqos.draw.amounts import brief_bytes, counted
from memqos.draw.table import short, table
from memqos.kube.pod import Pod, QosClass
from memqos.kube.quantity import Quantity
from memqos.kube.resources import MEMORY, spelled, whole

_SHOWN_MISLED: Final = 5
_SAYS: Final[dict[Key, str]] = {
    "no stats": "nobody knows what it uses",
    "over request": "it uses more than it requests",
    "priority": "its priority is lower",
    "excess": "it uses more above its request",
    "input order": "nothing tells them apart",
}


class Evicting(msgspec.Struct, frozen=True):
    """An order of eviction, and what it rests on."""

    order: tuple[Ranked, ...]
    classes: tuple[QosClass, ...]
    """Of the pods, in this order."""
    need: int | None
    """Bytes to be freed; None where nobody said."""
    readings: tuple[Reading, ...] = ()
    blame: Blame | None = None
    """What the event about the first one would name."""
    notes: tuple[str, ...] = ()


def name_of(pod: Pod) -> str:
    """namespace/name."""
    return f"{pod.metadata.namespace or 'default'}/{pod.metadata.name or '(unnamed)'}"


def evicting(found: Evicting) -> list[str]:
    """Every pod with the numbers that decided its place, and how far eviction goes."""
    rows = [["", "pod", "class", "priority", "request", "uses", "over", "freed", "ahead by"]]
    place = 0
    for relief, qos in zip(reliefs(found.order), found.classes, strict=True):
        ranked = relief.ranked
        place += not ranked.critical
        excess = ranked.excess
        rows.append(
            [
                "–" if ranked.critical else str(place),
                name_of(ranked.pod),
                qos,
                str(ranked.priority),
                short(whole(ranked.request)),
                "?" if ranked.usage is None else short(ranked.usage),
                "?" if excess is None else brief_bytes(excess),
                "critical" if ranked.critical else short(relief.freed),
                ranked.ahead_by or "",
            ]
        )
    lines = table(rows, left=3) if found.order else ["no pod to evict"]
    for section in (_how_far(found), _misleading(found)):
        said = list(section)
        lines += ["", *said] if said else []
    return lines


def _how_far(found: Evicting) -> Iterator[str]:
    if found.need is None or not found.order:
        return
    count = enough(found.order, found.need)
    if count is not None:
        yield (
            f"{short(found.need)} is needed: free after {counted(count, 'eviction')}, "
            "one at a time and measured anew after each"
        )
        return
    *_, last = reliefs(found.order)
    yield f"{short(found.need)} is needed: all that may be evicted frees {short(last.freed)}"


def _misleading(found: Evicting) -> Iterator[str]:
    pairs = list(misled(found.order, found.classes))
    if not pairs:
        return
    classes = {id(ranked): qos for ranked, qos in zip(found.order, found.classes, strict=True)}
    yield "The documented order, BestEffort, Burstable, Guaranteed, would mislead:"
    for pair in pairs[:_SHOWN_MISLED]:
        yield (
            f"  {name_of(pair.first.pod)} is {classes[id(pair.first)]} but goes before "
            f"{name_of(pair.then.pod)}, {classes[id(pair.then)]}: {_SAYS[pair.because]}"
        )
    if len(pairs) > _SHOWN_MISLED:
        yield f"  … {len(pairs) - _SHOWN_MISLED} more: -o json lists all"


def readings_lines(readings: Sequence[Reading]) -> Iterator[str]:
    """Each threshold on memory against what was observed."""
    for reading in readings:
        threshold, seen, limit = reading.threshold, reading.observation, reading.limit
        kind = "hard" if threshold.hard else "soft"
        if seen is None or limit is None:
            yield f"{threshold.signal} ({kind}): not observed"
            continue
        met = "met" if reading.met else "not met"
        yield (
            f"{threshold.signal} ({kind}): {brief_bytes(seen.available)} of "
            f"{short(seen.capacity)} available, threshold {_bytes(limit)}: {met}"
        )


def _bytes(quantity: Quantity) -> str:
    return brief_bytes(quantity.value)


def evicting_reasons(found: Evicting) -> list[str]:
    """The keys of every pod, in their order."""
    lines = ["", "why"]
    for ranked in found.order:
        lines.append(f"  {name_of(ranked.pod)}: {_keys(ranked)}")
        if ranked.critical:
            lines.append("    never evicted: a static pod, or one with a system priority")
    first = next((ranked for ranked in found.order if not ranked.critical), None)
    if first is not None and found.blame is not None and found.blame.containers:
        named = ", ".join(f"{name} with {short(used)}" for name, used in found.blame.containers)
        lines.append(f"  the event about {name_of(first.pod)} names {named}: above their request")
    return lines


def _keys(ranked: Ranked) -> str:
    if ranked.usage is None:
        told = f"no statistics, so first; priority {ranked.priority}"
    else:
        request, excess = short(whole(ranked.request)), ranked.excess
        assert excess is not None
        over = f"over request by {short(excess)}" if excess > 0 else "not over request"
        told = (
            f"uses {short(ranked.usage)}, requests {request}: {over}; "
            f"priority {ranked.priority}; excess {brief_bytes(excess)}"
        )
    if ranked.ahead_by is None:
        return f"{told}; the last"
    return f"{told}; ahead of the next by {ranked.ahead_by}"


def evicting_data(found: Evicting, *, why: bool) -> dict[str, Any]:
    """All of it as plain data, amounts in bytes."""
    data: dict[str, Any] = {
        "need": found.need,
        "enoughAfter": None if found.need is None else enough(found.order, found.need),
        "notes": list(found.notes),
        "thresholds": [_reading(reading) for reading in found.readings],
        "order": [
            {
                "pod": name_of(relief.ranked.pod),
                "qosClass": qos,
                "critical": relief.ranked.critical,
                "priority": relief.ranked.priority,
                "request": spelled(MEMORY, relief.ranked.request),
                "usage": relief.ranked.usage,
                "excess": relief.ranked.excess,
                "overRequest": relief.ranked.over_request,
                "aheadBy": relief.ranked.ahead_by,
                "frees": relief.frees,
                "freed": relief.freed,
            }
            for relief, qos in zip(reliefs(found.order), found.classes, strict=True)
        ],
        "misledByClass": [_pair(pair) for pair in misled(found.order, found.classes)],
    }
    if why:
        data["why"] = [line.strip() for line in evicting_reasons(found)[2:]]
    return data


def _pair(pair: Misled) -> dict[str, Any]:
    return {
        "first": name_of(pair.first.pod),
        "then": name_of(pair.then.pod),
        "because": pair.because,
    }


def _reading(reading: Reading) -> dict[str, Any]:
    seen, limit = reading.observation, reading.limit
    return {
        "signal": reading.threshold.signal,
        "hard": reading.threshold.hard,
        "available": None if seen is None else seen.available,
        "capacity": None if seen is None else seen.capacity,
        "threshold": None if limit is None else limit.value,
        "met": reading.met,
    }
