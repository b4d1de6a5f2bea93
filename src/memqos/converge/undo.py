"""What is to be restored: the values that memqos has written over, by the journal's records."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from memqos.converge.records import (
    CgroupKey,
    FileKey,
    FileRecord,
    IntentRecord,
    JournalRecord,
    OutcomeRecord,
    OwnerRecord,
    OwnerState,
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

    @property
    def cgroup_key(self) -> CgroupKey:
        return self.path, self.cgroup


UndoEntries = dict[FileKey, UndoEntry]
OwnerStates = dict[CgroupKey, OwnerState]


def undo_entries(
    records: Iterable[JournalRecord], entries: UndoEntries | None = None
) -> UndoEntries:
    """Every file whose value memqos would have to put back; earlier entries are carried on."""
    entries = {} if entries is None else entries
    for record in records:
        if isinstance(record, IntentRecord):
            entries[record.key] = _merge_intent(entries.get(record.key), record)
        elif isinstance(record, OutcomeRecord) and record.key in entries:
            _apply_outcome(entries, record)
    return entries


def owner_states(records: Sequence[JournalRecord]) -> OwnerStates:
    """What owners kept of cgroups that memqos meant to write; the last record of each counts."""
    intended = {
        (record.path, record.cgroup) for record in records if isinstance(record, IntentRecord)
    }
    return {
        record.key: record.holding
        for record in records
        if isinstance(record, OwnerRecord) and record.key in intended
    }


def intent_records(entries: Iterable[UndoEntry]) -> Iterator[IntentRecord]:
    """The fewest records that say the same."""
    for entry in entries:
        old = entry.original
        for value in entry.ours:
            yield IntentRecord(
                entry.path,
                entry.file,
                entry.cgroup,
                old,
                value,
                entry.level,
                entry.pod,
                entry.container,
            )
            old = value


def _merge_intent(before: UndoEntry | None, intent: IntentRecord) -> UndoEntry:
    ours: tuple[str, ...]
    # Where somebody else has written since, their value is the one to restore.
    original, ours = intent.old, (intent.new,)
    if before is not None and intent.old in before.ours:
        original, ours = before.original, (intent.old, *ours)
    return UndoEntry(
        intent.path,
        intent.file,
        intent.cgroup,
        original,
        ours,
        intent.level,
        intent.pod,
        intent.container,
    )


def _apply_outcome(entries: UndoEntries, outcome: OutcomeRecord) -> None:
    entry = entries[outcome.key]
    ours = entry.ours[-1:] if outcome.written else entry.ours[:-1]
    if ours:
        entries[outcome.key] = msgspec.structs.replace(entry, ours=ours)
    else:
        del entries[outcome.key]
