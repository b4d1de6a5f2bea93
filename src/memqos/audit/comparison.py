"""Two audits compared: what would change, on which nodes, and by how much."""

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from memqos.audit.cluster_audit import Audit, NodeAudit
from memqos.findings.finding import Finding

Measure = Literal["pods", "requested", "limits", "min", "low", "high", "throttled", "usage"]
MEASURES: Final[tuple[Measure, ...]] = (
    "pods",
    "requested",
    "limits",
    "min",
    "low",
    "high",
    "throttled",
    "usage",
)
COUNT_MEASURES: Final[frozenset[Measure]] = frozenset({"pods", "high", "throttled"})
"""Those that are counts, not bytes."""


class NodeComparison(msgspec.Struct, frozen=True):
    """A node that differs; None on the side where it is not there."""

    name: str
    before: dict[Measure, int] | None
    after: dict[Measure, int] | None
    changed: int
    """Pods with other values."""

    def change_in(self, measure: Measure) -> int:
        """How much more there is after than before."""
        return (self.after or {}).get(measure, 0) - (self.before or {}).get(measure, 0)


class AuditComparison(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between two audits."""

    before: dict[Measure, int]
    after: dict[Measure, int]
    classes_before: dict[str, int]
    classes_after: dict[str, int]
    nodes: tuple[NodeComparison, ...]
    """Those that differ, the most different first."""
    changed: int
    appeared: tuple[Finding, ...] = msgspec.field(name="found")
    """Findings there are only after."""
    removed: tuple[Finding, ...] = msgspec.field(name="gone")
    """Findings there were only before."""


def compare_audits(
    before: Audit,
    after: Audit,
    findings: tuple[Iterable[Finding], Iterable[Finding]],
    changed: dict[str, int],
) -> AuditComparison:
    """What differs; `changed` counts, node by node, pods with other values."""
    earlier, later = _measures_by_node(before), _measures_by_node(after)
    nodes = []
    for name in sorted({*earlier, *later}):
        node = NodeComparison(name, earlier.get(name), later.get(name), changed.get(name, 0))
        if node.before != node.after or node.changed:
            nodes.append(node)
    nodes.sort(key=lambda node: (-_bytes_changed(node), -node.changed, node.name))
    was, now = ({_finding_key(each): each for each in side} for side in findings)
    return AuditComparison(
        before=_total(earlier.values()),
        after=_total(later.values()),
        classes_before={str(name): count for name, count in before.classes.items()},
        classes_after={str(name): count for name, count in after.classes.items()},
        nodes=tuple(nodes),
        changed=sum(changed.values()),
        appeared=tuple(each for key, each in now.items() if key not in was),
        removed=tuple(each for key, each in was.items() if key not in now),
    )


def _measures_by_node(audit: Audit) -> dict[str, dict[Measure, int]]:
    return {node.name: _measures(node) for node in audit.everywhere}


def _measures(node: NodeAudit) -> dict[Measure, int]:
    return {measure: getattr(node, measure) for measure in MEASURES}


def _total(nodes: Iterable[dict[Measure, int]]) -> dict[Measure, int]:
    total: dict[Measure, int] = dict.fromkeys(MEASURES, 0)
    for node in nodes:
        for measure, amount in node.items():
            total[measure] += amount
    return total


def _bytes_changed(node: NodeComparison) -> int:
    """Bytes that differ in how they are protected or requested."""
    return sum(abs(node.change_in(measure)) for measure in ("min", "low", "requested"))


def _finding_key(finding: Finding) -> tuple[str, str]:
    return finding.rule, finding.where
