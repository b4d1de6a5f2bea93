"""`memqos numa reserve`: a reservedMemory that satisfies the kubelet's equation."""

from typing import Any

import click

from memqos.cli.help_sections import SectionedCommand
from memqos.cli.numa.kubelet import (
    kubelet_option,
    reservation_equation,
    reservation_options,
    resolve_kubelet,
    with_reservations,
)
from memqos.cli.numa.node_source import machine_option, read_node_facts, snapshot_option
from memqos.cli.options import release_options
from memqos.cli.output import OutputFormat, complain, emit, output_option
from memqos.draw.text.numa_state import equation_words, reserved_memory_yaml
from memqos.errors import InputError
from memqos.kube.quantity import NANOS, Quantity
from memqos.kube.resources import MEMORY
from memqos.numa.machine_state import empty_node_map
from memqos.numa.machines import NumaMachine
from memqos.numa.refusal_text import exact_bytes
from memqos.numa.reserved_memory import (
    NumaReservations,
    ReservationEquation,
    SplitShortfall,
    format_reserved_memory,
    split_reservation,
    system_reserved,
)

_IMPOSSIBLE = 2


@click.command("reserve", cls=SectionedCommand)
@click.option(
    "--node",
    "shares",
    multiple=True,
    metavar="N=AMOUNT",
    help="Memory to reserve on NUMA node N; may be repeated. The other nodes share the rest "
    "evenly.",
)
@output_option(table="table, which is YAML to paste, with comments")
@reservation_options
@kubelet_option
@snapshot_option
@machine_option
@release_options
def command(
    machine: str | None,
    snapshot: str | None,
    kubelet: str | None,
    kube_reserved: str | None,
    system_reserved: str | None,
    eviction: str | None,
    shares: tuple[str, ...],
    release: str | None,
    gates: tuple[str, ...],
    output: OutputFormat,
) -> int:
    """Print a reservedMemory for this machine and these reservations.

    The kubelet starts with the Static policy only if all nodes together reserve exactly
    kubeReserved + systemReserved + evictionHard memory.available.

    Exit code 2 if nothing is reserved, or the machine is too small.
    """
    facts = read_node_facts(machine, None, snapshot, with_state=False)
    running = with_reservations(
        resolve_kubelet(facts, kubelet, release, gates), kube_reserved, system_reserved, eviction
    )
    for note in running.notes:
        complain(f"note: {note}")
    equation = reservation_equation(running, facts.machine)
    if not equation.total.nano:
        complain(
            "nothing is reserved, but policy Static requires reservedMemory – give "
            "--kube-reserved, "
            "--system-reserved or --eviction"
        )
        return _IMPOSSIBLE
    split = _split(facts.machine, equation, _parse_shares(shares, facts.machine))
    if isinstance(split, SplitShortfall):
        complain(_shortfall_text(split, equation))
        return _IMPOSSIBLE
    _assert_valid(facts.machine, split, equation)
    if output == "table":
        print("\n".join(reserved_memory_yaml(split, equation)))
    else:
        emit(_data(split, equation), output)
    return 0


def _split(
    machine: NumaMachine, equation: ReservationEquation, shares: dict[int, int]
) -> NumaReservations | SplitShortfall:
    if equation.total.nano % NANOS:
        raise InputError(
            f"{equation.total} is not a whole number of bytes, so no reservedMemory can add up "
            f"to it",
            hint="write evictionHard as an amount instead of a percentage",
        )
    return split_reservation(empty_node_map(machine.nodes, {}), equation.total.value, shares)


def _parse_shares(texts: tuple[str, ...], machine: NumaMachine) -> dict[int, int]:
    shares: dict[int, int] = {}
    for text in texts:
        node, equals, amount = text.partition("=")
        if not equals or not node.isdecimal():
            raise click.BadParameter(f"{text!r} is not like 0=1Gi", param_hint="--node")
        if int(node) not in machine.ids:
            raise InputError(f"the machine has no node {node}", field="--node")
        if int(node) in shares:
            raise click.BadParameter(f"node {node} is given twice", param_hint="--node")
        quantity = Quantity.parse(amount)
        if quantity.nano < 0 or quantity.nano % NANOS:
            raise InputError(f"{quantity} is not an amount of memory", field="--node")
        shares[int(node)] = quantity.value
    return shares


def _shortfall_text(shortfall: SplitShortfall, equation: ReservationEquation) -> str:
    if shortfall.node is not None:
        missing = exact_bytes(shortfall.missing)
        return f"node {shortfall.node} has {missing} less than it should reserve"
    if shortfall.missing < 0:
        over = exact_bytes(-shortfall.missing)
        return f"{over} more is set for the nodes than {equation_words(equation)}"
    return (
        f"{exact_bytes(shortfall.missing)} of {equation_words(equation)} does not fit on the "
        f"remaining nodes"
    )


def _assert_valid(
    machine: NumaMachine, split: NumaReservations, equation: ReservationEquation
) -> None:
    assert isinstance(system_reserved(machine.ids, split, equation.required), dict)


def _data(split: NumaReservations, equation: ReservationEquation) -> dict[str, Any]:
    return {
        "equation": {
            "kubeReserved": equation.kube.value,
            "systemReserved": equation.system.value,
            "evictionHard": equation.eviction.value,
            "total": equation.total.value,
        },
        "reservedMemory": [
            {"numaNode": entry.numa_node, "limits": {MEMORY: entry.limits[MEMORY]}}
            for entry in split
        ],
        "flag": f"--reserved-memory={format_reserved_memory(split)}",
    }
