"""`memqos numa checkpoint verify`: whether a kubelet would start over a state file."""

from typing import Any, Final, Literal

import click
import msgspec

from memqos.cli.numa.sources import machine_option, snapshot_option
from memqos.cli.numa.standing import Standing, ground_of, standing, text_under
from memqos.cli.numa.terms import kubelet_option, reserved_option
from memqos.cli.output import Form, emit, output_option, print_lines
from memqos.cli.releases import release_options
from memqos.numa.checkpoint import Contents, Loaded, Unreadable, contents, read
from memqos.numa.repair import Checksum, Salvaged, checksums, salvaged
from memqos.numa.unreadable import unreadable_words

NOT_USABLE = 2

Verdict = Literal["usable", "unreadable", "corrupt", "drifted", "refused"]


_REPAIR: Final = "memqos numa checkpoint repair, then verify what it wrote"
_AFRESH: Final = "remove the file: the kubelet then starts afresh and admits its pods anew"


class _Verified(msgspec.Struct, frozen=True):
    """All that is known of a file."""

    verdict: Verdict
    version: str | None = None
    policy: str | None = None
    checksums: tuple[Checksum, ...] = ()
    why: tuple[str, ...] = ()
    standing: Standing | None = None
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
    output: Form,
) -> int:
    """Say whether a kubelet would start over a state file, and if not, why.

    Without FILE it is this machine's state on this machine. A FILE is held against --machine, else
    against what it says of the machine it was written on; reservations come from --kubelet or
    --reserved, else from the file.

    Exit code 2 if it would not start.
    """
    ground = ground_of(file, machine, kubelet, reserved, release, gates, snapshot)
    text = text_under(ground)
    loaded = read(text)
    if isinstance(loaded, Unreadable):
        verified = _broken(text, loaded)
    else:
        verified = _judged(text, loaded, standing(ground, loaded))
    if output == "table":
        _print(ground.file, verified)
    else:
        emit(_data(ground.file, verified), output)
    return 0 if verified.verdict == "usable" else NOT_USABLE


def _broken(text: str, found: Unreadable) -> _Verified:
    if found.kind == "checkpoint_invalid_json":
        what, byte = unreadable_words(found)
        place = f" at byte {byte}" if byte is not None else ""
        if "truncated" in what:
            place = f" after {len(text.encode())} bytes"
        mendable = isinstance(salvaged(text), Salvaged)
        return _Verified("unreadable", why=(what + place,), next=_REPAIR if mendable else _AFRESH)
    fields = contents(text)
    assert isinstance(fields, Contents)
    return _Verified(
        "corrupt",
        policy=fields.policy_name,
        checksums=tuple(checksums(fields)),
        why=(found.detail,),
        notes=_strange(text),
    )


def _judged(text: str, loaded: Loaded, stands: Standing) -> _Verified:
    fields = contents(text)
    assert isinstance(fields, Contents)
    sums = checksums(fields)
    verdict: Verdict = "usable"
    if stands.kind is not None:
        verdict = "drifted" if stands.differences else "refused"
    return _Verified(
        verdict,
        loaded.version,
        loaded.state.policy,
        tuple(sums),
        stands.why,
        stands,
        (*stands.notes, *_strange(text), *_older(sums)),
        _AFRESH if verdict == "refused" else _REPAIR,
    )


def _strange(text: str) -> tuple[str, ...]:
    known = set(Contents.__struct_encode_fields__)
    unknown = [name for name in msgspec.json.decode(text) if name not in known]
    return (f"fields no kubelet is known to write: {', '.join(unknown)}",) if unknown else ()


def _older(sums: list[Checksum]) -> list[str]:
    return [
        f"{each.field}, for kubelets before 1.37, is {each.stored}, but the content's is "
        f"{each.computed}: they would refuse the file"
        for each in sums
        if not each.decides and not each.holds
    ]


def _print(file: str, verified: _Verified) -> None:
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


def _data(file: str, verified: _Verified) -> dict[str, Any]:
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
