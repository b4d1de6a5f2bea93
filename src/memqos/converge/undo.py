"""What is to be restored: the values that memqos has written over, by the journal's records."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from memqos.converge.records import (
    CgroupKey,
    FileKey,
    FileRecord,
    IntentRecord,
    JournalRecord,
    KubeletWriteRecord,
    OutcomeRecord,
    OwnerRecord,
    OwnerState,
    PriorValueRecord,
)
from memqos.plan.tree import Level


class UndoEntry(FileRecord, frozen=True):
    """One file that memqos has written, or was about to write."""

    original: str
    """What was there before memqos first wrote."""
    ours: tuple[str, ...]
    """What memqos has put there. Two values where a writer may have stopped between them."""
    level: Level
    pod: str | None = None
    container: str | None = None
    is_unconfirmed: bool = False
    """Whether memqos wrote on behalf of the kubelet, which has yet to confirm that it keeps it."""

    @property
    def cgroup_key(self) -> CgroupKey:
        return self.path, self.cgroup


UndoEntries = dict[FileKey, UndoEntry]
OwnerStates = dict[CgroupKey, OwnerState]


def undo_entries(
    records: Iterable[JournalRecord], entries: UndoEntries | None = None
) -> UndoEntries:
    """Every file whose value memqos would have to restore; earlier entries are carried on."""
    entries = {} if entries is None else entries
    for record in records:
        if isinstance(record, PriorValueRecord):
            entries[record.key] = _merge_write(entries.get(record.key), record)
        elif isinstance(record, OutcomeRecord) and record.key in entries:
            _apply_outcome(entries, record)
    return entries


def owner_states(records: Sequence[JournalRecord]) -> OwnerStates:
    """What owners kept of cgroups that memqos meant to write; the last record of each counts."""
    intended = {
        (record.path, record.cgroup) for record in records if isinstance(record, PriorValueRecord)
    }
    return {
        record.key: record.holding
        for record in records
        if isinstance(record, OwnerRecord) and record.key in intended
    }


def write_records(entries: Iterable[UndoEntry]) -> Iterator[PriorValueRecord]:
    """The fewest records that say the same."""
    for entry in entries:
        old = entry.original
        for value in entry.ours:
            if entry.is_unconfirmed:
                yield KubeletWriteRecord(*entry.key, old, value, entry.level)
            else:
                yield IntentRecord(*entry.key, old, value, entry.level, entry.pod, entry.container)
            old = value


def _merge_write(before: UndoEntry | None, write: PriorValueRecord) -> UndoEntry:
    ours: tuple[str, ...]
    # Where something else has written since, its value is the one to restore.
    original, ours = write.old, (write.new,)
    if before is not None and write.old in before.ours:
        original, ours = before.original, (write.old, *ours)
    if isinstance(write, KubeletWriteRecord):
        return UndoEntry(*write.key, original, ours, write.level, is_unconfirmed=True)
    return UndoEntry(*write.key, original, ours, write.level, write.pod, write.container)


def _apply_outcome(entries: UndoEntries, outcome: OutcomeRecord) -> None:
    entry = entries[outcome.key]
    ours = entry.ours[-1:] if outcome.written else entry.ours[:-1]
    if ours:
        entries[outcome.key] = msgspec.structs.replace(entry, ours=ours)
    else:
        del entries[outcome.key]
