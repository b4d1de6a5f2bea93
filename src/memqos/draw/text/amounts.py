"""Amounts of any resource, short enough for a column."""

from typing import Final

from memqos.draw.text.table import short_bytes
from memqos.kube.quantity import scientific
from memqos.kube.resources import MEMORY, is_hugepages, legible, whole

_SIDES: Final = ("requests.", "limits.")


def short_amount(resource: str, milli: int) -> str:
    """An amount in thousandths; `resource` may be spelled as quotas do (`requests.memory`)."""
    name = resource
    for side in _SIDES:
        name = name.removeprefix(side)
    if name == MEMORY or is_hugepages(name) or name.endswith("storage"):
        return short_signed_bytes(whole(milli))
    return legible(name, milli)


def short_ratio(milli: float) -> str:
    """A ratio in thousandths."""
    try:
        return f"{milli / 1000:g}"
    except OverflowError:
        return scientific(int(milli) // 1000)


def short_signed_bytes(amount: int) -> str:
    """Bytes, which may be below nothing."""
    return short_bytes(amount) if amount >= 0 else f"−{short_bytes(-amount)}"


def pluralize(count: int, noun: str, many: str | None = None) -> str:
    """`1 pod`, `2 pods`."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"
