"""How much memory a series will need: its peak, aged, with margins for what is not known yet.

The margin is full for the first day, in which not every hour of a day has been seen, and shrinks
with the square of the days after that. It rises with growth: records that were set late, and a
level that keeps rising. Decision 34 says why the rule has this form, and docs/sizing.md what it
comes to on traces; `bench/size.py` computes that.
"""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from memqos.size.history import PeakSlots

_DAY: Final = 86_400.0
_MIB: Final = 1 << 20

_STEADY_MARGIN: Final = 0.02
_NEW_MARGIN: Final = 0.135
"""Shares of the peak: the first always, the second for a new history; half of it after a day."""
_STEADY_PAD: Final = 8 * _MIB
_NEW_PAD: Final = 40 * _MIB
"""The same in bytes: what small containers need beyond a share."""
_FIRST_DAY_LEVEL: Final = 128 * _MIB
"""At least this before a day is known: what a small container does at its busiest hour, or when
someone opens a shell in it, has nothing to do with what it uses when idle."""
_RECORD_WEIGHT: Final = 0.35
_TREND_WEIGHT: Final = 0.25
_MOST_GROWTH: Final = 0.5
_AGEING: Final = 0.2
"""The share that the oldest peak loses if nothing came near it in the newer half. No more, as a
history of a few days does not show the rhythm of a week."""

GrowthKind = Literal["none", "warm-up", "growing", "jumps"]


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """What the next days will need, in bytes, and what it is made of."""

    level: float
    peak: float
    peak_at: float
    aged_peak: float
    margin: float
    """Bytes for what a history of this length does not show."""
    record_growth: float
    trend_growth: float
    """Bytes for records that were set late, and for a level that rises."""
    minimum: float
    """Bytes up to the least level for a history shorter than a day; 0 where more is known."""
    growth: GrowthKind
    slope: float
    """Bytes a day by which the usual level rises; 0 where it does not."""
    days: float
    """Days of history, without gaps."""


def need_of(slots: PeakSlots, scale: float = 1.0) -> Need:
    """The need that a history shows; `scale` multiplies all that is added to its peaks."""
    filled = slots.filled()
    start = filled[0][0]
    span = filled[-1][0] - start + slots.width
    peak_at, peak = max(filled, key=lambda each: each[1])
    aged = max(value * _age_weight(at, start, span) for at, value in filled)
    days = slots.known_seconds() / _DAY
    newness = 1 / (1 + days * days)
    margin = aged * (_STEADY_MARGIN + _NEW_MARGIN * newness) + _STEADY_PAD + _NEW_PAD * newness
    records = _late_records(filled, start, span, peak)
    quarters = _usual_levels(filled, start, span)
    trend = _trend(quarters) / peak if peak else 0.0
    record_growth = aged * _RECORD_WEIGHT * min(records, _MOST_GROWTH)
    trend_growth = aged * _TREND_WEIGHT * min(trend, _MOST_GROWTH)
    added = margin + record_growth + trend_growth
    minimum = max(0.0, _FIRST_DAY_LEVEL - aged - added) if days < 1 else 0.0
    return Need(
        level=aged + scale * (added + minimum),
        peak=peak,
        peak_at=float(peak_at),
        aged_peak=aged,
        margin=scale * margin,
        record_growth=scale * record_growth,
        trend_growth=scale * trend_growth,
        minimum=scale * minimum,
        growth=_growth_kind(quarters, peak, trend, records),
        slope=_slope(quarters, span) if trend > 0 else 0.0,
        days=days,
    )


def _age_weight(at: float, start: float, span: float) -> float:
    """1 in the newer half and for the last day; falls towards the start of the history."""
    age = start + span - at
    if age <= _DAY:
        return 1.0
    return 1 - _AGEING * max(0.0, 2 * age / span - 1)


def _late_records(
    filled: Sequence[tuple[int, float]], start: float, span: float, peak: float
) -> float:
    """By how much the peak exceeds that of the first half, or twice that of three quarters."""

    def growth_since(share: float) -> float:
        before = max(
            (value for at, value in filled if at - start < share * span), default=filled[0][1]
        )
        return peak / max(before, 1.0) - 1

    return max(growth_since(0.5), 2 * growth_since(0.75))


def _usual_levels(filled: Sequence[tuple[int, float]], start: float, span: float) -> list[float]:
    """The median peak of each quarter of the time; 0 where it has no samples."""
    quarters: list[list[float]] = [[], [], [], []]
    for at, value in filled:
        quarters[min(3, int(4 * (at - start) / span))].append(value)
    return [_median(each) for each in quarters]


def _trend(quarters: Sequence[float]) -> float:
    """How much the usual level still rises in as long a time again.

    A rise that slows down keeps slowing down: a cache that fills, a program that warms up.
    """
    before, last = quarters[2] - quarters[1], quarters[3] - quarters[2]
    if before <= 0 or last <= 0 or not quarters[1]:
        return 0.0
    ratio = min(1.0, last / before)
    return last * sum(ratio**step for step in range(1, 5))


def _slope(quarters: Sequence[float], span: float) -> float:
    return (quarters[3] - quarters[1]) / (span / 2 / _DAY)


def _growth_kind(
    quarters: Sequence[float], peak: float, trend: float, records: float
) -> GrowthKind:
    if trend > 0.02:
        before, last = quarters[2] - quarters[1], quarters[3] - quarters[2]
        return "warm-up" if last < 0.6 * before else "growing"
    return "jumps" if records > 0.05 and peak else "none"


def _median(values: list[float]) -> float:
    if not values:
        return 0.0
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
