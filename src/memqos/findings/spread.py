"""What memory_recursiveprot gives to pods that never asked, out of a node's sums.

`plan.effective` says the same cgroup by cgroup; here a class of pods is one number, so that a node
need not be kept pod by pod. Amounts are in pages.
"""

from typing import Final, NamedTuple

from memqos.findings.tallies import TOP_COUNT, ClassUsage, NodeTotals, QosKey
from memqos.plan.effective import Knob
from memqos.plan.levels import Levels
from memqos.plan.setting import FileSettings

_NO_USAGE: Final = ClassUsage()


class UnrequestedProtection(NamedTuple):
    """What is given to pods unasked, in bytes, and who would get most."""

    total: int
    most: tuple[tuple[str, int], ...]


NO_UNREQUESTED_PROTECTION: Final = UnrequestedProtection(0, ())


class _Leftover(NamedTuple):
    """What a cgroup holds and its children did not ask for, over what they use unclaimed."""

    pages: int
    unclaimed: int

    def share(self, pages: int) -> int:
        """What comes to a child that uses so much without a claim."""
        return self.pages * pages // self.unclaimed if self.unclaimed > 0 else 0


def unrequested_protection(
    node: NodeTotals, levels: Levels, knob: Knob, page: int
) -> UnrequestedProtection:
    """What would be protected on a node for pods that did not ask for it."""
    if not node.measured:
        return NO_UNREQUESTED_PROTECTION
    used = {kin: _used_and_claimed(node.by_class.get(kin, _NO_USAGE), knob) for kin in _QOS_KEYS}
    total_used = sum(pages for pages, _ in used.values())
    claimed = min(_setting_bytes(levels.burstable, knob) // page, used["burstable"][0])
    asked = {"guaranteed": used["guaranteed"][1], "burstable": claimed, "besteffort": 0}
    holds, asks = _setting_bytes(levels.kubepods, knob) // page, sum(asked.values())
    here = _leftover(holds, asks, total_used)
    below: dict[QosKey, _Leftover] = {"guaranteed": here}
    for kin in ("burstable", "besteffort"):
        pages, asked_below = used[kin]
        granted = asked[kin] if asks <= holds else asked[kin] * holds // asks
        below[kin] = _leftover(granted + here.share(pages - asked[kin]), asked_below, pages)
    total = 0
    most: list[tuple[int, str]] = []
    for kin, left in below.items():
        usage = node.by_class.get(kin, _NO_USAGE)
        total += left.share(used[kin][0] - used[kin][1])
        first = usage.min_unclaimed_top if knob == "min" else usage.low_unclaimed_top
        most += [(left.share(-int(rank)), str(name)) for rank, name in first]
    most = sorted([each for each in most if each[0]], key=lambda each: (-each[0], each[1]))
    return UnrequestedProtection(
        total * page, tuple((name, pages * page) for pages, name in most[:TOP_COUNT])
    )


_QOS_KEYS: Final[tuple[QosKey, ...]] = ("guaranteed", "burstable", "besteffort")


def _leftover(holds: int, asked: int, used: int) -> _Leftover:
    return _Leftover(max(0, holds - asked), used - asked)


def _used_and_claimed(usage: ClassUsage, knob: Knob) -> tuple[int, int]:
    return usage.pages, usage.min_claimed if knob == "min" else usage.low_claimed


def _setting_bytes(settings: FileSettings, knob: Knob) -> int:
    setting = settings.get(f"memory.{knob}")
    value = None if setting is None else setting.value
    return value if isinstance(value, int) else 0
