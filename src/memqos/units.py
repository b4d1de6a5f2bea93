"""Numbers and lists for people: bytes, counts, names, times, each spelled one way everywhere."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

BINARY_UNITS: Final = {60: "Ei", 50: "Pi", 40: "Ti", 30: "Gi", 20: "Mi", 10: "Ki"}
"""Exponent of 2 → unit, the largest first."""
BEYOND_UNITS: Final = 1 << 70
"""From here on no unit is large enough."""
_MIB: Final = 1 << 20
_UNITS: Final = ("B", *reversed(BINARY_UNITS.values()))


def format_bytes(amount: int) -> str:
    """Bytes in a binary unit: exact where that is short (1.25Gi, 1100Mi), else to four digits."""
    if amount <= 0:
        return f"−{format_bytes(-amount)}" if amount else "0"
    if amount >= BEYOND_UNITS:
        return scientific(amount)
    # A little more, so that 1023.97Mi does not read 1024Mi.
    power = ((amount + amount // 20_000).bit_length() - 1) // 10
    unit = 1 << 10 * power
    if amount * 100 % unit == 0:
        return f"{amount / unit:.2f}".rstrip("0").removesuffix(".") + _UNITS[power]
    if amount % (unit >> 10) == 0 and amount < 10 * unit:
        return f"{amount // (unit >> 10)}{_UNITS[power - 1]}"
    return f"{amount / unit:#.4g}".removesuffix(".") + _UNITS[power]


def format_estimate(amount: float) -> str:
    """Bytes that are only roughly known: from one mebibyte on in whole ones."""
    return format_bytes(round(amount / _MIB) * _MIB if amount >= _MIB else int(amount))


def format_exact_bytes(amount: int) -> str:
    """Bytes without loss: in a unit where that comes out even, else in full with the short form."""
    if abs(amount) >= BEYOND_UNITS:
        return scientific(amount)
    for shift, unit in BINARY_UNITS.items():
        if 1 << shift <= amount < 10_000 << shift and not amount & ((1 << shift) - 1):
            return f"{amount >> shift}{unit}"
    return f"{amount:,}" if amount < 1 << 10 else f"{amount:,} ({format_bytes(amount)})"


def scientific(amount: int) -> str:
    """About how much, in four digits and a power of ten: `1e400`."""
    digits = str(abs(amount))
    exponent = len(digits) - 1
    rounded = str((int(digits[:5].ljust(5, "0")) + 5) // 10)
    exponent += len(rounded) - 4
    mantissa = f"{rounded[0]}.{rounded[1:]}".rstrip("0").removesuffix(".")
    return f"{'−' if amount < 0 else ''}{mantissa}e{exponent}"


def pluralize(count: int, noun: str, many: str | None = None) -> str:
    """`1 pod`, `2 pods`."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def name_some(names: Sequence[str], most: int = 3) -> str:
    """The first of some names, and how many there are besides: `a, b, c and 4 more`."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def format_time(milliseconds: int) -> str:
    """A time for people, in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def format_timestamp(milliseconds: int) -> str:
    """A time for scripts."""
    text = datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def duration_words(milliseconds: int) -> str:
    """A stretch of time for people."""
    seconds = round(milliseconds / 1000)
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
