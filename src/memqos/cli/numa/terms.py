"""The kubelet a `numa` command asks about: its release, its policies and what it keeps back."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import click
import msgspec

from memqos.cli.kubelets import kubelet_in, only_document
from memqos.cli.numa.sources import Site
from memqos.cli.releases import release_asked
from memqos.errors import InputError
from memqos.kube.kubelet import STATIC, KubeletConfiguration, configured
from memqos.kube.kubelet.thresholds import MEMORY_AVAILABLE
from memqos.kube.kubelet.validation import start_faults
from memqos.manifests.documents import Document
from memqos.numa.equation import Equation, equation_of, evenly_reserved
from memqos.numa.machines import NumaMachine
from memqos.numa.manager import Settings
from memqos.numa.memory import Sizes
from memqos.numa.reserved import (
    Reservations,
    Unreservable,
    parse_flag,
    reserved_in,
    system_reserved,
)
from memqos.numa.reserved import configured as in_configuration
from memqos.numa.state import State
from memqos.numa.topology import Misconfigured, configure
from memqos.release import Release

F = TypeVar("F", bound=Callable[..., Any])

WINDOWS_ONLY = "BestEffort"


class Kubelet(msgspec.Struct, frozen=True):
    """A kubelet's configuration and release; `file` is None where the defaults are meant."""

    config: KubeletConfiguration
    release: Release
    file: str | None = None
    notes: tuple[str, ...] = ()


kubelet_option = click.option(
    "--kubelet",
    metavar="FILE",
    help="A KubeletConfiguration.  [default: the snapshot's, else the kubelet's defaults]",
)
reserved_option = click.option(
    "--reserved",
    metavar="FLAG",
    help="reservedMemory as the flag spells it: 0:memory=1Gi;1:memory=512Mi",
)


def equation_options(command: F) -> F:
    """What a node keeps back, in place of what the configuration says."""
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


def kubelet_of(
    site: Site, kubelet: str | None, release: str | None, gates: Iterable[str]
) -> Kubelet:
    """The kubelet that options or the snapshot tell of."""
    asked, notes = release_asked(release, gates, site.version)
    document = document_asked(site, kubelet)
    if document is None:
        return Kubelet(configured({}, asked.minor), asked, notes=tuple(notes))
    found = kubelet_in(document, asked)
    notes += [f"{document.file}: {note}" for note in found.notes]
    return Kubelet(found.config, found.release, document.file, tuple(notes))


def document_asked(site: Site, kubelet: str | None) -> Document | None:
    """The configuration as it stands, unread."""
    if kubelet is None:
        return site.kubelet
    return only_document(kubelet, "KubeletConfiguration")


def keeping_back(
    kubelet: Kubelet, kube: str | None, system: str | None, eviction: str | None
) -> Kubelet:
    """The kubelet with what the options of `equation_options` say."""
    config = kubelet.config
    written: dict[str, Any] = {}
    if kube is not None:
        written["kube_reserved"] = _amounts("--kube-reserved", kube)
    if system is not None:
        written["system_reserved"] = _amounts("--system-reserved", system)
    if eviction is not None:
        written["eviction_hard"] = {**config.eviction_hard, MEMORY_AVAILABLE: eviction}
    config = msgspec.structs.replace(config, **written)
    for fault in start_faults(config, kubelet.release):
        raise InputError(fault.what, field=fault.field, hint=fault.hint)
    return msgspec.structs.replace(kubelet, config=config)


def equation_in(kubelet: Kubelet, machine: NumaMachine) -> Equation:
    """What this kubelet must reserve on this machine."""
    return equation_of(kubelet.config, machine.memory, kubelet.release)


def reservations_in(kubelet: Kubelet, reserved: str | None) -> Reservations | None:
    """reservedMemory in either spelling; None where nobody says anything about it."""
    if reserved is not None:
        return flag_read(reserved)
    return None if kubelet.file is None else in_configuration(kubelet.config.reserved_memory)


def flag_read(text: str) -> Reservations:
    """reservedMemory as the flag spells it."""
    try:
        return parse_flag(text)
    except InputError as error:
        raise InputError(error.what, field="--reserved", hint=error.hint) from None


def settings_of(
    site: Site,
    kubelet: Kubelet,
    *,
    policy: str | None = None,
    topology_policy: str | None = None,
    scope: str | None = None,
    options: Mapping[str, str] | None = None,
    reserved: str | None = None,
) -> tuple[Settings | Misconfigured, list[str]]:
    """What the kubelet is started with on this machine, and what a person should know of it."""
    config, notes = kubelet.config, list(kubelet.notes)
    topology = configure(
        topology_policy or config.topology_manager_policy,
        scope or config.topology_manager_scope,
        {**config.topology_manager_policy_options, **(options or {})},
        site.machine.ids,
        site.machine.distances,
    )
    if isinstance(topology, Misconfigured):
        return topology, notes
    policy = policy or _usual_policy(site, kubelet)
    return (
        Settings(
            machine=site.machine.nodes,
            policy=policy,
            topology=topology,
            release=kubelet.release,
            reserved=_reserved(site, kubelet, reserved, notes),
            windows=policy == WINDOWS_ONLY,
            as_kubelet=True,
        ),
        notes,
    )


def _usual_policy(site: Site, kubelet: Kubelet) -> str:
    if kubelet.file is not None:
        return kubelet.config.memory_manager_policy
    return STATIC if site.loaded is None else site.loaded.state.policy


def _reserved(
    site: Site, kubelet: Kubelet, reserved: str | None, notes: list[str]
) -> Mapping[int, Sizes] | Unreservable:
    entries = reservations_in(kubelet, reserved)
    if entries is not None:
        required = (
            reserved_in(entries)
            if kubelet.file is None
            else equation_in(kubelet, site.machine).required
        )
        return system_reserved(site.machine.ids, entries, required)
    if site.loaded is not None and site.loaded.state.nodes:
        return kept_by(site.loaded.state)
    equation = equation_in(kubelet, site.machine)
    notes.append(
        f"no reservedMemory given: {equation.total} split evenly, as `memqos numa reserve` does"
    )
    return evenly_reserved(site.machine, equation)


def kept_by(state: State) -> dict[int, dict[str, int]]:
    """What a state says each node keeps for the system."""
    return {
        i: {name: table.system_reserved for name, table in node.memory.items()}
        for i, node in state.nodes.items()
    }


def _amounts(option: str, text: str) -> dict[str, str]:
    if "=" not in text:
        return {"memory": text}
    amounts = {}
    for part in text.split(","):
        name, equals, amount = part.partition("=")
        if not equals:
            raise click.BadParameter(f"{part!r} is not NAME=AMOUNT", param_hint=option)
        amounts[name] = amount
    return amounts
