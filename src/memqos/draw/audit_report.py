"""An audit ready to be drawn: with its findings, its faults and what it is compared with."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from memqos.audit.census import CRITICAL_FLAG, MeasuredUsage, PodRow
from memqos.audit.cluster_audit import Audit, NamespaceAudit, NodeAudit
from memqos.audit.comparison import COUNT_MEASURES, AuditComparison, Measure
from memqos.audit.pod_specs import SpecMemory
from memqos.audit.totals import UnrequestedProtection
from memqos.draw.text.findings import findings_data
from memqos.errors import InputError
from memqos.findings.finding import Finding, Severity
from memqos.units import format_bytes


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
    return f"{amount:,}" if measure in COUNT_MEASURES else format_bytes(amount)


def audit_data(audited: AuditReport, pods: Sequence[bytes]) -> dict[str, Any]:
    """Everything, with `pods` as JSON texts already."""
    audit = audited.audit
    data: dict[str, Any] = {
        "release": audited.settings.release,
        "policy": audited.settings.policy,
        "factor": audited.settings.factor,
        "counts": {
            "pods": audit.pods,
            "nodes": len(audit.nodes),
            "namespaces": len(audit.spaces),
            "findings": len(audited.findings),
            "faults": len(audited.faults) + audited.more_faults,
            "ended": audit.ended,
            "measured": audit.measured,
            "classes": audit.classes,
            "severities": dict(Counter(finding.severity for finding in audited.findings)),
        },
        "memory": msgspec.to_builtins(cluster_memory(audit)),
        "findings": findings_data(audited.findings),
        "nodes": [_node_data(node) for node in audit.nodes],
        "unscheduled": None if audit.unscheduled is None else _node_data(audit.unscheduled),
        "namespaces": [_namespace_data(space) for space in audit.spaces],
        "pods": [msgspec.Raw(text) for text in pods],
        "faults": [_fault_data(fault) for fault in audited.faults],
        "notes": list(map(str, audited.notes)),
    }
    if audited.comparison is not None:
        contrast = msgspec.to_builtins(audited.comparison.contrast)
        data["compared"] = {"with": audited.comparison.title, **contrast}
    return data


def _node_data(node: NodeAudit) -> dict[str, Any]:
    data = msgspec.to_builtins(node)
    share = {
        measure: None if (part := node.share(getattr(node, measure))) is None else round(part, 4)
        for measure in ("requested", "limits", "min", "low", "usage")
    }
    return {
        **data,
        "shares": share,
        "unasked_min": _unrequested_data(node.unasked_min),
        "unasked_low": _unrequested_data(node.unasked_low),
    }


def _unrequested_data(found: UnrequestedProtection) -> dict[str, Any]:
    return {
        "total": found.total,
        "most": [{"pod": pod, "amount": amount} for pod, amount in found.most],
    }


def _namespace_data(space: NamespaceAudit) -> dict[str, Any]:
    quotas = [
        {**msgspec.to_builtins(room), "left": max(0, room.hard - room.used)}
        for room in space.quotas
    ]
    return {**msgspec.to_builtins(space), "quotas": quotas}


def _fault_data(fault: InputError) -> dict[str, Any]:
    return {
        "what": fault.what,
        "file": fault.file,
        "line": fault.line,
        "column": fault.column,
        "field": fault.field,
        "hint": fault.advice,
    }


_encode: Final = msgspec.json.Encoder().encode


class PodRowEncoder:
    """Writes pods; what alike pods share is kept as text."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, tuple[str, ...]], tuple[SpecMemory, bytes]] = {}
        """With the numbers, as they are known by their identity only while they are there."""

    def encode(self, each: PodRow, numbers: SpecMemory, used: MeasuredUsage | None) -> bytes:
        """A pod, its values and those of its containers, as a JSON object."""
        key = (id(numbers), each.containers)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = numbers, _encode(_spec_values(each, numbers))[1:]
        own: dict[str, Any] = {
            "namespace": each.namespace,
            "name": each.name,
            "node": each.node or None,
            "priority": each.priority,
            "critical": bool(each.flags & CRITICAL_FLAG),
            "usage": None,
        }
        if used is not None:
            own["usage"] = used.total
            own["throttled"] = [
                each.containers[number]
                for number, high in numbers.highs
                if used.containers.get(each.containers[number], 0) > high
            ]
        return _encode(own)[:-1] + b"," + known[1]


def _spec_values(each: PodRow, numbers: SpecMemory) -> dict[str, Any]:
    brief = numbers.brief
    return {
        "valid": not numbers.spec.errors,
        "errors": numbers.spec.errors,
        "class": brief.qos,
        "request": brief.request,
        "limit": None if numbers.spec.unlimited else brief.limit,
        **_memory_files(brief.min, brief.low, brief.high, brief.max),
        "containers": [
            {
                "name": name,
                "role": part.role,
                "request": part.request or None,
                "limit": part.limit or None,
                **_memory_files(part.min, part.low, part.high, part.max),
                "oom_score_adj": part.oom_score_adj,
            }
            for name, part in zip(each.containers, brief.containers, strict=True)
        ],
    }


def _memory_files(*values: object) -> dict[str, object]:
    return dict(zip(("memory.min", "memory.low", "memory.high", "memory.max"), values, strict=True))
