"""An audit ready to be drawn: with its findings, its faults and what it is compared with."""

from typing import Final

import msgspec

from memqos.errors import InputError
from memqos.findings.audit import Audit, NodeAudit
from memqos.findings.cluster import approximate_bytes
from memqos.findings.contrast import COUNT_MEASURES, AuditComparison, Measure
from memqos.findings.finding import Finding, Severity


class AuditSettings(msgspec.Struct, frozen=True):
    """The terms of an audit, as a person says them."""

    release: str
    policy: str
    factor: float | None

    def __str__(self) -> str:
        factor = "" if self.factor is None else f" · factor {self.factor:g}"
        return f"Kubernetes {self.release} · policy {self.policy}{factor}"


class ReportComparison(msgspec.Struct, frozen=True):
    """What an audit is compared with."""

    title: str
    contrast: AuditComparison


class AuditReport(msgspec.Struct, frozen=True):
    """All there is to show."""

    settings: AuditSettings
    audit: Audit
    findings: tuple[Finding, ...]
    faults: tuple[InputError, ...]
    more_faults: int
    notes: tuple[str | InputError, ...]
    sources: tuple[str, ...]
    comparison: ReportComparison | None = None


class ClusterMemory(msgspec.Struct, frozen=True):
    """All nodes whose memory is known, together."""

    offered: int
    requested: int
    limits: int
    min: int
    low: int
    usage: int

    def share(self, amount: int) -> float:
        return amount / self.offered if self.offered else 0.0


MEASURE_TITLES: Final[tuple[tuple[str, str], ...]] = (
    ("requested", "requested"),
    ("limits", "limits"),
    ("min", "memory.min: never reclaimed"),
    ("low", "memory.low: reclaimed last"),
    ("usage", "in use"),
)
"""Fields of Total, and how a person calls them."""


def cluster_memory(audit: Audit) -> ClusterMemory:
    """What all nodes come to."""
    nodes = [node for node in audit.nodes if node.memory is not None]
    return ClusterMemory(
        sum(node.memory.published for node in nodes if node.memory is not None),
        *[sum(getattr(node, measure) for node in nodes) for measure, _ in MEASURE_TITLES],
    )


def fullest_nodes(audit: Audit) -> list[NodeAudit]:
    """Nodes in the order of what is requested of them, the fullest first."""
    known = [node for node in audit.nodes if node.memory is not None and node.memory.published]
    return sorted(known, key=lambda node: (-share_requested(node), node.name))


def share_requested(node: NodeAudit) -> float:
    """Of what a node offers to pods."""
    return share_of_node(node, node.requested)


def share_of_node(node: NodeAudit, amount: int) -> float:
    """An amount beside what a node offers to pods."""
    assert node.memory is not None
    return amount / node.memory.published


class RuleGroup(msgspec.Struct, frozen=True):
    """The findings of one rule."""

    rule: str
    severity: Severity
    what: str
    fix: str
    findings: tuple[Finding, ...]


def group_by_rule(findings: tuple[Finding, ...]) -> list[RuleGroup]:
    """Findings rule by rule, in their order."""
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.rule, []).append(finding)
    return [
        RuleGroup(rule, each[0].severity, each[0].what, each[0].fix, tuple(each))
        for rule, each in groups.items()
    ]


def compare_amounts(measure: Measure, one: int, other: int) -> tuple[str, str, str]:
    """Two amounts, and by how much the second differs."""
    return (
        _measure_text(measure, one),
        _measure_text(measure, other),
        signed_change(measure, other - one),
    )


def signed_change(measure: Measure, change: int) -> str:
    """By how much, with its sign."""
    if not change:
        return "–"
    return f"{'+' if change > 0 else '−'}{_measure_text(measure, abs(change))}"


def _measure_text(measure: Measure, amount: int) -> str:
    return f"{amount:,}" if measure in COUNT_MEASURES else approximate_bytes(amount)
