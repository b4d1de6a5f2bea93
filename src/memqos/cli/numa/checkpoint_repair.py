"""`memqos numa checkpoint repair`: a state file over which the kubelet starts again."""

import os
from typing import Final

import click

from memqos.cli.numa.sources import machine_option, text_from
from memqos.cli.numa.standing import Ground, ground_of, settings_under, site_under, standing
from memqos.cli.numa.terms import kubelet_option, reserved_option
from memqos.cli.output import print_lines
from memqos.cli.releases import release_asked, release_options
from memqos.draw.amounts import counted
from memqos.draw.numa_refusals import reservation_sentences, state_sentences
from memqos.errors import InputError, MemqosError
from memqos.host.durable import replace
from memqos.numa.checkpoint import Loaded, Unreadable, write
from memqos.numa.memory import empty_nodes
from memqos.numa.repair import Rebuilt, Salvage, Salvaged, rebuilt, salvaged, writer_of
from memqos.numa.reserved import Unreservable
from memqos.numa.restart import Unfit
from memqos.numa.state import State
from memqos.numa.unreadable import unreadable_error

_HOPELESS: Final = "it cannot be repaired: remove it, and the kubelet admits its pods anew"
SUFFIX: Final = ".repaired"
_FOUND: Final[dict[Salvage, str]] = {
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
    ground = ground_of(file, machine, kubelet, reserved, release, gates)
    found = salvaged(text_from(ground.file))
    if isinstance(found, Unreadable):
        raise unreadable_error(found, ground.file, _HOPELESS)
    if found.how == "whole" and standing(ground, found.loaded).kind is None:
        print(f"{ground.file}: usable as it is, nothing to repair")
        return 0
    made = _made(ground, found.loaded)
    proof = standing(ground, Loaded(made.state, found.loaded.version))
    if proof.kind is not None:
        raise InputError("; ".join(proof.why), file=ground.file, hint=_HOPELESS)
    target = _target(ground.file, force=force)
    writer = (
        writer_of(found.loaded.version) if release is None else release_asked(release, gates)[0]
    )
    _write(target, write(made.state, writer))
    _print(ground, found, made, target)
    return 0


def _made(ground: Ground, loaded: Loaded) -> Rebuilt:
    site = site_under(ground, loaded)
    if not site.machine.nodes:
        return Rebuilt(State(loaded.state.policy), tuple(loaded.state.assignments))
    settings, _ = settings_under(ground, site)
    kept = settings.reserved
    if isinstance(kept, Unreservable):
        sentences = "; ".join(reservation_sentences(kept))
        raise InputError(
            f"reservedMemory: {sentences}",
            hint="memqos numa check says more, reserve what would do",
        )
    if loaded.state.policy == "None":
        return Rebuilt(loaded.state)
    made = rebuilt(loaded.state, empty_nodes(site.machine.nodes, kept))
    if isinstance(made, Unfit):
        raise InputError(
            f"no state can be made of it: {'; '.join(state_sentences(made))}", file=ground.file
        )
    return made


def _target(file: str, *, force: bool) -> str:
    if force:
        return file
    target = file + SUFFIX
    if os.path.lexists(target):
        raise InputError(
            "is there already", file=target, hint=f"remove it, or write over {file} with --force"
        )
    return target


def _write(target: str, text: str) -> None:
    try:
        replace(target, text.encode())
    except OSError as error:
        raise MemqosError(
            f"{target}: {(error.strerror or str(error)).lower()}", hint="nothing was changed"
        ) from None


def _print(ground: Ground, found: Salvaged, made: Rebuilt, target: str) -> None:
    print(f"{ground.file}: {_FOUND[found.how]}")
    print(f"  {counted(len(made.state.assignments), 'pod')} kept")
    for uid in made.left_out:
        print_lines([f"  pod {uid} is left out: the machine lacks memory it holds"])
    if ground.machine is None:
        print("  no machine given: made for the one the file tells of")
    print(f"written to {target}")
