"""The guard: memory.high is widened where a container cannot progress, and narrowed again.

A task past memory.high reclaims, then sleeps. Where what its container holds cannot be reclaimed,
anonymous memory without swap, it neither gets anywhere nor is it killed. Three signs together tell
so: high events come fast, nothing ran for a good part of the time, and nearly all below memory.high
is unreclaimable. Then memory.high goes up step by step, at the last step to memory.max, where the
container gets on or is killed as it would be without Memory QoS. When the signs are gone for long
enough, and what cannot be reclaimed fits well below, it goes down the same steps.

This is arithmetic over samples: what is written, and how, is decided elsewhere.
"""

from typing import Final, Literal

import msgspec

from memqos.plan.setting import MAX, Rule, Setting, size
from memqos.plan.terms import PAGE_SIZE

Kind = Literal["keep", "widen", "narrow"]
Step = Literal["widen", "narrow"]


class Tuning(msgspec.Struct, frozen=True):
    """How soon the guard steps in. Times are in seconds."""

    events: float = 5.0
    """High events a second from which on a container counts as held up."""
    stalled: float = 0.3
    """Share of the time in which nothing ran (PSI full)."""
    mostly: float = 0.9
    """Share of memory.high that cannot be reclaimed."""
    fits: float = 0.75
    """Share of a lower memory.high that may be unreclaimable when going down to it."""
    period: float = 5.0
    """How long the signs must last before a step up, and steps are apart."""
    steps: int = 4
    """From the planned memory.high to memory.max."""
    calm: float = 60.0
    """How long the signs must be gone before a step down."""
    longest_calm: float = 3600.0
    """It doubles, up to this, each time a step down was soon taken back."""


class Sample(msgspec.Struct, frozen=True):
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
    def stays(self) -> int:
        """What no reclaim can take away."""
        return max(0, self.unreclaimable - self.swap_room)


class Bounds(msgspec.Struct, frozen=True):
    """Between what the guard moves memory.high, in bytes."""

    planned: int
    """memory.high as planned."""
    max: int | None
    """memory.max; None is `max`."""


class Watch(msgspec.Struct, frozen=True):
    """What the guard remembers of a container."""

    last: Sample | None = None
    step: int = 0
    """0 is the planned memory.high, `Tuning.steps` is memory.max."""
    stuck_since: float | None = None
    calm_since: float | None = None
    moved_at: float | None = None
    narrowed_at: float | None = None
    calm_needed: float = 0.0


class Signs(msgspec.Struct, frozen=True):
    """What was seen between two samples."""

    seconds: float
    events: float
    """High events a second."""
    stalled: float | None
    """Share of the time in which nothing ran; None without PSI."""
    stays: int
    """Bytes that cannot be reclaimed."""


class Decision(msgspec.Struct, frozen=True):
    """What memory.high should be: bytes, None for `max`."""

    kind: Kind
    high: int | None
    step: int
    signs: Signs | None = None


def judge(
    watch: Watch, sample: Sample, bounds: Bounds, tuning: Tuning, page_size: int = PAGE_SIZE
) -> tuple[Watch, Decision]:
    """What to do about a container, and what to remember of it."""
    last = watch.last
    if last is None or sample.at <= last.at or sample.high_events < last.high_events:
        return _begun(watch, sample, bounds, tuning, page_size)
    signs = _signs(last, sample)
    held_up = _is_held_up(signs, tuning)
    high = target(bounds, watch.step, tuning, page_size)
    stuck = held_up and (high is not None and signs.stays >= tuning.mostly * high)
    lower = target(bounds, watch.step - 1, tuning, page_size) if watch.step else None
    calm = not held_up and lower is not None and signs.stays <= tuning.fits * lower
    watch = msgspec.structs.replace(
        watch,
        last=sample,
        stuck_since=_since(watch.stuck_since, last.at) if stuck else None,
        calm_since=_since(watch.calm_since, last.at) if calm else None,
    )
    move = _move(watch, sample.at, bounds, tuning)
    if move is not None:
        watch = _moved(watch, move, sample.at, tuning)
    high = target(bounds, watch.step, tuning, page_size)
    return watch, Decision(move or "keep", high, watch.step, signs)


def target(bounds: Bounds, step: int, tuning: Tuning, page_size: int = PAGE_SIZE) -> int | None:
    """memory.high at a step, in whole pages; None is `max`."""
    if step >= tuning.steps:
        return bounds.max
    # Without a limit there is nothing to divide: up to twice as much, then no bound at all.
    top = 2 * bounds.planned if bounds.max is None else bounds.max
    if top <= bounds.planned:
        return top
    wanted = bounds.planned + (top - bounds.planned) * step // tuning.steps
    return max(bounds.planned, wanted - wanted % page_size)


def longest_wait(tuning: Tuning, interval: float) -> float:
    """Seconds after which a container that cannot progress has memory.max, if sampled so often."""
    return tuning.steps * (tuning.period + 2 * interval) + interval


def would_stall(sample: Sample, share: float = 0.8) -> bool:
    """Whether throttling a container would only stop it: mostly anonymous memory, and no swap."""
    return sample.swap_room == 0 and sample.unreclaimable >= share * max(1, sample.current)


def _begun(
    watch: Watch, sample: Sample, bounds: Bounds, tuning: Tuning, page_size: int
) -> tuple[Watch, Decision]:
    """The first sample of a cgroup. One that already has a step's memory.high goes on from it."""
    step = watch.step
    if watch.last is None:
        steps = {target(bounds, each, tuning, page_size): each for each in range(tuning.steps + 1)}
        step = steps.get(sample.high, 0) if sample.high is not None else 0
    watch = Watch(
        last=sample,
        step=step,
        moved_at=watch.moved_at,
        narrowed_at=watch.narrowed_at,
        calm_needed=watch.calm_needed or tuning.calm,
    )
    return watch, Decision("keep", target(bounds, step, tuning, page_size), step)


def _signs(last: Sample, sample: Sample) -> Signs:
    seconds = sample.at - last.at
    stalled = None
    if last.full is not None and sample.full is not None:
        stalled = min(1.0, max(0, sample.full - last.full) / (seconds * 1e6))
    return Signs(seconds, (sample.high_events - last.high_events) / seconds, stalled, sample.stays)


def _is_held_up(signs: Signs, tuning: Tuning) -> bool:
    waits = signs.stalled is None or signs.stalled >= tuning.stalled
    return signs.events >= tuning.events and waits


def _since(since: float | None, start: float) -> float:
    return start if since is None else since


def _move(watch: Watch, now: float, bounds: Bounds, tuning: Tuning) -> Step | None:
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


def _moved(watch: Watch, move: Step, now: float, tuning: Tuning) -> Watch:
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
        # Once for each step down that was taken back, not for each step up.
        narrowed_at=None,
        calm_needed=min(tuning.longest_calm, 2 * watch.calm_needed) if soon else watch.calm_needed,
    )


def _widened_steps(planned: int, step: int, steps: int, maximum: int | None) -> tuple[str, ...]:
    top = "no limit" if maximum is None else f"memory.max = {size(maximum)}"
    return (f"planned memory.high = {size(planned)}, {top}", f"step {step} of {steps}")


WIDENED: Final = Rule(
    "high/guard",
    "widened by the guard: at the planned memory.high the container could not progress",
    "memqos guard",
    _widened_steps,
)
EXCLUDED: Final = Rule(
    "high/excluded",
    "not throttled: nearly all of its memory is anonymous and there is no swap, "
    "so throttling would only stop it",
    "memqos guard",
    lambda unreclaimable, current: (
        f"anonymous and shared {size(unreclaimable)} of {size(current)} in use, swap 0",
    ),
)


def widened(decision: Decision, bounds: Bounds, tuning: Tuning) -> Setting:
    """memory.high of a container that the guard has widened, with its reason."""
    value = MAX if decision.high is None else decision.high
    return Setting(value, WIDENED, (bounds.planned, decision.step, tuning.steps, bounds.max))


def excluded(sample: Sample) -> Setting:
    """memory.high of a container that is not throttled at all, with its reason."""
    return Setting(MAX, EXCLUDED, (sample.unreclaimable, sample.current))
