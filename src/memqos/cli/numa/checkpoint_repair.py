"""`memqos numa checkpoint repair`: a state file over which the kubelet starts again."""

import os
from typing import Final

import click

from memqos.cli.numa.sources import machine_option, read_state_text
from memqos.cli.numa.standing import (
    StateCheckOptions,
    check_state,
    facts_for_state,
    settings_for_state,
    state_check_options,
)
from memqos.cli.numa.terms import kubelet_option, reserved_option
from memqos.cli.output import print_lines
from memqos.cli.releases import release_options, resolve_release
from memqos.draw.amounts import pluralize
from memqos.draw.numa_refusals import reservation_sentences, state_sentences
from memqos.errors import InputError, MemqosError
from memqos.host.durable import replace
from memqos.numa.checkpoint import LoadedCheckpoint, UnreadableCheckpoint, encode_checkpoint
from memqos.numa.memory import empty_node_map
from memqos.numa.repair import (
    RebuiltState,
    SalvagedState,
    SalvageSource,
    rebuild_state,
    release_writing,
    salvage_state,
)
from memqos.numa.reserved import InvalidReservation
from memqos.numa.restart import UnusableState
from memqos.numa.state import MemoryManagerState
from memqos.numa.unreadable import checkpoint_error

_HOPELESS: Final = "it cannot be repaired: remove it, and the kubelet admits its pods anew"
_SUFFIX: Final = ".repaired"
_SALVAGE_WORDS: Final[dict[SalvageSource, str]] = {
    "whole": "its checksum holds",
    "without_garbage": "what follows its JSON is left out; its checksum holds",
    "first_format": "dataChecksum does not hold, so the fields for older kubelets are taken",
    "unverified": "no checksum holds: what it says is taken as it is",
}


@click.command("repair")
@click.argument("file", required=False, metavar="[FILE]")
@click.option("--force", is_flag=True, help="Write over FILE itself.")
@reserved_option
@kubelet_option
@machine_option
@release_options
def repair(
    file: str | None,
    machine: str | None,
    kubelet: str | None,
    reserved: str | None,
    release: str | None,
    gates: tuple[str, ...],
    force: bool,
) -> int:
    """Make a state file of what FILE still tells, so that the kubelet starts again.

    Who holds what is kept; the node map is made anew for the machine. Pods whose memory is not
    there any more are left out: the kubelet admits them anew. The new file is FILE.repaired, in
    the format of the old one, or of --release if that is given. Stop the kubelet first.
    """
    ground = state_check_options(file, machine, kubelet, reserved, release, gates)
    found = salvage_state(read_state_text(ground.file))
    if isinstance(found, UnreadableCheckpoint):
        raise checkpoint_error(found, ground.file, _HOPELESS)
    if found.how == "whole" and check_state(ground, found.loaded).kind is None:
        print(f"{ground.file}: usable as it is, nothing to repair")
        return 0
    made = _rebuild(ground, found.loaded)
    proof = check_state(ground, LoadedCheckpoint(made.state, found.loaded.version))
    if proof.kind is not None:
        raise InputError("; ".join(proof.why), file=ground.file, hint=_HOPELESS)
    target = _target_path(ground.file, force=force)
    writer = (
        release_writing(found.loaded.version)
        if release is None
        else resolve_release(release, gates)[0]
    )
    _write_state(target, encode_checkpoint(made.state, writer))
    _print_repair(ground, found, made, target)
    return 0


def _rebuild(ground: StateCheckOptions, loaded: LoadedCheckpoint) -> RebuiltState:
    site = facts_for_state(ground, loaded)
    if not site.machine.nodes:
        return RebuiltState(
            MemoryManagerState(loaded.state.policy), tuple(loaded.state.assignments)
        )
    settings, _ = settings_for_state(ground, site)
    kept = settings.reserved
    if isinstance(kept, InvalidReservation):
        sentences = "; ".join(reservation_sentences(kept))
        raise InputError(
            f"reservedMemory: {sentences}",
            hint="memqos numa check says more, reserve what would do",
        )
    if loaded.state.policy == "None":
        return RebuiltState(loaded.state)
    made = rebuild_state(loaded.state, empty_node_map(site.machine.nodes, kept))
    if isinstance(made, UnusableState):
        raise InputError(
            f"no state can be made of it: {'; '.join(state_sentences(made))}", file=ground.file
        )
    return made


def _target_path(file: str, *, force: bool) -> str:
    if force:
        return file
    target = file + _SUFFIX
    if os.path.lexists(target):
        raise InputError(
            "is there already", file=target, hint=f"remove it, or write over {file} with --force"
        )
    return target


def _write_state(target: str, text: str) -> None:
    try:
        replace(target, text.encode())
    except OSError as error:
        raise MemqosError(
            f"{target}: {(error.strerror or str(error)).lower()}", hint="nothing was changed"
        ) from None


def _print_repair(
    ground: StateCheckOptions, found: SalvagedState, made: RebuiltState, target: str
) -> None:
    print(f"{ground.file}: {_SALVAGE_WORDS[found.how]}")
    print(f"  {pluralize(len(made.state.assignments), 'pod')} kept")
    for uid in made.excluded:
        print_lines([f"  pod {uid} is left out: the machine lacks memory it holds"])
    if ground.machine is None:
        print("  no machine given: made for the one the file tells of")
    print(f"written to {target}")
