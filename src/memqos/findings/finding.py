"""One thing found on a node."""

from typing import Literal

import msgspec

Severity = Literal["error", "warning", "info"]
"""It cannot work; it works worse than it looks; it is good to know."""


class Finding(msgspec.Struct, frozen=True):
    """What was found, where, what tells so, and what helps."""

    rule: str
    severity: Severity
    what: str
    where: str
    """A cgroup, a pod, or a part of the machine."""
    evidence: tuple[str, ...]
    fix: str
