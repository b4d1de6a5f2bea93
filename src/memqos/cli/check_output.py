"""Results of a check for other programs: -o sarif for code scanning, -o junit for test reports."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeGuard

from memqos.cli.output import print_data, print_markup

if TYPE_CHECKING:
    from memqos.audit.report import AuditReport
    from memqos.draw.text.admission import AdmissionReport
    from memqos.draw.text.check_report import CheckResult
    from memqos.draw.text.pod import PodExplanation
    from memqos.manifests.objects import Template

CheckFormat = Literal["sarif", "junit"]
CHECK_FORMATS: Final[tuple[CheckFormat, ...]] = ("sarif", "junit")
_RULES: Final = {
    "input": "the file is not what Kubernetes or memqos accepts",
    "note": "good to know",
    "limit-range": "a limit range of the namespace refuses the pod",
    "quota": "a quota of the namespace refuses the pod",
}


def is_check_format(output: str) -> TypeGuard[CheckFormat]:
    """Whether results are printed, not what was computed."""
    return output in CHECK_FORMATS


def print_check(
    command: str,
    results: "Iterable[CheckResult]",
    checked: Sequence[str],
    output: CheckFormat,
    rules: dict[str, str] | None = None,
) -> None:
    """Print the results of a command about all that it checked; `rules` has the text of each."""
    from memqos.draw.text.check_report import junit, sarif

    if output == "junit":
        print_markup(junit(results, checked, f"memqos {command}"))
        return
    from importlib.metadata import version

    log = sarif(results, checked, version("memqos"), {**_RULES, **(rules or {})})
    print_data(log, "json")


def pod_notes(pod: "PodExplanation") -> "Iterator[CheckResult]":
    """The notes on a pod, at the line where its object begins."""
    from memqos.draw.text.check_report import CheckResult

    file, _, line = pod.origin.rpartition(":")
    for note in pod.notes:
        yield CheckResult(
            rule="note",
            level="note",
            message=f"{pod.label}: {note}",
            file=file,
            line=int(line),
            subject=pod.label,
        )


def admission_results(template: "Template", admitted: "AdmissionReport") -> "Iterator[CheckResult]":
    """All that refuses a pod or warns of it, at its field."""
    from memqos.draw.text.admission import quota_refusals, violation_text
    from memqos.draw.text.check_report import CheckLevel, CheckResult

    def result(rule: str, level: CheckLevel, message: str, field: str = "spec") -> CheckResult:
        place = template.field_error(field, message)
        return CheckResult(
            rule=rule,
            level=level,
            message=f"{template.label}: {message}",
            file=place.file,
            line=place.line,
            column=place.column,
            subject=template.label,
        )

    denial, verdict = admitted.creation.denial, admitted.creation.quotas
    for violation in denial.violations if denial is not None else ():
        text = f"limit range {violation.range}: {violation_text(violation)}"
        yield result("limit-range", "error", text, violation.where)
    for breach in admitted.breaches:
        level: CheckLevel = "error" if breach.mode == "refuse" else "warning"
        yield result(f"policy/{breach.rule}", level, str(breach))
    for text in quota_refusals(verdict) if verdict is not None else ():
        name = "" if verdict is None or verdict.quota is None else f" {verdict.quota}"
        yield result("quota", "error", f"quota{name}: {text}")


def audit_results(report: "AuditReport") -> "Iterator[CheckResult]":
    """Faults of the dumps at their places, and findings, which are about groups of objects."""
    from memqos.draw.text.check_report import LEVELS, CheckResult, input_result

    yield from map(input_result, report.faults)
    # A finding adds up pods of all dumps: it has a file only where there is no more than one.
    file = report.sources[0] if len(report.sources) == 1 else None
    for each in report.findings:
        evidence = "; ".join(each.evidence)
        yield CheckResult(
            rule=each.rule,
            level=LEVELS[each.severity],
            message=f"{each.where}: {each.what}: {evidence} – {each.fix}",
            file=file,
            subject=each.where,
        )
