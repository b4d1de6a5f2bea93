"""Write a plan: prior values first into the journal, then each change in its order."""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from memqos.converge.cpusets import beyond_parent
from memqos.converge.driver import Driver
from memqos.converge.journal import Journal
from memqos.converge.records import Intent, Outcome
from memqos.converge.steps import Moved, Step, standing
from memqos.converge.values import place_fault, shown, value_fault
from memqos.converge.writing import Cautions, End, Result, write
from memqos.host.cgroups import CgroupFs
from memqos.plan.changes import Change, ordered

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
    if ready:
        journal.intend(_intent(step, cautions.page_size) for step in ready)
    for done, step in enumerate(in_order(ready)):
        progress(done, len(ready), step.change)
        result = write(step, fs, driver, cautions)
        results.append(result)
        if result.lingers:
            journal.leave_behind()
        if result.end in _WAS_WRITTEN:
            outcome = Outcome(*_place(step), _WAS_WRITTEN[result.end])
            journal.settle(outcome)
    journal.close()
    failure = journal.failure
    return Applied(tuple(results), unrecorded=None if failure is None else failure.strerror)


def in_order(steps: Iterable[Step]) -> list[Step]:
    """Steps in the order in which it is safe to take them."""
    places = {(step.change.path, step.change.file): step for step in steps}
    changes = ordered([step.change for step in places.values()])
    return [places[change.path, change.file] for change in changes]


def _fault(change: Change) -> str | None:
    """Why a change could not even be journalled."""
    return place_fault(change.path, change.file) or (
        value_fault(change.file, change.old) or value_fault(change.file, change.new)
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
