"""The findings about a node: all rules that judge it, and their order."""

from collections.abc import Callable, Iterable
from typing import Final

from memqos.findings import agent, machine, protection, throttling, tree
from memqos.findings.facts import NodeFacts
from memqos.findings.finding import SEVERITIES_WORST_FIRST, Finding

NodeRule = Callable[[NodeFacts], Iterable[Finding]]

_RULES_FOR_ANY_MACHINE: Final[tuple[NodeRule, ...]] = (
    machine.check_cgroup_version,
    machine.check_kernel_version,
    machine.check_runtime_version,
)
_RULES_FOR_CGROUP_V2: Final[tuple[NodeRule, ...]] = (
    tree.check_controllers,
    tree.check_cgroup_driver,
    throttling.check_livelock,
    throttling.check_throttling,
    protection.check_protection,
    tree.check_hard_protection,
    tree.check_stale_values,
    tree.check_differing_values,
    agent.check_contested_values,
    agent.check_own_values,
    agent.check_pending_values,
    tree.check_plan_inputs,
    tree.check_unresolved_cgroups,
    tree.check_numa_alignment,
    machine.check_nri,
    machine.check_swap,
    machine.check_zram,
    machine.check_thrashing,
    machine.check_psi,
    machine.check_recursive_protection,
)


def judge_node(facts: NodeFacts, own_rules: Iterable[NodeRule] = ()) -> tuple[Finding, ...]:
    """What is found, the worst first. Without cgroup v2 few rules apply, and all own ones."""
    on_v2 = facts.machine.layout in ("v2", None)
    rules = (*_RULES_FOR_ANY_MACHINE, *(_RULES_FOR_CGROUP_V2 if on_v2 else ()), *own_rules)
    found = [finding for rule in rules for finding in rule(facts)]
    return tuple(sorted(found, key=lambda finding: SEVERITIES_WORST_FIRST.index(finding.severity)))
