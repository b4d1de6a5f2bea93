"""The risk that a size leaves: the share of days with usage above it, expected and in the past."""

from typing import Final

from memqos.size.history import PeakSlots
from memqos.size.need import need_of

_DAY: Final = 86_400.0
RISK_OF_SCALE: Final = {
    0.0: 20.0,
    0.25: 5.0,
    0.5: 2.6,
    0.75: 1.5,
    1.0: 1.0,
    1.5: 0.7,
    2.0: 0.6,
    3.0: 0.4,
    4.0: 0.3,
}
"""By how much the usual margins may be multiplied, and what that does to the risk."""
_NEW_RISK: Final = 0.04
"""The risk at the start of a history with the usual margins; a day of it halves it. Both are what
came out on the traces of docs/sizing.md, as `bench/size.py` counts it."""
_PAST_WEIGHT: Final = 0.1
"""Trying the rule on the past of a series says little about its future there."""
_CUTS: Final = (0.25, 0.4, 0.55, 0.7, 0.85)
"""Shares of the history after which a recommendation is tried on the rest."""
_FEWEST_SLOTS: Final = 4


def estimated_risk(slots: PeakSlots, scale: float = 1.0) -> float:
    """The share of days above the limit: what a history of this length left to chance on the
    traces, and the same rule tried on the past of this series."""
    days = slots.known_seconds() / _DAY
    past = _violations_in_past(slots, scale)
    return min(1.0, _NEW_RISK / (1 + days) * RISK_OF_SCALE[scale] + _PAST_WEIGHT * past)


def _violations_in_past(slots: PeakSlots, scale: float) -> float:
    """The share of days above what the rule would have recommended earlier."""
    filled = slots.filled()
    start, end = filled[0][0], filled[-1][0] + slots.width
    period = min(_DAY, (end - start) / 12)
    shares = []
    for cut in _CUTS:
        at = start + cut * (end - start)
        before = [each for each in filled if each[0] < at]
        after = [each for each in filled if each[0] >= at]
        if len(before) < _FEWEST_SLOTS or not after:
            continue
        past = PeakSlots(slots.width)
        past.first = slots.first
        past.peaks = slots.peaks[: before[-1][0] // slots.width - past.first + 1]
        level = need_of(past, scale).level
        periods = {int((when - start) / period): False for when, _ in after}
        for when, value in after:
            if value > level:
                periods[int((when - start) / period)] = True
        shares.append(sum(periods.values()) / len(periods))
    return sum(shares) / len(shares) if shares else 0.0


def share_of_days_above(slots: PeakSlots, level: float) -> float:
    """The share of days of a history on which it was above a level."""
    days: dict[int, bool] = {}
    for at, value in slots.filled():
        day = int(at // _DAY)
        days[day] = days.get(day, False) or value > level
    return sum(days.values()) / len(days) if days else 0.0


def share_of_days_evicted(usage: PeakSlots, pressure: PeakSlots, request: float) -> float:
    """The share of days with usage above the request while the node was under memory pressure.

    The kubelet evicts such containers first. Both are known by slots of time, so this is at most.
    """
    width = max(usage.width, pressure.width)
    under_pressure = {at for at, value in pressure.widened(width).filled() if value > 0}
    days: dict[int, bool] = {}
    for at, value in usage.widened(width).filled():
        day = int(at // _DAY)
        days[day] = days.get(day, False) or (value > request and at in under_pressure)
    return sum(days.values()) / len(days) if days else 0.0
