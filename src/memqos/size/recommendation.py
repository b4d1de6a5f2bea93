"""A request and a limit for a container, the reason for each number, and the risk that remains."""

from collections.abc import Iterator, Sequence
from typing import Final, Literal

import msgspec

from memqos.size.history import (
    FEWEST_SAMPLES,
    SHORT_GAP,
    ContainerHistory,
    PeakSlots,
    SeriesHistory,
    SeriesName,
    sum_of_slots,
)
from memqos.size.need import Need, need_of
from memqos.size.risk import RISK_OF_SCALE, estimated_risk
from memqos.units import duration_words, format_bytes, format_estimate, format_time, pluralize

Sureness = Literal["none", "low", "medium", "high"]

_MIB: Final = 1 << 20
_DAY: Final = 86_400.0
_SMALLEST: Final = 64 << 10
"""Bytes: no process runs in less, so a smaller peak is in another unit."""
_CLOCK: Final = 10_000_000.0
"""Seconds: an earlier time is counted from the start of a trace, not from 1970."""
_NEAR_LIMIT: Final = 0.97
_BEYOND_LIMIT: Final = 1.25
_LONG_INTERVAL: Final = 60.0


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
    scale, about_scale = _chosen_scale(basis.slots, basis.mean, options)
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
        days_to_limit=_days_to_limit(need, limit, usual),
    )


def _days_to_limit(need: Need, limit: int, usual: float) -> float | None:
    """None where it does not grow: the slope of a daily rhythm is no rate, and a warm-up ends."""
    if need.growth in ("none", "warm-up") or need.slope <= 0:
        return None
    return max(0.0, (limit - usual) / need.slope)


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
    scale, _ = _chosen_scale(together, sum(each.mean for each in bases), options)
    need = need_of(together, scale)
    limit = round_up(need.level)
    if limit >= 0.95 * sum(each.limit or 0 for each in own):
        return None
    return (limit if options.guaranteed else _usual_request(together, need, limit)), limit


def round_up(amount: float) -> int:
    """Bytes in whole MiB."""
    return -int(-amount // _MIB) * _MIB


def _why_nothing(basis: SeriesHistory) -> str | None:
    if not basis.count:
        return "there is no sample that can be used"
    if basis.count < FEWEST_SAMPLES:
        return f"{pluralize(basis.count, 'sample')}: too few for a recommendation"
    peak = max(peak for _, peak in basis.slots.filled())
    if not peak:
        return "usage is 0 in every sample: check that the container was running"
    if peak < _SMALLEST:
        return f"the largest value is {peak:g}: usage must be in bytes"
    return None


def _chosen_scale(
    slots: PeakSlots, mean: float, options: SizeOptions
) -> tuple[float, tuple[str, ...]]:
    """How much of the usual margins to add."""
    if options.risk is not None:
        for scale in RISK_OF_SCALE:
            if estimated_risk(slots, scale) <= options.risk:
                return scale, (f"margins × {scale:g} for a risk of {options.risk:.1%} of days",)
        return max(RISK_OF_SCALE), (
            f"no margin brings the risk down to {options.risk:.1%}: the history is too short or "
            "too uneven",
        )
    if options.slack is not None:
        fitting = [
            scale
            for scale in RISK_OF_SCALE
            if 1 - mean / round_up(need_of(slots, scale).level) <= options.slack
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
        f"{cut_off} and {pluralize(kills, 'kill')} cut it off: the recommendation is a quarter "
        f"above that limit",
    )


def _need_reasons(need: Need) -> Iterator[str]:
    yield f"peak {format_estimate(need.peak)} {_moment(need.peak_at)}"
    if need.aged_peak < need.peak:
        aged = format_estimate(need.aged_peak)
        yield f"counted as {aged}: nothing came near the peak in the newer half"
    yield f"+ {format_estimate(need.margin)} margin for {_length(need.days)} of history"
    if need.record_growth >= _MIB:
        yield f"+ {format_estimate(need.record_growth)} as peaks grew in the newer half"
    if need.trend_growth >= _MIB:
        kind = (
            "and slows down: a warm-up"
            if need.growth == "warm-up"
            else "and continues: possibly a leak"
        )
        rate = (
            f"{format_estimate(need.slope)} a day"
            if need.days >= 1
            else (f"{format_estimate(need.slope / 24)} an hour")
        )
        yield f"+ {format_estimate(need.trend_growth)} as the usual level rises by {rate} {kind}"
    if need.minimum >= _MIB:
        yield f"+ {format_estimate(need.minimum)}: the least for a history shorter than a day"


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
    if _has_mixed_units(basis):
        values = [value for _, value in basis.slots.filled() if value]
        yield f"values from {min(values):g} to {max(values):g}: are units mixed?"
    days = basis.slots.known_seconds() / _DAY
    if days < 1:
        yield f"{_length(days)} of history: shorter than a day, whose peaks may differ"
    gap = basis.longest_gap()
    if gap > max(SHORT_GAP, 10 * basis.interval):
        yield f"there are gaps of up to {duration_words(int(gap * 1000))} at a time"
    if basis.interval >= _LONG_INTERVAL:
        every = duration_words(int(basis.interval * 1000))
        yield f"a sample every {every} misses shorter peaks"
    yield from _event_notes(history)


def _has_mixed_units(basis: SeriesHistory) -> bool:
    values = [value for _, value in basis.slots.filled() if value]
    return bool(values) and max(values) > 100_000 * min(values)


def _event_notes(history: ContainerHistory) -> Iterator[str]:
    refaults, stalls = history.rises("refaults"), history.rises("stalls")
    if refaults:
        yield f"{pluralize(refaults, 'page')} of cache read again after reclaim: cache is needed"
    if stalls:
        yield "it waited for memory: with more memory it would have been faster"
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
    if need.days < 1 or basis.faults.total > 0.1 * basis.count or _has_mixed_units(basis):
        return "low"
    return "high" if need.days >= 7 and risk <= 0.01 and need.growth == "none" else "medium"


def _moment(at: float) -> str:
    return f"at {format_time(int(at * 1000))}" if at >= _CLOCK else f"after {_length(at / _DAY)}"


def _length(days: float) -> str:
    return f"{days:.1f} days" if days >= 1 else f"{days * 24:.1f} h"
