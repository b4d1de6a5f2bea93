"""Quantities: Kubernetes' numbers with units, kept exactly.

A quantity is a whole number of nanos (Kubernetes keeps nothing finer), the suffix family it is
printed in, and the spelling that was typed for as long as Kubernetes would keep it.
"""

import re
from functools import lru_cache
from typing import Final, Literal, Self

import msgspec

from memqos.errors import InputError
from memqos.units import scientific

Format = Literal["BinarySI", "DecimalSI", "DecimalExponent"]
Raw = str | int | float | None
"""A quantity as JSON or YAML carries it; null is zero."""

NANOS: Final = 1_000_000_000
MILLI: Final = 1_000_000
MAX_INT64: Final = (1 << 63) - 1

_DECIMAL: Final = {
    "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX: Final = {exponent: suffix for suffix, exponent in _BINARY.items()}
_SHAPE: Final = re.compile(
    r"([+-]?)0*([0-9]*)(\.([0-9]*))?(?:([eEinumkKMGTP]*)([+-]?)([0-9]*))", re.ASCII
)
_FAST_DIGITS: Final = 18
"""maxInt64Factors (apimachinery resource/math.go), the decimal digits that surely fit an int64;
longer numbers lose the spelling that was typed."""
_MOST_DIGITS: Final = 1001
"""Before the point. Kubernetes has no bound here and returns wrong values; with a bound
`1e999999999` does not hang, and sums and products stay below the 4,300 digits of Python's str().
"""
_JSON_SPACES: Final = " \x85\xa0\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
"""Quantity.UnmarshalJSON() (resource/quantity.go) trims with strings.TrimSpace() what stands
between the quotes of the JSON text, escapes and all. These are Go's white space without what JSON
(tab, line feed, …) and Go's encoder (U+2028, U+2029) escape: an escape is not trimmed."""
_SHOWN: Final = 20
_LEGIBLE: Final = 32


class Quantity(msgspec.Struct, frozen=True, eq=False, gc=False):
    """An exact amount. Equality and order are by value; `str()` is Kubernetes' spelling."""

    nano: int
    format: Format = "DecimalSI"
    spelling: str | None = None

    @classmethod
    def parse(cls, raw: Raw) -> Self:
        """Read a quantity as the API server reads it from JSON, where spaces are trimmed."""
        if raw is None:
            return cls(0)
        # Quantity.UnmarshalJSON() parses the text of a JSON number. It is lost here; repr() gives
        # the shortest text that means the same number.
        return cls.parse_bare(raw.strip(_JSON_SPACES) if isinstance(raw, str) else repr(raw))

    @classmethod
    def parse_bare(cls, text: str) -> Self:
        """Read a quantity text, without trimming spaces."""
        shape = _SHAPE.fullmatch(text) if text else None
        if shape is None:
            raise _error(text)
        sign, number, dot, fraction, letters, exponent_sign, exponent_digits = shape.groups()
        if dot is None and not number and not exponent_digits and not letters and not exponent_sign:
            return cls(0, "DecimalSI", "0" if text == "0" else None)
        fraction = fraction or ""
        suffix = letters + exponent_sign + exponent_digits
        family, exponent = _suffix(text, suffix)
        digits = (number or "0") + fraction
        places = len(digits.lstrip("0")) - len(fraction) + exponent
        if places > _MOST_DIGITS:
            raise _error(text, hint=f"it has more than {_MOST_DIGITS} digits before the point")

        magnitude = _whole(text, digits)
        nano, exact = _to_nano(magnitude, len(fraction), family, exponent)
        spelling = None
        if family == "BinarySI":
            # Only the int64 path keeps the spelling.
            in_range = not fraction and _is_binary_int64(number or "0", exponent)
            if in_range:
                if magnitude & 0x07:
                    spelling = text
            else:
                nano = min(nano, MAX_INT64 * NANOS)
                if 0 < nano < NANOS:
                    family = "DecimalSI"
        else:
            scale = exponent - len(fraction)
            in_range = len(digits) <= _FAST_DIGITS and scale >= -9 and exact
            if in_range and scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0":
                spelling = text
        # The int64 path reads "" as 0, so "." and "-" are quantities; inf.Dec.SetString(), which
        # reads all others, requires a digit.
        if not in_range and not any(map(str.isdigit, text[: shape.start(5)])):
            raise _error(text)
        return cls(-nano if sign == "-" else nano, family, spelling)

    @classmethod
    def of(cls, value: int, format: Format = "DecimalSI") -> Self:
        """The quantity of a whole number."""
        return cls(value * NANOS, format)

    @classmethod
    def of_milli(cls, milli: int, format: Format = "DecimalSI") -> Self:
        """The quantity of a number of thousandths."""
        return cls(milli * MILLI, format)

    @property
    def value(self) -> int:
        """Whole units, rounded away from zero."""
        return whole(self.nano, NANOS)

    @property
    def milli(self) -> int:
        """Thousandths, rounded away from zero."""
        return whole(self.nano, MILLI)

    @property
    def canonical(self) -> str:
        """The canonical spelling, whatever was typed."""
        if not self.nano:
            return "0"
        whole, rest = divmod(self.nano, NANOS)
        if self.format == "BinarySI" and not rest and not -1024 < whole < 1024:
            exponent = 0
            while not whole % 1024:
                whole //= 1024
                exponent += 10
            return f"{whole}{_BINARY_SUFFIX.get(exponent, '')}"
        number, exponent = self.nano, -9
        while not number % 10:
            number //= 10
            exponent += 1
        number *= 10 ** (exponent % 3)
        exponent -= exponent % 3
        if self.format == "DecimalExponent":
            return f"{number}e{exponent}" if exponent else str(number)
        # resource/suffix.go has no suffix beyond E, and Kubernetes prints none then.
        return f"{number}{_DECIMAL_SUFFIX.get(exponent, '')}"

    @property
    def legible(self) -> str:
        """The spelling in messages, where a long number is rounded to a power of ten."""
        text = str(self)
        return text if len(text) <= _LEGIBLE else scientific(self.value)

    def __str__(self) -> str:
        return self.spelling or self.canonical

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def __add__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nano + other.nano, self.format if self.nano else other.format)

    def __sub__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nano - other.nano, self.format if self.nano else other.format)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.nano == other.nano

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: "Quantity") -> bool:
        return self.nano < other.nano

    def __le__(self, other: "Quantity") -> bool:
        return self.nano <= other.nano

    def __hash__(self) -> int:
        return hash(self.nano)


@lru_cache(maxsize=1 << 12)
def milli_of(raw: Raw) -> int:
    """Thousandths of a quantity as written, rounded up: what the API server stores."""
    return Quantity.parse(raw).milli


@lru_cache(maxsize=1 << 12)
def nano_of(raw: Raw) -> int:
    """Nanos of a quantity as written: for the rules that add before they round."""
    return Quantity.parse(raw).nano


def whole(amount: int, unit: int = 1000) -> int:
    """Whole units of an amount, by default one in thousandths, rounded away from zero."""
    return -(-amount // unit) if amount >= 0 else amount // unit


def int64_value(amount: int) -> int:
    """What Quantity.Value() returns for a whole amount, past the range of an int64 too.

    A short decimal number is kept with its exponent, and 0 is returned where it does not fit. All
    others are big integers, of which the lowest 64 bits are returned: twice 8Ei is −2
    (apimachinery resource/quantity.go, ScaledValue; scale_int.go, scaledValue). A number typed with
    more than 18 digits is a big integer, too, but only until it is stored: 10000000000000000000
    becomes 10E, which a kubelet reads as 0.
    """
    if -MAX_INT64 <= amount <= MAX_INT64:
        return amount
    significant = len(str(amount).lstrip("-").rstrip("0"))
    return 0 if significant <= _FAST_DIGITS else wrap_int64(amount)


def wrap_int64(amount: int) -> int:
    """The lowest 64 bits of a number, signed: what Go's int64 keeps of a sum or product."""
    return (amount + (1 << 63)) % (1 << 64) - (1 << 63)


def as_int64(raw: Raw) -> int | None:
    """A quantity as the kubelet's managers read it: in bytes if it is stored as an integer.

    Kubernetes stores a quantity as an integer by its spelling, not by its value: `1.5G` is one, but
    `1.0Gi`, `1000m` and `100000Gi` are not.
    """
    text = "0" if raw is None else raw.strip(_JSON_SPACES) if isinstance(raw, str) else repr(raw)
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        return None
    sign, number, _, fraction, letters, exponent_sign, exponent_digits = shape.groups()
    try:
        family, exponent = _suffix(text, letters + exponent_sign + exponent_digits)
    except InputError:
        return None
    digits, fraction = number or "0", fraction or ""
    if family == "BinarySI":
        if fraction or not _is_binary_int64(digits, exponent):
            return None
        value = int(digits) << exponent
    else:
        scale = exponent - len(fraction)
        if scale < 0 or len(digits) + len(fraction) > _FAST_DIGITS:
            return None
        value = int(digits + fraction) * 10 ** min(scale, 19)
    if value > MAX_INT64:
        return None
    return -value if sign == "-" else value


def times(part: int, whole: int) -> str:
    """How many times the second the first is."""
    count = part // whole
    if count < 100:
        return f"{part / whole:.3g}"
    return str(count) if count < 10**9 else scientific(count)


def _suffix(text: str, suffix: str) -> tuple[Format, int]:
    if suffix in _DECIMAL:
        return "DecimalSI", _DECIMAL[suffix]
    if suffix in _BINARY:
        return "BinarySI", _BINARY[suffix]
    if suffix[0] in "eE":
        try:
            return "DecimalExponent", int(suffix[1:])
        except ValueError:
            pass
    raise _error(text, hint="suffixes are n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or an exponent")


def _is_binary_int64(digits: str, exponent: int) -> bool:
    # ParseQuantity() (apimachinery resource/quantity.go) keeps an int64 for up to 14 digits, of
    # which the suffix takes 3 for every 2^10.
    return len(digits) + exponent * 3 // 10 <= 14


def _whole(text: str, digits: str) -> int:
    try:
        return int(digits)
    except ValueError:  # sys.get_int_max_str_digits(): 4,300 digits
        raise _error(text, hint="it has more digits than memqos reads") from None


def _to_nano(magnitude: int, decimals: int, family: Format, exponent: int) -> tuple[int, bool]:
    """Nanos of `magnitude`, rounded away from zero, and whether nothing was lost."""
    if family == "BinarySI":
        magnitude <<= exponent
        exponent = 0
    scale = exponent - decimals + 9
    if scale >= 0:
        return magnitude * 10**scale, True
    if -scale > len(str(magnitude)):
        return (1 if magnitude else 0), not magnitude
    nano, rest = divmod(magnitude, 10**-scale)
    return nano + (1 if rest else 0), not rest


def _error(text: str, *, hint: str | None = None) -> InputError:
    shown = text if len(text) <= _LEGIBLE else f"{text[:_SHOWN]}…"
    return InputError(
        f"{shown!r} is not a quantity",
        hint=_likely_meaning(text) or hint or "write a number with a unit, such as 500m or 1.5Gi",
    )


_MISSPELT: Final = re.compile(
    r"(?P<number>[0-9]{1,18}(?:\.[0-9]{1,9})?) ?(?P<unit>[kmgtpe]?)(?P<binary>i?)(?:b|bytes?)?",
    re.ASCII | re.IGNORECASE,
)


def _likely_meaning(text: str) -> str | None:
    """What to write instead of a unit as other programs spell it; None where that is unclear."""
    found = _MISSPELT.fullmatch(text.strip())
    if found is None:
        return None
    number, unit = found["number"], found["unit"].upper()
    if not unit:
        return f"write {number}" if not found["binary"] else None
    binary = f"{number}{unit}i"
    decimal = f"{number}{'k' if unit == 'K' else unit}"
    return f"write {binary}" if found["binary"] else f"write {decimal} or {binary}"
