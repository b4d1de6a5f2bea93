"""Put back what was there before memqos wrote, wherever that is still its own doing."""

from collections.abc import Collection, Container, Iterable, Iterator, Set
from shlex import quote
from typing import Final, Literal

import msgspec

from memqos.converge.apply import Progress, quiet, says
from memqos.converge.batches import batches
from memqos.converge.driver import Driver
from memqos.converge.journal import Journal
from memqos.converge.records import CgroupKey, Key
from memqos.converge.steps import Step
from memqos.converge.undo import Owed
from memqos.converge.writing import Cautions, Result, write
from memqos.errors import MemqosError
from memqos.host.cgroups import CgroupFs
from memqos.plan.changes import DEFAULTS, Change
from memqos.plan.names import kind_of
from memqos.plan.setting import Rule, Setting

State = Literal["ours", "conflict", "refused", "restored", "gone", "unreadable"]
"""What has become of a value that memqos wrote: still there; changed by somebody else since; in a
cgroup that nobody but the journal calls reserved; as it was before; vanished with its cgroup; or
not to be had."""

_OWED: Final[frozenset[State]] = frozenset({"ours", "conflict", "refused", "unreadable"})
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
    unreleased: tuple[str, ...] = ()
    """Owners that still keep what memqos told them, and why; the journal keeps that, too."""
    released: tuple[str, ...] = ()
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
    found: Iterable[Found], held: Container[CgroupKey], reserved: Container[str]
) -> set[CgroupKey]:
    """Cgroups that are not believed and have something to restore, be it what an owner keeps."""
    return {
        each.debt.place
        for each in found
        if not is_restorable(each.debt.path, reserved)
        and (each.state == "refused" or each.debt.place in held)
    }


def refusal(path: str, why: str) -> str:
    """What to say of a cgroup that is not believed; the option may be copied into a shell."""
    option = f"--reserved-cgroup {quote(path)}"
    return f"{path} is left alone: {why}. If memqos wrote there, rollback with {option} restores it"


def survey(debts: Iterable[Owed], fs: CgroupFs, reserved: Container[str] = ()) -> Iterator[Found]:
    """Compare what memqos wrote with what is there."""
    for debt in debts:
        try:
            same = fs.identity(debt.path) == debt.cgroup
            value = fs.read(debt.path, debt.file) if same else None
        except OSError:
            yield Found(debt, "unreadable")
            continue
        state = _state(debt, value)
        if state in ("ours", "conflict") and not is_restorable(debt.path, reserved):
            state = "refused"
        yield Found(debt, state, value)


def rollback(
    fs: CgroupFs,
    driver: Driver,
    journal: Journal,
    cautions: Cautions,
    progress: Progress = quiet,
    debts: Collection[Owed] | None = None,
    reserved: Container[str] = (),
) -> RolledBack:
    """Restore what is still ours, or with force all of it; then forget what is settled.

    With `debts` these alone; all others stay owed. `reserved` are the cgroups that may be restored
    though no kubelet makes them; see `is_restorable`.
    """
    settling = journal.debts.values() if debts is None else debts
    found = list(survey(settling, fs, reserved))
    wanted = ("ours", "conflict") if cautions.force else ("ours",)
    todo = {(each.debt.path, each.debt.file): each for each in found if each.state in wanted}
    left = [each for each in found if each.state in _OWED and each.state not in wanted]
    results: list[Result] = []
    done = 0
    for batch in batches(map(_step, todo.values()), driver.batch):
        progress(done, len(todo), batch[0].change)
        done += len(batch)
        for step, result in zip(batch, write(batch, fs, driver, cautions), strict=True):
            results.append(result)
            if result.lingers:
                journal.leave_behind()
            if result.end not in ("written", "gone"):
                left.append(todo[step.change.path, step.change.file])
    owing = journal.debts.keys() - {debt.key for debt in settling}
    owing |= {each.debt.key for each in left}
    held = set(journal.held)
    if debts is not None:
        held &= {debt.place for debt in debts}
    believed = {place for place in held if is_restorable(place[0], reserved)}
    released, unreleased = _release(journal, fs, driver, believed, owing)
    refused = refused_places(found, held, reserved)
    journal.keep(
        debt
        for debt in journal.debts.values()
        if debt.key in owing or debt.place in unreleased or debt.place in refused
    )
    failure = journal.failure
    return RolledBack(
        tuple(results),
        tuple(each for each in found if each.state not in wanted),
        None if failure is None else failure.strerror,
        tuple(unreleased.values()),
        tuple(released),
        tuple(sorted({path for path, _ in refused})),
    )


def _release(
    journal: Journal, fs: CgroupFs, driver: Driver, held: Set[CgroupKey], owing: Set[Key]
) -> tuple[list[str], dict[CgroupKey, str]]:
    """Have owners of cgroups forget what memqos told them; what did, and what did not and why."""
    done: list[str] = []
    failed: dict[CgroupKey, str] = {}
    above_pods = {
        debt.place for debt in journal.debts.values() if debt.level in ("kubepods", "qos")
    }
    for path, cgroup in held:
        holding = journal.held[path, cgroup]
        settled = [file for file in holding.values if (path, file, cgroup) not in owing]
        try:
            if fs.identity(path) in (cgroup, None):
                files = [
                    file
                    for file in settled
                    if (path, file, cgroup) in journal.debts
                    or (path, cgroup) not in above_pods
                    or _agrees(holding.values[file], fs.read(path, file), file)
                ]
                done += driver.release(path, holding, files)
        except MemqosError as error:
            failed[path, cgroup] = str(error)
        except OSError as error:
            failed[path, cgroup] = f"{error.filename or path}: {error.strerror}"
    return done, failed


def _agrees(kept: str | None, found: str | None, file: str) -> bool:
    """Whether an owner's word of a cgroup above pods is about what its file holds now.

    An owner is told all values of a cgroup at once. One that memqos did not change may have been
    changed since by the kubelet: then the owner's earlier word would bring an old value back.
    """
    if found is None:
        return True
    return found == DEFAULTS.get(file) if kept is None else says(kept, (found,))


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
