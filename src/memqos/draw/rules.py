"""Rules as a person reads about them."""

from collections.abc import Iterable

from memqos.draw.paragraph import paragraph
from memqos.draw.table import table
from memqos.findings.catalogue import RuleInfo


def rules_text(rules: Iterable[RuleInfo]) -> list[str]:
    """All rules, a line each."""
    rows = [[rule.judge, rule.severity, rule.id, rule.says] for rule in rules]
    return table([["judge", "severity", "rule", "found where"], *rows], left=4)


def rule_text(rule: RuleInfo) -> list[str]:
    """One rule in full."""
    return [
        f"{rule.id}  {rule.severity}, memqos {rule.judge}",
        *paragraph(rule.says),
        *paragraph(f"why: {rule.why}"),
        *paragraph(f"fix: {rule.fix}"),
    ]
