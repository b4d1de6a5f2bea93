"""Residents: pods that a node runs already, and to which memory is given by rules of our own.

What their containers are bound to is kept where the rules allow it; only then do others get what is
left. A resident is counted once, however often it is looked at.
"""

from collections.abc import Mapping, Sequence

import msgspec

from memqos.kube.pod import Pod
from memqos.numa.admission import Refused
from memqos.numa.adoption import adopted, is_spread
from memqos.numa.manager import Manager
from memqos.numa.masks import Mask
from memqos.numa.requests import PodWants
from memqos.numa.state import State


class Resident(msgspec.Struct, frozen=True):
    """A pod as it runs now, and the nodes that its containers are bound to, where they are."""

    pod: Pod
    wants: PodWants
    bound: Mapping[str, Mask] = {}
    ours: bool = True
    """Whether it is given memory; others hold what they are bound to, and nothing more."""

    @property
    def uid(self) -> str:
        return self.wants.uid

    @property
    def is_due(self) -> bool:
        """Whether the Static policy would give it memory at all."""
        return self.wants.guaranteed and not self.wants.unmanaged


class LeftOut(msgspec.Struct, frozen=True):
    """A resident there is nothing for; without a refusal it would be spread, and may not be."""

    refused: Refused | None
    state: State
    """Of the node when it was asked."""


def settled(manager: Manager, residents: Sequence[Resident]) -> tuple[Manager, dict[str, LeftOut]]:
    """Give memory to residents, the first of them first; by UID those for whom there is none."""
    due = [each for each in residents if each.is_due]
    for each in due:
        manager = adopted(manager, each.wants, each.bound)
    left_out: dict[str, LeftOut] = {}
    for each in due:
        if not each.ours:
            continue
        after, outcome = manager.admit(each.pod)
        if isinstance(outcome, Refused):
            left_out[each.uid] = LeftOut(outcome, after.state)
        elif is_spread(after, each.uid):
            left_out[each.uid] = LeftOut(None, after.state)
        else:
            manager = after
    return manager, left_out
