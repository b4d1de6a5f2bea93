"""`memqos explain`: what Kubernetes makes of a Pod, with the reason for every number."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import click

from memqos.cli.clusters import LIVE_PODS, Live, cluster_options
from memqos.cli.output import complain, emit, output_option, print_lines
from memqos.cli.reading import Reader
from memqos.cli.terms import (
    InForce,
    asked,
    in_force,
    options_of,
    terms_data,
    terms_options,
    wanted_in,
)
from memqos.draw.explained import Explained, terms_line
from memqos.errors import InputError
from memqos.kube.pod import Pod
from memqos.kube.quantity import MAX_INT64, scientific
from memqos.kube.resources import MEMORY, NOTHING, Resources, whole
from memqos.kube.shape import Part, Shape, containers_of, shape_of
from memqos.manifests.workloads import Template
from memqos.plan.semantics import Planner, is_stored
from memqos.release import Release, default, stage

Row = list[Explained]
"""One pod, under each of the releases asked for."""


@click.command()
@click.argument("files", nargs=-1, metavar="FILE…")
@click.option("--why", is_flag=True, help="Show the derivation of every number.")
@output_option("svg")
@click.option(
    "--compare",
    metavar="VERSION,…",
    help="A column for each of these releases, differences marked.",
)
@cluster_options("context", "namespace", "selector")
@terms_options
def command(
    files: tuple[str, ...],
    why: bool,
    output: Literal["table", "json", "yaml", "svg"],
    compare: str | None,
    context: str | None,
    namespace: str | None,
    selector: str | None,
    **options: Any,
) -> int:
    """Show what a node will do with the Pods in FILE… and why.

    FILE is a manifest in YAML or JSON with any number of documents, a folder of them, or - for
    standard input: Pods, Lists, and the templates inside Deployment, StatefulSet, DaemonSet,
    ReplicaSet, Job and CronJob. Or it names one of these in a live cluster, such as pod/web-0;
    without FILE, -n and -l select the pods. A live pod is taken as the cluster holds it. Without
    any of these it is the pods of --snapshot.

    Exit code 1 if anything could not be read or is invalid; the rest is explained all the same.
    """
    wanted = asked(**options_of(options))
    live = Live(context, namespace, selector)
    if not files and not live.is_asked:
        if wanted.snapshot is None:
            raise click.UsageError(
                "explain what? Give FILE…, --snapshot, or -n or -l for a live cluster"
            )
        files = (wanted.snapshot,)
    files = live.files(files)
    live.insist_on_use(*files, options["node"])
    releases = [part.strip() for part in compare.split(",")] if compare else [None]
    if any(map(live.knows, files)):
        wanted = wanted_in(live, wanted, files)
    under = [in_force(wanted, release, live) for release in releases]
    reader = Reader(live)
    rows = _rows(reader, files, under)
    if output == "svg":
        _print_svg(rows, under)
    elif output != "table":
        emit(_data(rows, under, why=why, compared=compare is not None), output)
    elif compare:
        _print_comparison(rows, under)
    else:
        _print(rows, under[0], why=why)
    if LIVE_PODS in files and not reader.pods_read:
        complain(f"there are no {live.selection}")
    return 1 if reader.faults else 0


def _rows(reader: Reader, files: Sequence[str], under: Sequence[InForce]) -> Iterator[Row]:
    planners = [Planner(each.terms) for each in under]
    for template, pod in reader.pods(files):
        try:
            row = [_explained(planner, pod, template) for planner in planners]
        except InputError as error:
            reader.refuse(template.located(error))
            continue
        for fault in dict.fromkeys(fault for each in row for fault in each.semantics.errors):
            reader.refuse(template.field_error(fault.field, fault.message))
        yield row


def _explained(planner: Planner, pod: Pod, template: Template) -> Explained:
    release = planner.terms.release
    written, semantics = shape_of(pod, release), planner.semantics(pod)
    line, _ = template.document.position(template.path)
    notes = [*_dropped(written, semantics.shape, release), *_overflowing(written)]
    if is_stored(pod):
        notes.append("taken as the cluster holds it: defaulted and accepted already")
    return Explained(
        origin=f"{template.document.file}:{line}",
        label=template.label,
        namespace=template.namespace,
        names=tuple(container.name for container in containers_of(pod)),
        written=written,
        semantics=semantics,
        notes=tuple(notes),
    )


def _dropped(written: Shape, shape: Shape, release: Release) -> Iterator[str]:
    if written.pod is None or shape.pod is not None:
        return
    gate = "PodLevelResources"
    since = stage(gate, release.minor)
    if since is None:
        yield f"spec.resources is dropped: Kubernetes {release} does not know it"
    elif default(gate, release.minor):
        yield f"spec.resources is dropped: {gate} is off"
    else:
        yield f"spec.resources is dropped: {gate} is {since} and off by default in {release}"


def _overflowing(shape: Shape) -> Iterator[str]:
    stanzas: list[Part | Resources] = [*shape.parts, shape.pod or NOTHING]
    amounts = [side.get(MEMORY, 0) for each in stanzas for side in (each.requests, each.limits)]
    most = whole(max(amounts, default=0))
    if most > MAX_INT64:
        yield (
            f"{scientific(most)} of memory is more than 2⁶³ − 1, the most that Kubernetes can "
            "hold: scheduler and kubelet make something else of it, and it counts as nothing here"
        )


def _print(rows: Iterable[Row], under: InForce, *, why: bool) -> None:
    from memqos.draw.overview import overview

    for index, (pod,) in enumerate(row for row in rows if row[0].semantics.plan is not None):
        if not index:
            _print_terms([under])
        print_lines(["", *overview(pod)])
        if why:
            from memqos.draw.derivation import derivation

            print_lines(derivation(pod, under.terms))


def _print_comparison(rows: Iterable[Row], under: Sequence[InForce]) -> None:
    from memqos.draw.comparison import comparison

    titles = [str(each.terms.release) for each in under]
    valid = (row for row in rows if any(each.semantics.plan is not None for each in row))
    for index, row in enumerate(valid):
        if not index:
            _print_terms(under)
        print_lines(["", *comparison(list(zip(titles, row, strict=True)))])


def _print_terms(under: Sequence[InForce]) -> None:
    for each in under:
        print(terms_line(each.terms))
    for note in dict.fromkeys(note for each in under for note in each.notes):
        print_lines([f"note: {note}"])


def _print_svg(rows: Iterable[Row], under: Sequence[InForce]) -> None:
    from memqos.draw.levels import levels_svg
    from memqos.draw.picture import picture

    charts = [
        picture(pod, each.terms)
        for row in rows
        for pod, each in zip(row, under, strict=True)
        if pod.semantics.plan is not None
    ]
    if charts:
        print(levels_svg(charts))


def _data(
    rows: Iterable[Row], under: Sequence[InForce], *, why: bool, compared: bool
) -> dict[str, Any]:
    terms = [terms_data(each) for each in under]
    if compared:
        from memqos.draw.comparison import comparison_data

        titles = [str(each.terms.release) for each in under]
        pods = [comparison_data(list(zip(titles, row, strict=True))) for row in rows]
        return {"terms": dict(zip(titles, terms, strict=True)), "pods": pods}
    from memqos.draw.data import explained_data

    return {
        "terms": terms[0],
        "pods": [explained_data(row[0], under[0].terms, why=why) for row in rows],
    }
