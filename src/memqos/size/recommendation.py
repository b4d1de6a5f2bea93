"""A request and a limit for a container, the reason for each number, and the risk that remains."""

from collections.abc import Iterator, Sequence
from typing import Final, Literal

import msgspec

from memqos.size.history import ContainerHistory, PeakSlots, SeriesHistory, SeriesName, sum_of_slots
from memqos.size.need import FEWEST_SAMPLES, Need, need_of
from memqos.units import duration_words, format_bytes, format_time, pluralize

Sureness = Literal["none", "low", "medium", "high"]

_MIB: Final = 1 << 20
_DAY: Final = 86_400.0
_SMALLEST: Final = 64 << 10
"""Bytes: no process runs in less, so a smaller peak is in another unit."""
_RISK_OF_SCALE: Final = {
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
_CLOCK: Final = 10_000_000.0
"""Seconds: an earlier time is counted from the start of a trace, not from 1970."""
_NEAR_LIMIT: Final = 0.97
_BEYOND_LIMIT: Final = 1.25
_LONG_INTERVAL: Final = 60.0
_SHORT_GAP: Final = 600.0


class SizeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How careful to be. At most one of `risk` and `slack` is set."""

    guaranteed: bool = False
    risk: float | None = None
    """The largest share of days above the limit."""
    slack: float | None = None
    """The largest share of the limit that is not used on average."""


class Recommendation(msgspec.Struct, frozen=True, kw_only=True):
    """What one series should request; None where nothing can be said, with the reason."""

    name: SeriesName
    request: int | None = None
    limit: int | None = None
    risk: float | None = None
    """The share of days on which usage is expected above the limit."""
    slack: float | None = None
    """The share of the limit that was not used on average."""
    sureness: Sureness = "none"
    reasons: tuple[str, ...]
    notes: tuple[str, ...] = ()
    need: Need | None = None
    samples: int = 0
    mean: float = 0.0
    decides: str = ""
    days_to_limit: float | None = None
    """When a level that rises reaches the limit."""


def recommend(history: ContainerHistory, options: SizeOptions) -> Recommendation:
    """The recommendation for a container."""
    basis = history.need
    why_not = _why_nothing(basis)
    notes = tuple(_data_notes(history, basis))
    if why_not is not None:
        return Recommendation(
            name=history.name, reasons=(why_not,), notes=notes, samples=basis.count
        )
    scale, about_scale = _chosen_scale(basis, options)
    need, risk = need_of(basis.slots, scale), estimated_risk(basis.slots, scale)
    level, about_kills = _level_beyond_kills(history, need)
    limit = round_up(level)
    request = limit if options.guaranteed else _usual_request(basis.slots, need, limit)
    usual = basis.slots.filled()[-1][1]
    return Recommendation(
        name=history.name,
        request=request,
        limit=limit,
        risk=risk,
        slack=max(0.0, 1 - basis.mean / limit),
        sureness=_sureness(need, risk, basis),
        reasons=(*_need_reasons(need), *about_kills, *about_scale),
        notes=(*notes, *_rhythm_note(basis.slots)),
        need=need,
        samples=basis.count,
        mean=basis.mean,
        decides=history.decides,
        days_to_limit=max(0.0, (limit - usual) / need.slope) if need.slope > 0 else None,
    )


def recommend_for_pod(
    histories: Sequence[ContainerHistory], options: SizeOptions
) -> tuple[int, int] | None:
    """Pod-level request and limit of containers that peak at different times.

    None where they peak together, so that a sum of their own requests is as good.
    """
    bases = [each.need for each in histories]
    if len(bases) < 2 or any(_why_nothing(each) for each in bases):
        return None
    own = [recommend(each, options) for each in histories]
    together = sum_of_slots([each.slots for each in bases])
    need = need_of(together)
    limit = round_up(need.level)
    if limit >= 0.95 * sum(each.limit or 0 for each in own):
        return None
    return (limit if options.guaranteed else _usual_request(together, need, limit)), limit


def estimated_risk(slots: PeakSlots, scale: float = 1.0) -> float:
    """The share of days above the limit: what a history of this length left to chance on the
    traces, and the same rule tried on the past of this series."""
    filled = slots.filled()
    days = (filled[-1][0] - filled[0][0] + slots.width) / _DAY
    past = _violations_in_past(slots, scale)
    return min(1.0, _NEW_RISK / (1 + days) * _RISK_OF_SCALE[scale] + _PAST_WEIGHT * past)


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


def round_up(amount: float) -> int:
    """Bytes in whole MiB."""
    return -int(-amount // _MIB) * _MIB


def _why_nothing(basis: SeriesHistory) -> str | None:
    if not basis.count:
        return "there is no sample that can be used"
    if basis.count < FEWEST_SAMPLES:
        return f"{pluralize(basis.count, 'sample')}: too few to tell a level from a moment"
    peak = max(peak for _, peak in basis.slots.filled())
    if not peak:
        return "usage is 0 in every sample: was the container running?"
    if peak < _SMALLEST:
        return f"the largest value is {peak:g}: usage must be in bytes"
    return None


def _chosen_scale(basis: SeriesHistory, options: SizeOptions) -> tuple[float, tuple[str, ...]]:
    """How much of the usual margins to add."""
    if options.risk is not None:
        for scale in _RISK_OF_SCALE:
            if estimated_risk(basis.slots, scale) <= options.risk:
                return scale, (f"margins × {scale:g} for a risk of {options.risk:.1%} of days",)
        return max(_RISK_OF_SCALE), (
            f"no margin brings the risk down to {options.risk:.1%}: the history is too short or "
            "too uneven",
        )
    if options.slack is not None:
        fitting = [
            scale
            for scale in _RISK_OF_SCALE
            if 1 - basis.mean / round_up(need_of(basis.slots, scale).level) <= options.slack
        ]
        if fitting:
            return fitting[-1], (f"margins × {fitting[-1]:g} for a slack of {options.slack:.0%}",)
        return 0.0, (f"the peaks alone leave more than {options.slack:.0%} unused",)
    return 1.0, ()


def _usual_request(slots: PeakSlots, need: Need, limit: int) -> int:
    """What nine of ten slots stay below, with the margin of the limit."""
    peaks = sorted(value for _, value in slots.filled())
    usual = peaks[min(len(peaks) - 1, len(peaks) * 9 // 10)]
    return min(limit, round_up(usual + need.level - need.aged_peak))


def _level_beyond_kills(history: ContainerHistory, need: Need) -> tuple[float, tuple[str, ...]]:
    """The level, raised where a limit has cut off what would have been used."""
    limit, kills = history.limit, history.rises("kills")
    if limit is None or need.peak < _NEAR_LIMIT * limit:
        return need.level, ()
    cut_off = f"usage came up to the limit of {format_bytes(int(limit))}"
    if not kills:
        return need.level, (f"{cut_off}: more may have been needed",)
    return max(need.level, _BEYOND_LIMIT * limit), (
        f"{cut_off} and {pluralize(kills, 'kill')} cut it off: a quarter above that limit",
    )


def _need_reasons(need: Need) -> Iterator[str]:
    yield f"peak {_amount(need.peak)} {_moment(need.peak_at)}"
    if need.aged_peak < need.peak:
        yield (
            f"counted as {_amount(need.aged_peak)}: nothing came near the peak in the newer half"
        )
    yield f"+ {_amount(need.margin)} margin for {_length(need.days)} of history"
    if need.record_growth >= _MIB:
        yield f"+ {_amount(need.record_growth)} as peaks grew in the newer half"
    if need.trend_growth >= _MIB:
        kind = "and slows down: a warm-up" if need.growth == "warm-up" else "and goes on: a leak?"
        rate = (
            f"{_amount(need.slope)} a day"
            if need.days >= 1
            else (f"{_amount(need.slope / 24)} an hour")
        )
        yield f"+ {_amount(need.trend_growth)} as the usual level rises by {rate} {kind}"


def _data_notes(history: ContainerHistory, basis: SeriesHistory) -> Iterator[str]:
    faults = basis.faults
    for count, what in (
        (faults.invalid, "no amount of memory (NaN, negative or too large)"),
        (faults.unplaced, "at a time that is not in seconds since 1970 or since the start"),
        (faults.duplicate, "a second value for the same time: the larger one counts"),
        (faults.backward, "earlier than the one before: a clock was set back, or series overlap"),
    ):
        if count:
            yield f"{pluralize(count, 'sample')}: {what}"
    if not basis.count:
        return
    values = [value for _, value in basis.slots.filled() if value]
    if values and max(values) > 100_000 * min(values):
        yield f"values from {min(values):g} to {max(values):g}: are units mixed?"
    if basis.span < _DAY:
        yield f"{_length(basis.span / _DAY)} of history: shorter than a day, whose peaks may differ"
    gap = basis.longest_gap()
    if gap > max(_SHORT_GAP, 10 * basis.interval):
        yield f"nothing is known of up to {duration_words(int(gap * 1000))} at a time"
    if basis.interval >= _LONG_INTERVAL:
        every = duration_words(int(basis.interval * 1000))
        yield f"a sample every {every} hides shorter peaks"
    restarts = history.rises("restarts")
    if restarts:
        yield f"{pluralize(restarts, 'restart')}"


def _rhythm_note(slots: PeakSlots) -> Iterator[str]:
    """A daily rhythm, where most days peak at the same hour."""
    filled = slots.filled()
    if filled[0][0] < _CLOCK or slots.width > 2 * 3600 or filled[-1][0] - filled[0][0] < 3 * _DAY:
        return
    daily: dict[int, tuple[float, int]] = {}
    for at, value in filled:
        day = int(at // _DAY)
        daily[day] = max(daily.get(day, (0.0, 0)), (value, int(at % _DAY // 3600)))
    hours = [hour for _, hour in daily.values()]
    best = max(set(hours), key=lambda hour: sum(_is_near(hour, each) for each in hours))
    if sum(_is_near(best, each) for each in hours) >= 0.7 * len(hours):
        yield f"daily rhythm: the peak comes around {best:02}:00 UTC"


def _is_near(hour: int, other: int) -> bool:
    return (hour - other) % 24 in (0, 1, 23)


def _sureness(need: Need, risk: float, basis: SeriesHistory) -> Sureness:
    if need.days < 1 or basis.faults.total > 0.1 * basis.count:
        return "low"
    return "high" if need.days >= 7 and risk <= 0.01 and need.growth == "none" else "medium"


def _amount(amount: float) -> str:
    return format_bytes(round(amount / _MIB) * _MIB if amount >= _MIB else int(amount))


def _moment(at: float) -> str:
    return f"at {format_time(int(at * 1000))}" if at >= _CLOCK else f"after {_length(at / _DAY)}"


def _length(days: float) -> str:
    return f"{days:.1f} days" if days >= 1 else f"{days * 24:.1f} h"
