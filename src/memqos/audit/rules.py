"""The findings about a cluster: the rules of its nodes and namespaces, and their order."""

from collections.abc import Callable, Collection, Container, Iterable, Iterator
from typing import Final

from memqos.audit.cluster_audit import Audit, NamespaceAudit, NodeAudit
from memqos.audit.preflight import (
    image_with_cgroup_v1,
    kubelet_skew,
    newest_minor,
    old_kernel,
    old_runtime,
)
from memqos.audit.totals import UnrequestedProtection, WorkloadTotals
from memqos.findings.catalogue import (
    AUDIT_RULES,
    HARD_PROTECTION_SHARE,
    NAMESPACE_NO_LIMIT_RANGE,
    NAMESPACE_QUOTA,
    NODE_CGROUP_V1,
    NODE_FULL,
    NODE_HARD_PROTECTION,
    NODE_HUGEPAGES,
    NODE_KERNEL,
    NODE_LIMITS,
    NODE_LOST_LOW,
    NODE_OS,
    NODE_OVERCOMMITTED,
    NODE_RUNTIME,
    NODE_SKEW,
    NODE_SWAP,
    NODE_UNASKED,
    POD_ABOVE_REQUEST,
    POD_EXIT_137,
    POD_HIGH_LIMIT,
    POD_HPA,
    POD_IDLE_REQUEST,
    POD_OOM_KILLED,
    POD_POD_LEVEL,
    POD_RESTARTS,
    POD_THROTTLED,
    RULES_BY_ID,
)
from memqos.findings.finding import SEVERITIES_WORST_FIRST, Finding, Severity
from memqos.kube.resources import MEMORY
from memqos.units import format_bytes, name_some, pluralize

_FULL_NODE_SHARE: Final = 0.95
"""Of what a node offers to pods, in use."""
_LIMITS_FACTOR: Final = 2.0
"""The sum of limits, as a multiple of what a node offers to pods."""
_UNREQUESTED_SHARE: Final = 0.05
"""Of a node's memory, protected for pods that did not request it."""
_QUOTA_HEADROOM_SHARE: Final = 0.1
"""Of a quota, left."""

ClusterRule = Callable[[Audit], Iterable[Finding]]

_RULE_ORDER: Final = {rule.id: place for place, rule in enumerate(AUDIT_RULES)}
_AMOUNT_WORDS: Final = {
    POD_THROTTLED.id: "above memory.high",
    POD_ABOVE_REQUEST.id: "above the request",
    POD_IDLE_REQUEST.id: "requested but unused",
    POD_HIGH_LIMIT.id: "of limit above usage",
    POD_POD_LEVEL.id: "requested twice over",
}


_COUNT_WORDS: Final = {
    POD_OOM_KILLED.id: "death",
    POD_EXIT_137.id: "death",
    POD_RESTARTS.id: "restart",
}


def judge_cluster(
    audit: Audit, rules: Iterable[str], own_rules: Iterable[ClusterRule] = ()
) -> tuple[Finding, ...]:
    """What these rules find, the worst first, and of one rule what matters most.

    Of one severity, findings of own rules come last.
    """
    selected = set(rules)
    found: list[tuple[int, Finding]] = []
    scaled = _autoscaled_workloads(audit)
    for (rule, namespace, workload), group in audit.workloads:
        if rule == POD_HPA.id and not _is_autoscaled(namespace, workload, scaled):
            continue
        if rule in selected:
            found.append(
                (group.amount or group.pods, _workload_finding(rule, namespace, workload, group))
            )
    newest = newest_minor(node.system for node in audit.nodes)
    for node in audit.nodes:
        pairs = [*_system_findings(node, newest, audit.server), *_node_findings(node)]
        found += [pair for pair in pairs if pair[1].rule in selected]
    found += [pair for pair in _check_unequal_swap(audit.nodes) if pair[1].rule in selected]
    for each in audit.namespaces:
        found += [pair for pair in _namespace_findings(each) if pair[1].rule in selected]
    found += [(0, finding) for rule in own_rules for finding in rule(audit)]
    found.sort(
        key=lambda pair: (
            SEVERITIES_WORST_FIRST.index(pair[1].severity),
            _RULE_ORDER.get(pair[1].rule, len(_RULE_ORDER)),
            pair[1].rule,
            -pair[0],
            pair[1].where,
        )
    )
    return tuple(finding for _, finding in found)


def select_rules(only: Iterable[str] = (), excluded: Iterable[str] = ()) -> tuple[str, ...]:
    """Rules of the audit by id or by group; all of them where `only` is empty."""
    only, excluded = tuple(only), tuple(excluded)
    return tuple(rule.id for rule in AUDIT_RULES if is_selected(rule.id, only, excluded))


def is_selected(rule: str, only: Collection[str], excluded: Collection[str]) -> bool:
    """Whether a rule is among `only`, by id or by group, or that is empty; and not `excluded`."""
    names = {rule, rule.partition("/")[0]}
    return (not only or not names.isdisjoint(only)) and names.isdisjoint(excluded)


def _workload_finding(rule: str, namespace: str, workload: str, group: WorkloadTotals) -> Finding:
    amount, name = group.worst
    evidence = [f"{group.pods} pods, such as {name}" if group.pods > 1 else "one pod"]
    if group.detail:
        evidence[0] += f": {group.detail}"
    if rule in _COUNT_WORDS:
        most = f", at most {amount} in one pod" if group.pods > 1 and amount > 1 else ""
        evidence.append(f"{pluralize(group.amount, _COUNT_WORDS[rule])}{most}")
    if rule in _AMOUNT_WORDS:
        most = f", at most {format_bytes(amount)} in one" if group.pods > 1 else ""
        evidence.append(f"{format_bytes(group.amount)} {_AMOUNT_WORDS[rule]}{most}")
    where = f"{namespace}/{workload}*" if workload.endswith("-") else f"{namespace}/{workload}"
    return _finding(rule, where, tuple(evidence))


def _check_unequal_swap(nodes: Iterable[NodeAudit]) -> Iterator[tuple[int, Finding]]:
    swap = {
        node.name: node.memory.swap
        for node in nodes
        if node.memory is not None and node.memory.swap is not None
    }
    having = [name for name, amount in swap.items() if amount]
    if having and len(having) < len(swap):
        without = [name for name, amount in swap.items() if not amount]
        evidence = (f"with swap: {name_some(having)}", f"without: {name_some(without)}")
        yield len(having), _finding(NODE_SWAP.id, f"{len(swap)} nodes", evidence)


def _autoscaled_workloads(audit: Audit) -> dict[tuple[str, str], str]:
    """By namespace and name: what autoscalers scale by the share of requested memory in use."""
    return {
        (each.metadata.namespace or "default", each.spec.scale_target_ref.name): each.metadata.name
        or "?"
        for each in audit.autoscalers
        if each.divides_by(MEMORY)
    }


def _is_autoscaled(namespace: str, workload: str, scaled: Container[tuple[str, str]]) -> bool:
    """Whether pods of this prefix are those of a Deployment or StatefulSet that is scaled."""
    name = workload.removesuffix("-")
    return (namespace, name) in scaled or (namespace, name.rpartition("-")[0]) in scaled


def _system_findings(
    node: NodeAudit, newest: int, server: int | None
) -> Iterator[tuple[int, Finding]]:
    system = node.system
    if system is None:
        return
    if not system.is_linux:
        yield 0, _finding(NODE_OS.id, node.name, (f"operating system {system.os}",))
    for rule, found in (
        (NODE_KERNEL.id, old_kernel(system)),
        (NODE_RUNTIME.id, old_runtime(system)),
        (NODE_CGROUP_V1.id, image_with_cgroup_v1(system)),
    ):
        if found is not None:
            yield node.pods, _finding(rule, node.name, (found, pluralize(node.pods, "pod")))
    skew = kubelet_skew(system, newest, server)
    if skew is not None:
        evidence = (skew.text, pluralize(node.pods, "pod"))
        severity: Severity = "info" if skew.is_supported else "warning"
        yield node.pods, _finding(NODE_SKEW.id, node.name, evidence, severity)


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
        evidence = (f"Burstable pods claim {format_bytes(node.low)} of memory.low, not honoured",)
        yield node.lost_low, _finding(NODE_LOST_LOW.id, node.name, evidence)


def _check_unrequested(node: NodeAudit) -> Iterator[tuple[int, Finding]]:
    total = node.unrequested_min.total + node.unrequested_low.total
    share = node.share(total)
    if share is None or share < _UNREQUESTED_SHARE:
        return
    evidence = [
        f"memory.{knob}: {format_bytes(found.total)} to pods that did not request it"
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
        "warning" if (node.share(node.unrequested_min.total) or 0) >= _UNREQUESTED_SHARE else "info"
    )
    yield total, _finding(NODE_UNASKED.id, node.name, tuple(evidence), severity)


def _unrequested_by_knob(node: NodeAudit) -> tuple[tuple[str, UnrequestedProtection], ...]:
    return ("min", node.unrequested_min), ("low", node.unrequested_low)


def _check_usage(node: NodeAudit) -> Iterator[tuple[int, Finding]]:
    memory = node.memory
    if memory is None or not memory.published:
        return
    if node.usage >= _FULL_NODE_SHARE * memory.published:
        evidence = [f"in use {format_bytes(node.usage)} of {format_bytes(memory.published)}"]
        if memory.kills_before_eviction:
            evidence += [f"killed first: {each.container}" for each in node.killed_first[:1]]
        else:
            evidence += [f"evicted first: {each.pod}" for each in node.evicted_first[:1]]
        yield node.usage, _finding(NODE_FULL.id, node.name, tuple(evidence))


def _check_hugepages(node: NodeAudit) -> Iterator[tuple[int, Finding]]:
    memory = node.memory
    if memory is None or not memory.overstatement or not memory.threshold:
        return
    is_late = memory.kills_before_eviction
    when = "the kernel runs out of memory before evictions begin"
    if not is_late:
        left = format_bytes(memory.threshold - memory.overstatement)
        when = f"evictions begin when {left} are free"
    evidence = (
        f"hugepages {format_bytes(memory.hugepages)}",
        f"threshold of memory.available {format_bytes(memory.threshold)}: {when}",
    )
    severity: Severity = "warning" if is_late else "info"
    yield memory.hugepages, _finding(NODE_HUGEPAGES.id, node.name, evidence, severity)


def _check_limits(node: NodeAudit) -> Iterator[tuple[int, Finding]]:
    memory = node.memory
    if memory is None or not memory.published:
        return
    if node.limits >= _LIMITS_FACTOR * memory.published:
        times = node.limits / memory.published
        evidence = [f"limits {format_bytes(node.limits)}, {times:.1f} × allocatable"]
        if node.unlimited:
            evidence.append(f"{node.unlimited} more pods have none")
        yield node.limits, _finding(NODE_LIMITS.id, node.name, tuple(evidence))


_NODE_RULES: Final[tuple[Callable[[NodeAudit], Iterator[tuple[int, Finding]]], ...]] = (
    _check_overcommit,
    _check_hard_protection,
    _check_lost_low,
    _check_unrequested,
    _check_usage,
    _check_hugepages,
    _check_limits,
)


def _node_findings(node: NodeAudit) -> Iterator[tuple[int, Finding]]:
    for rule in _NODE_RULES:
        yield from rule(node)


def _namespace_findings(each: NamespaceAudit) -> Iterator[tuple[int, Finding]]:
    if each.unrequesting and not each.defaults_request:
        evidence = (f"{each.unrequesting} of {each.pods} pods request no memory",)
        yield each.unrequesting, _finding(NAMESPACE_NO_LIMIT_RANGE.id, each.name, evidence)
    for left in each.quotas:
        if left.hard - left.used < _QUOTA_HEADROOM_SHARE * left.hard:
            share = left.used / left.hard if left.hard else 1.0
            used = f"{format_bytes(left.used)} of {format_bytes(left.hard)}, {share:.0%}"
            evidence = (f"{left.quota}: {left.resource} {used}",)
            yield left.used, _finding(NAMESPACE_QUOTA.id, each.name, evidence)


def _finding(
    rule: str, where: str, evidence: tuple[str, ...], severity: Severity | None = None
) -> Finding:
    info = RULES_BY_ID[rule]
    return Finding(rule, severity or info.severity, info.summary, where, evidence, info.fix)
