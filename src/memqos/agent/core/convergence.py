"""Which values of a node are as planned, which are not yet, and what came of writing them."""

from collections.abc import Sequence

from memqos.agent.core.drift import DriftTracker
from memqos.agent.core.node_intent import NodeIntent
from memqos.agent.core.observed import ObservedCgroup, ObservedCgroups
from memqos.agent.core.pod_intent import WRITABLE_FILES
from memqos.agent.core.report import Report, announce_written, report_write
from memqos.agent.core.schedule import Schedule
from memqos.converge.steps import FAILED, StaleStep, WriteResult
from memqos.converge.values import kernel_form
from memqos.plan.changes import Change
from memqos.plan.cpuset import MEMS
from memqos.plan.tree import Cgroup


class Convergence:
    """Compares what is observed with the intent, and keeps both up to date while values change."""

    def __init__(
        self, node_intent: NodeIntent, observed: ObservedCgroups, schedule: Schedule, report: Report
    ) -> None:
        self.pending: dict[str, tuple[Change, ...]] = {}
        """Path → what is not as planned there."""
        self._node_intent = node_intent
        self._observed = observed
        self._schedule = schedule
        self._report = report

    def note_differences(
        self, cgroups: Sequence[Cgroup], changes: Sequence[Change], now: float
    ) -> None:
        """Expect what is as planned to stay so, and remember what is not."""
        differing: dict[str, list[Change]] = {}
        for change in changes:
            differing.setdefault(change.path, []).append(change)
        for cgroup in cgroups:
            path = cgroup.path
            observed = self._observed.by_path.get(path)
            if observed is None:
                continue
            differences = differing.get(path, ())
            if differences:
                self.pending[path] = tuple(differences)
            else:
                self.pending.pop(path, None)
            if self._node_intent.is_enforced(cgroup, observed.pod):
                files = {change.file for change in differences}
                observed.converged_at = now
                observed.expected |= {
                    file: observed.files[file]
                    for file in WRITABLE_FILES
                    if file in observed.files and file not in files
                }
                if MEMS not in cgroup.settings:
                    # memqos does not bind it: changes by others are no drift.
                    observed.expected.pop(MEMS, None)

    def settle_writes(
        self,
        results: Sequence[WriteResult],
        stale: Sequence[StaleStep],
        drift: DriftTracker,
        now: float,
    ) -> None:
        """Take in what came of the steps."""
        failed = {result.change.path for result in results if result.outcome in FAILED}
        for path in {result.change.path for result in results} - failed:
            self._schedule.backoff.clear(path)
        for path in failed:
            self._schedule.back_off(path, self._observed.pod_of(path), now)
        for result in results:
            self._settle_write(result, drift, now)
        for each in stale:
            self._recheck(each.step.change.path, now)

    def reset(self, path: str) -> None:
        """Nothing is planned or expected of a cgroup any more."""
        self._observed.by_path[path].expected = {}
        self.pending.pop(path, None)

    def forget(self, path: str) -> None:
        """The cgroup was removed."""
        self.pending.pop(path, None)

    def _settle_write(self, result: WriteResult, drift: DriftTracker, now: float) -> None:
        change, outcome = result.change, result.outcome
        self._report.writes[change.file, outcome] += 1
        observed = self._observed.by_path.get(change.path)
        if outcome == "written" and observed is not None:
            self._note_written(change, observed, drift, now)
        elif outcome in ("gone", "overtaken"):
            self._recheck(change.path, now)
        elif outcome == "withheld":
            self._schedule_ramp(change.path, now)
        elif outcome in FAILED:
            what = f"{change.path}/{change.file}: {outcome}: {result.detail}"
            self._report.log_error("write", what)

    def _note_written(
        self, change: Change, observed: ObservedCgroup, drift: DriftTracker, now: float
    ) -> None:
        value = kernel_form(change.file, change.new, self._node_intent.planner.page_size)
        # Another mapping: views that were published keep the old one.
        observed.files = {**observed.files, change.file: value}
        observed.expected[change.file] = value
        if change.file == MEMS and not value:
            # With tasks in it the kernel refuses an empty list (ENOSPC): it then reads all nodes.
            del observed.expected[MEMS]
        observed.converged_at = now
        report_write(self._report, change, value, now)
        rest = [
            each
            for each in self.pending.pop(change.path, ())
            if (each.file, each.new) != (change.file, change.new)
        ]
        if rest:
            self.pending[change.path] = tuple(rest)
        if any(each.file == change.file for each in rest):
            self._schedule_ramp(change.path, now)
        else:
            intent = self._node_intent.intent_of(observed.pod)
            last_drift = drift.drifts.get((change.path, change.file))
            announce_written(self._report, intent, change, value, last_drift)

    def _schedule_ramp(self, path: str, now: float) -> None:
        at = now + self._node_intent.configuration.ramp.interval
        self._schedule.schedule_ramp(path, self._observed.pod_of(path), at)

    def _recheck(self, path: str, now: float) -> None:
        pod = self._observed.pod_of(path)
        if pod is not None:
            self._schedule.schedule_pod(pod, now)
