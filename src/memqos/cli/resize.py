"""`memqos resize`: whether a running pod can be resized in place, and what that changes."""

from collections.abc import Iterator
from typing import Any, Final

import click

from memqos.cli.output import Form, emit, output_option, print_lines
from memqos.cli.reading import Reader
from memqos.cli.terms import InForce, asked, in_force, options_of, terms_data, terms_options
from memqos.cluster.resize import Resize, resize
from memqos.cluster.resize_checks import WHOLE_POD
from memqos.draw.resizing import Change, Resizing, changes, resizing, restarting
from memqos.errors import InputError
from memqos.kube.defaulting import defaulted
from memqos.kube.pod import Pod
from memqos.kube.shape import containers_of, written
from memqos.kube.validation import FieldError, validate
from memqos.manifests.workloads import Template
from memqos.plan.pod import PodPlan, plan_pod
from memqos.plan.semantics import is_stored, semantics_of_stored
from memqos.plan.terms import Terms
from memqos.release import Release

REFUSED: Final = 2

Found = tuple[Template, Pod]


@click.command()
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.option("--why", is_flag=True, help="Show the rule behind every value that changes.")
@output_option()
@terms_options
def command(
    old: str,
    new: str,
    why: bool,
    output: Form,
    **options: Any,
) -> int:
    """Resize the pods of OLD in place to what NEW asks for.

    Shows whether the API server allows it, which rule forbids it, and which cgroup values change.
    OLD comes from a cluster (kubectl get pod NAME -o yaml), or is taken as if it had been created
    from that manifest. Several pods are matched by namespace and name.

    OLD and NEW are manifests, folders, snapshots, or - for standard input. Exit code 2 if a resize
    is refused, 1 if anything could not be read or is invalid.
    """
    under = in_force(asked(**options_of(options)))
    reader = Reader()
    found = list(_resized(reader, old, new, under.terms))
    if output == "table":
        _print(found, under, why=why)
    else:
        from memqos.draw.resizing import resizing_data

        pods = [resizing_data(each, why=why) for each in found]
        emit({"terms": terms_data(under), "pods": pods}, output)
    if reader.faults:
        return 1
    return 0 if all(each.resize.valid for each in found) else REFUSED


def _resized(reader: Reader, old: str, new: str, terms: Terms) -> Iterator[Resizing]:
    for before, after in _pairs(reader, old, new):
        template, sent = before[0], after[0]
        try:
            stored, faults = _stored(before[1], terms.release)
            plan = None if faults else semantics_of_stored(stored, terms).plan
        except InputError as error:
            reader.refuse(template.located(error))
            continue
        for fault in faults:
            reader.refuse(template.field_error(fault.field, fault.message))
        if plan is None:
            continue
        try:
            result = resize(stored, after[1], terms.release)
        except InputError as error:
            reader.refuse(sent.located(error))
            continue
        yield _found(before, after, stored, plan, result, terms)


def _stored(pod: Pod, release: Release) -> tuple[Pod, list[FieldError]]:
    """The pod as a cluster holds it, and why none would."""
    if is_stored(pod):
        return pod, []
    shape = defaulted(pod, release)
    return written(pod, shape), validate(pod, shape, release)


def _pairs(reader: Reader, old: str, new: str) -> Iterator[tuple[Found, Found]]:
    """The pods to be resized, each with what it is to become."""
    olds, news = list(reader.pods([old])), list(reader.pods([new]))
    if len(olds) == 1 and len(news) == 1:
        yield olds[0], news[0]
        return
    known = {(template.namespace, template.label): (template, pod) for template, pod in olds}
    for template, pod in news:
        before = known.get((template.namespace, template.label))
        if before is None:
            reader.refuse(
                template.refused(f"there is no {template.label} in {old}", "metadata.name")
            )
        else:
            yield before, (template, pod)


def _found(
    before: Found, after: Found, stored: Pod, plan: PodPlan, result: Resize, terms: Terms
) -> Resizing:
    template, sent = before[0], after[0]
    names = tuple(container.name for container in containers_of(stored))
    changed: tuple[Change, ...] = ()
    restarted: tuple[tuple[str, str], ...] = ()
    if result.valid:
        becomes = plan_pod(result.after, terms, result.class_before)
        changed = tuple(changes(plan, becomes, names))
        restarted = tuple(restarting(stored, result.before, result.after))
    return Resizing(
        label=template.label,
        namespace=template.namespace,
        origins=(_origin(template), _origin(sent)),
        names=names,
        release=terms.release,
        resize=result,
        refusals=tuple(_refusals(sent, result)),
        changes=changed,
        restarting=restarted,
        notes=tuple(_notes(before, sent)),
    )


def _notes(before: Found, sent: Template) -> Iterator[str]:
    if not is_stored(before[1]):
        yield "OLD has no status: it is taken as if it had just been created"
    if before[0].label != sent.label:
        yield f"NEW is {sent.label}: its resources are taken"


def _origin(template: Template) -> str:
    line, _ = template.document.position(template.path)
    return f"{template.document.file}:{line}"


def _refusals(sent: Template, result: Resize) -> Iterator[InputError]:
    for error in result.errors:
        if error.field == WHOLE_POD:
            yield sent.refused(error.message)
        else:
            yield sent.field_error(error.field, error.message)


def _print(found: list[Resizing], under: InForce, *, why: bool) -> None:
    from memqos.draw.explained import terms_line

    if not found:
        return
    print(terms_line(under.terms))
    for note in under.notes:
        print_lines([f"note: {note}"])
    for each in found:
        print_lines(["", *resizing(each)])
        if why:
            from memqos.draw.resizing import resizing_reasons

            print_lines(resizing_reasons(each))
