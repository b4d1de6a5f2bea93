"""Where what memqos answers differs from what was recorded."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from memqos.errors import InputError
from memqos.kube.quantity import Quantity

_ABSENT: Final = "nothing"
_SOMETIMES_RECORDED: Final = frozenset({"legacy_hash_input", "v2_hash_input"})
"""Keys that only some cases hold, though they could be told for all."""
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
