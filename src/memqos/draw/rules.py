"""Rules as a person reads about them."""

from collections.abc import Iterable
from textwrap import wrap
from typing import Final

from memqos.draw.table import table
from memqos.findings.catalogue import RuleInfo

_WIDTH: Final = 100


def rules_text(rules: Iterable[RuleInfo]) -> list[str]:
    """All rules, a line each."""
    rows = [[rule.judge, rule.severity, rule.id, rule.says] for rule in rules]
    return table([["judge", "severity", "rule", "found where"], *rows], left=4)


def rule_text(rule: RuleInfo) -> list[str]:
    """One rule in full."""
    return [
        f"{rule.id}  {rule.severity}, memqos {rule.judge}",
        *_wrapped(rule.says),
        *_wrapped(f"why: {rule.why}"),
        *_wrapped(f"fix: {rule.fix}"),
    ]


def _wrapped(text: str) -> list[str]:
    return wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
