"""`memqos resize`: whether a running pod can be resized in place, and what that changes."""

from collections.abc import Iterator
from typing import Final

import click

from memqos.cli.manifest_reader import LocatedPod, ManifestReader, origin_of
from memqos.cli.options import collect_options, strict_option
from memqos.cli.output import OutputFormat, emit, output_option, print_lines, print_notes
from memqos.cli.settings import (
    SettingsArguments,
    check_settings_options,
    resolve_settings,
    settings_data,
    settings_options,
)
from memqos.cluster.resize import NO_FIELD, Resize, resize_pod
from memqos.draw.text.resize import (
    ResizeChange,
    ResizeReport,
    resize_changes,
    resize_restarts,
    resize_text,
)
from memqos.errors import InputError
from memqos.kube.defaulting import apply_defaults
from memqos.kube.pod import Pod
from memqos.kube.shape import containers_of, with_shape
from memqos.kube.validation import FieldError, validate
from memqos.manifests.objects import Template
from memqos.plan.pod import PodPlan, plan_pod
from memqos.plan.semantics import is_stored, semantics_of_stored
from memqos.release import Release
from memqos.settings.resolver import NodeSettings
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


@click.command()
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.option("--why", is_flag=True, help="Show the rule behind every value that changes.")
@strict_option
@output_option()
@settings_options
@collect_options(SettingsArguments, check_settings_options)
def command(
    options: SettingsArguments, *, old: str, new: str, why: bool, strict: bool, output: OutputFormat
) -> int:
    """Resize the pods of OLD in place to what NEW asks for.

    Shows whether the API server allows it, which rule forbids it, and which cgroup values change.
    OLD comes from a cluster (kubectl get pod NAME -o yaml), or is taken as if it had been created
    from that manifest. Several pods are matched by namespace and name.

    OLD and NEW are manifests, folders, snapshots, or - for standard input. Exit code 2 if a resize
    is refused, 1 if anything could not be read or is invalid.
    """
    resolved = resolve_settings(options)
    reader = ManifestReader(strict=strict)
    found = list(_resize_pods(reader, old, new, resolved.settings))
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
    return 0 if all(each.resize.valid for each in found) else _REFUSED


def _resize_pods(
    reader: ManifestReader, old: str, new: str, settings: Settings
) -> Iterator[ResizeReport]:
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
        yield _describe_resize(before, after, stored, plan, result, settings)


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
        yield "OLD has no status: it is taken as if it had just been created"
    if sent.kind in _TEMPLATE_EDITS:
        yield (
            f"editing the template of a {sent.kind} {_TEMPLATE_EDITS[sent.kind]}: this is about a "
            "running pod of it – kubectl patch pod NAME --subresource resize"
        )
    if before[0].label != sent.label:
        yield f"NEW is {sent.label}: its resources are taken"


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
