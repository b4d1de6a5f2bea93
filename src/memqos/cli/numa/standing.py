"""How a state file stands: the machine and kubelet it is held against, and whether that one starts.

Without a machine it is held against the one it was written on, as far as it tells.
"""

from collections.abc import Iterable

import click
import msgspec

from memqos.cli.numa.sources import (
    STATE_FILE,
    THIS_MACHINE,
    Site,
    machine_beside,
    site_of,
    state_path,
    text_from,
)
from memqos.cli.numa.terms import kubelet_of, settings_of
from memqos.draw.numa_refusals import start_sentences, state_sentences
from memqos.errors import InputError
from memqos.host.snapshots import load_snapshot
from memqos.numa.checkpoint import Loaded
from memqos.numa.machines import machine_of_state
from memqos.numa.manager import POLICIES, Settings, StartRefused, start
from memqos.numa.restart import Difference, Unfit, resumed

ITSELF = "the machine it was written on"


class Ground(msgspec.Struct, frozen=True):
    """What a state file is held against; no machine means what the state says itself."""

    file: str
    machine: str | None
    kubelet: str | None
    reserved: str | None
    release: str | None
    gates: tuple[str, ...]
    snapshot: str | None = None
    """Where state, machine and kubelet are told together."""


class Standing(msgspec.Struct, frozen=True):
    """Whether a kubelet starts over a state; if not, why."""

    against: str
    kind: str | None = None
    why: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()


def ground_of(
    file: str | None,
    machine: str | None,
    kubelet: str | None,
    reserved: str | None,
    release: str | None,
    gates: Iterable[str],
    snapshot: str | None = None,
) -> Ground:
    """What the options come to; without a file it is this machine's, on this machine."""
    if snapshot is not None:
        if file is not None or machine is not None:
            raise click.UsageError("--snapshot has its own state and machine")
        name = f"{snapshot} ({STATE_FILE})"
        return Ground(name, None, kubelet, reserved, release, tuple(gates), snapshot)
    if file is None:
        file, machine = state_path(), machine or THIS_MACHINE
    return Ground(file, machine, kubelet, reserved, release, tuple(gates))


def text_under(ground: Ground) -> str:
    """The state as it stands."""
    if ground.snapshot is None:
        return text_from(ground.file)
    text = load_snapshot(ground.snapshot).memory_manager_state
    if text is None:
        raise InputError("this snapshot holds no state", file=ground.snapshot, field=STATE_FILE)
    return text


def site_under(ground: Ground, loaded: Loaded) -> Site:
    """The node a state is looked at on."""
    if ground.snapshot is not None:
        return site_of(None, None, ground.snapshot)
    if ground.machine is None:
        return Site(machine_of_state(loaded.state), ITSELF, loaded, ground.file)
    if ground.machine == THIS_MACHINE:
        return Site(site_of(None, None, None, with_state=False).machine, THIS_MACHINE, loaded)
    return Site(machine_beside(ground.machine, loaded), ground.machine, loaded, ground.file)


def settings_under(ground: Ground, site: Site) -> tuple[Settings, list[str]]:
    """The kubelet that is to start; its Topology Manager does not matter here."""
    release, gates = ground.release, ground.gates
    pools = site.loaded is not None and bool(site.loaded.state.pools)
    if pools and release is None and ground.kubelet is None and not gates:
        # Only such a kubelet writes pools, and only such a one heeds them.
        release, gates = "1.37", ("PodLevelResourceManagers=true",)
    kubelet = kubelet_of(site, ground.kubelet, release, gates)
    settings, notes = settings_of(site, kubelet, topology_policy="none", reserved=ground.reserved)
    assert isinstance(settings, Settings)
    return settings, notes


def standing(ground: Ground, loaded: Loaded) -> Standing:
    """Whether a kubelet would start over a state."""
    site = site_under(ground, loaded)
    policy = loaded.state.policy
    if policy not in POLICIES:
        return Standing(site.source, "unknown_policy", (f"there is no policy {policy!r}",))
    if not site.machine.nodes:
        return _without_nodes(loaded)
    settings, notes = settings_under(ground, site)
    begun = start(settings, loaded.state)
    if not isinstance(begun, StartRefused):
        return Standing(site.source, notes=tuple(notes))
    if begun.kind == "state_policy_mismatch":
        why = f"the state is of policy {policy}, the kubelet's is {settings.policy}"
        return Standing(site.source, begun.kind, (why,), notes=tuple(notes))
    return Standing(
        site.source,
        begun.kind,
        tuple(start_sentences(begun)),
        () if begun.state is None else begun.state.differences,
        tuple(notes),
    )


def _without_nodes(loaded: Loaded) -> Standing:
    found = resumed(loaded.state, {})
    if isinstance(found, Unfit):
        return Standing(ITSELF, found.kind, tuple(state_sentences(found)))
    return Standing(ITSELF, notes=("it knows no NUMA node: the kubelet fills it when it starts",))
