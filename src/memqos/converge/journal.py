"""The journal of prior values: read, appended to, and closed once all is restored.

One file in a folder of the runtime directory. What is about to be written is on the disk before
the first write; what became of it follows, and may be lost without harm. The journal is about one
cgroup tree in one boot, as no cgroup value outlives that.
"""

import errno
import os
import threading
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from memqos.converge.journal_file import JournalFile
from memqos.converge.records import (
    JOURNAL_FORMAT,
    NEW_CGROUP,
    Damage,
    FileKey,
    Hierarchy,
    OutcomeRecord,
    OwnerRecord,
    PriorValueRecord,
    decode_journal,
)
from memqos.converge.undo import (
    OwnerStates,
    UndoEntries,
    UndoEntry,
    owner_states,
    undo_entries,
    write_records,
)
from memqos.errors import JournalError, MemqosError
from memqos.host import durable
from memqos.host.cgroups import CgroupFs
from memqos.host.lock import Lock
from memqos.plan.names import outer

JOURNAL_FOLDER: Final = "/run/memqos"
_JOURNAL: Final = "journal"
_LOCK: Final = "lock"
_HINTS: Final = {
    errno.EACCES: "run as root, or name another folder with --journal",
    errno.EROFS: "give a writable folder with --journal",
    errno.ENOSPC: "free some space there, or give another folder with --journal; no cgroup was "
    "changed",
}


class JournalContents(msgspec.Struct, frozen=True):
    """What a journal says."""

    undo_entries: UndoEntries
    owner_states: OwnerStates = {}
    """What the owners of those cgroups kept before."""
    checksum: int = 0
    is_open: bool = False
    """Whether there is a journal that can be appended to."""
    damage: Damage | None = None
    is_of_another_boot: bool = False


def hierarchy_of(fs: CgroupFs, boot: str) -> Hierarchy:
    """The tree a journal would be about."""
    try:
        root = os.stat(fs.root)
    except OSError as error:
        raise MemqosError(
            f"{fs.root}: {error.strerror}", hint="set --cgroup-root to the cgroup mount"
        ) from None
    return Hierarchy(boot, fs.root, root.st_dev, root.st_ino)


def read_journal(folder: str, hierarchy: Hierarchy) -> JournalContents:
    """What the journal says of this tree; that of an earlier boot says nothing."""
    path = os.path.join(folder, _JOURNAL)
    try:
        decoded = decode_journal(durable.read_plain_file(path))
    except (FileNotFoundError, NotADirectoryError):
        return JournalContents({})
    except OSError as error:
        raise _journal_error("read", path, error) from None
    about = decoded.records[0] if decoded.records else None
    if not isinstance(about, Hierarchy):
        # A new journal is renamed into place with its first record: without one it is damaged.
        return JournalContents({}, damage=Damage(1, torn=False))
    if about.boot != hierarchy.boot:
        return JournalContents({}, is_of_another_boot=True)
    _check_is_ours(path, about, hierarchy)
    return JournalContents(
        undo_entries(decoded.records),
        owner_states(decoded.records),
        decoded.checksum,
        decoded.damage is None,
        decoded.damage,
    )


class Journal:
    """A journal that is open for the only writer; see `open_journal`.

    One thread writes and restores. A second one may record what a runtime is about to write, with
    `record_writes` and `discard_new`: both replace the dictionaries, which the first may be going
    through, and never change them.
    """

    def __init__(self, folder: str, hierarchy: Hierarchy, lock: Lock) -> None:
        self.path = os.path.join(folder, _JOURNAL)
        self.lock = lock
        self.hierarchy = hierarchy
        self.contents = read_journal(folder, hierarchy)
        self.undo_entries = dict(self.contents.undo_entries)
        """All that is to be restored, kept up to date."""
        self.owner_states = dict(self.contents.owner_states)
        """What the owners of those cgroups kept before, likewise."""
        self.failure: OSError | None = None
        """Why what came of the intents is not recorded."""
        self.is_starting: Callable[[str], bool] = lambda _path: False
        """Of which new cgroups, by path, a part may still be missing."""
        self._lock = threading.RLock()
        self._is_released = False
        damage = self.contents.damage
        self._file = JournalFile(
            self.path,
            checksum=self.contents.checksum,
            is_whole=self.contents.is_open,
            is_damaged=damage is not None and not damage.torn,
        )

    @property
    def appended(self) -> int:
        """Records since the journal was last opened or written as a whole."""
        return self._file.appended

    def record_writes(self, intended: Iterable[OwnerRecord | PriorValueRecord]) -> None:
        """Have the prior values on the disk when this returns, or raise and leave no trace."""
        with self._lock:
            if self._is_released:
                raise JournalError(f"{self.path}: another memqos may write it by now")
            new = list(intended)
            try:
                if self._file.is_whole and os.path.lexists(self.path):
                    self._file.open()
                    self._file.append(new, is_synced=True)
                else:
                    # Also where something has removed it: all that it said is known here.
                    self.close()
                    self._replace([*self._records_for(self.undo_entries.values()), *new])
                    self._file.open()
            except OSError as error:
                raise _journal_error("written", self.path, error) from None
            self.undo_entries = undo_entries(new, dict(self.undo_entries))
            self.owner_states = self.owner_states | owner_states(new)

    def record_outcome(self, outcome: OutcomeRecord) -> None:
        """Record what became of an intent. Rollback can do without, so a failure is only noted."""
        with self._lock:
            undo_entries([outcome], self.undo_entries)
            self._append_outcomes([outcome])

    def settle_kubelet_entries(
        self, files: Container[tuple[str, str]], is_settled: Callable[[UndoEntry], bool]
    ) -> None:
        """The running kubelet keeps these files, by path and name, and no others above pods.

        In these nothing is to be restored any more where `is_settled`; until then it depends on the
        kubelet. What memqos wrote in its place elsewhere is to be restored as any other value.
        """
        with self._lock:
            changed, settled = [], []
            for entry in self.undo_entries.values():
                is_kept = entry.key[:2] in files
                if is_kept and is_settled(entry):
                    settled.append(entry.key)
                elif is_kept != entry.is_unconfirmed:
                    changed.append(msgspec.structs.replace(entry, is_unconfirmed=is_kept))
            self._discard(settled)
            if changed:
                self.record_writes(write_records(changed))

    def discard_new(self, is_expected: Callable[[str], bool]) -> None:
        """Forget cgroups that were to be made, but for those, by path, that still are."""
        with self._lock:
            if not self._is_released:
                self._discard([key for key in self._new_keys() if not is_expected(key[0])])

    def bind_new(self, identity: Callable[[str], int | None]) -> None:
        """Cgroups that runtimes have made since are known by their inodes from now on."""
        # Looked at before the lock is taken: a runtime may be waiting for it.
        places = {key[0] for key in self._new_keys()}
        starting = {outer(path) for path in places if self.is_starting(path)}
        found = {path: identity(path) for path in places | set(map(outer, places))}
        scopes = {path for path, inode in found.items() if inode is not None} - starting
        with self._lock:
            new = self._new_keys()
            made = {key: inode for key in new if (inode := found.get(key[0])) is not None}
            if made:
                self.record_writes(self._bound_records(made))
            # Only crun makes a cgroup within a scope, a moment after the scope.
            self._discard([key for key in new if key in made or outer(key[0]) in scopes])

    def _bound_records(self, made: dict[FileKey, int]) -> Iterator[OwnerRecord | PriorValueRecord]:
        for path, inode in {(key[0], inode) for key, inode in made.items()}:
            state = self.owner_states.get((path, NEW_CGROUP))
            if state is not None:
                yield OwnerRecord(path, inode, state)
        for key, inode in made.items():
            bound = msgspec.structs.replace(self.undo_entries[key], cgroup=inode)
            # What was recorded of the cgroup itself came after it was made.
            since = self.undo_entries.get(bound.key)
            yield from write_records([bound] if since is None else [bound, since])

    def _new_keys(self) -> list[FileKey]:
        return [key for key in self.undo_entries if key[2] == NEW_CGROUP]

    def _discard(self, keys: Collection[FileKey]) -> None:
        """Nothing is to be restored here, nor by the owner where that held for new cgroups."""
        if not keys:
            return
        if self._file.is_whole:
            try:
                self._file.open()
            except OSError as error:
                self.failure = error
        # One for each value that may be there: an outcome is about the last one.
        self._append_outcomes(
            [
                OutcomeRecord(*key, written=False)
                for key in keys
                for _ in self.undo_entries[key].ours
            ]
        )
        self.undo_entries = {
            key: entry for key, entry in self.undo_entries.items() if key not in keys
        }
        new = {key[::2] for key in keys if key[2] == NEW_CGROUP}
        self.owner_states = {
            place: state for place, state in self.owner_states.items() if place not in new
        }

    def renew_lock(self) -> None:
        """Do not keep others out for a write that holds already and has yet to return."""
        try:
            self.lock.renew()
        except OSError as error:
            self.failure = error

    def forget(self, settled: Iterable[UndoEntry]) -> None:
        """Forget these entries, in one step. To forget later is no harm: it is noted.

        One that is not in `undo_entries` any more stays as it is now: something was recorded of
        the same file since the caller looked at it.
        """
        # Looked at before the lock is taken: a runtime may be waiting for it.
        looked_at = {entry.key: entry for entry in settled}
        with self._lock:
            # A cgroup that is being made is not there to be looked at yet.
            remaining = [
                entry
                for key, entry in self.undo_entries.items()
                if key[2] == NEW_CGROUP or looked_at.get(key) is not entry
            ]
            self.close()
            try:
                if remaining:
                    self._replace(self._records_for(remaining))
                else:
                    self._file.remove()
            except OSError as error:
                self.failure = error
            else:
                self.undo_entries = {entry.key: entry for entry in remaining}
                places = {entry.cgroup_key for entry in remaining}
                self.owner_states = {
                    place: state for place, state in self.owner_states.items() if place in places
                }

    def close(self) -> None:
        """End the batch, with what has been recorded on the disk."""
        with self._lock:
            try:
                self._file.close()
            except OSError as error:
                self.failure = error

    def release(self) -> None:
        """Let others write; the thread of the NRI plugin may be about to."""
        with self._lock:
            self._is_released = True
            try:
                self.close()
            finally:
                self.lock.release()

    def _records_for(
        self, entries: Iterable[UndoEntry]
    ) -> Iterator[OwnerRecord | PriorValueRecord]:
        """All that there is to know to settle these."""
        listed = list(entries)
        for path, cgroup in dict.fromkeys(entry.cgroup_key for entry in listed):
            owner_state = self.owner_states.get((path, cgroup))
            if owner_state is not None:
                yield OwnerRecord(path, cgroup, owner_state)
        yield from write_records(listed)

    def _append_outcomes(self, outcomes: Sequence[OutcomeRecord]) -> None:
        if self.failure is None and self._file.can_append:
            try:
                self._file.append(outcomes)
            except OSError as error:
                self.failure = error

    def _replace(self, records: Iterable[OwnerRecord | PriorValueRecord]) -> None:
        self._file.replace([self.hierarchy, *records])


@contextmanager
def open_journal(folder: str, hierarchy: Hierarchy) -> Iterator[Journal]:
    """The journal, locked: one writer at a time, or Locked is raised."""
    try:
        durable.ensure_private_folder(folder)
        lock = Lock(os.path.join(folder, _LOCK))
    except OSError as error:
        raise _journal_error("written", folder, error) from None
    try:
        durable.remove_unfinished(folder)
        journal = Journal(folder, hierarchy, lock)
    except BaseException:
        lock.release()
        raise
    try:
        yield journal
    finally:
        journal.release()


def _check_is_ours(path: str, about: Hierarchy, hierarchy: Hierarchy) -> None:
    if about.format != JOURNAL_FORMAT:
        raise JournalError(
            f"{path}: it has format {about.format}, and this memqos supports {JOURNAL_FORMAT}",
            hint="use the memqos that wrote it",
        )
    if not about.is_same_tree(hierarchy):
        raise JournalError(
            f"{path}: the journal of another cgroup tree, {about.root}, not of {hierarchy.root}",
            hint="set --cgroup-root to the cgroup tree, and --journal to the folder of its journal",
        )


def _journal_error(done: str, path: str, error: OSError) -> JournalError:
    return JournalError(
        f"{path}: the journal cannot be {done}: {error.strerror}",
        hint=_HINTS.get(
            error.errno or 0, "no cgroup was changed; give another folder with --journal"
        ),
        errno=error.errno,
    )
