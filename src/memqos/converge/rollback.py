"""Restore what was there before memqos wrote, wherever the value is still its own."""

from collections.abc import Collection, Container, Iterable, Iterator, Set
from shlex import quote
from typing import Final, Literal

import msgspec

from memqos.converge.apply import WriteProgress, ignore_progress, owner_has_value
from memqos.converge.driver import Driver
from memqos.converge.journal import Journal
from memqos.converge.records import NEW_CGROUP, CgroupKey, FileKey
from memqos.converge.steps import WriteOptions, WriteResult, WriteStep, batch_steps, write_batch
from memqos.converge.undo import UndoEntry
from memqos.errors import MemqosError
from memqos.host.cgroups import CgroupFs
from memqos.plan.changes import DEFAULTS, Change
from memqos.plan.names import kind_of
from memqos.plan.rules import RESTORE_RULE
from memqos.plan.setting import Setting
from memqos.plan.tree import ABOVE_PODS

UndoState = Literal[
    "ours", "conflict", "unconfirmed", "refused", "kubelet", "restored", "gone", "unreadable"
]
"""What has become of a value that memqos wrote: still there; changed by something else since; still
there, on behalf of the kubelet, and unknown whether the kubelet keeps it; in a cgroup that
only the journal calls reserved; in a file that the kubelet keeps; as it was before; removed
with its cgroup; or unreadable."""

_NOT_RESTORED: Final[frozenset[UndoState]] = frozenset(
    {"ours", "conflict", "unconfirmed", "refused", "unreadable"}
)
KubeletFiles = Container[tuple[str, str]] | None
"""The files above pods, by path and name, that the running kubelet keeps; None: not known."""


class UndoCheck(msgspec.Struct, frozen=True):
    """A value that memqos would restore, and the current one."""

    entry: UndoEntry
    state: UndoState
    value: str | None = None
    """None where it was removed or cannot be read."""


class RollbackResult(msgspec.Struct, frozen=True):
    """What came of a rollback."""

    results: tuple[WriteResult, ...]
    """The values that were written, in order."""
    not_written: tuple[UndoCheck, ...]
    """What nothing was written to; conflicts and what cannot be read stay in the journal."""
    journal_error: str | None = None
    """Why the journal still lists what is settled, which does no harm."""
    owner_failures: tuple[str, ...] = ()
    """Owners that still store what memqos gave them, and why; the journal keeps that, too."""
    owners_restored: tuple[str, ...] = ()
    """What owners keep again as before."""
    refused: tuple[str, ...] = ()
    """Cgroups that only the journal calls reserved; it keeps them."""


def is_restorable(path: str, reserved: Container[str]) -> bool:
    """Whether records about a cgroup are believed: one that a kubelet makes, or of `reserved`.

    A process that can write the journal can call any cgroup reserved. So the names of those come
    from the kubelet's configuration, or from a person.
    """
    return kind_of(path) is not None or path in reserved


def refused_places(
    found: Iterable[UndoCheck], owned: Container[CgroupKey], reserved: Container[str]
) -> set[CgroupKey]:
    """Cgroups that are not believed and have something to restore, in a file or at an owner."""
    return {
        each.entry.cgroup_key
        for each in found
        if not is_restorable(each.entry.path, reserved)
        and (each.state == "refused" or each.entry.cgroup_key in owned)
    }


def refusal(path: str, why: str) -> str:
    """What to say of a cgroup that is not believed; the option may be copied into a shell."""
    option = f"--reserved-cgroup {quote(path)}"
    return f"{path} is not changed: {why}. If memqos wrote it, rollback with {option} restores it"


def unconfirmed_conflict(found: UndoCheck, why: str) -> str:
    """What to say of a value on behalf of the kubelet that only a person can decide about."""
    entry = found.entry
    return (
        f"{entry.path}/{entry.file}: {found.value} was written on behalf of the kubelet, and "
        f"{why}: rollback with its configuration (--kubelet FILE) and version (--release) decides, "
        f"--force restores {entry.original}"
    )


def check_undo_entries(
    entries: Iterable[UndoEntry],
    fs: CgroupFs,
    reserved: Container[str] = (),
    kubelet_files: KubeletFiles = None,
) -> Iterator[UndoCheck]:
    """Compare what memqos wrote with the current values."""
    for entry in entries:
        try:
            same = fs.identity(entry.path) == entry.cgroup or entry.cgroup == NEW_CGROUP
            value = fs.read(entry.path, entry.file) if same else None
        except OSError:
            yield UndoCheck(entry, "unreadable")
            continue
        state = _state(entry, value, kubelet_files)
        if state in ("ours", "conflict") and not is_restorable(entry.path, reserved):
            state = "refused"
        yield UndoCheck(entry, state, value)


def rollback(
    fs: CgroupFs,
    driver: Driver,
    journal: Journal,
    options: WriteOptions,
    progress: WriteProgress = ignore_progress,
    entries: Collection[UndoEntry] | None = None,
    reserved: Container[str] = (),
    kubelet_files: KubeletFiles = None,
) -> RollbackResult:
    """Restore what is still ours, or with force all of it; then forget what is settled.

    With `entries` these alone; all others stay in the journal. `reserved` are the cgroups that may
    be restored though no kubelet makes them; see `is_restorable`. What memqos wrote in the
    kubelet's place stays in `kubelet_files`, even with force: to restore it would open a hole.
    """
    journal.bind_new(fs.identity)
    checked = list(journal.undo_entries.values()) if entries is None else entries
    found = list(check_undo_entries(checked, fs, reserved, kubelet_files))
    restored_states = ("ours", "conflict", "unconfirmed") if options.force else ("ours",)
    to_restore = {
        (each.entry.path, each.entry.file): each for each in found if each.state in restored_states
    }
    left = [
        each for each in found if each.state in _NOT_RESTORED and each.state not in restored_states
    ]
    results: list[WriteResult] = []
    done = 0
    for batch in batch_steps(map(_step, to_restore.values()), driver.batch_key):
        progress(done, len(to_restore), batch[0].change)
        done += len(batch)
        for step, result in zip(batch, write_batch(batch, fs, driver, options), strict=True):
            results.append(result)
            if result.writer_blocked:
                journal.renew_lock()
            if result.outcome not in ("written", "gone"):
                left.append(to_restore[step.change.path, step.change.file])
    settled = {entry.key for entry in checked} - {each.entry.key for each in left}
    unsettled = journal.undo_entries.keys() - settled
    owned = set(journal.owner_states)
    if entries is not None:
        owned &= {entry.cgroup_key for entry in entries}
    believed = {place for place in owned if is_restorable(place[0], reserved)}
    undone = {each.entry.key for each in found if each.state != "kubelet"}
    released, unreleased = _restore_owners(journal, fs, driver, believed, unsettled, undone)
    refused = refused_places(found, owned, reserved)
    journal.forget(
        entry
        for entry in checked
        if entry.key in settled
        and entry.cgroup_key not in unreleased
        and entry.cgroup_key not in refused
    )
    failure = journal.failure
    return RollbackResult(
        tuple(results),
        tuple(each for each in found if each.state not in restored_states),
        None if failure is None else failure.strerror,
        tuple(unreleased.values()),
        tuple(released),
        tuple(sorted({path for path, _ in refused})),
    )


def _restore_owners(
    journal: Journal,
    fs: CgroupFs,
    driver: Driver,
    owned: Set[CgroupKey],
    unsettled: Set[FileKey],
    undone: Set[FileKey],
) -> tuple[list[str], dict[CgroupKey, str]]:
    """Have owners of cgroups forget what memqos gave them; what did, and what did not and why."""
    done: list[str] = []
    failed: dict[CgroupKey, str] = {}
    for path, cgroup in owned:
        owner_state = journal.owner_states[path, cgroup]
        settled = [file for file in owner_state.values if (path, file, cgroup) not in unsettled]
        try:
            if fs.identity(path) in (cgroup, None):
                files = [
                    file
                    for file in settled
                    if (path, file, cgroup) in undone
                    or kind_of(path) not in ABOVE_PODS
                    or _matches_file(owner_state.values[file], fs.read(path, file), file)
                ]
                done += driver.restore_owner(path, owner_state, files)
        except MemqosError as error:
            failed[path, cgroup] = str(error)
        except OSError as error:
            failed[path, cgroup] = f"{error.filename or path}: {error.strerror}"
    return done, failed


def _matches_file(stored: str | None, found: str | None, file: str) -> bool:
    """Whether an owner's word of a cgroup above pods is about what its file holds now.

    An owner gets all values of a cgroup at once. One that memqos did not change may have been
    changed since by the kubelet: then the owner's earlier word would bring an old value back.
    """
    if found is None:
        return True
    return found == DEFAULTS.get(file) if stored is None else owner_has_value(stored, (found,))


def _state(entry: UndoEntry, value: str | None, kubelet_files: KubeletFiles) -> UndoState:
    if value is None:
        return "gone"
    if entry.is_unconfirmed and kubelet_files is not None and entry.key[:2] in kubelet_files:
        return "kubelet"
    if value == entry.original:
        return "restored"
    if value not in entry.ours:
        return "conflict"
    return "unconfirmed" if entry.is_unconfirmed and kubelet_files is None else "ours"


def _step(found: UndoCheck) -> WriteStep:
    entry = found.entry
    assert found.value is not None
    change = Change(
        path=entry.path,
        file=entry.file,
        old=found.value,
        new=entry.original,
        level=entry.level,
        setting=Setting(entry.original, RESTORE_RULE),
        pod=entry.pod,
        container=entry.container,
    )
    return WriteStep(change, entry.cgroup)
