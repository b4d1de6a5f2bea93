"""Write a plan: prior values first into the journal, then each change in its order."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from memqos.converge.driver import Driver
from memqos.converge.journal import Journal
from memqos.converge.records import (
    IntentRecord,
    KubeletWriteRecord,
    OutcomeRecord,
    OwnerRecord,
    PriorValueRecord,
)
from memqos.converge.steps import (
    Batch,
    StaleStep,
    WriteOptions,
    WriteOutcome,
    WriteResult,
    WriteStep,
    batch_steps,
    step_state,
    write_batch,
)
from memqos.converge.values import cpuset_fault, file_fault, kernel_form, level_fault, value_fault
from memqos.errors import MemqosError, Unreachable
from memqos.host.cgroups import CgroupFs
from memqos.plan.changes import Change, order
from memqos.plan.setting import MAX

WriteProgress = Callable[[int, int, Change], None]
"""Called before each write: how many are done, of how many, and which is next."""

_WAS_WRITTEN: Final[dict[WriteOutcome, bool]] = {
    "written": True,
    "refused": False,
    "overtaken": False,
    "withheld": False,
}
"""What is certain. Any other end leaves the intent open, and rollback looks at the file."""


class ApplyResult(msgspec.Struct, frozen=True):
    """What came of a plan."""

    results: tuple[WriteResult, ...] = ()
    """In the order of the writes."""
    stale: tuple[StaleStep, ...] = ()
    """Not empty: the tree is not the one that was planned for, and nothing was written."""
    journal_error: str | None = None
    """Why the journal does not know how the writes ended; rollback can do without."""


def ignore_progress(_done: int, _of: int, _change: Change) -> None:
    """Progress that is not shown."""


def apply(
    steps: Iterable[WriteStep],
    fs: CgroupFs,
    driver: Driver,
    journal: Journal,
    options: WriteOptions,
    progress: WriteProgress = ignore_progress,
) -> ApplyResult:
    """Write all steps in the order that is safe; one that fails does not hold up the rest."""
    results: list[WriteResult] = []
    ready: list[WriteStep] = []
    differing: list[StaleStep] = []
    for step in steps:
        change = step.change
        fault = _fault(change) or cpuset_fault(change, fs)
        found = "refused" if fault else step_state(step, fs, options.page_size)
        if found == "ready":
            ready.append(step)
        elif isinstance(found, StaleStep):
            differing.append(found)
        elif found != "done":
            results.append(WriteResult(change, "refused" if fault else "gone", fault))
    if differing:
        return ApplyResult(stale=tuple(differing))
    owner_records, ready, without_owner = _read_owner_states(ready, fs, driver, journal)
    results += without_owner
    if ready:
        journal.record_writes(
            [*owner_records, *(_write_record(step, options.page_size) for step in ready)]
        )
    done = 0
    for batch in batch_steps(ready, driver.batch_key):
        progress(done, len(ready), batch[0].change)
        done += len(batch)
        results += _record_results(batch, write_batch(batch, fs, driver, options), journal)
    journal.close()
    failure = journal.failure
    return ApplyResult(tuple(results), journal_error=None if failure is None else failure.strerror)


def _record_results(
    batch: Batch, results: list[WriteResult], journal: Journal
) -> list[WriteResult]:
    """Have the journal know what came of a batch."""
    for step, result in zip(batch, results, strict=True):
        if result.writer_blocked:
            journal.renew_lock()
        if result.outcome in _WAS_WRITTEN:
            journal.record_outcome(OutcomeRecord(*_file_key(step), _WAS_WRITTEN[result.outcome]))
    return results


def order_steps(steps: Iterable[WriteStep]) -> list[WriteStep]:
    """Steps in the order in which it is safe to take them."""
    places = {(step.change.path, step.change.file): step for step in steps}
    changes = order([step.change for step in places.values()])
    return [places[change.path, change.file] for change in changes]


def _read_owner_states(
    steps: Sequence[WriteStep], fs: CgroupFs, driver: Driver, journal: Journal
) -> tuple[list[OwnerRecord], list[WriteStep], list[WriteResult]]:
    """What owners keep that the journal does not know yet, and which steps go on.

    Those whose owner does not say are at their end.
    """
    together: dict[str, Batch] = {}
    for step in steps:
        together.setdefault(driver.batch_key(step.change), []).append(step)
    owner_records: list[OwnerRecord] = []
    ready: list[WriteStep] = []
    failed: list[WriteResult] = []
    for batch in together.values():
        try:
            found = _owner_record(batch, driver, journal)
        except MemqosError as error:
            failed += [_owner_failure(step, error, fs) for step in batch]
        else:
            owner_records += () if found is None else (found,)
            ready += batch
    return owner_records, ready, failed


def _owner_failure(step: WriteStep, error: MemqosError, fs: CgroupFs) -> WriteResult:
    change = step.change
    if fs.identity(change.path) != step.cgroup:
        return WriteResult(change, "gone")
    end: WriteOutcome = "unreachable" if isinstance(error, Unreachable) else "refused"
    return WriteResult(change, end, str(error))


def _owner_record(batch: Batch, driver: Driver, journal: Journal) -> OwnerRecord | None:
    path, _, cgroup = _file_key(batch[0])
    before = journal.owner_states.get((path, cgroup))
    changed = {
        step.change.file
        for step in batch
        if (entry := journal.undo_entries.get(_file_key(step)))
        and step.change.old not in entry.ours
    }
    if before is not None and not changed:
        return None
    owner_state = driver.read_owner_state(batch[0].change)
    if owner_state is None:
        return None
    if before is not None:
        # What the owner stores is memqos's own value, except for files that something else has
        # changed since through the owner: there its answer is the new original.
        own = {
            file: value
            for file, value in before.values.items()
            if file not in changed
            or owner_has_value(
                owner_state.values.get(file), journal.undo_entries[path, file, cgroup].ours
            )
        }
        owner_state = msgspec.structs.replace(owner_state, values={**owner_state.values, **own})
    return OwnerRecord(path, cgroup, owner_state)


def owner_has_value(stored: str | None, values: Iterable[str]) -> bool:
    """Whether an owner keeps one of these: as a plain value, or in the line of a drop-in."""
    word = (stored or "").strip().rpartition("=")[2]
    return (MAX if word == "infinity" else word) in values


def _fault(change: Change) -> str | None:
    """Why a change could not even be journalled."""
    return (
        file_fault(change.path, change.file)
        or level_fault(change.path, change.file, change.level)
        or value_fault(change.file, change.old)
        or value_fault(change.file, change.new)
    )


def _file_key(step: WriteStep) -> tuple[str, str, int]:
    return step.change.path, step.change.file, step.cgroup


def _write_record(step: WriteStep, page_size: int) -> PriorValueRecord:
    change, key = step.change, _file_key(step)
    new = kernel_form(change.file, change.new, page_size)
    if step.kubelet_managed:
        return KubeletWriteRecord(*key, change.old, new, change.level)
    return IntentRecord(*key, change.old, new, change.level, change.pod, change.container)
