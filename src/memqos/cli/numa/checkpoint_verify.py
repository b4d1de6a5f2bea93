"""`memqos numa checkpoint verify`: whether a kubelet would start over a state file."""

from typing import Any, Final, Literal

import click
import msgspec

from memqos.cli.numa.sources import machine_option, snapshot_option
from memqos.cli.numa.standing import StateCheck, check_state, state_check_options, state_text
from memqos.cli.numa.terms import kubelet_option, reserved_option
from memqos.cli.output import OutputFormat, emit, output_option, print_lines
from memqos.cli.releases import release_options
from memqos.numa.checkpoint import (
    CheckpointFields,
    LoadedCheckpoint,
    UnreadableCheckpoint,
    decode_checkpoint,
    read_checkpoint,
)
from memqos.numa.repair import (
    CheckpointChecksum,
    SalvagedState,
    checkpoint_checksums,
    salvage_state,
)
from memqos.numa.unreadable import checkpoint_fault_text

NOT_USABLE = 2

CheckpointVerdict = Literal["usable", "unreadable", "corrupt", "drifted", "refused"]


_REPAIR: Final = "memqos numa checkpoint repair, then verify what it wrote"
_START_FRESH: Final = "remove the file: the kubelet then starts afresh and admits its pods anew"


class _Verification(msgspec.Struct, frozen=True):
    """All that is known of a file."""

    verdict: CheckpointVerdict
    version: str | None = None
    policy: str | None = None
    checksums: tuple[CheckpointChecksum, ...] = ()
    why: tuple[str, ...] = ()
    standing: StateCheck | None = None
    notes: tuple[str, ...] = ()
    next: str = _REPAIR


@click.command("verify")
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
    """Say whether a kubelet would start over a state file, and if not, why.

    Without FILE it is this machine's state on this machine. A FILE is held against --machine, else
    against what it says of the machine it was written on; reservations come from --kubelet or
    --reserved, else from the file.

    Exit code 2 if it would not start.
    """
    ground = state_check_options(file, machine, kubelet, reserved, release, gates, snapshot)
    text = state_text(ground)
    loaded = read_checkpoint(text)
    if isinstance(loaded, UnreadableCheckpoint):
        verified = _verify_unreadable(text, loaded)
    else:
        verified = _verify_loaded(text, loaded, check_state(ground, loaded))
    if output == "table":
        _print_verification(ground.file, verified)
    else:
        emit(_verification_data(ground.file, verified), output)
    return 0 if verified.verdict == "usable" else NOT_USABLE


def _verify_unreadable(text: str, found: UnreadableCheckpoint) -> _Verification:
    if found.kind == "checkpoint_invalid_json":
        what, byte = checkpoint_fault_text(found)
        place = f" at byte {byte}" if byte is not None else ""
        if "truncated" in what:
            place = f" after {len(text.encode())} bytes"
        mendable = isinstance(salvage_state(text), SalvagedState)
        return _Verification(
            "unreadable", why=(what + place,), next=_REPAIR if mendable else _START_FRESH
        )
    fields = decode_checkpoint(text)
    assert isinstance(fields, CheckpointFields)
    return _Verification(
        "corrupt",
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
        verdict,
        loaded.version,
        loaded.state.policy,
        tuple(sums),
        stands.why,
        stands,
        (*stands.notes, *_unknown_field_notes(text), *_old_checksum_notes(sums)),
        _START_FRESH if verdict == "refused" else _REPAIR,
    )


def _unknown_field_notes(text: str) -> tuple[str, ...]:
    known = set(CheckpointFields.__struct_encode_fields__)
    unknown = [name for name in msgspec.json.decode(text) if name not in known]
    return (f"fields no kubelet is known to write: {', '.join(unknown)}",) if unknown else ()


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
            print(f"  {each.field} {each.stored} holds")
        elif not each.stored:
            print(f"  no {each.field}: a kubelet takes the file at its word")
    for sentence in verified.why:
        print_lines([f"  {sentence}"])
    for note in verified.notes:
        print_lines([f"  note: {note}"])
    against = "" if verified.standing is None else f" on {verified.standing.against}"
    if verified.verdict == "usable":
        print(f"usable: a kubelet starts over it{against}")
    else:
        print(f"{verified.verdict}: a kubelet does not start over it{against}")
        print(f"  next: {verified.next}")


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
