"""How a state file stands: the machine and kubelet it is held against, and whether that one starts.

Without a machine it is held against the one it was written on, as far as it tells.
"""

from collections.abc import Iterable

import click
import msgspec

from memqos.cli.numa.sources import (
    KUBELET_STATE_FILE,
    LIVE_MACHINE,
    NumaNodeFacts,
    kubelet_state_path,
    read_machine_beside,
    read_node_facts,
    read_state_text,
)
from memqos.cli.numa.terms import manager_settings, resolve_kubelet
from memqos.draw.numa_refusals import start_sentences, state_sentences
from memqos.errors import InputError
from memqos.host.snapshots import load_snapshot
from memqos.numa.checkpoint import LoadedCheckpoint
from memqos.numa.machines import machine_from_state
from memqos.numa.manager import MEMORY_POLICIES, ManagerSettings, StartRefused, start_manager
from memqos.numa.restart import MachineStateDifference, UnusableState, resume_state

ORIGINAL_MACHINE = "the machine it was written on"


class StateCheckOptions(msgspec.Struct, frozen=True):
    """What a state file is held against; no machine means what the state says itself."""

    file: str
    machine: str | None
    kubelet: str | None
    reserved: str | None
    release: str | None
    gates: tuple[str, ...]
    snapshot: str | None = None
    """Where state, machine and kubelet are told together."""


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
    """What the options come to; without a file it is this machine's, on this machine."""
    if snapshot is not None:
        if file is not None or machine is not None:
            raise click.UsageError("--snapshot has its own state and machine")
        name = f"{snapshot} ({KUBELET_STATE_FILE})"
        return StateCheckOptions(name, None, kubelet, reserved, release, tuple(gates), snapshot)
    if file is None:
        file, machine = kubelet_state_path(), machine or LIVE_MACHINE
    return StateCheckOptions(file, machine, kubelet, reserved, release, tuple(gates))


def state_text(ground: StateCheckOptions) -> str:
    """The state as it stands."""
    if ground.snapshot is None:
        return read_state_text(ground.file)
    text = load_snapshot(ground.snapshot).memory_manager_state
    if text is None:
        raise InputError(
            "this snapshot holds no state", file=ground.snapshot, field=KUBELET_STATE_FILE
        )
    return text


def facts_for_state(ground: StateCheckOptions, loaded: LoadedCheckpoint) -> NumaNodeFacts:
    """The node a state is looked at on."""
    if ground.snapshot is not None:
        return read_node_facts(None, None, ground.snapshot)
    if ground.machine is None:
        return NumaNodeFacts(
            machine_from_state(loaded.state), ORIGINAL_MACHINE, loaded, ground.file
        )
    if ground.machine == LIVE_MACHINE:
        return NumaNodeFacts(
            read_node_facts(None, None, None, with_state=False).machine, LIVE_MACHINE, loaded
        )
    return NumaNodeFacts(
        read_machine_beside(ground.machine, loaded), ground.machine, loaded, ground.file
    )


def settings_for_state(
    ground: StateCheckOptions, site: NumaNodeFacts
) -> tuple[ManagerSettings, list[str]]:
    """The kubelet that is to start; its Topology Manager does not matter here."""
    release, gates = ground.release, ground.gates
    pools = site.loaded is not None and bool(site.loaded.state.pools)
    if pools and release is None and ground.kubelet is None and not gates:
        # Only such a kubelet writes pools, and only such a one heeds them.
        release, gates = "1.37", ("PodLevelResourceManagers=true",)
    kubelet = resolve_kubelet(site, ground.kubelet, release, gates)
    settings, notes = manager_settings(
        site, kubelet, topology_policy="none", reserved=ground.reserved
    )
    assert isinstance(settings, ManagerSettings)
    return settings, notes


def check_state(ground: StateCheckOptions, loaded: LoadedCheckpoint) -> StateCheck:
    """Whether a kubelet would start over a state."""
    site = facts_for_state(ground, loaded)
    policy = loaded.state.policy
    if policy not in MEMORY_POLICIES:
        return StateCheck(site.source, "unknown_policy", (f"there is no policy {policy!r}",))
    if not site.machine.nodes:
        return _check_without_nodes(loaded)
    settings, notes = settings_for_state(ground, site)
    begun = start_manager(settings, loaded.state)
    if not isinstance(begun, StartRefused):
        return StateCheck(site.source, notes=tuple(notes))
    if begun.kind == "state_policy_mismatch":
        why = f"the state is of policy {policy}, the kubelet's is {settings.policy}"
        return StateCheck(site.source, begun.kind, (why,), notes=tuple(notes))
    return StateCheck(
        site.source,
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
        ORIGINAL_MACHINE, notes=("it knows no NUMA node: the kubelet fills it when it starts",)
    )
