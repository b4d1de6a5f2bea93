"""`memqos admit`: what limit ranges and quotas of a namespace make of new pods."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from memqos.cli.admission_rules import (
    NamespaceState,
    read_live_namespaces,
    read_namespaces,
    read_policy,
)
from memqos.cli.check_output import (
    CHECK_FORMATS,
    CheckFormat,
    admission_results,
    is_check_format,
    print_check,
)
from memqos.cli.cluster_access import CLUSTER, LiveCluster, cluster_options
from memqos.cli.help_sections import SectionedCommand
from memqos.cli.manifest_reader import LocatedPod, ManifestReader, origin_of
from memqos.cli.options import (
    manifest_arguments,
    release_options,
    resolve_release,
    resolve_server_release,
    strict_option,
)
from memqos.cli.output import OutputFormat, emit, output_option, print_lines, print_notes
from memqos.cli.own_rules import OwnRule, load_rules, rules_option
from memqos.cluster.creation import LIMIT_RANGE, Creation, create_pod
from memqos.draw.text.admission import AdmissionReport
from memqos.errors import InputError
from memqos.kube.pod import Pod
from memqos.kube.shape import containers_of
from memqos.manifests.objects import Template
from memqos.release import Release

if TYPE_CHECKING:
    from memqos.draw.text.check_report import CheckResult
    from memqos.findings.policy import AdmissionPolicy, PolicyBreach

_REFUSED = 2


@click.command(cls=SectionedCommand)
@manifest_arguments(required=True)
@click.option(
    "--namespace-state",
    metavar="FILE",
    help="LimitRanges and ResourceQuotas: kubectl get limitrange,resourcequota -o yaml; or "
    "'cluster' for those of a live cluster.",
)
@click.option(
    "--policy", metavar="FILE", help="An AdmissionPolicy: the rules that memqos webhook enforces."
)
@rules_option
@click.option(
    "--pod-defaults",
    is_flag=True,
    help="Apply defaults of LimitRanges of type Pod, as KEP-2837 proposes.",
)
@click.option("--why", is_flag=True, help="Show every check with its numbers.")
@strict_option
@output_option(*CHECK_FORMATS)
@cluster_options("context", "namespace")
@release_options
def command(
    files: tuple[str, ...],
    namespace_state: str | None,
    policy: str | None,
    packages: tuple[str, ...],
    pod_defaults: bool,
    why: bool,
    strict: bool,
    output: OutputFormat | CheckFormat,
    context: str | None,
    namespace: str | None,
    release: str | None,
    gates: tuple[str, ...],
) -> int:
    """Check the Pods in FILE… against the LimitRanges and quotas of a namespace, or a policy.

    Shows each pod as it would be stored, what refuses it, and by how much. Pods are admitted one
    after another, in the order given and with all replicas of a workload, and each adds to the
    usage of the quotas.

    FILE is a manifest, a folder, a snapshot, or - for standard input. It may also name a pod or
    workload in a live cluster, such as deployment/web. In a live cluster pods go to the namespace
    they name, else to that of -n. Exit code 2 if a pod is refused, 1 if anything could not be read
    or is invalid.
    """
    live = LiveCluster(context, namespace)
    rules = None if policy is None else read_policy(policy)
    own_rules = load_rules(packages, "pod")
    has_rules = rules is not None or bool(own_rules)
    is_live = _is_live(live, namespace_state, files, has_rules=has_rules)
    server = live.server_version() if is_live and release is None else None
    resolved, notes = _resolve(release, server, gates, pod_defaults=pod_defaults)
    results: list[CheckResult] | None = [] if is_check_format(output) else None
    reader = ManifestReader(live, strict=strict, results=results)
    located: Iterable[LocatedPod] = reader.pods(files)
    state = None
    if is_live:
        located = list(located)
        named = {template.namespace or live.namespace for template, _ in located}
        state = read_live_namespaces(reader, live, named, resolved, pod_defaults=pod_defaults)
        notes += state.notes
    elif namespace_state is not None:
        state = _read_state(namespace_state, live, resolved, pod_defaults=pod_defaults)
        notes += state.notes
    refused = False
    pods: list[dict[str, Any]] = []
    is_first = True
    for template, admitted in _admit_pods(
        reader, located, state, rules, own_rules, resolved, pod_defaults
    ):
        refused |= admitted.refused_by is not None
        if results is not None:
            results += admission_results(template, admitted)
        elif output != "table":
            from memqos.draw.text.admission import admission_data

            pods.append(admission_data(admitted, why=why))
        elif not admitted.creation.errors:
            if is_first:
                _print_head(resolved, state, rules, own_rules, notes)
            _print(admitted, why=why)
            is_first = False
    if is_check_format(output):
        print_check("admit", results or (), reader.files_read, output)
    elif output in ("json", "yaml"):
        emit(_data(resolved, state, notes, pods), output)
    return 1 if reader.faults else _REFUSED if refused else 0


def _is_live(
    live: LiveCluster, state: str | None, files: Sequence[str], *, has_rules: bool
) -> bool:
    """Whether limit ranges and quotas are those of a live cluster."""
    if state is None and not live.is_chosen:
        if has_rules:
            return False
        raise click.UsageError(
            "Missing option '--namespace-state', --context for a live cluster, --policy or --rules."
        )
    if state in (None, CLUSTER):
        return True
    live.require_use(*files)
    return False


def _resolve(
    release: str | None, server: str | None, gates: tuple[str, ...], *, pod_defaults: bool
) -> tuple[Release, list[str]]:
    resolved, notes = (
        resolve_release(release, gates) if server is None else resolve_server_release(server, gates)
    )
    if pod_defaults and not resolved.is_enabled("PodLevelResources"):
        notes.append(f"--pod-defaults changes nothing: PodLevelResources is off in {resolved}")
    return resolved, notes


def _read_state(
    file: str, live: LiveCluster, release: Release, *, pod_defaults: bool
) -> NamespaceState:
    reader = ManifestReader(live)
    state = read_namespaces(reader, file, release, pod_defaults=pod_defaults)
    reader.require_no_faults(file)
    return state


def _admit_pods(
    reader: ManifestReader,
    pods: Iterable[LocatedPod],
    given: NamespaceState | None,
    rules: "AdmissionPolicy | None",
    own_rules: Sequence[OwnRule],
    release: Release,
    pod_defaults: bool,
) -> Iterator[tuple[Template, AdmissionReport]]:
    """Every pod that could be read and is valid; faults of the others are reported at once."""
    now = datetime.now(UTC)
    state = NamespaceState() if given is None else given
    for template, pod in pods:
        namespace = state.namespace_of(template.namespace)
        ranges = state.ranges_in(namespace)
        before = met = state.quotas_in(namespace)
        replicas, count = _replicas(template), 0
        broken: tuple[PolicyBreach, ...] = ()
        try:
            while True:
                met = state.quotas_in(namespace)
                creation = create_pod(pod, ranges, met, release, now, pod_defaults=pod_defaults)
                if (rules is not None or own_rules) and creation.quotas is not None:
                    broken = _breaches(rules, own_rules, pod, creation, namespace, release)
                if any(each.mode == "refuse" for each in broken):
                    # Quotas come after it, and do not count what was refused.
                    creation = msgspec.structs.replace(creation, quotas=None, charged={})
                    break
                if creation.quotas is None or not creation.quotas.allowed:
                    break
                count += 1
                state.charge(namespace, creation.quotas.new_used)
                if count >= replicas:
                    break
        except InputError as error:
            reader.refuse(template.with_position(error))
            continue
        for fault in creation.errors:
            hint = _range_fill_hint(creation)
            reader.refuse(template.field_error(fault.field, fault.message + hint))
        yield (
            template,
            AdmissionReport(
                origin=origin_of(template),
                label=template.label,
                namespace=namespace,
                names=tuple(container.name for container in containers_of(pod)),
                release=release,
                replicas=replicas,
                admitted=count,
                creation=creation,
                ranges=tuple(ranges),
                quotas=tuple(before if count == replicas else met),
                breaches=broken,
                notes=tuple(_notes(pod, creation, given, namespace)),
            ),
        )


def _replicas(template: Template) -> int:
    """How many pods a workload creates at once; one where it does not state it."""
    workload: Any = template.document.data
    for step in template.path[:-1]:
        workload = workload[step]
    replicas = workload.get("replicas") if isinstance(workload, dict) else None
    return replicas if isinstance(replicas, int) and replicas > 0 else 1


def _range_fill_hint(creation: Creation) -> str:
    """The fields an error may be about that are not in the manifest."""
    fields = [
        f"{each.side}.{each.resource} of {each.container or 'the pod'}"
        for each in creation.filled
        if each.source.startswith(LIMIT_RANGE)
    ]
    return f" – limit ranges filled in {', '.join(fields)}" if fields else ""


def _breaches(
    rules: "AdmissionPolicy | None",
    own_rules: Sequence[OwnRule],
    pod: Pod,
    creation: Creation,
    namespace: str,
    release: Release,
) -> "tuple[PolicyBreach, ...]":
    from memqos.findings.policy import PolicyBreach, policy_breaches

    of_policy = (
        [] if rules is None else policy_breaches(rules, pod, creation.stored, namespace, release)
    )
    of_packages = [
        PolicyBreach(
            found.rule,
            "refuse" if found.severity == "error" else "warn",
            f"{found.where}: {found.what}",
            found.fix,
            f"the rules of {rule.package}",
        )
        for rule in own_rules
        for found in rule(pod, namespace, release)
    ]
    return (*of_policy, *of_packages)


def _notes(
    pod: Pod, creation: Creation, state: NamespaceState | None, namespace: str
) -> Iterator[str]:
    if state is not None and not (state.ranges_in(namespace) or state.quotas_in(namespace)):
        yield f"no LimitRange or ResourceQuota is given for namespace {namespace}"
    if creation.written.pod is not None and creation.stored.pod is None:
        yield "spec.resources is dropped: PodLevelResources is off"
    if pod.status is not None:
        yield "it exists already: this is the result for a new pod with the same spec"


def _print_head(
    release: Release,
    state: NamespaceState | None,
    rules: "AdmissionPolicy | None",
    own_rules: Sequence[OwnRule],
    notes: Sequence[str],
) -> None:
    from memqos.units import pluralize

    parts = [f"Kubernetes {release}"]
    if state is not None:
        ranges = sum(map(len, state.ranges.values()))
        quotas = sum(map(len, state.quotas.values()))
        parts.append(f"{pluralize(ranges, 'limit range')}, {pluralize(quotas, 'quota')}")
    if rules is not None:
        parts.append(f"a policy of {pluralize(len(rules.rules), 'rule')}")
    if own_rules:
        parts.append(f"the rules of {', '.join([rule.package for rule in own_rules])}")
    if state is not None:
        parts.append("one after another")
    print_lines([" · ".join(parts)])
    print_notes(notes)


def _print(admitted: AdmissionReport, *, why: bool) -> None:
    from memqos.draw.text.admission import admission_text

    print_lines(["", *admission_text(admitted)])
    if why:
        from memqos.draw.text.admission import admission_reasons

        print_lines(admission_reasons(admitted))


def _data(
    release: Release, state: NamespaceState | None, notes: Sequence[str], pods: list[dict[str, Any]]
) -> dict[str, Any]:
    from memqos.draw.text.admission import quotas_data

    quotas = {} if state is None else state.quotas
    return {
        "release": str(release),
        "gates": dict(release.gates),
        "notes": list(notes),
        "pods": pods,
        "quotas": {namespace or "*": quotas_data(each) for namespace, each in quotas.items()},
    }
