"""An audit as plain data."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from memqos.draw.audited import AuditReport, cluster_memory
from memqos.draw.findings import findings_data
from memqos.errors import InputError
from memqos.findings.audit import NamespaceAudit, NodeAudit
from memqos.findings.spread import UnrequestedProtection


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
