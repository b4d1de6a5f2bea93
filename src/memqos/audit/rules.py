"""All rules that judge a cluster, and the order in which they are told."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from memqos.audit.cluster_audit import Audit, NamespaceAudit, NodeAudit
from memqos.audit.pod_counter import (
    FULL_NODE_SHARE,
    HARD_PROTECTION_SHARE,
    LIMITS_FACTOR,
    QUOTA_HEADROOM_SHARE,
    UNREQUESTED_SHARE,
)
from memqos.audit.totals import UnrequestedProtection, WorkloadTotals
from memqos.findings.catalogue import (
    AUDIT_RULES,
    NAMESPACE_NO_LIMIT_RANGE,
    NAMESPACE_QUOTA,
    NODE_FULL,
    NODE_HARD_PROTECTION,
    NODE_LIMITS,
    NODE_LOST_LOW,
    NODE_OVERCOMMITTED,
    NODE_UNASKED,
    POD_ABOVE_REQUEST,
    POD_HIGH_LIMIT,
    POD_IDLE_REQUEST,
    POD_POD_LEVEL,
    POD_THROTTLED,
    RULES_BY_ID,
)
from memqos.findings.finding import Finding, Severity
from memqos.units import format_bytes

SEVERITIES_WORST_FIRST: Final[tuple[Severity, ...]] = ("error", "warning", "info")
_RULE_ORDER: Final = {rule.id: place for place, rule in enumerate(AUDIT_RULES)}
_AMOUNT_WORDS: Final = {
    POD_THROTTLED.id: "past memory.high",
    POD_ABOVE_REQUEST.id: "above the request",
    POD_IDLE_REQUEST.id: "requested and not used",
    POD_HIGH_LIMIT.id: "of limit above usage",
    POD_POD_LEVEL.id: "requested twice over",
}


def judge_cluster(audit: Audit, rules: Iterable[str]) -> tuple[Finding, ...]:
    """What these rules find, the worst first, and of one rule what matters most."""
    wanted = set(rules)
    found: list[tuple[int, Finding]] = []
    for (rule, namespace, family), group in audit.workloads:
        if rule in wanted:
            found.append(
                (group.amount or group.pods, _workload_finding(rule, namespace, family, group))
            )
    for node in audit.nodes:
        found += [(weight, each) for weight, each in _node_findings(node) if each.rule in wanted]
    for space in audit.spaces:
        found += [
            (weight, each) for weight, each in _namespace_findings(space) if each.rule in wanted
        ]
    found.sort(
        key=lambda pair: (
            SEVERITIES_WORST_FIRST.index(pair[1].severity),
            _RULE_ORDER[pair[1].rule],
            -pair[0],
            pair[1].where,
        )
    )
    return tuple(finding for _, finding in found)


def select_rules(only: Iterable[str], excluded: Iterable[str]) -> tuple[str, ...]:
    """The rules of the audit that are asked for, by id or by group; all where none is named."""
    only, excluded = tuple(only), tuple(excluded)
    return tuple(
        rule.id
        for rule in AUDIT_RULES
        if (not only or _is_selected(rule.id, only)) and not _is_selected(rule.id, excluded)
    )


def _is_selected(rule: str, names: tuple[str, ...]) -> bool:
    return rule in names or rule.partition("/")[0] in names


def _workload_finding(rule: str, namespace: str, family: str, group: WorkloadTotals) -> Finding:
    amount, name = group.worst
    evidence = [f"{group.pods} pods, such as {name}" if group.pods > 1 else "one pod"]
    if group.detail:
        evidence[0] += f": {group.detail}"
    if rule in _AMOUNT_WORDS:
        most = f", at most {format_bytes(amount)} in one" if group.pods > 1 else ""
        evidence.append(f"{format_bytes(group.amount)} {_AMOUNT_WORDS[rule]}{most}")
    where = f"{namespace}/{family}*" if family.endswith("-") else f"{namespace}/{family}"
    return _finding(rule, where, tuple(evidence))


def _check_overcommit(node: NodeAudit) -> Iterator[tuple[int, Finding]]:
    memory = node.memory
    if memory is not None and node.requested > memory.published:
        evidence = (
            f"requested {format_bytes(node.requested)}",
            f"offered {format_bytes(memory.published)}",
        )
        finding = _finding(NODE_OVERCOMMITTED.id, node.name, evidence)
        yield node.requested - memory.published, finding


def _check_hard_protection(node: NodeAudit) -> Iterator[tuple[int, Finding]]:
    share = node.share(node.min)
    if share is not None and share >= HARD_PROTECTION_SHARE:
        evidence = (
            f"memory.min of all pods together {format_bytes(node.min)}, {share:.0%} of the node",
        )
        yield round(share * 1000), _finding(NODE_HARD_PROTECTION.id, node.name, evidence)


def _check_lost_low(node: NodeAudit) -> Iterator[tuple[int, Finding]]:
    if node.lost_low:
        evidence = (f"Burstable pods claim {format_bytes(node.low)} of memory.low, in vain",)
        yield node.lost_low, _finding(NODE_LOST_LOW.id, node.name, evidence)


def _check_unrequested(node: NodeAudit) -> Iterator[tuple[int, Finding]]:
    total = node.unasked_min.total + node.unasked_low.total
    share = node.share(total)
    if share is None or share < UNREQUESTED_SHARE:
        return
    evidence = [
        f"memory.{knob}: {format_bytes(found.total)} to pods that did not claim it"
        for knob, found in _unrequested_by_knob(node)
        if found.total
    ]
    for knob, found in _unrequested_by_knob(node):
        evidence += [
            f"{pod}: {format_bytes(amount)} of memory.{knob}" for pod, amount in found.most
        ]
    # Reclaim never touches memory.min; memory.low gives way when nothing else is left
    # (cgroup-v2.rst).
    severity: Severity = (
        "warning" if (node.share(node.unasked_min.total) or 0) >= UNREQUESTED_SHARE else "info"
    )
    yield total, _finding(NODE_UNASKED.id, node.name, tuple(evidence), severity)


def _unrequested_by_knob(node: NodeAudit) -> tuple[tuple[str, UnrequestedProtection], ...]:
    return ("min", node.unasked_min), ("low", node.unasked_low)


def _check_usage(node: NodeAudit) -> Iterator[tuple[int, Finding]]:
    memory = node.memory
    if memory is not None and memory.published and node.usage >= FULL_NODE_SHARE * memory.published:
        evidence = [f"in use {format_bytes(node.usage)} of {format_bytes(memory.published)}"]
        evidence += [f"evicted first: {each.pod}" for each in node.evicted_first[:1]]
        yield node.usage, _finding(NODE_FULL.id, node.name, tuple(evidence))


def _check_limits(node: NodeAudit) -> Iterator[tuple[int, Finding]]:
    memory = node.memory
    if memory is not None and memory.published and node.limits >= LIMITS_FACTOR * memory.published:
        times = node.limits / memory.published
        evidence = [f"limits {format_bytes(node.limits)}, {times:.1f} × what is offered"]
        if node.unlimited:
            evidence.append(f"{node.unlimited} more pods have none")
        yield node.limits, _finding(NODE_LIMITS.id, node.name, tuple(evidence))


_NODE_RULES: Final[tuple[Callable[[NodeAudit], Iterator[tuple[int, Finding]]], ...]] = (
    _check_overcommit,
    _check_hard_protection,
    _check_lost_low,
    _check_unrequested,
    _check_usage,
    _check_limits,
)


def _node_findings(node: NodeAudit) -> Iterator[tuple[int, Finding]]:
    for rule in _NODE_RULES:
        yield from rule(node)


def _namespace_findings(space: NamespaceAudit) -> Iterator[tuple[int, Finding]]:
    if space.unrequesting and not space.defaults_request:
        evidence = (f"{space.unrequesting} of {space.pods} pods request no memory",)
        yield space.unrequesting, _finding(NAMESPACE_NO_LIMIT_RANGE.id, space.name, evidence)
    for room in space.quotas:
        if room.hard - room.used < QUOTA_HEADROOM_SHARE * room.hard:
            share = room.used / room.hard if room.hard else 1.0
            used = f"{format_bytes(room.used)} of {format_bytes(room.hard)}, {share:.0%}"
            evidence = (f"{room.quota}: {room.resource} {used}",)
            yield room.used, _finding(NAMESPACE_QUOTA.id, space.name, evidence)


def _finding(
    rule: str, where: str, evidence: tuple[str, ...], severity: Severity | None = None
) -> Finding:
    info = RULES_BY_ID[rule]
    return Finding(rule, severity or info.severity, info.says, where, evidence, info.fix)
