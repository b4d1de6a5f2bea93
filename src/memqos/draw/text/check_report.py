"""Results of a check for other programs: SARIF for code scanning, JUnit XML for test reports."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Final, Literal

import msgspec

from memqos.draw.text.terminal import visible
from memqos.errors import InputError
from memqos.findings.finding import Severity

CheckLevel = Literal["error", "warning", "note"]
LEVELS: Final[dict[Severity, CheckLevel]] = {"error": "error", "warning": "warning", "info": "note"}
SARIF_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
INPUT_RULE: Final = "input"
"""The rule of a manifest that Kubernetes, or memqos, does not accept."""


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong, and where: a place in a file, or an object by its name."""

    rule: str
    level: CheckLevel
    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    subject: str | None = None

    @property
    def place(self) -> str:
        """The place as a person would write it."""
        parts = [self.file, self.line, self.column] if self.file else [self.subject]
        return ":".join(str(part) for part in parts if part is not None)


def input_result(error: InputError, level: CheckLevel = "error") -> CheckResult:
    """The result that stands for a fault of the input."""
    text = error.what if error.field is None else f"{error.field}: {error.what}"
    return CheckResult(
        rule=INPUT_RULE,
        level=level,
        message=text if error.hint is None else f"{text} – {error.hint}",
        file=error.file,
        line=error.line,
        column=error.column,
    )


def sarif(
    results: Iterable[CheckResult], checked: Sequence[str], version: str, rules: dict[str, str]
) -> dict[str, Any]:
    """A SARIF 2.1.0 log; `rules` has the text of every rule that a result may name.

    A result without a file, such as a finding about pods of several, is at the first that was
    checked: GitHub refuses a whole log for one result without a file ("expected artifact
    location", github/codeql-action#1738).
    """
    listed = list(results)
    first = checked[0] if checked else None
    used = sorted({each.rule for each in listed})
    return {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "memqos",
                        "version": version,
                        "rules": [
                            {"id": rule, "shortDescription": {"text": rules.get(rule, rule)}}
                            for rule in used
                        ],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [_sarif_result(each, used.index(each.rule), first) for each in listed],
            }
        ],
    }


def _sarif_result(result: CheckResult, rule_index: int, default_file: str | None) -> dict[str, Any]:
    data: dict[str, Any] = {
        "ruleId": result.rule,
        "ruleIndex": rule_index,
        "level": result.level,
        "message": {"text": result.message},
    }
    location: dict[str, Any] = {}
    file = default_file if result.file is None else result.file
    if file is not None:
        physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(file)}}
        if result.line is not None:
            physical["region"] = {"startLine": result.line}
            if result.column is not None:
                physical["region"]["startColumn"] = result.column
        location["physicalLocation"] = physical
    if result.subject is not None:
        location["logicalLocations"] = [{"fullyQualifiedName": result.subject}]
    if location:
        data["locations"] = [location]
    return data


_UNRESERVED: Final = frozenset(
    b"/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)


def _uri(path: str) -> str:
    """A path as a relative reference (RFC 3986)."""
    encoded = path.encode(errors="surrogateescape")
    return "".join(chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in encoded)


def junit(results: Iterable[CheckResult], checked: Sequence[str], suite: str) -> str:
    """A JUnit report: a test case for each thing that was checked, failed where a result names it.

    Warnings and notes do not fail a case; their text is in its output.
    """
    by_case: dict[str, list[CheckResult]] = {name: [] for name in checked}
    for each in results:
        by_case.setdefault(each.file or each.subject or suite, []).append(each)
    failures = sum(any(_fails(each) for each in found) for found in by_case.values())
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites tests="{len(by_case)}" failures="{failures}" errors="0">',
        f'<testsuite name={_attribute(suite)} tests="{len(by_case)}" failures="{failures}" '
        'errors="0" skipped="0">',
    ]
    for name, found in by_case.items():
        lines += _case(name, found, suite)
    return "\n".join([*lines, "</testsuite>", "</testsuites>"])


def _fails(result: CheckResult) -> bool:
    return result.level == "error"


def _case(name: str, found: list[CheckResult], suite: str) -> list[str]:
    head = f"<testcase classname={_attribute(suite)} name={_attribute(name)}"
    if not found:
        return [f"{head}/>"]
    lines = [f"{head}>"]
    failed = [each for each in found if _fails(each)]
    if failed:
        message = _attribute(failed[0].message)
        details = _lines(f"{each.place}: {each.message} [{each.rule}]" for each in failed)
        lines.append(f"<failure message={message}>{details}</failure>")
    others = [each for each in found if not _fails(each)]
    if others:
        details = _lines(f"{each.level}: {each.place}: {each.message}" for each in others)
        lines.append(f"<system-out>{details}</system-out>")
    return [*lines, "</testcase>"]


def _lines(results: Iterable[str]) -> str:
    """A line each: no name can begin one of its own."""
    return "\n".join([_xml_text(each) for each in results])


def _attribute(text: str) -> str:
    return f'"{_xml_text(text)}"'


def _xml_text(text: str) -> str:
    """Text with what XML 1.0 cannot hold as escapes: none of it is printable."""
    return escape(visible(text))
