"""Durations as Kubernetes writes them: `1m30s`, `100ms`; as whole nanoseconds."""

import re
from typing import Final

SECOND: Final = 1_000_000_000
_LONGEST: Final = (1 << 63) - 1
_DIGITS: Final = 20
"""More are past the longest duration before the point, and below a nanosecond behind it."""
_UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
_PART: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)


def parse_duration(text: str) -> int | None:
    """Nanoseconds; None where the text is no duration. A bare number is none, but for 0."""
    negative = text[:1] == "-"
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0
    total = position = 0
    while position < len(rest):
        part = _PART.match(rest, position)
        if part is None or not (part[1] or part[2]):
            return None
        unit, decimals = _UNITS[part[3]], (part[2] or "")[:_DIGITS]
        whole = part[1].lstrip("0")
        if len(whole) > _DIGITS:
            return None
        total += int(whole or 0) * unit + int(decimals or 0) * unit // 10 ** len(decimals)
        position = part.end()
    if not position or total > _LONGEST + negative:
        return None
    return -total if negative else total


def duration_text(nanoseconds: int) -> str:
    """The spelling Kubernetes prints: `5m0s`, `1.5s`, `100ms`, `0s`."""
    sign, amount = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if amount < SECOND:
        unit = next((u for u in ("ms", "µs", "ns") if amount >= _UNITS[u]), "s")
        return f"{sign}{_decimal(amount, _UNITS[unit])}{unit}"
    minutes, seconds = divmod(amount, 60 * SECOND)
    hours, minutes = divmod(minutes, 60)
    larger = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{larger}{_decimal(seconds, SECOND)}s"


def _decimal(amount: int, unit: int) -> str:
    whole, rest = divmod(amount, unit)
    if not rest:
        return str(whole)
    return f"{whole}.{str(rest).zfill(len(str(unit)) - 1).rstrip('0')}"
