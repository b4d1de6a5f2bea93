"""All rules that judge a node, and the order in which they are told."""

from collections.abc import Callable, Iterable
from typing import Final

from memqos.findings import agent, machine, numa, protection, throttling, tree
from memqos.findings.facts import Facts
from memqos.findings.finding import Finding, Severity

Rule = Callable[[Facts], Iterable[Finding]]

_OF_ANY_MACHINE: Final[tuple[Rule, ...]] = (machine.layout, machine.kernel, machine.runtime)
_OF_CGROUP_V2: Final[tuple[Rule, ...]] = (
    tree.controllers,
    tree.driver,
    throttling.livelock,
    throttling.throttled,
    protection.protection,
    tree.hard_protection,
    tree.stale,
    tree.differing,
    agent.contested_values,
    agent.own_values,
    agent.pending_values,
    tree.unplanned,
    tree.unresolved,
    numa.unaligned,
    machine.swap,
    machine.pressure,
    machine.recursive_protection,
)
_WORST_FIRST: Final[tuple[Severity, ...]] = ("error", "warning", "info")


def judge(facts: Facts) -> tuple[Finding, ...]:
    """What is found, the worst first. Where there is no cgroup v2, there is little else to say."""
    on_v2 = facts.machine.layout in ("v2", None)
    rules = (*_OF_ANY_MACHINE, *(_OF_CGROUP_V2 if on_v2 else ()))
    found = [finding for rule in rules for finding in rule(facts)]
    return tuple(sorted(found, key=lambda finding: _WORST_FIRST.index(finding.severity)))
