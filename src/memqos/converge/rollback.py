"""Put back what was there before memqos wrote, wherever that is still its own doing."""

from collections.abc import Collection, Container, Iterable, Iterator, Set
from shlex import quote
from typing import Final, Literal

import msgspec

from memqos.converge.apply import WriteProgress, ignore_progress, owner_has_value
from memqos.converge.driver import Driver
from memqos.converge.journal import Journal
from memqos.converge.records import CgroupKey, FileKey
from memqos.converge.steps import WriteOptions, WriteResult, WriteStep, batch_steps, write_batch
from memqos.converge.undo import UndoEntry
from memqos.errors import MemqosError
from memqos.host.cgroups import CgroupFs
from memqos.plan.changes import DEFAULTS, Change
from memqos.plan.names import kind_of
from memqos.plan.rules import RESTORE_RULE
from memqos.plan.setting import Setting

UndoState = Literal["ours", "conflict", "refused", "restored", "gone", "unreadable"]
"""What has become of a value that memqos wrote: still there; changed by somebody else since; in a
cgroup that nobody but the journal calls reserved; as it was before; vanished with its cgroup; or
not to be had."""

_NOT_RESTORED: Final[frozenset[UndoState]] = frozenset(
    {"ours", "conflict", "refused", "unreadable"}
)


class UndoCheck(msgspec.Struct, frozen=True):
    """A value memqos owes back, and what is there now."""

    entry: UndoEntry
    state: UndoState
    value: str | None = None
    """None where it is gone or cannot be read."""


class RollbackResult(msgspec.Struct, frozen=True):
    """What came of a rollback."""

    results: tuple[WriteResult, ...]
    """The values that were written, in order."""
    not_written: tuple[UndoCheck, ...]
    """What nothing was written to; conflicts and what cannot be read are still owed."""
    journal_error: str | None = None
    """Why the journal still lists what is settled, which does no harm."""
    owner_failures: tuple[str, ...] = ()
    """Owners that still keep what memqos told them, and why; the journal keeps that, too."""
    owners_restored: tuple[str, ...] = ()
    """What owners keep again as before."""
    refused: tuple[str, ...] = ()
    """Cgroups that nobody but the journal calls reserved; it keeps them."""


def is_restorable(path: str, reserved: Container[str]) -> bool:
    """Whether records about a cgroup are believed: one that a kubelet makes, or of `reserved`.

    Whoever can write the journal can call any cgroup reserved. So the names of those come from
    the kubelet's configuration, or from a person.
    """
    return kind_of(path) is not None or path in reserved


def refused_places(
    found: Iterable[UndoCheck], held: Container[CgroupKey], reserved: Container[str]
) -> set[CgroupKey]:
    """Cgroups that are not believed and have something to restore, be it what an owner keeps."""
    return {
        each.entry.cgroup_key
        for each in found
        if not is_restorable(each.entry.path, reserved)
        and (each.state == "refused" or each.entry.cgroup_key in held)
    }


def refusal(path: str, why: str) -> str:
    """What to say of a cgroup that is not believed; the option may be copied into a shell."""
    option = f"--reserved-cgroup {quote(path)}"
    return f"{path} is left alone: {why}. If memqos wrote there, rollback with {option} restores it"


def check_undo_entries(
    entries: Iterable[UndoEntry], fs: CgroupFs, reserved: Container[str] = ()
) -> Iterator[UndoCheck]:
    """Compare what memqos wrote with what is there."""
    for debt in entries:
        try:
            same = fs.identity(debt.path) == debt.cgroup
            value = fs.read(debt.path, debt.file) if same else None
        except OSError:
            yield UndoCheck(debt, "unreadable")
            continue
        state = _state(debt, value)
        if state in ("ours", "conflict") and not is_restorable(debt.path, reserved):
            state = "refused"
        yield UndoCheck(debt, state, value)


def rollback(
    fs: CgroupFs,
    driver: Driver,
    journal: Journal,
    options: WriteOptions,
    progress: WriteProgress = ignore_progress,
    entries: Collection[UndoEntry] | None = None,
    reserved: Container[str] = (),
) -> RollbackResult:
    """Restore what is still ours, or with force all of it; then forget what is settled.

    With `debts` these alone; all others stay owed. `reserved` are the cgroups that may be restored
    though no kubelet makes them; see `is_restorable`.
    """
    settling = journal.undo_entries.values() if entries is None else entries
    found = list(check_undo_entries(settling, fs, reserved))
    wanted = ("ours", "conflict") if options.force else ("ours",)
    todo = {(each.entry.path, each.entry.file): each for each in found if each.state in wanted}
    left = [each for each in found if each.state in _NOT_RESTORED and each.state not in wanted]
    results: list[WriteResult] = []
    done = 0
    for batch in batch_steps(map(_step, todo.values()), driver.batch_key):
        progress(done, len(todo), batch[0].change)
        done += len(batch)
        for step, result in zip(batch, write_batch(batch, fs, driver, options), strict=True):
            results.append(result)
            if result.writer_blocked:
                journal.renew_lock()
            if result.outcome not in ("written", "gone"):
                left.append(todo[step.change.path, step.change.file])
    owing = journal.undo_entries.keys() - {debt.key for debt in settling}
    owing |= {each.entry.key for each in left}
    held = set(journal.owner_states)
    if entries is not None:
        held &= {debt.cgroup_key for debt in entries}
    believed = {place for place in held if is_restorable(place[0], reserved)}
    released, unreleased = _restore_owners(journal, fs, driver, believed, owing)
    refused = refused_places(found, held, reserved)
    journal.keep_only(
        debt
        for debt in journal.undo_entries.values()
        if debt.key in owing or debt.cgroup_key in unreleased or debt.cgroup_key in refused
    )
    failure = journal.failure
    return RollbackResult(
        tuple(results),
        tuple(each for each in found if each.state not in wanted),
        None if failure is None else failure.strerror,
        tuple(unreleased.values()),
        tuple(released),
        tuple(sorted({path for path, _ in refused})),
    )


def _restore_owners(
    journal: Journal, fs: CgroupFs, driver: Driver, held: Set[CgroupKey], owing: Set[FileKey]
) -> tuple[list[str], dict[CgroupKey, str]]:
    """Have owners of cgroups forget what memqos told them; what did, and what did not and why."""
    done: list[str] = []
    failed: dict[CgroupKey, str] = {}
    above_pods = {
        debt.cgroup_key
        for debt in journal.undo_entries.values()
        if debt.level in ("kubepods", "qos")
    }
    for path, cgroup in held:
        holding = journal.owner_states[path, cgroup]
        settled = [file for file in holding.values if (path, file, cgroup) not in owing]
        try:
            if fs.identity(path) in (cgroup, None):
                files = [
                    file
                    for file in settled
                    if (path, file, cgroup) in journal.undo_entries
                    or (path, cgroup) not in above_pods
                    or _matches_file(holding.values[file], fs.read(path, file), file)
                ]
                done += driver.restore_owner(path, holding, files)
        except MemqosError as error:
            failed[path, cgroup] = str(error)
        except OSError as error:
            failed[path, cgroup] = f"{error.filename or path}: {error.strerror}"
    return done, failed


def _matches_file(kept: str | None, found: str | None, file: str) -> bool:
    """Whether an owner's word of a cgroup above pods is about what its file holds now.

    An owner is told all values of a cgroup at once. One that memqos did not change may have been
    changed since by the kubelet: then the owner's earlier word would bring an old value back.
    """
    if found is None:
        return True
    return found == DEFAULTS.get(file) if kept is None else owner_has_value(kept, (found,))


def _state(entry: UndoEntry, value: str | None) -> UndoState:
    if value is None:
        return "gone"
    if value == entry.original:
        return "restored"
    return "ours" if value in entry.ours else "conflict"


def _step(found: UndoCheck) -> WriteStep:
    debt = found.entry
    assert found.value is not None
    change = Change(
        path=debt.path,
        file=debt.file,
        old=found.value,
        new=debt.original,
        level=debt.level,
        setting=Setting(debt.original, RESTORE_RULE),
        pod=debt.pod,
        container=debt.container,
    )
    return WriteStep(change, debt.cgroup)
