"""The guard: memory.high is widened where a container cannot progress, and narrowed again.

A task past memory.high reclaims, then sleeps. Where what its container holds cannot be reclaimed,
anonymous memory without swap, it neither gets anywhere nor is it killed. Three signs together show
so: high events come fast, nothing ran for a good part of the time, and nearly all below memory.high
is unreclaimable. Then memory.high goes up step by step, at the last step to memory.max, where the
container gets on or is killed as it would be without Memory QoS. When the signs are absent for long
enough, and what cannot be reclaimed fits well below, it goes down the same steps.

This is arithmetic over samples: what is written, and how, is decided elsewhere.
"""

from typing import Literal

import msgspec

from memqos.plan.rules import HIGH_EXCLUDED, HIGH_WIDENED
from memqos.plan.setting import MAX, Setting
from memqos.settings.settings import PAGE_SIZE

GuardAction = Literal["keep", "widen", "narrow"]
GuardStep = Literal["widen", "narrow"]


class GuardTuning(msgspec.Struct, frozen=True, kw_only=True):
    """How soon the guard steps in. Times are in seconds."""

    events: float = 5.0
    """High events a second from which on a container counts as stalled."""
    stalled: float = 0.3
    """Share of the time in which nothing ran (PSI full)."""
    unreclaimable_share: float = 0.9
    """Share of memory.high that cannot be reclaimed."""
    narrow_share: float = 0.75
    """Share of a lower memory.high that may be unreclaimable when going down to it."""
    period: float = 5.0
    """How long the signs must last before a step up, and steps are apart."""
    steps: int = 4
    """From the planned memory.high to memory.max."""
    calm: float = 60.0
    """How long the signs must be absent before a step down."""
    longest_calm: float = 3600.0
    """It doubles, up to this, each time a step down was soon taken back."""


class GuardSample(msgspec.Struct, frozen=True, kw_only=True):
    """A container at one moment. Bytes; counters since its cgroup was made."""

    at: float
    """Seconds of a clock that never goes back."""
    high_events: int
    current: int
    unreclaimable: int
    """Anonymous and shared memory."""
    swap_room: int = 0
    """How much of that could still be swapped out."""
    full: int | None = None
    """Microseconds in which nothing ran; None without PSI."""
    some: int | None = None
    high: int | None = None
    """memory.high as it is now; None is `max`."""

    @property
    def pinned(self) -> int:
        """What no reclaim can take away."""
        return max(0, self.unreclaimable - self.swap_room)


class HighBounds(msgspec.Struct, frozen=True):
    """Between what the guard moves memory.high, in bytes."""

    planned: int
    """memory.high as planned."""
    max: int | None
    """memory.max; None is `max`."""


class GuardState(msgspec.Struct, frozen=True, kw_only=True):
    """What the guard remembers of a container."""

    last: GuardSample | None = None
    step: int = 0
    """0 is the planned memory.high, `Tuning.steps` is memory.max."""
    stuck_since: float | None = None
    calm_since: float | None = None
    moved_at: float | None = None
    narrowed_at: float | None = None
    calm_needed: float = 0.0


class StallSigns(msgspec.Struct, frozen=True):
    """What was seen between two samples."""

    seconds: float
    events: float
    """High events a second."""
    stalled: float | None
    """Share of the time in which nothing ran; None without PSI."""
    pinned: int
    """Bytes that cannot be reclaimed."""


class GuardDecision(msgspec.Struct, frozen=True):
    """What memory.high should be: bytes, None for `max`."""

    kind: GuardAction
    high: int | None
    step: int
    signs: StallSigns | None = None


def decide_step(
    watch: GuardState,
    sample: GuardSample,
    bounds: HighBounds,
    tuning: GuardTuning,
    page_size: int = PAGE_SIZE,
) -> tuple[GuardState, GuardDecision]:
    """What to do about a container, and what to remember of it."""
    last = watch.last
    if last is None or sample.at <= last.at or sample.high_events < last.high_events:
        return _first_decision(watch, sample, bounds, tuning, page_size)
    signs = _signs(last, sample)
    stalled = _is_stalled(signs, tuning)
    high = high_at_step(bounds, watch.step, tuning, page_size)
    stuck = stalled and (high is not None and signs.pinned >= tuning.unreclaimable_share * high)
    lower = high_at_step(bounds, watch.step - 1, tuning, page_size) if watch.step else None
    calm = not stalled and lower is not None and signs.pinned <= tuning.narrow_share * lower
    watch = msgspec.structs.replace(
        watch,
        last=sample,
        stuck_since=_start_of(watch.stuck_since, last.at) if stuck else None,
        calm_since=_start_of(watch.calm_since, last.at) if calm else None,
    )
    move = _next_step(watch, sample.at, bounds, tuning)
    if move is not None:
        watch = _after_step(watch, move, sample.at, tuning)
    high = high_at_step(bounds, watch.step, tuning, page_size)
    return watch, GuardDecision(move or "keep", high, watch.step, signs)


def high_at_step(
    bounds: HighBounds, step: int, tuning: GuardTuning, page_size: int = PAGE_SIZE
) -> int | None:
    """memory.high at a step, in whole pages; None is `max`."""
    if step >= tuning.steps:
        return bounds.max
    # Without memory.max there is no range to divide: up to twice the planned value, then "max".
    top = 2 * bounds.planned if bounds.max is None else bounds.max
    if top <= bounds.planned:
        return top
    high = bounds.planned + (top - bounds.planned) * step // tuning.steps
    return max(bounds.planned, high - high % page_size)


def would_stall(sample: GuardSample, share: float = 0.8) -> bool:
    """Whether throttling a container would only stop it: mostly anonymous memory, and no swap."""
    return sample.swap_room == 0 and sample.unreclaimable >= share * max(1, sample.current)


def _first_decision(
    watch: GuardState, sample: GuardSample, bounds: HighBounds, tuning: GuardTuning, page_size: int
) -> tuple[GuardState, GuardDecision]:
    """The first sample of a cgroup. One with the memory.high of a step continues there."""
    step = watch.step
    if watch.last is None:
        steps = {
            high_at_step(bounds, each, tuning, page_size): each for each in range(tuning.steps + 1)
        }
        step = steps.get(sample.high, 0) if sample.high is not None else 0
    watch = GuardState(
        last=sample,
        step=step,
        moved_at=watch.moved_at,
        narrowed_at=watch.narrowed_at,
        calm_needed=watch.calm_needed or tuning.calm,
    )
    return watch, GuardDecision("keep", high_at_step(bounds, step, tuning, page_size), step)


def _signs(last: GuardSample, sample: GuardSample) -> StallSigns:
    seconds = sample.at - last.at
    stalled = None
    if last.full is not None and sample.full is not None:
        stalled = min(1.0, max(0, sample.full - last.full) / (seconds * 1e6))
    return StallSigns(
        seconds, (sample.high_events - last.high_events) / seconds, stalled, sample.pinned
    )


def _is_stalled(signs: StallSigns, tuning: GuardTuning) -> bool:
    waits = signs.stalled is None or signs.stalled >= tuning.stalled
    return signs.events >= tuning.events and waits


def _start_of(since: float | None, start: float) -> float:
    return start if since is None else since


def _next_step(
    watch: GuardState, now: float, bounds: HighBounds, tuning: GuardTuning
) -> GuardStep | None:
    if watch.moved_at is not None and now - watch.moved_at < tuning.period:
        return None
    if bounds.max is not None and bounds.max <= bounds.planned:
        return None
    if watch.stuck_since is not None and now - watch.stuck_since >= tuning.period:
        return "widen" if watch.step < tuning.steps else None
    rested = now - max(watch.calm_since or now, watch.moved_at or 0)
    if watch.step and watch.calm_since is not None and rested >= watch.calm_needed:
        return "narrow"
    return None


def _after_step(watch: GuardState, move: GuardStep, now: float, tuning: GuardTuning) -> GuardState:
    if move == "narrow":
        return msgspec.structs.replace(
            watch, step=watch.step - 1, moved_at=now, narrowed_at=now, calm_since=None
        )
    soon = watch.narrowed_at is not None and now - watch.narrowed_at < tuning.longest_calm
    return msgspec.structs.replace(
        watch,
        step=watch.step + 1,
        moved_at=now,
        stuck_since=None,
        # Cleared, so that the calm doubles once for each step down that was taken back.
        narrowed_at=None,
        calm_needed=min(tuning.longest_calm, 2 * watch.calm_needed) if soon else watch.calm_needed,
    )


def setting_when_widened(
    decision: GuardDecision, bounds: HighBounds, tuning: GuardTuning
) -> Setting:
    """memory.high of a container that the guard has widened, with its reason."""
    value = MAX if decision.high is None else decision.high
    return Setting(value, HIGH_WIDENED, (bounds.planned, decision.step, tuning.steps, bounds.max))


def setting_when_excluded(sample: GuardSample) -> Setting:
    """memory.high of a container that is not throttled at all, with its reason."""
    return Setting(MAX, HIGH_EXCLUDED, (sample.unreclaimable, sample.current))
