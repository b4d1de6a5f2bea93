"""What memory_recursiveprot gives to pods that never asked, out of a node's sums.

`plan.effective` says the same cgroup by cgroup; here a class of pods is one number, so that a node
need not be kept pod by pod. Amounts are in pages.
"""

from typing import Final, NamedTuple

from memqos.findings.tallies import KEPT, Kin, NodeTally, Usage
from memqos.plan.effective import Knob
from memqos.plan.levels import Levels
from memqos.plan.setting import Settings

_NOBODY: Final = Usage()


class Unasked(NamedTuple):
    """What is given to pods unasked, in bytes, and who would get most."""

    total: int
    most: tuple[tuple[str, int], ...]


NOTHING: Final = Unasked(0, ())


class _Leftover(NamedTuple):
    """What a cgroup holds and its children did not ask for, over what they use unclaimed."""

    pages: int
    unclaimed: int

    def share(self, pages: int) -> int:
        """What comes to a child that uses so much without a claim."""
        return self.pages * pages // self.unclaimed if self.unclaimed > 0 else 0


def unasked(node: NodeTally, levels: Levels, knob: Knob, page: int) -> Unasked:
    """What would be protected on a node for pods that did not ask for it."""
    if not node.measured:
        return NOTHING
    used = {kin: _asked(node.by_class.get(kin, _NOBODY), knob) for kin in _KINS}
    total_used = sum(pages for pages, _ in used.values())
    claimed = min(_claim(levels.burstable, knob) // page, used["burstable"][0])
    asked = {"guaranteed": used["guaranteed"][1], "burstable": claimed, "besteffort": 0}
    holds, asks = _claim(levels.kubepods, knob) // page, sum(asked.values())
    here = _left(holds, asks, total_used)
    below: dict[Kin, _Leftover] = {"guaranteed": here}
    for kin in ("burstable", "besteffort"):
        pages, asked_below = used[kin]
        granted = asked[kin] if asks <= holds else asked[kin] * holds // asks
        below[kin] = _left(granted + here.share(pages - asked[kin]), asked_below, pages)
    total = 0
    most: list[tuple[int, str]] = []
    for kin, left in below.items():
        usage = node.by_class.get(kin, _NOBODY)
        total += left.share(used[kin][0] - used[kin][1])
        first = usage.min_first if knob == "min" else usage.low_first
        most += [(left.share(-int(rank)), str(name)) for rank, name in first]
    most = sorted([each for each in most if each[0]], key=lambda each: (-each[0], each[1]))
    return Unasked(total * page, tuple((name, pages * page) for pages, name in most[:KEPT]))


_KINS: Final[tuple[Kin, ...]] = ("guaranteed", "burstable", "besteffort")


def _left(holds: int, asked: int, used: int) -> _Leftover:
    return _Leftover(max(0, holds - asked), used - asked)


def _asked(usage: Usage, knob: Knob) -> tuple[int, int]:
    return usage.pages, usage.min_asked if knob == "min" else usage.low_asked


def _claim(settings: Settings, knob: Knob) -> int:
    setting = settings.get(f"memory.{knob}")
    value = None if setting is None else setting.value
    return value if isinstance(value, int) else 0
