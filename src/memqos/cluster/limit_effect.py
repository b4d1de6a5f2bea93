"""What a lower memory limit does to a container that runs."""

import re
from typing import Final, Literal

from memqos.release import Release, Since

LimitEffect = Literal["restart", "fits", "held back", "deadly"]


def limit_effect(
    old: int | None, new: int | None, usage: int, release: Release, *, restarts: bool
) -> LimitEffect | None:
    """What a lower memory limit does to a container that uses `usage` bytes; None if not lower.

    The kernel reclaims what it can at once and kills for the rest (cgroup-v2.rst, memory.max).
    """
    if new is None or (old is not None and new >= old):
        return None
    if restarts:
        return "restart"
    if usage < new:
        return "fits"
    return "held back" if _COMPARES_USAGE.at(release.minor) else "deadly"


# validateMemoryResizeAction(), kuberuntime_manager.go: since 1.34 the kubelet leaves a limit as it
# is, and tries again, as long as usage is not below the new one.
_COMPARES_USAGE: Final = Since({22: False, 34: True})

_HEAPS: Final = (
    ("JVM", re.compile(r"jdk|jre|java|temurin|corretto|tomcat|jetty|kafka|elasticsearch|spring")),
    ("Node.js", re.compile(r"(^|/)node(js)?($|[:@])")),
    ("Go", re.compile(r"(^|/)golang($|[:@])")),
)


def heap_runtime(image: str | None) -> str | None:
    """The runtime that an image's name shows and that reads its memory limit only at start."""
    return next((name for name, pattern in _HEAPS if pattern.search(image or "")), None)
