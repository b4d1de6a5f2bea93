"""`memqos audit`: what Memory QoS would do to a whole cluster, and what is wrong today."""

import gc
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Literal

import click
import msgspec

from memqos.audit.report import AuditReport
from memqos.audit.rules import select_rules
from memqos.cli.audit_run import AuditRequest, run_audit
from memqos.cli.cluster_access import CLUSTER, LiveCluster, cluster_options
from memqos.cli.history_options import HistoryOptions, history_options
from memqos.cli.options import collect_options, release_options
from memqos.cli.output import complain, emit, output_option, print_lines
from memqos.cli.settings import POLICY_CHOICES, FactorType, check_settings_options
from memqos.findings.catalogue import AUDIT_RULES, unknown_rule
from memqos.findings.finding import SEVERITIES_WORST_FIRST, Finding, Severity
from memqos.release import Release
from memqos.settings.settings import PAGE_SIZE, PolicyName
from memqos.units import pluralize

if TYPE_CHECKING:
    from memqos.size.savings import ClusterSavings

Output = Literal["table", "json", "yaml", "html"]

_FAULTS: Final = 1
_FINDINGS: Final = 2
_MAX_REPORTED: Final = 20
"""Faults printed to standard error; data and report have more."""


@click.command()
@click.argument("files", metavar="[DUMP]...", nargs=-1)
@click.option(
    "--usage",
    "usage_files",
    metavar="FILE",
    multiple=True,
    help="What pods use: PodMetrics, snapshots, a mapping; more than one is a history.",
)
@click.option(
    "--compare",
    metavar="WITH",
    help="Another dump, the word cluster, or other terms, joined by commas: release=1.37, "
    "policy=NAME, factor=0.8.",
)
@click.option("--rule", "only", multiple=True, metavar="ID", help="Only this rule or group.")
@click.option("--skip", "skipped", multiple=True, metavar="ID", help="Not this rule or group.")
@click.option(
    "--downgrade",
    metavar="VERSION",
    help="List the pods to recreate before kubelets are downgraded to this release.",
)
@click.option(
    "--fail-on",
    type=click.Choice(SEVERITIES_WORST_FIRST),
    help="Exit with 2 if anything so bad, or worse, is found.",
)
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=0),
    default=1,
    help="Processes; 0 is one a core.  [default: 1]",
)
@output_option("html")
@history_options
@click.option("-n", "--namespace", metavar="NAME", help="Only this namespace of a live cluster.")
@cluster_options("context", "selector")
@click.option("--policy", type=click.Choice(POLICY_CHOICES), help="memoryReservationPolicy.")
@click.option("--factor", type=FactorType(), help="memoryThrottlingFactor.")
@click.option("--kubelet", metavar="FILE", help="The KubeletConfiguration of all nodes.")
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
    downgrade: str | None,
    fail_on: Severity | None,
    jobs: int,
    output: Output,
    context: str | None,
    namespace: str | None,
    selector: str | None,
    policy: PolicyName | None,
    factor: float | None,
    kubelet: str | None,
    release: str | None,
    gates: tuple[str, ...],
) -> int:
    """Audit a cluster: what Memory QoS would do to it, and what is wrong with it today.

    \b
    memqos audit --context prod -o html > report.html

    Without a DUMP, or with the word cluster as one, the cluster itself is asked, and its metrics
    API unless --usage is given. It can also be dumped first:

    \b
    kubectl get pods,nodes,limitranges,resourcequotas -A -o json > cluster.json
    kubectl get --raw /apis/metrics.k8s.io/v1beta1/pods > usage.json
    memqos audit cluster.json --usage usage.json -o html > report.html

    With --history it also says what workloads request beyond their need, and how many nodes
    would be enough.

    A dump is JSON, an object a line, or YAML; it may be compressed with gzip, and - is standard
    input. Exit code 0: all was read, 1: some of it could not be read and the rest was audited, 2:
    findings as bad as --fail-on says.
    """
    if histories.history and output == "html":
        raise click.UsageError("--history is not part of the page: give -o table, json or yaml")
    for rule in (*only, *skipped):
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
        raise click.UsageError("--context, -n and -l are for a live cluster: all of this is files")
    request = AuditRequest(
        files,
        usage_files,
        compare,
        select_rules(only, skipped),
        jobs,
        output in ("json", "yaml"),
        None if downgrade is None else Release.of(downgrade, options.gates),
    )
    # All that is read is kept, and none of it refers back: there is nothing to collect.
    gc.disable()
    try:
        report, pods = run_audit(request, options, live)
    finally:
        gc.enable()
    _report_faults(report)
    _warn_if_empty(report)
    savings = None
    if histories.history:
        from memqos.cli.audit_history import audit_history

        savings = audit_history(files, live, histories, report.audit.settings.release)
    _print(report, pods, output, savings)
    if report.faults:
        return _FAULTS
    return _FINDINGS if _is_bad(report.findings, fail_on) else 0


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
            from memqos.draw.text.size import savings_text

            print_lines(["", *savings_text(savings)])
    elif output == "html":
        from memqos.draw.html.audit import audit_html

        print(audit_html(report))
    else:
        from memqos.draw.text.audit import audit_data

        data = audit_data(report, pods)
        if output == "yaml":
            data["pods"] = [msgspec.json.decode(text) for text in pods]
        if savings is not None:
            from memqos.draw.text.size import savings_data

            data["savings"] = savings_data(savings)
        emit(data, output)


def _is_bad(findings: Iterable[Finding], fail_on: Severity | None) -> bool:
    if fail_on is None:
        return False
    bad = SEVERITIES_WORST_FIRST[: SEVERITIES_WORST_FIRST.index(fail_on) + 1]
    return any(finding.severity in bad for finding in findings)
