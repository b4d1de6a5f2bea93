"""A plan in a file: the changes to make, and the tree they are for.

The file may have been edited, or come from anyone: every name and value in it is checked.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from memqos.converge.records import Hierarchy
from memqos.converge.steps import WriteStep
from memqos.converge.values import file_fault, level_fault, value_fault
from memqos.errors import InputError
from memqos.plan.changes import Change
from memqos.plan.rules import RULES
from memqos.plan.setting import Rule, Setting
from memqos.plan.tree import Level

SAVED_PLAN_FORMAT: Final = 1
_PLAN_AGAIN: Final = "make a new plan with memqos plan --out"


class SavedChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One change, the inode of its cgroup, and the rule behind it."""

    path: str
    file: str
    old: str
    new: str
    cgroup: int
    level: Level
    rule: str
    pod: str | None = None
    container: str | None = None


class SavedPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A plan of one tree in one boot."""

    format: int
    memqos: str | None
    """The version of memqos that saved it."""
    boot: str
    root: str
    """Where the cgroup file system was mounted."""
    changes: tuple[SavedChange, ...]

    @property
    def steps(self) -> tuple[WriteStep, ...]:
        """The changes as steps to apply."""
        return tuple(map(_step, self.changes))


class _Versioned(msgspec.Struct, frozen=True):
    format: int


def plan_to_save(
    steps: Iterable[WriteStep], boot: str, root: str, version: str | None
) -> SavedPlan:
    """A plan to be saved."""
    return SavedPlan(
        SAVED_PLAN_FORMAT,
        version,
        boot,
        root.rstrip("/") or "/",
        tuple(map(_change_to_save, steps)),
    )


def encode_saved_plan(plan: SavedPlan) -> bytes:
    """The plan as a file, one line a field, so that it is readable too."""
    return msgspec.json.format(msgspec.json.encode(plan), indent=2) + b"\n"


def decode_saved_plan(data: bytes, file: str) -> SavedPlan:
    """Decode and check a saved plan; InputError where it is not valid."""
    try:
        found = msgspec.json.decode(data, type=_Versioned).format
        if found != SAVED_PLAN_FORMAT:
            raise InputError(
                f"the plan has format {found}, and this memqos supports {SAVED_PLAN_FORMAT}",
                file=file,
                hint=_PLAN_AGAIN,
            )
        plan = msgspec.json.decode(data, type=SavedPlan)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"not a saved plan: {error}", file=file, hint=_PLAN_AGAIN) from None
    seen: set[tuple[str, str]] = set()
    for index, change in enumerate(plan.changes):
        field = f"changes[{index}]"
        fault = file_fault(change.path, change.file)
        fault = fault or level_fault(change.path, change.file, change.level)
        fault = fault or value_fault(change.file, change.old)
        fault = fault or value_fault(change.file, change.new)
        if fault is None and (change.path, change.file) in seen:
            fault = f"{change.path}/{change.file} is changed twice"
        if fault is not None:
            raise InputError(fault, file=file, field=field, hint=_PLAN_AGAIN)
        seen.add((change.path, change.file))
    return plan


def check_same_tree(plan: SavedPlan, hierarchy: Hierarchy, file: str) -> None:
    """Refuse a plan of another boot or another tree."""
    if plan.boot != hierarchy.boot:
        raise InputError(
            "the machine has rebooted since this plan was made, or the plan is of another machine",
            file=file,
            hint=_PLAN_AGAIN,
        )
    if plan.root != hierarchy.root:
        raise InputError(
            f"a plan of the cgroups at {plan.root}, not at {hierarchy.root}",
            file=file,
            hint=f"give --cgroup-root {plan.root} to apply it there",
        )


def _change_to_save(step: WriteStep) -> SavedChange:
    change = step.change
    return SavedChange(
        path=change.path,
        file=change.file,
        old=change.old,
        new=change.new,
        cgroup=step.cgroup,
        level=change.level,
        rule=change.setting.rule.id,
        pod=change.pod,
        container=change.container,
    )


def _step(saved: SavedChange) -> WriteStep:
    # A plan that another version of memqos saved may name a rule that this one does not have.
    known = RULES.get(saved.rule)
    text = "as planned when the plan was saved" if known is None else known.text
    rule = Rule(saved.rule, text, "saved plan")
    change = Change(
        path=saved.path,
        file=saved.file,
        old=saved.old,
        new=saved.new,
        level=saved.level,
        setting=Setting(saved.new, rule),
        pod=saved.pod,
        container=saved.container,
    )
    return WriteStep(change, saved.cgroup)
