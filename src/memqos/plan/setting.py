"""One planned value and the reason for it."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

MAX: Final = "max"
"""No limit, as cgroup files spell it."""
NEEDS_NODE: Final = "needs node"
"""A value that depends on the node's memory, planned without knowing the node."""

FileValue = int | str | None
"""Bytes or a count; a text for files that contain one; None where nothing is written."""


class Reason(msgspec.Struct, frozen=True, rename={"text": "says"}):
    """Why a value is what it is: the rule, its derivation, and where the rule is specified."""

    rule: str
    text: str
    steps: tuple[str, ...]
    source: str
    differs: str | None = None
    """Where a document and released code differ: what each of them says."""

    def __str__(self) -> str:
        lines = [f"{self.rule}: {self.text} ({self.source})", *self.steps]
        return "\n  ".join(lines if self.differs is None else [*lines, self.differs])


class Rule(msgspec.Struct, frozen=True):
    """A rule that decides a value. `steps` derives the value from the rule's inputs, in words."""

    id: str
    text: str
    source: str
    steps: Callable[..., tuple[str, ...]] = lambda *_: ()
    resets: bool = False
    """Whether the rule resets a value to the kernel's default."""
    differs: str | None = None
    """Where a document and released code differ: what each of them says."""


class Setting(msgspec.Struct, frozen=True, gc=False):
    """A value, the rule that decided it, and what the rule was given."""

    value: FileValue
    rule: Rule
    inputs: tuple[Any, ...] = ()

    @property
    def because(self) -> Reason:
        """The reason, put into words only now."""
        rule = self.rule
        return Reason(rule.id, rule.text, rule.steps(*self.inputs), rule.source, rule.differs)

    def __str__(self) -> str:
        value = "not written" if self.value is None else self.value
        return f"{value} ({self.rule.id}: {self.rule.text})"


FileSettings = dict[str, Setting]
"""File name → setting. `oom_score_adj` and `cpu.shares` stand for what is no cgroup v2 file."""
