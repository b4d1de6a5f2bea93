"""One finding about a node or a cluster."""

from typing import Final, Literal

import msgspec

Severity = Literal["error", "warning", "info"]
"""It cannot work; it works worse than it looks; it is good to know."""
SEVERITIES_WORST_FIRST: Final[tuple[Severity, ...]] = ("error", "warning", "info")


class Finding(msgspec.Struct, frozen=True):
    """A problem: what and where it is, its evidence, its fix."""

    rule: str
    severity: Severity
    what: str
    where: str
    """A cgroup, a pod, or a part of the machine."""
    evidence: tuple[str, ...]
    fix: str

    def __str__(self) -> str:
        return f"{self.severity}  {self.rule}  {self.where}: {self.what}"
