"""Put back what was there before memqos wrote, wherever that is still its own doing."""

from collections.abc import Iterable, Iterator
from typing import Final, Literal

import msgspec

from memqos.converge.apply import Progress, in_order, quiet
from memqos.converge.driver import Driver
from memqos.converge.journal import Journal
from memqos.converge.owed import Owed
from memqos.converge.steps import Step
from memqos.converge.writing import Cautions, Result, write
from memqos.host.cgroups import CgroupFs
from memqos.plan.changes import Change
from memqos.plan.setting import Rule, Setting

State = Literal["ours", "conflict", "restored", "gone", "unreadable"]
"""What has become of a value that memqos wrote: still there; changed by somebody else since; as it
was before; vanished with its cgroup; or not to be had."""

_OWED: Final[frozenset[State]] = frozenset({"ours", "conflict", "unreadable"})
RESTORED: Final = Rule("rollback/prior", "what was there before memqos wrote", "journal")


class Found(msgspec.Struct, frozen=True):
    """A value memqos owes back, and what is there now."""

    debt: Owed
    state: State
    value: str | None = None
    """None where it is gone or cannot be read."""


class RolledBack(msgspec.Struct, frozen=True):
    """What came of a rollback."""

    results: tuple[Result, ...]
    """The values that were written, in order."""
    rest: tuple[Found, ...]
    """What nothing was written to; conflicts and what cannot be read are still owed."""
    unrecorded: str | None = None
    """Why the journal still lists what is settled, which does no harm."""


def survey(debts: Iterable[Owed], fs: CgroupFs) -> Iterator[Found]:
    """Hold what memqos wrote against what is there."""
    for debt in debts:
        try:
            same = fs.identity(debt.path) == debt.cgroup
            value = fs.read(debt.path, debt.file) if same else None
        except OSError:
            yield Found(debt, "unreadable")
            continue
        yield Found(debt, _state(debt, value), value)


def rollback(
    fs: CgroupFs,
    driver: Driver,
    journal: Journal,
    cautions: Cautions,
    progress: Progress = quiet,
) -> RolledBack:
    """Restore what is still ours, or with force all of it; then forget what is settled."""
    found = list(survey(journal.debts.values(), fs))
    wanted = ("ours", "conflict") if cautions.force else ("ours",)
    todo = {(each.debt.path, each.debt.file): each for each in found if each.state in wanted}
    left = [each for each in found if each.state in _OWED and each.state not in wanted]
    results: list[Result] = []
    for done, step in enumerate(in_order(map(_step, todo.values()))):
        progress(done, len(todo), step.change)
        result = write(step, fs, driver, cautions)
        results.append(result)
        if result.lingers:
            journal.leave_behind()
        if result.end not in ("written", "gone"):
            left.append(todo[step.change.path, step.change.file])
    journal.keep(each.debt for each in left)
    failure = journal.failure
    return RolledBack(
        tuple(results),
        tuple(each for each in found if each.state not in wanted),
        None if failure is None else failure.strerror,
    )


def _state(debt: Owed, value: str | None) -> State:
    if value is None:
        return "gone"
    if value == debt.original:
        return "restored"
    return "ours" if value in debt.ours else "conflict"


def _step(found: Found) -> Step:
    debt = found.debt
    assert found.value is not None
    change = Change(
        debt.path,
        debt.file,
        found.value,
        debt.original,
        debt.level,
        Setting(debt.original, RESTORED),
        debt.pod,
        debt.container,
    )
    return Step(change, debt.cgroup)
