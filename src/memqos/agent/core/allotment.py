"""NUMA memory that an agent has given out, kept up as pods come, change and go.

A pod is given memory once, and holds it until it is gone. Where it is asked for anew, as after a
resize, it first gives back what it holds, and keeps its nodes if they have room: so nothing is
counted twice, and who stays is not moved.
"""

from collections.abc import Iterable

import msgspec

from memqos.converge.allocating import seniority
from memqos.numa.manager import Manager
from memqos.numa.masks import Mask, mask_of
from memqos.numa.residents import RunningPod, UnplacedPod, assign_running_pods
from memqos.numa.state import MemoryManagerState


class NumaLedger:
    """Who holds what of a node's memory; by UID."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._residents: dict[str, RunningPod] = {}
        self.unplaced: dict[str, UnplacedPod] = {}
        """Those for whom there is nothing until others give something back."""

    @property
    def state(self) -> MemoryManagerState:
        return self._manager.state

    def __contains__(self, uid: str) -> bool:
        return uid in self._residents

    def update(self, here: Iterable[RunningPod], gone: Iterable[str] = ()) -> set[str]:
        """Take in residents that were looked at, and that some are gone; whom else it concerns.

        These are pods for which there was nothing before.
        """
        asked: dict[str, RunningPod] = {}
        freed = False
        for uid in gone:
            self._residents.pop(uid, None)
            freed |= self._release(uid)
        for each in here:
            if not self._is_unchanged(each):
                asked[each.uid] = msgspec.structs.replace(each, bound=self._bound(each))
                self._residents[each.uid] = each
        freed |= any([self._release(uid) for uid in asked])
        again = [uid for uid in self.unplaced if uid not in asked] if freed else []
        for uid in again:
            self._release(uid)
            asked[uid] = self._residents[uid]
        self._manager, left_out = assign_running_pods(
            self._manager, sorted(asked.values(), key=seniority)
        )
        self.unplaced |= left_out
        return {uid for uid in again if uid not in left_out}

    def reallocate(self, manager: Manager) -> None:
        """Give out the memory of another machine; who can stay does."""
        residents = [
            msgspec.structs.replace(each, bound=self._bound(each))
            for each in self._residents.values()
        ]
        self._manager, self.unplaced = assign_running_pods(
            manager, sorted(residents, key=seniority)
        )

    def _is_unchanged(self, resident: RunningPod) -> bool:
        kept = self._residents.get(resident.uid)
        if kept is None or kept is resident:
            return kept is not None
        if (kept.request, kept.managed) != (resident.request, resident.managed):
            return False
        return kept.bound == resident.bound or self._holds(resident)

    def _holds(self, resident: RunningPod) -> bool:
        """Whether it was for us to say what a pod holds, so that others do not by binding it."""
        kept = self._residents.get(resident.uid)
        return (
            resident.managed
            and kept is not None
            and kept.managed
            and resident.uid not in self.unplaced
        )

    def _bound(self, resident: RunningPod) -> dict[str, Mask]:
        own: dict[str, Mask] = {}
        if self._holds(resident):
            held = self.state.assignments.get(resident.uid, {})
            own = {name: mask_of(self.state.container_nodes(resident.uid, name)) for name in held}
        return {**resident.bound, **{name: mask for name, mask in own.items() if mask}}

    def _release(self, uid: str) -> bool:
        """Have a pod hold nothing; whether it held something."""
        self.unplaced.pop(uid, None)
        held = uid in self.state.assignments
        self._manager = self._manager.free_pod(uid)
        return held
