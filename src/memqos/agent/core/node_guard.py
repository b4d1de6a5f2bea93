"""The guard over all containers of a node: from cgroup files to settings that replace the plan's.

A loop calls `judge_container` for every container it samples, and `apply_to` for every cgroup it
is about to compare or write. Both are arithmetic; files and clocks are the loop's.
"""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from memqos.agent.core.guard import (
    GuardDecision,
    GuardSample,
    GuardState,
    GuardTuning,
    HighBounds,
    decide_step,
    setting_when_excluded,
    setting_when_widened,
    would_stall,
)
from memqos.kernel.file_formats import events_of, memory_kinds, stall_of
from memqos.plan.setting import Setting
from memqos.plan.tree import Cgroup
from memqos.settings.settings import PAGE_SIZE

_HIGH: Final = "memory.high"
GUARD_FILES: Final = (
    "memory.current",
    "memory.events",
    "memory.events.local",
    "memory.stat",
    "memory.pressure",
    "memory.high",
    "memory.max",
    "memory.swap.current",
    "memory.swap.max",
)
"""What a sample is made of. Without memory.pressure it is less sure; the rest must be there."""

_STILL_EXCLUDED: Final = 0.5
"""Share of anonymous memory from which on a container stays excluded once it is."""


class GuardMove(msgspec.Struct, frozen=True):
    """A step of the guard: memory.high of a container before and after, None for `max`."""

    path: str
    decision: GuardDecision
    old: int | None
    planned: int


class _Override(msgspec.Struct, frozen=True):
    planned: Setting
    """The plan's: where that has changed since, the override is out of date."""
    replacement: Setting


class NodeGuard:
    """Watches containers, and says what memory.high they should have instead of the planned one."""

    def __init__(
        self,
        tuning: GuardTuning | None = None,
        *,
        exclude_anonymous: bool = False,
        page_size: int = PAGE_SIZE,
    ) -> None:
        self.tuning = tuning or GuardTuning()
        self._excludes = exclude_anonymous
        self._page_size = page_size
        self._states: dict[str, GuardState] = {}
        self._overrides: dict[str, _Override] = {}
        self._excluded: set[str] = set()

    @property
    def widened(self) -> dict[str, int]:
        """The containers with a wider memory.high than planned, and their steps."""
        return {path: watch.step for path, watch in self._states.items() if watch.step}

    @property
    def excluded(self) -> frozenset[str]:
        """The containers that are not throttled at all."""
        return frozenset(self._excluded)

    def judge_container(
        self, cgroup: Cgroup, files: Mapping[str, str], at: float, swap_free: int
    ) -> GuardMove | None:
        """Judge a container by its files; a step, if there is one to be made.

        `cgroup` is as planned, not as `apply_to` has it; `swap_free` is that of the machine.
        """
        setting = cgroup.settings.get(_HIGH)
        sample = guard_sample_of(files, at, swap_free)
        if sample is None:
            return None
        if setting is None or not isinstance(setting.value, int):
            self.forget(cgroup.path)
            return None
        path = cgroup.path
        if self._is_excluded(path, sample):
            self._states.pop(path, None)
            self._overrides[path] = _Override(setting, setting_when_excluded(sample))
            return None
        bounds = HighBounds(setting.value, _limit(files.get("memory.max", "max")))
        watch, decision = decide_step(
            self._states.get(path, GuardState()), sample, bounds, self.tuning, self._page_size
        )
        self._states[path] = watch
        if decision.step:
            self._overrides[path] = _Override(
                setting, setting_when_widened(decision, bounds, self.tuning)
            )
        else:
            self._overrides.pop(path, None)
        if decision.kind == "keep":
            return None
        return GuardMove(path, decision, sample.high, setting.value)

    def note_unchanged(self, path: str, at: float) -> None:
        """A container was looked at briefly: no high event has come."""
        watch = self._states.get(path)
        if watch is not None and watch.last is not None:
            last = msgspec.structs.replace(watch.last, at=at)
            self._states[path] = msgspec.structs.replace(watch, last=last)

    def is_active(self, path: str) -> bool:
        """Whether a container is widened, or about to be."""
        watch = self._states.get(path)
        return watch is not None and bool(watch.step or watch.stuck_since is not None)

    def apply_to(self, cgroup: Cgroup) -> Cgroup:
        """A planned cgroup with the guard's memory.high, if it has one."""
        override = self._overrides.get(cgroup.path)
        if override is None or cgroup.settings.get(_HIGH) != override.planned:
            return cgroup
        settings = cgroup.settings | {_HIGH: override.replacement}
        return msgspec.structs.replace(cgroup, settings=settings)

    def keep_only(self, paths: Collection[str]) -> None:
        """Forget all removed cgroups."""
        for removed in (self._states.keys() | self._overrides.keys()) - set(paths):
            self.forget(removed)

    def forget(self, path: str) -> None:
        """Forget a container: memqos does not write to it."""
        self._states.pop(path, None)
        self._overrides.pop(path, None)
        self._excluded.discard(path)

    def _is_excluded(self, path: str, sample: GuardSample) -> bool:
        if not self._excludes:
            return False
        share = (_STILL_EXCLUDED,) if path in self._excluded else ()
        if would_stall(sample, *share):
            self._excluded.add(path)
        else:
            self._excluded.discard(path)
        return path in self._excluded


def guard_sample_of(files: Mapping[str, str], at: float, swap_free: int) -> GuardSample | None:
    """A container as its files show it; None where they do not."""
    current = files.get("memory.current", "")
    statistics = memory_kinds(files.get("memory.stat", ""))
    # Since 5.2 memory.events counts the events of cgroups below as well, which a container may have
    # made; memory.events.local does not (cgroup-v2.rst).
    events = events_of(files.get("memory.events.local", files.get("memory.events", "")))
    if not current.isdecimal() or "anon" not in statistics or "high" not in events:
        return None
    stall = stall_of(files["memory.pressure"]) if files.get("memory.pressure") else None
    return GuardSample(
        at=at,
        high_events=events["high"],
        current=int(current),
        # memory.stat counts shmem in `file`, but without swap it is as pinned as anon
        # (cgroup-v2.rst).
        unreclaimable=statistics["anon"] + statistics.get("shmem", 0),
        swap_room=_swap_room(files, swap_free),
        full=None if stall is None else stall.full.total,
        some=None if stall is None else stall.some.total,
        high=_limit(files.get("memory.high", "max")),
    )


def _swap_room(files: Mapping[str, str], swap_free: int) -> int:
    allowed = _limit(files.get("memory.swap.max", "max"))
    used = files.get("memory.swap.current", "0")
    if allowed is None:
        return swap_free
    return max(0, min(swap_free, allowed - int(used if used.isdecimal() else 0)))


def _limit(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
