"""All rules that judge a cluster, and the order in which they are told."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from memqos.findings.audit import Audit, NodeAudit, SpaceAudit
from memqos.findings.catalogue import AUDIT, RULES
from memqos.findings.finding import Finding, Severity
from memqos.findings.spread import Unasked
from memqos.findings.tallies import GroupTally
from memqos.findings.thresholds import FULL, HEADROOM, LIMITS, NOTHING_LEFT, UNASKED
from memqos.kube.quantity import BEYOND_UNITS, BINARY_UNITS, scientific

WORST_FIRST: Final[tuple[Severity, ...]] = ("error", "warning", "info")
_ORDER: Final = {rule.id: place for place, rule in enumerate(AUDIT)}
_AMOUNT: Final = {
    "pod/throttled": "past memory.high",
    "pod/above-request": "above the request",
    "pod/idle-request": "requested and not used",
    "pod/high-limit": "of limit above usage",
    "pod/pod-level": "requested twice over",
}


def size(amount: int) -> str:
    """Bytes as a person remembers them."""
    if abs(amount) >= BEYOND_UNITS:
        return scientific(amount)
    for shift, unit in BINARY_UNITS.items():
        if amount >= 1 << shift:
            # A tenth of a Ti is the memory of whole nodes.
            decimals = 2 if shift >= 40 else 1
            return f"{amount / (1 << shift):.{decimals}f}".rstrip("0").removesuffix(".") + unit
    return str(amount)


def judge(audit: Audit, rules: Iterable[str]) -> tuple[Finding, ...]:
    """What these rules find, the worst first, and of one rule what matters most."""
    wanted = set(rules)
    found: list[tuple[int, Finding]] = []
    for (rule, namespace, family), group in audit.groups:
        if rule in wanted:
            found.append((group.amount or group.pods, _of_group(rule, namespace, family, group)))
    for node in audit.nodes:
        found += [(weight, each) for weight, each in _of_node(node) if each.rule in wanted]
    for space in audit.spaces:
        found += [(weight, each) for weight, each in _of_space(space) if each.rule in wanted]
    found.sort(
        key=lambda pair: (
            WORST_FIRST.index(pair[1].severity),
            _ORDER[pair[1].rule],
            -pair[0],
            pair[1].where,
        )
    )
    return tuple(finding for _, finding in found)


def chosen(only: Iterable[str], skipped: Iterable[str]) -> tuple[str, ...]:
    """The rules of the audit that are asked for, by id or by group; all where none is named."""
    only, skipped = tuple(only), tuple(skipped)
    return tuple(
        rule.id
        for rule in AUDIT
        if (not only or _is_named(rule.id, only)) and not _is_named(rule.id, skipped)
    )


def _is_named(rule: str, names: tuple[str, ...]) -> bool:
    return rule in names or rule.partition("/")[0] in names


def _of_group(rule: str, namespace: str, family: str, group: GroupTally) -> Finding:
    amount, name = group.worst
    evidence = [f"{group.pods} pods, such as {name}" if group.pods > 1 else "one pod"]
    if group.says:
        evidence[0] += f": {group.says}"
    if rule in _AMOUNT:
        most = f", at most {size(amount)} in one" if group.pods > 1 else ""
        evidence.append(f"{size(group.amount)} {_AMOUNT[rule]}{most}")
    where = f"{namespace}/{family}*" if family.endswith("-") else f"{namespace}/{family}"
    return _finding(rule, where, tuple(evidence))


def _overcommitted(node: NodeAudit) -> Iterator[tuple[int, Finding]]:
    memory = node.memory
    if memory is not None and node.requested > memory.published:
        evidence = (f"requested {size(node.requested)}", f"offered {size(memory.published)}")
        finding = _finding("node/overcommitted", node.name, evidence)
        yield node.requested - memory.published, finding


def _hard_protection(node: NodeAudit) -> Iterator[tuple[int, Finding]]:
    share = node.share(node.min)
    if share is not None and share >= NOTHING_LEFT:
        evidence = (f"memory.min of all pods together {size(node.min)}, {share:.0%} of the node",)
        yield round(share * 1000), _finding("node/hard-protection", node.name, evidence)


def _lost(node: NodeAudit) -> Iterator[tuple[int, Finding]]:
    if node.lost_low:
        evidence = (f"Burstable pods claim {size(node.low)} of memory.low, in vain",)
        yield node.lost_low, _finding("node/lost-low", node.name, evidence)


def _unasked(node: NodeAudit) -> Iterator[tuple[int, Finding]]:
    total = node.unasked_min.total + node.unasked_low.total
    share = node.share(total)
    if share is None or share < UNASKED:
        return
    evidence = [
        f"memory.{knob}: {size(found.total)} to pods that did not claim it"
        for knob, found in _by_knob(node)
        if found.total
    ]
    for knob, found in _by_knob(node):
        evidence += [f"{pod}: {size(amount)} of memory.{knob}" for pod, amount in found.most]
    # Nothing takes back what memory.min holds; memory.low gives way in need.
    severity: Severity = (
        "warning" if (node.share(node.unasked_min.total) or 0) >= UNASKED else "info"
    )
    yield total, _finding("node/unasked", node.name, tuple(evidence), severity)


def _by_knob(node: NodeAudit) -> tuple[tuple[str, Unasked], ...]:
    return ("min", node.unasked_min), ("low", node.unasked_low)


def _full(node: NodeAudit) -> Iterator[tuple[int, Finding]]:
    memory = node.memory
    if memory is not None and memory.published and node.usage >= FULL * memory.published:
        evidence = [f"in use {size(node.usage)} of {size(memory.published)}"]
        evidence += [f"evicted first: {each.pod}" for each in node.evicted_first[:1]]
        yield node.usage, _finding("node/full", node.name, tuple(evidence))


def _limits(node: NodeAudit) -> Iterator[tuple[int, Finding]]:
    memory = node.memory
    if memory is not None and memory.published and node.limits >= LIMITS * memory.published:
        times = node.limits / memory.published
        evidence = [f"limits {size(node.limits)}, {times:.1f} × what is offered"]
        if node.unlimited:
            evidence.append(f"{node.unlimited} more pods have none")
        yield node.limits, _finding("node/limits", node.name, tuple(evidence))


_OF_NODE: Final[tuple[Callable[[NodeAudit], Iterator[tuple[int, Finding]]], ...]] = (
    _overcommitted,
    _hard_protection,
    _lost,
    _unasked,
    _full,
    _limits,
)


def _of_node(node: NodeAudit) -> Iterator[tuple[int, Finding]]:
    for rule in _OF_NODE:
        yield from rule(node)


def _of_space(space: SpaceAudit) -> Iterator[tuple[int, Finding]]:
    if space.unrequesting and not space.defaults_request:
        evidence = (f"{space.unrequesting} of {space.pods} pods request no memory",)
        yield space.unrequesting, _finding("namespace/no-limit-range", space.name, evidence)
    for room in space.quotas:
        if room.hard - room.used < HEADROOM * room.hard:
            share = room.used / room.hard if room.hard else 1.0
            used = f"{size(room.used)} of {size(room.hard)}, {share:.0%}"
            evidence = (f"{room.quota}: {room.resource} {used}",)
            yield room.used, _finding("namespace/quota", space.name, evidence)


def _finding(
    rule: str, where: str, evidence: tuple[str, ...], severity: Severity | None = None
) -> Finding:
    info = RULES[rule]
    return Finding(rule, severity or info.severity, info.says, where, evidence, info.fix)
