"""`memqos conformance`: replays recorded cases of real Kubernetes."""

import gzip
import zlib
from collections.abc import Iterator
from typing import Any

import click
import msgspec

from memqos.cli.output import complain, print_lines
from memqos.cli.replay.areas import ReplayFunction, area_of, find_replay
from memqos.cli.replay.differences import case_differences
from memqos.errors import InputError, MemqosError


class _Case(msgspec.Struct, frozen=True):
    id: str
    input: dict[str, Any]
    expect: dict[str, Any] = {}


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option("--emit", is_flag=True, help="Write what memqos answers, and compare nothing.")
def command(files: tuple[str, ...], emit: bool) -> int:
    """Replay recorded cases (FILE: one JSON object a line, .gz allowed) and show every difference.

    The file's name up to the first dot says what to run. Closes with `N passed, N failed`; exit
    code 1 on any difference.
    """
    replays = [(file, find_replay(file)) for file in files]
    if emit:
        for file, replay in replays:
            for case in _cases(file):
                answer = {"id": case.id, "actual": _answer(replay, case)}
                print(msgspec.json.encode(answer).decode())
        return 0
    passed = failed = 0
    for file, replay in replays:
        for case in _cases(file):
            found = case_differences(area_of(file), case.expect, _answer(replay, case))
            for difference in found:
                print_lines([f"{case.id}: {difference}"])
            failed += bool(found)
            passed += not found
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def _answer(replay: ReplayFunction, case: _Case) -> dict[str, Any]:
    """What memqos answers; a case that it cannot take at all is an answer too."""
    try:
        return replay(case.input)
    except MemqosError as error:
        return {"refused": str(error)}
    except (KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
        complain(f"{case.id}: the input is not of the form this area has: {error!r}")
        return {"refused": "input not understood"}


def _cases(file: str) -> Iterator[_Case]:
    decoder = msgspec.json.Decoder(_Case)
    try:
        with gzip.open(file) if file.endswith(".gz") else open(file, "rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _decode_case(decoder, line, file, number)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"cannot be unpacked: {error}", file=file) from None
    except OSError as error:
        raise InputError(str(error.strerror), file=file, hint="is the path right?") from None


def _decode_case(
    decoder: "msgspec.json.Decoder[_Case]", line: bytes, file: str, number: int
) -> _Case:
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(
            f"not a recorded case: {error}",
            file=file,
            line=number,
            hint="each line is a JSON object with id, input and expect",
        ) from None
