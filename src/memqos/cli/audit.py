"""`memqos audit`: what Memory QoS would do to a whole cluster, and what is wrong today."""

import gc
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal

import click
import msgspec

from memqos.audit.report import AuditReport
from memqos.audit.rules import ClusterRule, is_selected, select_rules
from memqos.cli.audit_run import AuditRequest, run_audit
from memqos.cli.browser import open_option, open_page, require_page
from memqos.cli.check_output import (
    CHECK_FORMATS,
    audit_results,
    is_check_format,
    print_check,
)
from memqos.cli.cluster_access import CLUSTER, LiveCluster, cluster_options
from memqos.cli.help_sections import SectionedCommand, help_section
from memqos.cli.history_options import HistoryOptions, history_options
from memqos.cli.options import collect_options, manifest_arguments, release_options
from memqos.cli.output import complain, emit, output_option, print_lines, print_markup
from memqos.cli.own_rules import OwnRule, is_own_group, load_rules, rules_option
from memqos.cli.settings import POLICY_CHOICES, FactorType, check_settings_options
from memqos.findings.catalogue import AUDIT_RULES, unknown_rule
from memqos.findings.finding import SEVERITIES_WORST_FIRST, Finding, Severity
from memqos.release import Release
from memqos.settings.settings import PAGE_SIZE, PolicyName
from memqos.units import pluralize

if TYPE_CHECKING:
    from memqos.draw.svg.elements import Markup
    from memqos.size.savings import ClusterSavings

Output = Literal["table", "json", "yaml", "html", "sarif", "junit"]

_FAULTS: Final = 1
_FINDINGS: Final = 2
_MAX_REPORTED: Final = 20
"""The most faults printed to standard error; JSON and report contain more."""


@click.command(cls=SectionedCommand)
@manifest_arguments(metavar="[DUMP]...")
@click.option(
    "--usage",
    "usage_files",
    metavar="FILE",
    multiple=True,
    help="Usage of pods: PodMetrics, snapshots or a mapping; several make a history.",
)
@click.option(
    "--compare",
    metavar="WITH",
    help="Compare with another dump, 'cluster', or other settings: "
    "release=1.37,policy=NAME,factor=0.8.",
)
@click.option("--rule", "only", multiple=True, metavar="ID", help="Run only this rule or group.")
@click.option("--skip", "skipped", multiple=True, metavar="ID", help="Skip this rule or group.")
@rules_option
@click.option(
    "--downgrade",
    metavar="VERSION",
    help="List the pods to recreate before kubelets are downgraded to this release.",
)
@click.option(
    "--fail-on",
    type=click.Choice(SEVERITIES_WORST_FIRST),
    help="Exit with 2 on findings of this severity or worse.",
)
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=0),
    metavar="N",
    default=1,
    help="Worker processes; 0 is one per core.  [default: 1]",
)
@output_option("html", *CHECK_FORMATS)
@open_option
@history_options
@help_section("Cluster")(
    click.option(
        "-n", "--namespace", metavar="NAME", help="Audit only this namespace of a live cluster."
    )
)
@cluster_options("context", "selector")
@help_section("Settings")(
    click.option(
        "--policy",
        type=click.Choice(POLICY_CHOICES),
        help="memoryReservationPolicy.  [default: the kubelets', else None]",
    )
)
@help_section("Settings")(
    click.option(
        "--factor",
        type=FactorType(),
        help="memoryThrottlingFactor.  [default: the kubelets', else the release's]",
    )
)
@help_section("Settings")(
    click.option("--kubelet", metavar="FILE", help="The KubeletConfiguration of all nodes.")
)
@release_options
@collect_options(HistoryOptions)
def command(
    histories: HistoryOptions,
    *,
    files: tuple[str, ...],
    usage_files: tuple[str, ...],
    compare: str | None,
    only: tuple[str, ...],
    skipped: tuple[str, ...],
    packages: tuple[str, ...],
    downgrade: str | None,
    fail_on: Severity | None,
    jobs: int,
    output: Output,
    opens: bool,
    context: str | None,
    namespace: str | None,
    selector: str | None,
    policy: PolicyName | None,
    factor: float | None,
    kubelet: str | None,
    release: str | None,
    gates: tuple[str, ...],
) -> int:
    """Audit a cluster: effects of Memory QoS, and problems it has today.

    \b
    memqos audit --context prod -o html > report.html

    Without a DUMP, or with 'cluster' as one, it reads the live cluster, and its metrics API unless
    --usage is given. The cluster can also be dumped first:

    \b
    kubectl get pods,nodes,limitranges,resourcequotas -A -o json > cluster.json
    kubectl get --raw /apis/metrics.k8s.io/v1beta1/pods > usage.json
    memqos audit cluster.json --usage usage.json -o html > report.html

    With --history it also shows how much more than needed workloads request, and how many nodes
    would be enough.

    A dump is YAML, JSON, or one JSON object per line; it may be compressed with gzip. - is standard
    input.

    Exit code 0: all was read, 1: some of it could not be read and the rest was audited, 2:
    findings of the severity of --fail-on or worse.
    """
    output = _checked_output(output, opens=opens, has_history=bool(histories.history))
    own_rules = tuple([_selecting(each, only, skipped) for each in load_rules(packages, "cluster")])
    for rule in (*only, *skipped):
        if own_rules and is_own_group(rule):
            continue
        if problem := unknown_rule(rule, [each.id for each in AUDIT_RULES]):
            raise click.UsageError(problem)
    options = check_settings_options(
        release=release,
        gates=gates,
        kubelet=kubelet,
        node=None,
        capacity=None,
        allocatable=None,
        factor=factor,
        policy=policy,
        page_size=PAGE_SIZE,
    )
    live = LiveCluster(context, namespace, selector)
    files = files or (CLUSTER,)
    if live.is_chosen and CLUSTER not in (*files, compare):
        raise click.UsageError("--context, -n and -l need a live cluster, but only files are given")
    request = AuditRequest(
        files=files,
        usage_files=usage_files,
        compare=compare,
        rules=select_rules(only, skipped),
        jobs=jobs,
        with_pods=output in ("json", "yaml"),
        downgrade=None if downgrade is None else Release.of(downgrade, options.gates),
        own_rules=own_rules,
    )
    # All that is read is kept, and none of it refers back: there is nothing to collect.
    gc.disable()
    try:
        report, pods = run_audit(request, options, live)
    finally:
        gc.enable()
    if not is_check_format(output):
        _report_faults(report)
    _warn_if_empty(report)
    savings = None
    if histories.history:
        from memqos.cli.audit_history import audit_history

        savings = audit_history(files, live, histories, report.audit.settings.release)
    if opens:
        open_page(_page(report, savings))
    else:
        _print(report, pods, output, savings)
    if report.faults:
        return _FAULTS
    return _FINDINGS if _is_bad(report.findings, fail_on) else 0


def _selecting(rule: OwnRule, only: tuple[str, ...], skipped: tuple[str, ...]) -> ClusterRule:
    """A rule whose findings are selected as --rule and --skip say: its ids are not known before."""
    return lambda audit: [each for each in rule(audit) if is_selected(each.rule, only, skipped)]


def _checked_output(output: Output, *, opens: bool, has_history: bool) -> Output:
    """What is printed; options that do not go with it are refused."""
    if opens:
        require_page(output, "table", "html")
        return "html"
    if has_history and is_check_format(output):
        raise click.UsageError(f"--history is not part of {output}: give another -o")
    return output


def _report_faults(report: AuditReport) -> None:
    for fault in report.faults[:_MAX_REPORTED]:
        complain(fault)
    more = len(report.faults) - _MAX_REPORTED + report.more_faults
    if more > 0:
        complain(f"… and {pluralize(more, 'more fault')}")


def _warn_if_empty(report: AuditReport) -> None:
    """An audit without pods finds nothing wrong, and must not look like a good one."""
    where, ended = ", ".join(report.sources), report.audit.ended
    if report.audit.pods or report.faults:
        return
    if ended:
        complain(f"nothing to audit in {where}: {pluralize(ended, 'pod')}, and all have ended")
    else:
        complain(f"nothing to audit in {where}: no pods – is it the right dump, the right cluster?")


def _print(
    report: AuditReport, pods: list[bytes], output: Output, savings: "ClusterSavings | None"
) -> None:
    if output == "table":
        from memqos.draw.text.audit import audit_text

        print_lines(audit_text(report))
        if savings is not None:
            from memqos.draw.text.savings import savings_text

            print_lines(["", *savings_text(savings)])
    elif output == "html":
        print_markup(_page(report, savings))
    elif is_check_format(output):
        rules = {each.id: each.summary for each in AUDIT_RULES}
        print_check("audit", audit_results(report), report.sources, output, rules)
    elif output in ("json", "yaml"):
        from memqos.draw.text.audit import audit_data

        data = audit_data(report, pods)
        if output == "yaml":
            data["pods"] = [msgspec.json.decode(text) for text in pods]
        if savings is not None:
            from memqos.draw.text.savings import savings_data

            data["savings"] = savings_data(savings)
        emit(data, output)


def _page(report: AuditReport, savings: "ClusterSavings | None") -> str:
    from memqos import __version__
    from memqos.draw.html.audit import audit_html

    sections: list[Markup] = []
    if savings is not None:
        from memqos.draw.html.savings import savings_section

        sections = [*savings_section(savings)]
    return audit_html(report, *sections, at=datetime.now(UTC), version=__version__)


def _is_bad(findings: Iterable[Finding], fail_on: Severity | None) -> bool:
    if fail_on is None:
        return False
    bad = SEVERITIES_WORST_FIRST[: SEVERITIES_WORST_FIRST.index(fail_on) + 1]
    return any(finding.severity in bad for finding in findings)
