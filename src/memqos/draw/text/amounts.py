"""Amounts of any resource, short enough for a column."""

from typing import Final

from memqos.kube.resources import MEMORY, is_hugepages, legible, whole
from memqos.units import format_bytes, scientific

_SIDES: Final = ("requests.", "limits.")


def short_amount(resource: str, milli: int) -> str:
    """An amount in thousandths; `resource` may be spelled as quotas do (`requests.memory`)."""
    name = resource
    for side in _SIDES:
        name = name.removeprefix(side)
    if name == MEMORY or is_hugepages(name) or name.endswith("storage"):
        return format_bytes(whole(milli))
    return legible(name, milli)


def short_ratio(milli: float) -> str:
    """A ratio in thousandths."""
    try:
        return f"{milli / 1000:g}"
    except OverflowError:
        return scientific(int(milli) // 1000)
