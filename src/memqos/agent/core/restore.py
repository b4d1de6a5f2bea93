"""Restores what was there before, in cgroups that an agent no longer writes to."""

from collections.abc import Iterable, Sequence

from memqos.agent.core.observed import ObservedCgroups
from memqos.agent.core.pod_intent import WRITABLE_FILES
from memqos.agent.core.report import Report, report_restore_conflict, report_write
from memqos.agent.core.schedule import Schedule
from memqos.converge.records import FileKey
from memqos.converge.rollback import RollbackResult
from memqos.converge.undo import UndoEntries, UndoEntry


class Restores:
    """Whatever memqos has written over, and what of it is still to be restored.

    Where something else has changed a value since, that value stays, and this is reported once.
    """

    def __init__(self, cgroups: ObservedCgroups, schedule: Schedule, report: Report) -> None:
        self.pending = 0
        """Values still to be restored, of those that were looked at last."""
        self._observed = cgroups
        self._schedule = schedule
        self._report = report
        self._reported: set[FileKey] = set()

    def due(
        self, paths: Iterable[str], undo_entries: UndoEntries, now: float
    ) -> tuple[UndoEntry, ...]:
        """What is to be restored now, in cgroups that are not written to."""
        entries: list[UndoEntry] = []
        unconfirmed = 0
        for path in paths if undo_entries else ():
            cgroup = self._observed.by_path.get(path)
            if cgroup is None:
                continue
            for file, found in cgroup.files.items():
                entry = (
                    undo_entries.get((path, file, cgroup.identity))
                    if file in WRITABLE_FILES
                    else None
                )
                if entry is None:
                    continue
                if entry.is_unconfirmed:
                    # Settled first: to restore what the kubelet keeps would open a hole.
                    unconfirmed += 1
                elif found == entry.original or found in entry.ours:
                    entries.append(entry)
                elif entry.key not in self._reported:
                    self._reported.add(entry.key)
                    report_restore_conflict(self._report, entry, found)
        self.pending = len(entries) + unconfirmed
        return tuple(
            [each for each in entries if not self._schedule.backoff.is_waiting(each.path, now)]
        )

    def settle(self, done: RollbackResult, undo_entries: Sequence[UndoEntry], now: float) -> None:
        """Take in what came of it; what failed is tried again, later each time."""
        self.pending -= len(undo_entries)
        for result in done.results:
            path, file = result.change.path, result.change.file
            self._report.restores[file, result.outcome] += 1
            cgroup, pod = self._observed.by_path.get(path), self._observed.pod_of(path)
            if result.outcome == "written" and cgroup is not None:
                # Another mapping: views that were published keep the old one.
                cgroup.files = {**cgroup.files, file: result.change.new}
                cgroup.expected.pop(file, None)
                self._schedule.backoff.clear(path)
                report_write(self._report, result.change, result.change.new, now, "restored")
            elif result.outcome not in ("written", "gone", "overtaken"):
                self.pending += 1
                self._schedule.back_off(path, pod, now)
                self._report.log_error("write", f"{path}/{file}: {result.outcome}: {result.detail}")
            if pod is not None:
                self._schedule.schedule_pod(pod, now)
        for why in done.owner_failures:
            self._report.log_error("write", why)

    def forget(self, path: str) -> None:
        """The cgroup was removed, or its intent has changed."""
        self._reported = {key for key in self._reported if key[0] != path}
