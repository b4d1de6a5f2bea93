"""The journal of prior values: read, appended to, and closed once all is put back.

One file in a folder of the runtime directory. What is about to be written is on the disk before
the first write; what became of it follows, and may be lost without harm. The journal is about one
cgroup tree in one boot, as no cgroup value outlives that.
"""

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from memqos.converge.records import (
    FORMAT,
    Damage,
    Held,
    Hierarchy,
    Intent,
    Key,
    Outcome,
    Record,
    decode,
    encode,
)
from memqos.converge.undo import Debts, Holdings, Owed, held, intents, owed
from memqos.errors import MemqosError
from memqos.host import durable
from memqos.host.cgroups import CgroupFs
from memqos.host.lock import Lock

FOLDER: Final = "/run/memqos"
_JOURNAL: Final = "journal"
_LOCK: Final = "lock"
_HINTS: Final = {
    errno.EACCES: "run as root, or name another folder with --journal",
    errno.EROFS: "name a folder that can be written with --journal",
}


class Reading(msgspec.Struct, frozen=True):
    """What a journal says."""

    debts: Debts
    held: Holdings = {}
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
            f"{fs.root}: {error.strerror}", hint="--cgroup-root says where the cgroups are"
        ) from None
    return Hierarchy(boot, fs.root, root.st_dev, root.st_ino)


def read(folder: str, hierarchy: Hierarchy) -> Reading:
    """What the journal says of this tree; that of an earlier boot says nothing."""
    path = os.path.join(folder, _JOURNAL)
    try:
        decoded = decode(durable.content(path))
    except (FileNotFoundError, NotADirectoryError):
        return Reading({})
    except OSError as error:
        raise _failed("read", path, error) from None
    about = decoded.records[0] if decoded.records else None
    if not isinstance(about, Hierarchy):
        # A journal comes into being whole: a writer that is killed leaves its first record.
        return Reading({}, damage=Damage(1, torn=False))
    if about.boot != hierarchy.boot:
        return Reading({}, is_of_another_boot=True)
    _check_is_ours(path, about, hierarchy)
    return Reading(
        owed(decoded.records),
        held(decoded.records),
        decoded.checksum,
        decoded.damage is None,
        decoded.damage,
    )


class Journal:
    """A journal in the hands of the only writer; see `writing`."""

    def __init__(self, folder: str, hierarchy: Hierarchy, lock: Lock) -> None:
        self.path = os.path.join(folder, _JOURNAL)
        self.lock = lock
        self.hierarchy = hierarchy
        self.reading = read(folder, hierarchy)
        self.debts = dict(self.reading.debts)
        """All that is owed back, kept up to date."""
        self.held = dict(self.reading.held)
        """What the owners of those cgroups kept before, likewise."""
        self.failure: OSError | None = None
        """Why what came of the intents is not recorded."""
        self._handle: int | None = None
        self._is_open = self.reading.is_open
        self._checksum = self.reading.checksum
        self._is_damaged = self.reading.damage is not None and not self.reading.damage.torn

    def intend(self, intended: Iterable[Held | Intent]) -> None:
        """Have the prior values on the disk when this returns, or raise and leave no trace."""
        new = list(intended)
        try:
            if self._is_open:
                self._append(new, self._handle or self._open(), os.fsync)
            else:
                self._replace([*self._about(self.debts.values()), *new])
                self._open()
        except OSError as error:
            raise _failed("written", self.path, error) from None
        owed(new, self.debts)
        self.held |= held(new)

    def settle(self, outcome: Outcome) -> None:
        """Record what became of an intent. Rollback can do without, so a failure is only noted."""
        owed([outcome], self.debts)
        if self.failure is None and self._handle is not None:
            try:
                self._append([outcome], self._handle)
            except OSError as error:
                self.failure = error

    def settle_with_kubelet(self, key: Key) -> None:
        """Restore nothing here any more: the running kubelet keeps this file itself."""
        if key in self.debts and self._is_open and self._handle is None:
            self._open()
        while key in self.debts:
            self.settle(Outcome(*key, written=False))

    def leave_behind(self) -> None:
        """Do not keep others out for a write that holds already and has yet to return."""
        try:
            self.lock.renew()
        except OSError as error:
            self.failure = error

    def keep(self, debts: Iterable[Owed]) -> None:
        """Forget everything but these, in one step. To forget later is no harm: it is noted."""
        kept = list(debts)
        self.close()
        try:
            if kept:
                self._replace(self._about(kept))
            else:
                self._keep_damaged()
                durable.remove(self.path)
                self._is_open = False
        except OSError as error:
            self.failure = error
        else:
            self.debts = {debt.key: debt for debt in kept}
            places = {debt.place for debt in kept}
            self.held = {place: kept for place, kept in self.held.items() if place in places}

    def close(self) -> None:
        """End the batch, with what has been recorded on the disk."""
        if self._handle is None:
            return
        handle, self._handle = self._handle, None
        try:
            os.fsync(handle)
        except OSError as error:
            self.failure = error
        finally:
            os.close(handle)

    def _about(self, debts: Iterable[Owed]) -> Iterator[Held | Intent]:
        """All that there is to know to settle these."""
        owing = list(debts)
        for path, cgroup in dict.fromkeys(debt.place for debt in owing):
            holding = self.held.get((path, cgroup))
            if holding is not None:
                yield Held(path, cgroup, holding)
        yield from intents(owing)

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._handle = os.open(self.path, flags)
        return self._handle

    def _append(
        self,
        records: Iterable[Record],
        handle: int,
        sync: Callable[[int], None] = lambda _handle: None,
    ) -> None:
        lines, checksum = encode(records, self._checksum)
        before = os.fstat(handle).st_size
        try:
            durable.append(handle, lines)
            sync(handle)
        except OSError:
            # Nothing may follow a part of a record.
            os.ftruncate(handle, before)
            raise
        self._checksum = checksum

    def _replace(self, records: Iterable[Record]) -> None:
        data, checksum = encode([self.hierarchy, *records])
        self._keep_damaged()
        durable.replace(self.path, data)
        self._checksum = checksum
        self._is_open = True

    def _keep_damaged(self) -> None:
        """What cannot be read is kept for a person to look at."""
        if self._is_damaged:
            durable.keep_aside(self.path, "damaged")
            self._is_damaged = False


@contextmanager
def writing(folder: str, hierarchy: Hierarchy) -> Iterator[Journal]:
    """The journal, locked: one writer at a time, or Locked is raised."""
    try:
        durable.private_folder(folder)
        lock = Lock(os.path.join(folder, _LOCK))
    except OSError as error:
        raise _failed("written", folder, error) from None
    try:
        durable.remove_unfinished(folder)
        journal = Journal(folder, hierarchy, lock)
        try:
            yield journal
        finally:
            journal.close()
    finally:
        lock.release()


def _check_is_ours(path: str, about: Hierarchy, hierarchy: Hierarchy) -> None:
    if about.format != FORMAT:
        raise MemqosError(
            f"{path}: written in format {about.format}, and this memqos knows {FORMAT}",
            hint="use the memqos that wrote it",
        )
    if not about.is_same_tree(hierarchy):
        raise MemqosError(
            f"{path}: the journal of another cgroup tree, {about.root}, not of {hierarchy.root}",
            hint="--cgroup-root names the tree, --journal the folder of its journal",
        )


def _failed(done: str, path: str, error: OSError) -> MemqosError:
    return MemqosError(
        f"{path}: the journal cannot be {done}: {error.strerror}",
        hint=_HINTS.get(error.errno or 0, "no cgroup was changed; --journal names another folder"),
    )
