"""Write a plan: prior values first into the journal, then each change in its order."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from memqos.converge.batches import Batch, batches
from memqos.converge.cpusets import beyond_parent
from memqos.converge.driver import Driver
from memqos.converge.journal import Journal
from memqos.converge.records import Held, Intent, Outcome
from memqos.converge.steps import Moved, Step, standing
from memqos.converge.values import level_fault, place_fault, shown, value_fault
from memqos.converge.writing import Cautions, End, Result, write
from memqos.errors import MemqosError, Unreachable
from memqos.host.cgroups import CgroupFs
from memqos.plan.changes import Change, ordered
from memqos.plan.setting import MAX

Progress = Callable[[int, int, Change], None]
"""Told before each write: how many are done, of how many, and which comes now."""

_WAS_WRITTEN: Final[dict[End, bool]] = {
    "written": True,
    "refused": False,
    "overtaken": False,
    "withheld": False,
}
"""What is certain. Any other end leaves the intent open, and rollback looks at the file."""


class Applied(msgspec.Struct, frozen=True):
    """What came of a plan."""

    results: tuple[Result, ...] = ()
    """In the order of the writes."""
    moved: tuple[Moved, ...] = ()
    """Not empty: the tree is not the one that was planned for, and nothing was written."""
    unrecorded: str | None = None
    """Why the journal does not know how the writes ended; rollback can do without."""


def quiet(_done: int, _of: int, _change: Change) -> None:
    """Progress that nobody watches."""


def apply(
    steps: Iterable[Step],
    fs: CgroupFs,
    driver: Driver,
    journal: Journal,
    cautions: Cautions,
    progress: Progress = quiet,
) -> Applied:
    """Write all steps in the order that is safe; one that fails does not hold up the rest."""
    results: list[Result] = []
    ready: list[Step] = []
    differing: list[Moved] = []
    for step in steps:
        change = step.change
        fault = _fault(change) or beyond_parent(change, fs)
        found = "refused" if fault else standing(step, fs, cautions.page_size)
        if found == "ready":
            ready.append(step)
        elif isinstance(found, Moved):
            differing.append(found)
        elif found != "done":
            results.append(Result(change, "refused" if fault else "gone", fault))
    if differing:
        return Applied(moved=tuple(differing))
    held, ready, without_owner = _held(ready, fs, driver, journal)
    results += without_owner
    journalled = [step for step in ready if not step.kubelet_keeps]
    if journalled:
        journal.intend([*held, *(_intent(step, cautions.page_size) for step in journalled)])
    for step in ready:
        if step.kubelet_keeps:
            journal.settle_with_kubelet(_place(step))
    done = 0
    for batch in batches(ready, driver.batch):
        progress(done, len(ready), batch[0].change)
        done += len(batch)
        results += _taken(batch, write(batch, fs, driver, cautions), journal)
    journal.close()
    failure = journal.failure
    return Applied(tuple(results), unrecorded=None if failure is None else failure.strerror)


def _taken(batch: Batch, results: list[Result], journal: Journal) -> list[Result]:
    """Have the journal know what came of a batch."""
    for step, result in zip(batch, results, strict=True):
        if result.lingers:
            journal.leave_behind()
        if result.end in _WAS_WRITTEN and not step.kubelet_keeps:
            journal.settle(Outcome(*_place(step), _WAS_WRITTEN[result.end]))
    return results


def in_order(steps: Iterable[Step]) -> list[Step]:
    """Steps in the order in which it is safe to take them."""
    places = {(step.change.path, step.change.file): step for step in steps}
    changes = ordered([step.change for step in places.values()])
    return [places[change.path, change.file] for change in changes]


def _held(
    steps: Sequence[Step], fs: CgroupFs, driver: Driver, journal: Journal
) -> tuple[list[Held], list[Step], list[Result]]:
    """What owners keep that the journal does not know yet, and which steps go on.

    Those whose owner does not say are at their end.
    """
    together: dict[str, Batch] = {}
    for step in steps:
        together.setdefault(driver.batch(step.change), []).append(step)
    held: list[Held] = []
    going_on: list[Step] = []
    ended: list[Result] = []
    for batch in together.values():
        try:
            found = _kept(batch, driver, journal)
        except MemqosError as error:
            ended += [_unheld(step, error, fs) for step in batch]
        else:
            held += () if found is None else (found,)
            going_on += batch
    return held, going_on, ended


def _unheld(step: Step, error: MemqosError, fs: CgroupFs) -> Result:
    change = step.change
    if fs.identity(change.path) != step.cgroup:
        return Result(change, "gone")
    end: End = "unreachable" if isinstance(error, Unreachable) else "refused"
    return Result(change, end, str(error))


def _kept(batch: Batch, driver: Driver, journal: Journal) -> Held | None:
    path, _, cgroup = _place(batch[0])
    before = journal.held.get((path, cgroup))
    theirs = {
        step.change.file
        for step in batch
        if (debt := journal.debts.get(_place(step))) and step.change.old not in debt.ours
    }
    if before is not None and not theirs:
        return None
    holding = driver.holding(batch[0].change)
    if holding is None:
        return None
    if before is not None:
        # Only of what somebody else has changed since is the owner's word not memqos's own; nor
        # of that, if it was changed past the owner.
        own = {
            file: value
            for file, value in before.values.items()
            if file not in theirs
            or says(holding.values.get(file), journal.debts[path, file, cgroup].ours)
        }
        holding = msgspec.structs.replace(holding, values={**holding.values, **own})
    return Held(path, cgroup, holding)


def says(kept: str | None, values: Iterable[str]) -> bool:
    """Whether an owner keeps one of these: as a plain value, or in the line of a drop-in."""
    word = (kept or "").strip().rpartition("=")[2]
    return (MAX if word == "infinity" else word) in values


def _fault(change: Change) -> str | None:
    """Why a change could not even be journalled."""
    return (
        place_fault(change.path, change.file)
        or level_fault(change.path, change.file, change.level)
        or value_fault(change.file, change.old)
        or value_fault(change.file, change.new)
    )


def _place(step: Step) -> tuple[str, str, int]:
    return step.change.path, step.change.file, step.cgroup


def _intent(step: Step, page_size: int) -> Intent:
    change = step.change
    return Intent(
        *_place(step),
        change.old,
        shown(change.file, change.new, page_size),
        change.level,
        change.pod,
        change.container,
    )
