"""The value of a YAML scalar, as Kubernetes reads it.

Kubernetes turns YAML into JSON with go-yaml 2 and works with JSON from there on. Those rules are
neither YAML 1.2 nor PyYAML's: `y` and `off` are booleans, `1e3` and `0o17` are numbers, `1_000`
too, while `12:30` and `2024-01-01` are text, and a number without a fraction is an integer.
"""

import re

from memqos.errors import quote_excerpt

Scalar = str | int | float | bool | None

_WORDS: dict[str, bool | None] = {
    word: meaning
    for meaning, words in (
        (True, "y Y yes Yes YES true True TRUE on On ON"),
        (False, "n N no No NO false False FALSE off Off OFF"),
        (None, "~ null Null NULL"),
    )
    for word in words.split()
} | {"": None}

_NOT_FINITE = frozenset(
    sign + word for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")
) | {".nan", ".NaN", ".NAN"}

_NUMBER_STARTS = frozenset("+-.0123456789")
_INTEGER = re.compile(
    r"(?P<sign>[-+]?)"
    r"(?:0[xX](?P<x>[0-9a-fA-F]+)|0[bB](?P<b>[01]+)|0[oO]?(?P<o>[0-7]+)|(?P<d>0|[1-9][0-9]*))"
)
_BASES = {"x": 16, "b": 2, "o": 8, "d": 10}
# A longer run of digits fits no 64 bits in any base.
_MOST_DIGITS = 64
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
# Go's JSON encoder writes floats below this without an exponent, and so without a fraction.
_PLAIN_FLOATS = 1e21

_TAG_PREFIX = "tag:yaml.org,2002:"
_TAGGED: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "null": (type(None),),
}
_TAGGED_AS_TEXT = frozenset({"!", f"{_TAG_PREFIX}str", f"{_TAG_PREFIX}timestamp"})


class Meaningless(Exception):
    """A scalar that has no value in JSON."""


def resolve_scalar(text: str) -> Scalar:
    """Give the value of a scalar without quotes or tag; raise Meaningless if JSON has none."""
    if text in _WORDS:
        return _WORDS[text]
    return _number(text) if text[0] in _NUMBER_STARTS else text


def resolve_tagged(tag: str, text: str) -> Scalar:
    """Give the value of a scalar with a tag; raise Meaningless if it does not fit the tag."""
    if tag in _TAGGED_AS_TEXT:
        return text
    name = tag.removeprefix(_TAG_PREFIX)
    if name not in _TAGGED or name == tag:
        raise Meaningless(f"the tag {quote_excerpt(short_tag(tag))} is not allowed")
    value = resolve_scalar(text)
    if type(value) not in _TAGGED[name]:
        raise Meaningless(
            f"{quote_excerpt(text)} is not of its tag {quote_excerpt(short_tag(tag))}"
        )
    return value


def short_tag(tag: str) -> str:
    """Write a tag as people do."""
    return f"!!{tag.removeprefix(_TAG_PREFIX)}" if tag.startswith(_TAG_PREFIX) else tag


def _number(text: str) -> str | int | float:
    if text in _NOT_FINITE:
        raise Meaningless(f"{text} is not a number that JSON can represent")
    # Underscores may part digits, but not in a number that starts with its point.
    plain = text if text[0] == "." else text.replace("_", "")
    integer = _integer(plain)
    if integer is not None:
        return integer
    if not _FLOAT.fullmatch(plain):
        return text
    value = float(plain)
    if abs(value) < _PLAIN_FLOATS and value.is_integer():
        return int(value)
    return text if value in (float("inf"), float("-inf")) else value


def _integer(plain: str) -> int | None:
    found = _INTEGER.fullmatch(plain)
    if found is None or found.lastgroup is None or len(plain) > _MOST_DIGITS + len("-0b"):
        return None
    value = int(found["sign"] + found[found.lastgroup], _BASES[found.lastgroup])
    fits = -(2**63) <= value < (2**63 if found["sign"] else 2**64)
    return value if fits else None
