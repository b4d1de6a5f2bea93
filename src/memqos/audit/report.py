"""The report of an audit: its findings and faults, and the figures that every output shows."""

import msgspec

from memqos.audit.cluster_audit import Audit, NodeAudit
from memqos.audit.comparison import AuditComparison
from memqos.errors import InputError
from memqos.findings.catalogue import MEMORY_QOS_RULES
from memqos.findings.finding import Finding, Severity
from memqos.settings.enablement import Enablement


class ReportComparison(msgspec.Struct, frozen=True):
    """What an audit is compared with."""

    title: str
    differences: AuditComparison


class AuditReport(msgspec.Struct, frozen=True, kw_only=True):
    """All there is to show."""

    audit: Audit
    enablement: Enablement
    findings: tuple[Finding, ...]
    faults: tuple[InputError, ...] = ()
    more_faults: int = 0
    """Faults that are counted, but not kept."""
    notes: tuple[str | InputError, ...] = ()
    sources: tuple[str, ...] = ()
    comparison: ReportComparison | None = None


def is_about_today(finding: Finding, enablement: Enablement) -> bool:
    """Whether it is found as the cluster is, and not only once MemoryQoS is turned on."""
    return enablement.state == "on" or finding.rule not in MEMORY_QOS_RULES


def findings_by_time(report: AuditReport) -> list[tuple[str, tuple[Finding, ...]]]:
    """What is wrong today, and apart from it what would change with MemoryQoS on."""
    enablement = report.enablement
    today = tuple(each for each in report.findings if is_about_today(each, enablement))
    later = tuple(each for each in report.findings if not is_about_today(each, enablement))
    return [("wrong today", today), *([("would change with MemoryQoS on", later)] if later else [])]


class ClusterMemory(msgspec.Struct, frozen=True, kw_only=True):
    """All nodes whose memory is known, together."""

    offered: int
    requested: int
    limits: int
    min: int
    low: int
    usage: int

    def share(self, amount: int) -> float:
        """An amount as a share of what all nodes offer to pods."""
        return amount / self.offered if self.offered else 0.0


def cluster_memory(audit: Audit) -> ClusterMemory:
    """The sums over all nodes."""
    nodes = [node for node in audit.nodes if node.memory is not None]
    return ClusterMemory(
        offered=sum(node.memory.published for node in nodes if node.memory is not None),
        requested=sum(node.requested for node in nodes),
        limits=sum(node.limits for node in nodes),
        min=sum(node.min for node in nodes),
        low=sum(node.low for node in nodes),
        usage=sum(node.usage for node in nodes),
    )


def fullest_nodes(audit: Audit) -> list[NodeAudit]:
    """Nodes in the order of what is requested of them, the fullest first."""
    known = [node for node in audit.nodes if node.memory is not None and node.memory.published]
    return sorted(known, key=lambda node: (-share_requested(node), node.name))


def share_requested(node: NodeAudit) -> float:
    """Requests as a share of what a node offers to pods."""
    return share_of_node(node, node.requested)


def share_of_node(node: NodeAudit, amount: int) -> float:
    """An amount as a share of what a node offers to pods."""
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
    """Findings by rule, in their order."""
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.rule, []).append(finding)
    return [
        RuleGroup(rule, each[0].severity, each[0].what, each[0].fix, tuple(each))
        for rule, each in groups.items()
    ]
