"""`memqos numa check`: what is wrong with a reservedMemory, and by how much."""

from collections.abc import Iterator

import click
import msgspec

from memqos.cli.help_sections import SectionedCommand
from memqos.cli.numa.kubelet import (
    NumaKubelet,
    kubelet_option,
    parse_reserved_option,
    reservation_equation,
    reservation_options,
    reserved_option,
    with_reservations,
)
from memqos.cli.numa.node_source import (
    machine_option,
    read_node_facts,
    snapshot_option,
)
from memqos.cli.options import parse_gates, release_options
from memqos.cli.output import OutputFormat, emit, output_option, print_lines
from memqos.cli.settings import with_kubelet_file
from memqos.draw.text.numa_state import equation_words, reserved_memory_yaml
from memqos.errors import InputError
from memqos.kube.kubelet import KubeletFault, MemoryReservation, with_defaults
from memqos.kube.kubelet.reading import read_kubelet
from memqos.kube.kubelet.validation import validation_faults
from memqos.manifests.documents import Document
from memqos.numa.machine_state import empty_node_map
from memqos.numa.refusal_text import exact_bytes, reservation_sentences
from memqos.numa.reserved_memory import (
    ExcessReservation,
    NothingReserved,
    NumaReservations,
    ReservedMemoryProblem,
    SplitShortfall,
    format_reserved_memory,
    reservation_problems,
    split_reservation,
)
from memqos.numa.reserved_memory import reservations_from_config as in_configuration
from memqos.settings.facts import NodeFacts
from memqos.settings.resolver import configuration_document, release_of
from memqos.settings.settings import SettingsOptions

_FINDINGS = 2


class _CheckInput(msgspec.Struct, frozen=True):
    """A reservedMemory, the kubelet it is for, and what reading it brought up."""

    kubelet: NumaKubelet
    reservations: NumaReservations
    faults: tuple[str, ...]


@click.command("check", cls=SectionedCommand)
@output_option()
@reservation_options
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
    output: OutputFormat,
) -> int:
    """Check a reservedMemory against a machine: the list of --kubelet, or --reserved.

    It shows all errors at once, and prints a split that is valid.

    Exit code 2 if anything is wrong.
    """
    if kubelet is None and reserved is None and snapshot is None:
        raise click.UsageError("give a reservedMemory: --kubelet FILE or --reserved FLAG")
    facts = read_node_facts(machine, None, snapshot, with_state=False)
    node = with_kubelet_file(facts.node, kubelet)
    options = SettingsOptions(release=release, gates=parse_gates(gates))
    given = _read_check_input(node, options, reserved)
    running = with_reservations(given.kubelet, kube_reserved, system_reserved, eviction)
    equation = reservation_equation(running, facts.machine)
    found = list(reservation_problems(facts.machine.nodes, given.reservations, equation.required))
    sentences = [*given.faults, *[each for problem in found for each in _sentences(problem)]]
    split = split_reservation(empty_node_map(facts.machine.nodes, {}), equation.total.value, {})
    offered = None if isinstance(split, SplitShortfall) or not sentences else split
    if output == "table":
        print_lines([f"the nodes together must reserve {equation_words(equation)}"])
        for sentence in sentences:
            print_lines([sentence])
        if not sentences:
            print("fine: the kubelet accepts this reservedMemory")
        elif offered:
            print("\nthe kubelet would accept:")
            print("\n".join(reserved_memory_yaml(offered, equation)[1:]))
    else:
        emit(
            {
                "valid": not sentences,
                "required": equation.total.value,
                "problems": sentences,
                "suggested": None if not offered else format_reserved_memory(offered),
            },
            output,
        )
    return _FINDINGS if sentences else 0


def _read_check_input(
    node: NodeFacts, options: SettingsOptions, reserved: str | None
) -> _CheckInput:
    """Lists all faults of a configuration: the resolver refuses it at the first."""
    release, _ = release_of(node, options)
    config, faults = with_defaults({}, release.minor), []
    if node.configuration is not None:
        document = configuration_document(node.configuration)
        reading = read_kubelet(document.data, release, "memqos")
        if reading.config is None:
            raise _locate(document, reading.faults[0])
        config, release = reading.config, reading.release.with_gates(options.gates)
        relevant = reading.faults if reserved is None else ()
        faults = [str(_locate(document, fault)) for fault in relevant]
    entries = in_configuration(config.reserved_memory)
    if reserved is not None:
        entries = parse_reserved_option(reserved)
        listed = tuple([MemoryReservation(e.numa_node, e.limits) for e in entries])
        config = msgspec.structs.replace(config, reserved_memory=listed)
        faults = [str(fault) for fault in validation_faults(config, release, "memqos")]
    kubelet = NumaKubelet(config, release, is_configured=node.configuration is not None)
    return _CheckInput(kubelet, entries, tuple(faults))


def _locate(document: Document, fault: KubeletFault) -> InputError:
    return document.error(fault.what, fault.field, fault.hint)


def _sentences(problem: ReservedMemoryProblem) -> Iterator[str]:
    if isinstance(problem, ExcessReservation):
        over = exact_bytes(problem.reserved - problem.available)
        yield (
            f"node {problem.node}: {exact_bytes(problem.reserved)} of {problem.resource} is "
            f"reserved, it has {exact_bytes(problem.available)}: {over} too much"
        )
    elif isinstance(problem, NothingReserved):
        yield "no memory is reserved, but policy Static requires some"
    else:
        yield from reservation_sentences(problem)
