"""The rules that end containers, and what prevents it: the same words whoever tells of it."""

from collections.abc import Iterator
from typing import Final

from memqos.draw.scale import short_size

StoryRule = tuple[str, str]
"""Its id, and what it says."""

_LIMIT: Final[StoryRule] = (
    "max/limit",
    "a cgroup at memory.max with nothing left to reclaim loses a process",
)
_TRAPPED: Final[StoryRule] = (
    "min/protects-own-cache",
    "a pod at its limit cannot reclaim what its containers' own memory.min protects",
)
EVICTION_RULE: Final[StoryRule] = (
    "eviction/rank",
    "pods that use more than they request go first, then those of lower priority",
)
EVICTION_REMEDY: Final = (
    "a memory request no lower than what it uses, or a higher priority (memqos rank eviction "
    "shows the order)"
)


def limit_rule(*, trapped: bool = False) -> StoryRule:
    """What kills at a limit; `trapped` is page cache that protection keeps from being reclaimed."""
    return _TRAPPED if trapped else _LIMIT


def limit_remedies(limit: int | None, *, trapped: bool = False) -> Iterator[str]:
    """What would have prevented that."""
    if trapped:
        yield (
            "protection claimed by the pod instead of its containers (placement: pods), or a "
            "margin below the limit"
        )
        return
    above = "" if limit is None else f" above {short_size(limit)}"
    yield f"a memory limit{above}, if it really needs that much, or an end to what grows"
