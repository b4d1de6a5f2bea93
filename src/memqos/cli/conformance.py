"""`memqos conformance`: replays recorded cases of real Kubernetes."""

import gzip
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import click
import msgspec

from memqos.cli.help_sections import SectionedCommand
from memqos.cli.output import complain, print_lines
from memqos.cli.replay import ReplayFunction, area_of, find_replay
from memqos.errors import InputError, MemqosError
from memqos.kube.quantity import Quantity

_ABSENT: Final = "nothing"
_SOMETIMES_RECORDED: Final = frozenset({"legacy_hash_input", "v2_hash_input"})
"""Keys recorded in some cases only, though memqos answers them in all."""
_NOT_OF_THE_AREA: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    TypeError,
    ValueError,
)
"""What an input of another form ends in, wherever its replay meets the odd value first."""
_UNRELIABLE: Final = {"value_unreliable": "value", "milli_unreliable": "milli_value"}
"""A mark in a recorded case, and the number that overflowed in the recorder."""


class CaseDifference(NamedTuple):
    """One value that is not as recorded."""

    path: str
    expected: Any
    got: Any

    def __str__(self) -> str:
        return f"{self.path}: expected {_abbreviate(self.expected)}, got {_abbreviate(self.got)}"


def case_differences(
    area: str, expect: Mapping[str, Any], actual: Mapping[str, Any]
) -> list[CaseDifference]:
    """Every difference; quantities count by value, except where spelling is what was recorded."""
    skipped = {number for mark, number in _UNRELIABLE.items() if expect.get(mark)}
    expect = {
        key: value for key, value in expect.items() if key not in _UNRELIABLE and key not in skipped
    }
    skipped |= _SOMETIMES_RECORDED - expect.keys()
    actual = {key: value for key, value in actual.items() if key not in skipped}
    return list(_compare(expect, actual, "", by_value=not area.startswith("quantity")))


def _compare(expect: Any, actual: Any, path: str, *, by_value: bool) -> Iterator[CaseDifference]:
    if isinstance(expect, Mapping) and isinstance(actual, Mapping):
        for key in dict.fromkeys([*expect, *actual]):
            below = f"{path}.{key}" if path else str(key)
            if key not in expect:
                yield CaseDifference(below, _ABSENT, actual[key])
            elif key not in actual:
                yield CaseDifference(below, expect[key], _ABSENT)
            else:
                yield from _compare(expect[key], actual[key], below, by_value=by_value)
    elif isinstance(expect, list) and isinstance(actual, list) and len(expect) == len(actual):
        if path.endswith("errors"):
            expect, actual = _in_text_order(expect), _in_text_order(actual)
        for index, (left, right) in enumerate(zip(expect, actual, strict=True)):
            yield from _compare(left, right, f"{path}[{index}]", by_value=by_value)
    elif not _same(expect, actual, by_value=by_value):
        yield CaseDifference(path, expect, actual)


def _in_text_order(errors: list[Any]) -> list[Any]:
    return sorted(errors, key=str)


def _same(expect: Any, actual: Any, *, by_value: bool) -> bool:
    if expect == actual:
        return isinstance(expect, bool) == isinstance(actual, bool)
    if not (by_value and isinstance(expect, str) and isinstance(actual, str)):
        return False
    try:
        return Quantity.parse_bare(expect) == Quantity.parse_bare(actual)
    except InputError:
        return False


def _abbreviate(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:197] + "…"


class _Case(msgspec.Struct, frozen=True):
    id: str
    input: dict[str, Any]
    expect: dict[str, Any] = {}


@click.command(cls=SectionedCommand)
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option("--emit", is_flag=True, help="Print the results of memqos without comparing them.")
def command(files: tuple[str, ...], emit: bool) -> int:
    """Replay recorded cases (FILE: one JSON object a line, .gz allowed) and show every difference.

    The file's name up to the first dot selects the area. Ends with `N passed, N failed`; exit
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
    except _NOT_OF_THE_AREA as error:
        complain(f"{case.id}: the input does not have the form of this area: {error!r}")
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
