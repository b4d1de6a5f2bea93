"""Sizes of NUMA memory in words."""

from memqos.api.quantity import Quantity


def exact(size: int) -> str:
    """Bytes without loss, in the largest binary unit that is even; zero and less included."""
    sign = "−" if size < 0 else ""
    return sign + Quantity.of(abs(size), "BinarySI").canonical


def by_so_much(stored: int, found: int) -> str:
    """How far the second is from the first: `+1Gi`."""
    if stored == found:
        return "±0"
    sign = "+" if found > stored else "−"
    return sign + exact(abs(found - stored))
