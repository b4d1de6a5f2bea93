"""What memqos owes back: the values it has written over, made up from the journal's records."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from memqos.converge.records import (
    CgroupKey,
    Held,
    Holding,
    Intent,
    Key,
    Outcome,
    Place,
    Record,
)
from memqos.plan.tree import Level


class Owed(Place, frozen=True):
    """One file that memqos has written, or was about to write."""

    original: str
    """What was there before memqos first wrote."""
    ours: tuple[str, ...]
    """What memqos has put there. Two values where a writer may have stopped between them."""
    level: Level
    pod: str | None = None
    container: str | None = None

    @property
    def place(self) -> CgroupKey:
        return self.path, self.cgroup


Debts = dict[Key, Owed]
Holdings = dict[CgroupKey, Holding]


def owed(records: Iterable[Record], debts: Debts | None = None) -> Debts:
    """Every file whose value memqos would have to put back; earlier debts are brought on."""
    debts = {} if debts is None else debts
    for record in records:
        if isinstance(record, Intent):
            debts[record.key] = _intended(debts.get(record.key), record)
        elif isinstance(record, Outcome) and record.key in debts:
            _settle(debts, record)
    return debts


def held(records: Sequence[Record]) -> Holdings:
    """What owners kept of cgroups that memqos meant to write; the last record of each holds."""
    intended = {(record.path, record.cgroup) for record in records if isinstance(record, Intent)}
    return {
        record.key: record.holding
        for record in records
        if isinstance(record, Held) and record.key in intended
    }


def intents(debts: Iterable[Owed]) -> Iterator[Intent]:
    """The fewest records that say the same."""
    for debt in debts:
        old = debt.original
        for value in debt.ours:
            yield Intent(
                debt.path,
                debt.file,
                debt.cgroup,
                old,
                value,
                debt.level,
                debt.pod,
                debt.container,
            )
            old = value


def _intended(before: Owed | None, intent: Intent) -> Owed:
    ours: tuple[str, ...]
    # Where somebody else has written since, theirs is what will be put back.
    original, ours = intent.old, (intent.new,)
    if before is not None and intent.old in before.ours:
        original, ours = before.original, (intent.old, *ours)
    return Owed(
        intent.path,
        intent.file,
        intent.cgroup,
        original,
        ours,
        intent.level,
        intent.pod,
        intent.container,
    )


def _settle(debts: Debts, outcome: Outcome) -> None:
    debt = debts[outcome.key]
    ours = debt.ours[-1:] if outcome.written else debt.ours[:-1]
    if ours:
        debts[outcome.key] = msgspec.structs.replace(debt, ours=ours)
    else:
        del debts[outcome.key]
