"""`memqos numa checkpoint`: verify, repair and compare the kubelet's memory_manager_state."""

import os
from typing import Any, Final, Literal

import click
import msgspec

from memqos.cli.help_sections import SectionedCommand
from memqos.cli.numa.kubelet import (
    StateCheck,
    StateCheckOptions,
    check_state,
    facts_for_state,
    kubelet_option,
    reserved_option,
    settings_for_state,
    state_check_options,
    state_text,
)
from memqos.cli.numa.node_source import machine_option, read_state_text, snapshot_option
from memqos.cli.options import release_options, resolve_release
from memqos.cli.output import OutputFormat, complain, emit, output_option, print_lines
from memqos.draw.text.lines import Table
from memqos.errors import InputError, MemqosError, os_reason
from memqos.host.durable import replace
from memqos.kernel.file_formats import node_list
from memqos.numa.checkpoint import (
    CheckpointFields,
    LoadedCheckpoint,
    UnreadableCheckpoint,
    checkpoint_error,
    checkpoint_fault_text,
    decode_checkpoint,
    encode_checkpoint,
    read_checkpoint,
)
from memqos.numa.checkpoint_repair import (
    CheckpointChecksum,
    RebuiltState,
    SalvagedState,
    SalvageSource,
    checkpoint_checksums,
    rebuild_state,
    release_writing,
    salvage_state,
)
from memqos.numa.machine_state import (
    MemoryManagerState,
    StateDifference,
    StateValue,
    empty_node_map,
    state_differences,
)
from memqos.numa.refusal_text import (
    exact_bytes,
    reservation_sentences,
    signed_difference,
    state_sentences,
)
from memqos.numa.reserved_memory import InvalidReservation
from memqos.numa.restart import UnusableState
from memqos.units import pluralize

NOT_USABLE = 2

CheckpointVerdict = Literal["usable", "unreadable", "corrupt", "drifted", "refused"]


_REPAIR: Final = "memqos numa checkpoint repair, then verify what it wrote"
_START_FRESH: Final = (
    "remove the file: the kubelet then starts with an empty state and admits its pods again"
)


class _Verification(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of a file."""

    verdict: CheckpointVerdict
    version: str | None = None
    policy: str | None = None
    checksums: tuple[CheckpointChecksum, ...] = ()
    why: tuple[str, ...] = ()
    standing: StateCheck | None = None
    notes: tuple[str, ...] = ()
    next: str = _REPAIR


@click.command("verify", cls=SectionedCommand)
@click.argument("file", required=False, metavar="[FILE]")
@output_option()
@reserved_option
@kubelet_option
@snapshot_option
@machine_option
@release_options
def verify(
    file: str | None,
    machine: str | None,
    snapshot: str | None,
    kubelet: str | None,
    reserved: str | None,
    release: str | None,
    gates: tuple[str, ...],
    output: OutputFormat,
) -> int:
    """Check whether a kubelet would start with a state file, and if not, why.

    Without FILE it checks this machine's state on this machine. A FILE is compared with --machine,
    else with the machine described in the file; reservations come from --kubelet or --reserved,
    else from the file.

    Exit code 2 if it would not start.
    """
    options = state_check_options(file, machine, kubelet, reserved, release, gates, snapshot)
    text = state_text(options)
    loaded = read_checkpoint(text)
    if isinstance(loaded, UnreadableCheckpoint):
        verified = _verify_unreadable(text, loaded)
    else:
        verified = _verify_loaded(text, loaded, check_state(options, loaded))
    if output == "table":
        _print_verification(options.file, verified)
    else:
        emit(_verification_data(options.file, verified), output)
    return 0 if verified.verdict == "usable" else NOT_USABLE


def _verify_unreadable(text: str, found: UnreadableCheckpoint) -> _Verification:
    if found.kind == "checkpoint_invalid_json":
        what, byte = checkpoint_fault_text(found)
        place = f" at byte {byte}" if byte is not None else ""
        if "truncated" in what:
            place = f" after {len(text.encode())} bytes"
        mendable = isinstance(salvage_state(text), SalvagedState)
        return _Verification(
            verdict="unreadable",
            why=(what + place,),
            next=_REPAIR if mendable else _START_FRESH,
        )
    fields = decode_checkpoint(text)
    assert isinstance(fields, CheckpointFields)
    return _Verification(
        verdict="corrupt",
        policy=fields.policy_name,
        checksums=tuple(checkpoint_checksums(fields)),
        why=(found.detail,),
        notes=_unknown_field_notes(text),
    )


def _verify_loaded(text: str, loaded: LoadedCheckpoint, stands: StateCheck) -> _Verification:
    fields = decode_checkpoint(text)
    assert isinstance(fields, CheckpointFields)
    sums = checkpoint_checksums(fields)
    verdict: CheckpointVerdict = "usable"
    if stands.kind is not None:
        verdict = "drifted" if stands.differences else "refused"
    return _Verification(
        verdict=verdict,
        version=loaded.version,
        policy=loaded.state.policy,
        checksums=tuple(sums),
        why=stands.why,
        standing=stands,
        notes=(*stands.notes, *_unknown_field_notes(text), *_old_checksum_notes(sums)),
        next=_START_FRESH if verdict == "refused" else _REPAIR,
    )


def _unknown_field_notes(text: str) -> tuple[str, ...]:
    known = set(CheckpointFields.__struct_encode_fields__)
    unknown = [name for name in msgspec.json.decode(text) if name not in known]
    return (f"unknown fields: {', '.join(unknown)}",) if unknown else ()


def _old_checksum_notes(sums: list[CheckpointChecksum]) -> list[str]:
    return [
        f"{each.field}, for kubelets before 1.37, is {each.stored}, but the content's is "
        f"{each.computed}: they would refuse the file"
        for each in sums
        if not each.decides and not each.holds
    ]


def _print_verification(file: str, verified: _Verification) -> None:
    kind = f": format {verified.version}, policy {verified.policy}" if verified.version else ""
    print_lines([f"{file}{kind}"])
    for each in verified.checksums:
        if each.holds:
            print_lines([f"  {each.field} {each.stored} holds"])
        elif not each.stored:
            print_lines([f"  no {each.field}: a kubelet does not verify the file"])
    for sentence in verified.why:
        print_lines([f"  {sentence}"])
    for note in verified.notes:
        print_lines([f"  note: {note}"])
    against = "" if verified.standing is None else f" on {verified.standing.against}"
    if verified.verdict == "usable":
        print_lines([f"usable: a kubelet starts with it{against}"])
    else:
        print_lines([f"{verified.verdict}: a kubelet does not start with it{against}"])
        print_lines([f"  next: {verified.next}"])


def _verification_data(file: str, verified: _Verification) -> dict[str, Any]:
    stands = verified.standing
    return {
        "file": file,
        "verdict": verified.verdict,
        "usable": verified.verdict == "usable",
        "version": verified.version,
        "policy": verified.policy,
        "checksums": [
            {**msgspec.to_builtins(each), "holds": each.holds} for each in verified.checksums
        ],
        "against": None if stands is None else stands.against,
        "kind": None if stands is None else stands.kind,
        "differences": [] if stands is None else msgspec.to_builtins(stands.differences),
        "why": list(verified.why),
        "notes": list(verified.notes),
        "next": None if verified.verdict == "usable" else verified.next,
    }


_HOPELESS: Final = "it cannot be repaired: remove it, and the kubelet admits its pods again"
_SUFFIX: Final = ".repaired"
_SALVAGE_WORDS: Final[dict[SalvageSource, str]] = {
    "whole": "its checksum matches",
    "without_garbage": "data after its JSON is dropped; its checksum matches",
    "first_format": "dataChecksum does not match, so the fields for older kubelets are used",
    "unverified": "no checksum matches: its content is used unverified",
}


@click.command("repair", cls=SectionedCommand)
@click.argument("file", required=False, metavar="[FILE]")
@click.option("--force", is_flag=True, help="Overwrite FILE itself.")
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
    """Repair a state file from its readable content, so that the kubelet starts again.

    Assignments are kept; the node map is rebuilt for the machine. Pods whose memory no longer
    exists are dropped: the kubelet admits them again. The new file is FILE.repaired, in the
    format of the old one, or of --release if that is given. Stop the kubelet first.
    """
    options = state_check_options(file, machine, kubelet, reserved, release, gates)
    found = salvage_state(read_state_text(options.file))
    if isinstance(found, UnreadableCheckpoint):
        raise checkpoint_error(found, options.file, _HOPELESS)
    if found.how == "whole" and check_state(options, found.loaded).kind is None:
        print_lines([f"{options.file}: usable as it is, nothing to repair"])
        return 0
    made = _rebuild(options, found.loaded)
    proof = check_state(options, LoadedCheckpoint(made.state, found.loaded.version))
    if proof.kind is not None:
        raise InputError("; ".join(proof.why), file=options.file, hint=_HOPELESS)
    target = _target_path(options.file, force=force)
    writer = (
        release_writing(found.loaded.version)
        if release is None
        else resolve_release(release, gates)[0]
    )
    _write_state(target, encode_checkpoint(made.state, writer))
    _print_repair(options, found, made, target)
    return 0


def _rebuild(options: StateCheckOptions, loaded: LoadedCheckpoint) -> RebuiltState:
    facts = facts_for_state(options, loaded)
    if not facts.machine.nodes:
        return RebuiltState(
            MemoryManagerState(loaded.state.policy), tuple(loaded.state.assignments)
        )
    settings, _ = settings_for_state(options, facts)
    reserved = settings.reserved
    if isinstance(reserved, InvalidReservation):
        sentences = "; ".join(reservation_sentences(reserved))
        raise InputError(
            f"reservedMemory: {sentences}",
            hint="memqos numa check shows details, memqos numa reserve prints a valid one",
        )
    if loaded.state.policy == "None":
        return RebuiltState(loaded.state)
    made = rebuild_state(loaded.state, empty_node_map(facts.machine.nodes, reserved))
    if isinstance(made, UnusableState):
        raise InputError(
            f"no state can be made of it: {'; '.join(state_sentences(made))}", file=options.file
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
        raise MemqosError(f"{target}: {os_reason(error)}", hint="nothing was changed") from None


def _print_repair(
    options: StateCheckOptions, found: SalvagedState, made: RebuiltState, target: str
) -> None:
    print_lines([f"{options.file}: {_SALVAGE_WORDS[found.how]}"])
    print_lines([f"  {pluralize(len(made.state.assignments), 'pod')} kept"])
    for uid in made.excluded:
        print_lines([f"  pod {uid} is dropped: the machine lacks memory assigned to it"])
    if options.machine is None:
        print_lines(["  no machine given: the machine in the file is used"])
    print_lines([f"written to {target}"])


DIFFERENT = 2


@click.command("diff", cls=SectionedCommand)
@click.argument("one", metavar="FILE")
@click.argument("other", metavar="FILE")
@output_option()
def diff(one: str, other: str, output: OutputFormat) -> int:
    """Compare two state files value by value, whatever their formats.

    Exit code 2 if they differ.
    """
    found = state_differences(_read_state(one), _read_state(other))
    if output != "table":
        emit({"same": not found, "differences": msgspec.to_builtins(found)}, output)
    elif found:
        rows = [["", "", one, other, ""], *[_diff_row(each) for each in found]]
        print_lines([Table(rows, left=2)])
    else:
        print_lines(["both files have the same content"])
    return DIFFERENT if found else 0


def _read_state(path: str) -> MemoryManagerState:
    found = salvage_state(read_state_text(path))
    if isinstance(found, UnreadableCheckpoint):
        raise checkpoint_error(found, path)
    if found.how != "whole":
        complain(f"{path}: no kubelet accepts this file; the readable part is compared")
    return found.loaded.state


def _diff_row(each: StateDifference) -> list[str]:
    change = ""
    if isinstance(each.one, int) and isinstance(each.other, int) and each.is_size:
        change = signed_difference(each.one, each.other)
    return [each.where, each.what, _diff_cell(each, each.one), _diff_cell(each, each.other), change]


def _diff_cell(each: StateDifference, value: StateValue | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, tuple):
        return node_list(value)
    return exact_bytes(value) if isinstance(value, int) and each.is_size else str(value)


@click.group("checkpoint")
def command() -> None:
    """Verify, repair or compare the kubelet's memory_manager_state.

    A kubelet with the Static policy does not start with a state file that is corrupt or does not
    match the machine, as after a change of memory, hugepages or reservedMemory.
    """


command.add_command(verify)
command.add_command(repair)
command.add_command(diff)
