"""Amounts of any resource: short for a column, or as Kubernetes spells them for scripts."""

from typing import Final

from memqos.kube.resources import (
    MEMORY,
    Amounts,
    Resources,
    format_amount,
    is_hugepages,
    legible,
    whole,
)
from memqos.kube.shape import Part
from memqos.units import format_bytes, scientific

_SIDES: Final = ("requests.", "limits.")


def short_amount(resource: str, milli: int) -> str:
    """An amount in thousandths; `resource` may be spelled as quotas do (`requests.memory`)."""
    name = _plain_name(resource)
    if name == MEMORY or is_hugepages(name) or name.endswith("storage"):
        return format_bytes(whole(milli))
    return legible(name, milli)


def short_ratio(milli: float) -> str:
    """A ratio in thousandths."""
    try:
        return f"{milli / 1000:g}"
    except OverflowError:
        return scientific(int(milli) // 1000)


def quantity_text(resource: str, milli: int) -> str:
    """An amount in thousandths as a quantity; `resource` may be spelled as quotas do."""
    return format_amount(_plain_name(resource), milli)


def quantity_texts(amounts: Amounts) -> dict[str, str]:
    """All of them by resource."""
    return {name: quantity_text(name, amount) for name, amount in amounts.items()}


def resources_data(resources: Part | Resources) -> dict[str, dict[str, str]]:
    """Requests and limits."""
    return {
        "requests": quantity_texts(resources.requests),
        "limits": quantity_texts(resources.limits),
    }


def _plain_name(resource: str) -> str:
    for side in _SIDES:
        resource = resource.removeprefix(side)
    return resource
