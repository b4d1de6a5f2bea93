"""Findings and rules as text, and as data."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from memqos.draw.text.lines import Line, Paragraph, Styled, Table
from memqos.findings.catalogue import RuleInfo
from memqos.findings.finding import Finding, Severity
from memqos.findings.reserved import ReservedAdvice
from memqos.units import format_bytes, pluralize

_SHOWN_EVIDENCE: Final = 5
"""Lines of evidence; data has them all."""
SEVERITY_NOUNS: Final[dict[Severity, tuple[str, str]]] = {
    "error": ("error", "errors"),
    "warning": ("warning", "warnings"),
    "info": ("note", "notes"),
}
"""One finding and several, the worst first."""


def findings_text(findings: Sequence[Finding]) -> list[Line]:
    """Each finding with its evidence and fix, and a summary."""
    lines: list[Line] = []
    for finding in findings:
        lines.append(severity_line(finding.severity, f"{finding.rule}  {finding.where}"))
        lines.append(Paragraph(finding.what))
        lines += [f"  · {each}" for each in finding.evidence[:_SHOWN_EVIDENCE]]
        if len(finding.evidence) > _SHOWN_EVIDENCE:
            lines.append(f"  · … and {len(finding.evidence) - _SHOWN_EVIDENCE} more")
        lines += [Paragraph(f"fix: {finding.fix}"), ""]
    return [*lines, findings_summary(findings)]


def severity_line(severity: Severity, text: str) -> Styled:
    """A line that begins with a severity, in its colour."""
    return Styled(f"{severity:7}  {text}", severity, len(severity))


def findings_summary(findings: Sequence[Finding]) -> str:
    """How many there are of each severity, in one line."""
    counts = Counter(finding.severity for finding in findings)
    words = [
        pluralize(counts[severity], *nouns)
        for severity, nouns in SEVERITY_NOUNS.items()
        if counts[severity]
    ]
    return ", ".join(words) or "nothing found"


def findings_data(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Findings as plain data."""
    return [msgspec.to_builtins(finding) for finding in findings]


def rules_text(rules: Iterable[RuleInfo]) -> Table:
    """All rules, a line each."""
    rows = [
        [rule.judge, Styled(rule.severity, rule.severity), rule.id, rule.summary] for rule in rules
    ]
    return Table([["command", "severity", "rule", "finds"], *rows], left=4)


def rule_text(rule: RuleInfo) -> list[Line]:
    """One rule in full."""
    return [
        f"{rule.id}  {rule.severity}, memqos {rule.judge}",
        Paragraph(rule.summary),
        Paragraph(f"why: {rule.why}"),
        Paragraph(f"fix: {rule.fix}"),
    ]


_SHOWN_SLICES: Final = 5


def reserved_text(advice: Iterable[ReservedAdvice]) -> list[str]:
    """What to reserve for the daemons of a node, and what they use."""
    lines = []
    for each in advice:
        used = sum([part.used for part in each.slices])
        lines.append(
            f"{each.reservation}: {{memory: {format_bytes(each.recommended)}}}  "
            f"now {format_bytes(each.configured)}, in use {format_bytes(used)} by "
            f"{pluralize(len(each.slices), 'cgroup')}"
        )
        lines += [
            f"  {format_bytes(part.used):>10}  {part.path}" for part in each.slices[:_SHOWN_SLICES]
        ]
    return lines


def reserved_data(advice: Iterable[ReservedAdvice]) -> list[dict[str, Any]]:
    """The same as plain data."""
    return [msgspec.to_builtins(each) for each in advice]
