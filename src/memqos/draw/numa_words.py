"""Sizes of NUMA memory in words."""

from memqos.kube.resources import MEMORY, legible


def exact_bytes(size: int) -> str:
    """Bytes without loss, in the largest binary unit that is even; zero and less included."""
    sign = "−" if size < 0 else ""
    return sign + legible(MEMORY, abs(size) * 1000)


def signed_difference(stored: int, found: int) -> str:
    """How far the second is from the first: `+1Gi`."""
    if stored == found:
        return "±0"
    sign = "+" if found > stored else "−"
    return sign + exact_bytes(abs(found - stored))
