"""Residents: pods that a node runs already, and to which memory is given by rules of our own.

What their containers are bound to is kept where the rules allow it; only then do others get what is
left. A resident is counted once, however often it is looked at.
"""

from collections.abc import Mapping, Sequence

import msgspec

from memqos.kube.pod import Pod
from memqos.numa.admission import RefusedPod
from memqos.numa.adoption import adopt_pod, is_spread
from memqos.numa.manager import Manager
from memqos.numa.masks import Mask
from memqos.numa.requests import PodMemoryRequest
from memqos.numa.state import MemoryManagerState


class RunningPod(msgspec.Struct, frozen=True):
    """A pod as it runs now, and the nodes that its containers are bound to, where they are."""

    pod: Pod
    request: PodMemoryRequest
    bound: Mapping[str, Mask] = {}
    managed: bool = True
    """Whether it is given memory; others hold what they are bound to, and nothing more."""

    @property
    def uid(self) -> str:
        return self.request.uid

    @property
    def is_eligible(self) -> bool:
        """Whether the Static policy would give it memory at all."""
        return self.request.guaranteed and not self.request.unmanaged


class UnplacedPod(msgspec.Struct, frozen=True):
    """A resident there is nothing for; without a refusal it would be spread, and may not be."""

    refused: RefusedPod | None
    state: MemoryManagerState
    """Of the node when it was asked."""


def assign_running_pods(
    manager: Manager, running: Sequence[RunningPod]
) -> tuple[Manager, dict[str, UnplacedPod]]:
    """Give memory to residents, the first of them first; by UID those for whom there is none."""
    due = [each for each in running if each.is_eligible]
    for each in due:
        manager = adopt_pod(manager, each.request, each.bound)
    left_out: dict[str, UnplacedPod] = {}
    for each in due:
        if not each.managed:
            continue
        after, outcome = manager.admit(each.pod)
        if isinstance(outcome, RefusedPod):
            left_out[each.uid] = UnplacedPod(outcome, after.state)
        elif is_spread(after, each.uid):
            left_out[each.uid] = UnplacedPod(None, after.state)
        else:
            manager = after
    return manager, left_out
