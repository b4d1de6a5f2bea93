"""The kubelet of a `numa` command: its release, its policies and what it reserves."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import click
import msgspec

from memqos.cli.help_sections import help_section
from memqos.cli.numa.node_source import (
    LIVE_MACHINE,
    NumaNodeFacts,
    kubelet_state_path,
    read_machine_beside,
    read_node_facts,
    read_state_text,
)
from memqos.cli.options import parse_gates
from memqos.cli.settings import with_kubelet_file
from memqos.errors import InputError
from memqos.host.snapshots import load_snapshot
from memqos.kube.kubelet import STATE_FILE, STATIC, KubeletConfiguration
from memqos.kube.kubelet.thresholds import MEMORY_AVAILABLE
from memqos.kube.kubelet.validation import start_faults
from memqos.numa.checkpoint import LoadedCheckpoint
from memqos.numa.machine_state import MemoryManagerState, MemorySizes
from memqos.numa.machines import NumaMachine, machine_from_state
from memqos.numa.manager import MEMORY_POLICIES, ManagerSettings, StartRefused, start_manager
from memqos.numa.refusal_text import start_sentences, state_sentences
from memqos.numa.reserved_memory import (
    InvalidReservation,
    NumaReservations,
    ReservationEquation,
    even_reservation,
    kubelet_equation,
    parse_reserved_memory,
    reservation_totals,
    system_reserved,
)
from memqos.numa.reserved_memory import reservations_from_config as in_configuration
from memqos.numa.restart import MachineStateDifference, UnusableState, resume_state
from memqos.numa.topology_manager import InvalidTopology, configure_topology
from memqos.release import Release
from memqos.settings.resolver import resolve
from memqos.settings.settings import SettingsOptions

_F = TypeVar("_F", bound=Callable[..., Any])

WINDOWS_ONLY = "BestEffort"


class NumaKubelet(msgspec.Struct, frozen=True):
    """A kubelet's configuration and release."""

    config: KubeletConfiguration
    release: Release
    is_configured: bool = False
    """Whether there is a configuration; else the defaults are meant."""
    notes: tuple[str, ...] = ()


kubelet_option = help_section("Settings")(
    click.option(
        "--kubelet",
        metavar="FILE",
        help="A KubeletConfiguration.  [default: the snapshot's, else the kubelet's defaults]",
    )
)
reserved_option = help_section("Settings")(
    click.option(
        "--reserved",
        metavar="FLAG",
        help="reservedMemory as the flag spells it: 0:memory=1Gi;1:memory=512Mi",
    )
)


@help_section("Settings")
def reservation_options(command: _F) -> _F:
    """What a node reserves, in place of what the configuration says."""
    for option in (
        click.option(
            "--eviction",
            metavar="AMOUNT",
            help="evictionHard of memory.available: 100Mi or 5%.",
        ),
        click.option(
            "--system-reserved", metavar="AMOUNT", help="systemReserved: 512Mi, or memory=512Mi,…"
        ),
        click.option(
            "--kube-reserved", metavar="AMOUNT", help="kubeReserved: 1Gi, or memory=1Gi,cpu=100m"
        ),
    ):
        command = option(command)
    return command


def resolve_kubelet(
    facts: NumaNodeFacts, kubelet: str | None, release: str | None, gates: Iterable[str]
) -> NumaKubelet:
    """The kubelet of the options, else of the snapshot."""
    node_settings = resolve(
        with_kubelet_file(facts.node, kubelet),
        SettingsOptions(release=release, gates=parse_gates(gates)),
    )
    return NumaKubelet(
        node_settings.config,
        node_settings.settings.release,
        node_settings.is_configured,
        node_settings.notes,
    )


def with_reservations(
    kubelet: NumaKubelet, kube: str | None, system: str | None, eviction: str | None
) -> NumaKubelet:
    """The kubelet with what the options of `reservation_options` say."""
    config = kubelet.config
    written: dict[str, Any] = {}
    if kube is not None:
        written["kube_reserved"] = _parse_amounts("--kube-reserved", kube)
    if system is not None:
        written["system_reserved"] = _parse_amounts("--system-reserved", system)
    if eviction is not None:
        written["eviction_hard"] = {**config.eviction_hard, MEMORY_AVAILABLE: eviction}
    config = msgspec.structs.replace(config, **written)
    for fault in start_faults(config, kubelet.release):
        raise InputError(fault.what, field=fault.field, hint=fault.hint)
    return msgspec.structs.replace(kubelet, config=config)


def reservation_equation(kubelet: NumaKubelet, machine: NumaMachine) -> ReservationEquation:
    """What this kubelet must reserve on this machine."""
    return kubelet_equation(kubelet.config, machine.memory, kubelet.release)


def find_reservations(kubelet: NumaKubelet, reserved: str | None) -> NumaReservations | None:
    """reservedMemory in either spelling; None where neither option nor configuration has one."""
    if reserved is not None:
        return parse_reserved_option(reserved)
    return None if not kubelet.is_configured else in_configuration(kubelet.config.reserved_memory)


def parse_reserved_option(text: str) -> NumaReservations:
    """reservedMemory as the flag spells it."""
    try:
        return parse_reserved_memory(text)
    except InputError as error:
        raise InputError(error.what, field="--reserved", hint=error.hint) from None


def manager_settings(
    facts: NumaNodeFacts,
    kubelet: NumaKubelet,
    *,
    policy: str | None = None,
    topology_policy: str | None = None,
    scope: str | None = None,
    options: Mapping[str, str] | None = None,
    reserved: str | None = None,
) -> tuple[ManagerSettings | InvalidTopology, list[str]]:
    """What the kubelet is started with on this machine, and what a person should know of it."""
    config, notes = kubelet.config, list(kubelet.notes)
    topology = configure_topology(
        topology_policy or config.topology_manager_policy,
        scope or config.topology_manager_scope,
        {**config.topology_manager_policy_options, **(options or {})},
        facts.machine.ids,
        facts.machine.distances,
    )
    if isinstance(topology, InvalidTopology):
        return topology, notes
    policy = policy or _default_policy(facts, kubelet)
    return (
        ManagerSettings(
            machine=facts.machine.nodes,
            policy=policy,
            topology=topology,
            release=kubelet.release,
            reserved=_resolve_reserved(facts, kubelet, reserved, notes),
            windows=policy == WINDOWS_ONLY,
            as_kubelet=True,
        ),
        notes,
    )


def _default_policy(facts: NumaNodeFacts, kubelet: NumaKubelet) -> str:
    if kubelet.is_configured:
        return kubelet.config.memory_manager_policy
    return STATIC if facts.loaded is None else facts.loaded.state.policy


def _resolve_reserved(
    facts: NumaNodeFacts, kubelet: NumaKubelet, reserved: str | None, notes: list[str]
) -> Mapping[int, MemorySizes] | InvalidReservation:
    entries = find_reservations(kubelet, reserved)
    if entries is not None:
        required = (
            reservation_equation(kubelet, facts.machine).required
            if kubelet.is_configured
            else reservation_totals(entries)
        )
        return system_reserved(facts.machine.ids, entries, required)
    if facts.loaded is not None and facts.loaded.state.nodes:
        return system_reserved_of_state(facts.loaded.state)
    equation = reservation_equation(kubelet, facts.machine)
    notes.append(
        f"no reservedMemory given: {equation.total} split evenly, as `memqos numa reserve` does"
    )
    return even_reservation(facts.machine, equation)


def system_reserved_of_state(state: MemoryManagerState) -> dict[int, dict[str, int]]:
    """What each node reserves for the system, by a state."""
    return {
        i: {name: table.system_reserved for name, table in node.memory.items()}
        for i, node in state.nodes.items()
    }


def _parse_amounts(option: str, text: str) -> dict[str, str]:
    if "=" not in text:
        return {"memory": text}
    amounts = {}
    for part in text.split(","):
        name, equals, amount = part.partition("=")
        if not equals:
            raise click.BadParameter(f"{part!r} is not NAME=AMOUNT", param_hint=option)
        amounts[name] = amount
    return amounts


ORIGINAL_MACHINE = "the machine it was written on"


class StateCheckOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a state file is checked against; no machine means the one it was written on."""

    file: str
    machine: str | None
    kubelet: str | None
    reserved: str | None
    release: str | None
    gates: tuple[str, ...]
    snapshot: str | None = None
    """A snapshot with state, machine and kubelet configuration."""


class StateCheck(msgspec.Struct, frozen=True):
    """Whether a kubelet starts over a state; if not, why."""

    against: str
    kind: str | None = None
    why: tuple[str, ...] = ()
    differences: tuple[MachineStateDifference, ...] = ()
    notes: tuple[str, ...] = ()


def state_check_options(
    file: str | None,
    machine: str | None,
    kubelet: str | None,
    reserved: str | None,
    release: str | None,
    gates: Iterable[str],
    snapshot: str | None = None,
) -> StateCheckOptions:
    """The options together; without a file the state is this machine's, on this machine."""
    if snapshot is not None:
        if file is not None or machine is not None:
            raise click.UsageError("--snapshot has its own state and machine")
        name = f"{snapshot} ({STATE_FILE})"
        file, machine = name, None
    elif file is None:
        file, machine = kubelet_state_path(), machine or LIVE_MACHINE
    return StateCheckOptions(
        file=file,
        machine=machine,
        kubelet=kubelet,
        reserved=reserved,
        release=release,
        gates=tuple(gates),
        snapshot=snapshot,
    )


def state_text(options: StateCheckOptions) -> str:
    """The state as it stands."""
    if options.snapshot is None:
        return read_state_text(options.file)
    text = load_snapshot(options.snapshot).memory_manager_state
    if text is None:
        raise InputError("this snapshot has no state", file=options.snapshot, field=STATE_FILE)
    return text


def facts_for_state(options: StateCheckOptions, loaded: LoadedCheckpoint) -> NumaNodeFacts:
    """The node that a state is checked on."""
    if options.snapshot is not None:
        return read_node_facts(None, None, options.snapshot)
    if options.machine is None:
        return NumaNodeFacts(
            machine=machine_from_state(loaded.state),
            source=ORIGINAL_MACHINE,
            loaded=loaded,
            state_file=options.file,
        )
    if options.machine == LIVE_MACHINE:
        here = read_node_facts(None, None, None, with_state=False)
        return NumaNodeFacts(machine=here.machine, source=LIVE_MACHINE, loaded=loaded)
    return NumaNodeFacts(
        machine=read_machine_beside(options.machine, loaded),
        source=options.machine,
        loaded=loaded,
        state_file=options.file,
    )


def settings_for_state(
    options: StateCheckOptions, facts: NumaNodeFacts
) -> tuple[ManagerSettings, list[str]]:
    """The kubelet that is to start; its Topology Manager does not matter here."""
    release, gates = options.release, options.gates
    pools = facts.loaded is not None and bool(facts.loaded.state.pools)
    if pools and release is None and options.kubelet is None and not gates:
        # Pools of pods are written and read only with this gate, beta and off in 1.37 (kubelet
        # memorymanager/state/state_checkpoint.go).
        release, gates = "1.37", ("PodLevelResourceManagers=true",)
    kubelet = resolve_kubelet(facts, options.kubelet, release, gates)
    settings, notes = manager_settings(
        facts, kubelet, topology_policy="none", reserved=options.reserved
    )
    assert isinstance(settings, ManagerSettings)
    return settings, notes


def check_state(options: StateCheckOptions, loaded: LoadedCheckpoint) -> StateCheck:
    """Whether a kubelet would start over a state."""
    facts = facts_for_state(options, loaded)
    policy = loaded.state.policy
    if policy not in MEMORY_POLICIES:
        return StateCheck(facts.source, "unknown_policy", (f"there is no policy {policy!r}",))
    if not facts.machine.nodes:
        return _check_without_nodes(loaded)
    settings, notes = settings_for_state(options, facts)
    begun = start_manager(settings, loaded.state)
    if not isinstance(begun, StartRefused):
        return StateCheck(facts.source, notes=tuple(notes))
    if begun.kind == "state_policy_mismatch":
        why = f"the state is of policy {policy}, the kubelet's is {settings.policy}"
        return StateCheck(facts.source, begun.kind, (why,), notes=tuple(notes))
    return StateCheck(
        facts.source,
        begun.kind,
        tuple(start_sentences(begun)),
        () if begun.state is None else begun.state.differences,
        tuple(notes),
    )


def _check_without_nodes(loaded: LoadedCheckpoint) -> StateCheck:
    found = resume_state(loaded.state, {})
    if isinstance(found, UnusableState):
        return StateCheck(ORIGINAL_MACHINE, found.kind, tuple(state_sentences(found)))
    return StateCheck(
        ORIGINAL_MACHINE, notes=("it has no NUMA node: the kubelet fills it at start",)
    )
