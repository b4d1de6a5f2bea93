"""`memqos resize`: whether a running pod can be resized in place, and what that changes."""

from collections.abc import Iterator, Mapping
from typing import Final

import click
import msgspec

from memqos.cli.cluster_access import LiveCluster, cluster_options
from memqos.cli.help_sections import SectionedCommand
from memqos.cli.manifest_reader import LocatedPod, ManifestReader, origin_of
from memqos.cli.options import BytesType, collect_options, strict_option
from memqos.cli.output import OutputFormat, emit, output_option, print_lines, print_notes
from memqos.cli.resize_node import NodeAndPods, read_resize_node
from memqos.cli.settings import (
    SettingsArguments,
    check_settings_options,
    resolve_settings,
    settings_data,
    settings_options,
    with_cluster_defaults,
)
from memqos.cluster.limit_effect import heap_runtime, limit_effect
from memqos.cluster.resize import NO_FIELD, Resize, resize_pod
from memqos.cluster.resize_verdict import resize_admission, resize_verdict
from memqos.draw.text.resize import (
    LimitChange,
    NodeAnswers,
    ResizeChange,
    ResizeReport,
    gate_off_changes,
    resize_changes,
    resize_restarts,
    resize_text,
)
from memqos.errors import InputError
from memqos.kube.defaulting import apply_defaults
from memqos.kube.pod import Pod
from memqos.kube.resources import MEMORY, memory_in
from memqos.kube.shape import containers_of, is_static, with_shape
from memqos.kube.validation import FieldError, validate
from memqos.manifests.objects import Template
from memqos.plan.pod import PodPlan, plan_pod
from memqos.plan.semantics import is_stored, semantics_of_stored
from memqos.release import Release
from memqos.settings.resolver import NodeSettings, with_gate_off
from memqos.settings.settings import Settings

_REFUSED: Final = 2
_ROLLOUT: Final = "is a rollout, which replaces its pods"
_LATER_PODS: Final = "changes only pods that are created later"
_TEMPLATE_EDITS: Final = {
    "Deployment": _ROLLOUT,
    "StatefulSet": _ROLLOUT,
    "DaemonSet": _ROLLOUT,
    "ReplicaSet": _LATER_PODS,
    "ReplicationController": _LATER_PODS,
    "Job": "is refused",
    "CronJob": _LATER_PODS,
}
"""What an edit of the template does instead of resizing pods in place."""


@click.command(cls=SectionedCommand)
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.option("--why", is_flag=True, help="Show the rule behind every value that changes.")
@strict_option
@click.option(
    "--others",
    metavar="FILE",
    help="The other pods of the node, whose requests are not available.  [default: the "
    "snapshot's, or "
    "those of the live node]",
)
@click.option(
    "--usage",
    "usages",
    multiple=True,
    metavar="[CONTAINER=]QUANTITY",
    help="Memory usage of a container, to check a lower limit. May be repeated.",
)
@cluster_options("context", "namespace")
@output_option()
@settings_options
@collect_options(SettingsArguments, check_settings_options)
def command(
    options: SettingsArguments,
    *,
    old: str,
    new: str,
    why: bool,
    others: str | None,
    usages: tuple[str, ...],
    strict: bool,
    context: str | None,
    namespace: str | None,
    output: OutputFormat,
) -> int:
    """Check an in-place resize of the pods of OLD to the resources of NEW.

    Shows whether the API server allows it, which rule forbids it, and which cgroup values change.
    With --node or --snapshot it also shows the kubelet's decision: Accepted, Deferred until other
    pods free enough, or Infeasible, with the reason and a fix.
    OLD comes from a cluster (kubectl get pod NAME -o yaml, or pod/NAME itself, which is then
    resized on the node it runs on), or is treated as just created from that manifest.
    Several pods are matched by namespace and name.

    OLD and NEW are manifests, folders, snapshots, or - for standard input. Exit code 2 if a resize
    is refused, 1 if anything could not be read or is invalid.
    """
    live = LiveCluster(context, namespace)
    live.require_use(old, new, options.node, others)
    if live.is_object_path(old):
        options = with_cluster_defaults(live, options, (old,))
    resolved = resolve_settings(options, live=live)
    reader = ManifestReader(live, strict=strict)
    if others is not None and options.node is None and options.snapshot is None:
        raise click.UsageError("--others needs a node: give --node or --snapshot")
    usage = dict(map(_parse_usage, usages))
    node = read_resize_node(reader, live, options, others, resolved)
    found = [
        _with_answers(each, pods, node, usage, resolved.settings.release)
        for each, pods in _resize_pods(reader, old, new, resolved)
    ]
    names = {name for each in found for name in each.names}
    for name in sorted(usage.keys() - names - {""}) if names else ():
        raise click.UsageError(
            f"--usage: no container {name}: there are {', '.join(sorted(names))}"
        )
    if output == "table":
        _print(found, resolved, why=why)
    else:
        from memqos.draw.text.resize import resize_data

        pods = [resize_data(each, why=why) for each in found]
        emit(
            {
                "terms": settings_data(resolved),
                "enablement": resolved.enablement.data,
                "pods": pods,
            },
            output,
        )
    if reader.faults:
        return 1
    return 0 if all(each.accepted for each in found) else _REFUSED


def _resize_pods(
    reader: ManifestReader, old: str, new: str, resolved: NodeSettings
) -> Iterator[tuple[ResizeReport, tuple[Pod, Pod]]]:
    settings = resolved.settings
    is_open = resolved.enablement.state == "as if on"
    gate_off = with_gate_off(resolved).settings if is_open else None
    for before, after in _pairs(reader, old, new):
        template, sent = before[0], after[0]
        try:
            stored, faults = _pod_as_stored(before[1], settings.release)
            plan = None if faults else semantics_of_stored(stored, settings).plan
        except InputError as error:
            reader.refuse(template.with_position(error))
            continue
        for fault in faults:
            reader.refuse(template.field_error(fault.field, fault.message))
        if plan is None:
            continue
        try:
            result = resize_pod(stored, after[1], settings.release)
        except InputError as error:
            reader.refuse(sent.with_position(error))
            continue
        desired = with_shape(stored, result.after) if result.valid else stored
        report = _describe_resize(before, after, stored, plan, result, settings)
        if gate_off is not None and result.valid:
            report = _with_gate_off(report, stored, result, gate_off)
        yield report, (stored, desired)


def _with_gate_off(
    report: ResizeReport, stored: Pod, result: Resize, settings: Settings
) -> ResizeReport:
    before = semantics_of_stored(stored, settings).plan
    assert before is not None, "the gate decides about values, not whether a pod is valid"
    after = plan_pod(result.after, settings, result.class_before)
    changes = gate_off_changes(report.changes, before, after, report.names)
    return msgspec.structs.replace(report, changes_gate_off=tuple(changes))


def _with_answers(
    report: ResizeReport,
    pods: tuple[Pod, Pod],
    node: NodeAndPods | None,
    usage: Mapping[str, int],
    release: Release,
) -> ResizeReport:
    if not report.resize.valid:
        return report
    old, new = pods
    answers = None
    if node is not None:
        mine = _full_name(old)
        others = [pod for pod in node.others if _full_name(pod) != mine]
        # The pod runs on the node, wherever OLD says it is bound to.
        on_node = msgspec.structs.replace(
            new, spec=msgspec.structs.replace(new.spec, node_name=node.node.admission.name)
        )
        answers = NodeAnswers(
            resize_verdict(old, on_node, others, node.node, release),
            None if is_static(old) else resize_admission(old, new, node.node.admission, release),
        )
    return msgspec.structs.replace(
        report,
        answers=answers,
        lowered=tuple(_lowered_limits(report, usage, release)),
        notes=(
            *report.notes,
            *_heap_notes(report, new),
            *((node.note,) if node is not None and node.note else ()),
        ),
    )


def _lowered_limits(
    report: ResizeReport, usage: Mapping[str, int], release: Release
) -> Iterator[LimitChange]:
    restarted = {name for name, resource in report.restarting if resource == MEMORY}
    before, after = report.resize.before.parts, report.resize.after.parts
    for name, old, new in zip(report.names, before, after, strict=True):
        used = usage.get(name, usage.get(""))
        limit = memory_in(new.limits) or None
        if used is None or limit is None:
            continue
        effect = limit_effect(
            memory_in(old.limits) or None, limit, used, release, restarts=name in restarted
        )
        if effect is not None:
            yield LimitChange(name, limit, used, effect)


def _heap_notes(report: ResizeReport, pod: Pod) -> Iterator[str]:
    restarted = {name for name, _ in report.restarting}
    resized = {change.cgroup for change in report.changes if change.file == "memory.max"}
    for container in containers_of(pod):
        runtime = heap_runtime(container.image)
        if runtime and container.name in resized - restarted:
            yield (
                f"{container.name} runs {runtime}, by its image, which reads its limit only at "
                "start: set resizePolicy RestartContainer for memory"
            )


def _full_name(pod: Pod) -> tuple[str, str | None]:
    return pod.metadata.namespace or "default", pod.metadata.name


def _parse_usage(text: str) -> tuple[str, int]:
    container, _, amount = text.rpartition("=")
    return container, BytesType().convert(amount, click.Option(["--usage"]), None)


def _pod_as_stored(pod: Pod, release: Release) -> tuple[Pod, list[FieldError]]:
    """The pod as a cluster stores it, and why it would refuse it."""
    if is_stored(pod):
        return pod, []
    shape = apply_defaults(pod, release)
    return with_shape(pod, shape), validate(pod, shape, release)


def _pairs(reader: ManifestReader, old: str, new: str) -> Iterator[tuple[LocatedPod, LocatedPod]]:
    """The pods to be resized, each with what it is to become."""
    olds, news = list(reader.pods([old])), list(reader.pods([new]))
    if len(olds) == 1 and len(news) == 1:
        yield olds[0], news[0]
        return
    known = {(template.namespace, template.label): (template, pod) for template, pod in olds}
    for template, pod in news:
        before = known.get((template.namespace, template.label))
        if before is None:
            reader.refuse(template.error(f"there is no {template.label} in {old}", "metadata.name"))
        else:
            yield before, (template, pod)


def _describe_resize(
    before: LocatedPod,
    after: LocatedPod,
    stored: Pod,
    plan: PodPlan,
    result: Resize,
    settings: Settings,
) -> ResizeReport:
    template, sent = before[0], after[0]
    names = tuple(container.name for container in containers_of(stored))
    changed: tuple[ResizeChange, ...] = ()
    restarted: tuple[tuple[str, str], ...] = ()
    if result.valid:
        becomes = plan_pod(result.after, settings, result.class_before)
        changed = tuple(resize_changes(plan, becomes, names))
        restarted = tuple(resize_restarts(stored, result.before, result.after))
    return ResizeReport(
        label=template.label,
        namespace=template.namespace,
        origins=(origin_of(template), origin_of(sent)),
        names=names,
        release=settings.release,
        resize=result,
        refusals=tuple(_refusals(sent, result)),
        changes=changed,
        restarting=restarted,
        notes=tuple(_notes(before, sent)),
    )


def _notes(before: LocatedPod, sent: Template) -> Iterator[str]:
    if not is_stored(before[1]):
        yield "OLD has no status: it is treated as just created"
    if sent.kind in _TEMPLATE_EDITS:
        yield (
            f"editing the template of a {sent.kind} {_TEMPLATE_EDITS[sent.kind]}: this result is "
            f"for a running pod of it – kubectl patch pod NAME --subresource resize"
        )
    if before[0].label != sent.label:
        yield f"NEW is {sent.label}: its resources are used"


def _refusals(sent: Template, result: Resize) -> Iterator[InputError]:
    for error in result.errors:
        if error.field == NO_FIELD:
            yield sent.error(error.message)
        else:
            yield sent.field_error(error.field, error.message)


def _print(found: list[ResizeReport], resolved: NodeSettings, *, why: bool) -> None:
    from memqos.draw.text.pod import settings_line

    if not found:
        return
    print_lines([settings_line(resolved.settings, resolved.enablement), str(resolved.enablement)])
    print_notes(resolved.notes)
    for each in found:
        print_lines(["", *resize_text(each)])
        if why:
            from memqos.draw.text.resize import resize_reasons

            print_lines(resize_reasons(each))
