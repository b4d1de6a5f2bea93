"""What an agent gives back: its values in cgroups that it no longer writes to."""

from collections.abc import Iterable, Sequence

from memqos.agent.core.observed import Cgroups
from memqos.agent.core.pod_intent import KEPT
from memqos.agent.core.schedule import Schedule
from memqos.agent.tally import Tally
from memqos.agent.telling import tell_conflict, tell_written
from memqos.converge.records import Key
from memqos.converge.rollback import RolledBack
from memqos.converge.undo import Debts, Owed


class Returns:
    """Whatever memqos has written over, and what of it is still to be put back.

    Where somebody else has changed a value since, theirs stays, and that is told once.
    """

    def __init__(self, cgroups: Cgroups, schedule: Schedule, tally: Tally) -> None:
        self.owes = 0
        """Values still to be given back, of those that were looked at last."""
        self._cgroups = cgroups
        self._schedule = schedule
        self._tally = tally
        self._told: set[Key] = set()

    def due(self, paths: Iterable[str], debts: Debts, now: float) -> tuple[Owed, ...]:
        """What is to be given back now, in cgroups that are not written to."""
        owed: list[Owed] = []
        for path in paths if debts else ():
            known = self._cgroups.by_path.get(path)
            if known is None:
                continue
            for file, found in known.files.items():
                debt = debts.get((path, file, known.identity)) if file in KEPT else None
                if debt is None:
                    continue
                if found == debt.original or found in debt.ours:
                    owed.append(debt)
                elif debt.key not in self._told:
                    self._told.add(debt.key)
                    tell_conflict(self._tally, debt, found)
        self.owes = len(owed)
        return tuple(debt for debt in owed if not self._schedule.backoff.holds(debt.path, now))

    def settle(self, done: RolledBack, debts: Sequence[Owed], now: float) -> None:
        """Take in what came of it; what failed is tried again, later each time."""
        self.owes -= len(debts)
        for result in done.results:
            path, file = result.change.path, result.change.file
            self._tally.returned[file, result.end] += 1
            known, pod = self._cgroups.by_path.get(path), self._cgroups.pod_of(path)
            if result.end == "written" and known is not None:
                known.files[file] = result.change.new
                known.held.pop(file, None)
                self._schedule.backoff.clear(path)
                tell_written(self._tally, result.change, result.change.new, now, "given back")
            elif result.end not in ("written", "gone", "overtaken"):
                self.owes += 1
                self._schedule.failed(path, pod, now)
                self._tally.fail("write", f"{path}/{file}: {result.end}: {result.detail}")
            if pod is not None:
                self._schedule.look_at(pod, now)
        for why in done.unreleased:
            self._tally.fail("write", why)

    def forget(self, path: str) -> None:
        """The cgroup is gone, or there is another mind about it."""
        self._told = {key for key in self._told if key[0] != path}
