"""`memqos numa check`: what is wrong with a reservedMemory, and by how much."""

from collections.abc import Iterator

import click
import msgspec

from memqos.cli.numa.sources import Site, machine_option, site_of, snapshot_option
from memqos.cli.numa.terms import (
    Kubelet,
    document_asked,
    equation_in,
    equation_options,
    flag_read,
    keeping_back,
    kubelet_option,
    reserved_option,
)
from memqos.cli.output import Form, emit, output_option, print_lines
from memqos.cli.releases import release_asked, release_options
from memqos.draw.numa_refusals import reservation_sentences
from memqos.draw.numa_reservations import equation_words, fragment
from memqos.draw.numa_words import exact
from memqos.errors import InputError
from memqos.kube.kubelet import Fault, MemoryReservation, configured
from memqos.kube.kubelet.reading import read_kubelet
from memqos.kube.kubelet.validation import validation_faults
from memqos.manifests.documents import Document
from memqos.numa.checks import NothingReserved, Overdrawn, Problem, problems
from memqos.numa.equation import Shortfall, asked_split
from memqos.numa.memory import empty_nodes
from memqos.numa.reserved import Reservations, flag_of
from memqos.numa.reserved import configured as in_configuration
from memqos.release import Release

FINDINGS = 2


class _Given(msgspec.Struct, frozen=True):
    """A reservedMemory, the kubelet it is for, and what reading it brought up."""

    kubelet: Kubelet
    reservations: Reservations
    faults: tuple[str, ...]


@click.command("check")
@output_option()
@equation_options
@reserved_option
@kubelet_option
@snapshot_option
@machine_option
@release_options
def command(
    machine: str | None,
    snapshot: str | None,
    kubelet: str | None,
    reserved: str | None,
    kube_reserved: str | None,
    system_reserved: str | None,
    eviction: str | None,
    release: str | None,
    gates: tuple[str, ...],
    output: Form,
) -> int:
    """Check a reservedMemory against a machine: the list of --kubelet, or --reserved.

    Everything wrong is said at once, and a split that would do is offered.

    Exit code 2 if anything is wrong.
    """
    if kubelet is None and reserved is None and snapshot is None:
        raise click.UsageError("give a reservedMemory: --kubelet FILE or --reserved FLAG")
    site = site_of(machine, None, snapshot, with_state=False)
    given = _given(site, kubelet, reserved, *release_asked(release, gates, site.version))
    running = keeping_back(given.kubelet, kube_reserved, system_reserved, eviction)
    equation = equation_in(running, site.machine)
    found = list(problems(site.machine.nodes, given.reservations, equation.required))
    sentences = [*given.faults, *[each for problem in found for each in _sentences(problem)]]
    split = asked_split(empty_nodes(site.machine.nodes, {}), equation.total.value, {})
    offered = None if isinstance(split, Shortfall) or not sentences else split
    if output == "table":
        print(f"the nodes together must reserve {equation_words(equation)}")
        for sentence in sentences:
            print_lines([sentence])
        if not sentences:
            print("fine: the kubelet accepts this reservedMemory")
        elif offered:
            print("\nthis would do:")
            print("\n".join(fragment(offered, equation)[1:]))
    else:
        emit(
            {
                "valid": not sentences,
                "required": equation.total.value,
                "problems": sentences,
                "suggested": None if not offered else flag_of(offered),
            },
            output,
        )
    return FINDINGS if sentences else 0


def _given(
    site: Site, kubelet: str | None, reserved: str | None, release: Release, notes: list[str]
) -> _Given:
    document = document_asked(site, kubelet)
    config, faults = configured({}, release.minor), []
    if document is not None:
        reading = read_kubelet(document.data, release, "memqos")
        if reading.config is None:
            raise _located(document, reading.faults[0])
        config, release = reading.config, reading.release
        relevant = reading.faults if reserved is None else ()
        faults = [str(_located(document, fault)) for fault in relevant]
    entries = in_configuration(config.reserved_memory)
    if reserved is not None:
        entries = flag_read(reserved)
        listed = tuple([MemoryReservation(e.numa_node, e.limits) for e in entries])
        config = msgspec.structs.replace(config, reserved_memory=listed)
        faults = [str(fault) for fault in validation_faults(config, release, "memqos")]
    source = None if document is None else document.file
    return _Given(Kubelet(config, release, source), entries, tuple(faults))


def _located(document: Document, fault: Fault) -> InputError:
    return document.refused(fault.what, fault.field, fault.hint)


def _sentences(problem: Problem) -> Iterator[str]:
    if isinstance(problem, Overdrawn):
        over = exact(problem.reserved - problem.available)
        yield (
            f"node {problem.node}: {exact(problem.reserved)} of {problem.resource} is reserved, "
            f"it has {exact(problem.available)}: {over} too much"
        )
    elif isinstance(problem, NothingReserved):
        yield "no memory is reserved: Static wants some"
    else:
        yield from reservation_sentences(problem)
