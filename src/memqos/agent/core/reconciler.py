"""The core of an agent: from events and observations to the writes that keep a node as planned.

It reads no clock, no file and no socket. Events come in as calls with the time. A pass is:
`take_due`, which says whether to fetch pods, `accept_pods` with these, `scope`, which says what to
read, `plan_writes`, which turns that into steps, and `settle_writes` with what came of them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from memqos.agent.core.convergence import Convergence
from memqos.agent.core.drift import DriftTracker
from memqos.agent.core.node_guard import NodeGuard
from memqos.agent.core.node_intent import NodeIntent
from memqos.agent.core.observed import (
    READ_FILES,
    Checkpoint,
    NodeReading,
    ObservedCgroups,
    ReadScope,
)
from memqos.agent.core.pod_intent import IntentPlanner
from memqos.agent.core.report import (
    NoticeHistory,
    Report,
    report_pod_intent,
    report_unreserved,
)
from memqos.agent.core.restore import Restores
from memqos.agent.core.schedule import RECHECK, Due, Schedule
from memqos.agent.core.selection import ChangeSelection, select_changes
from memqos.converge.rollback import RollbackResult
from memqos.converge.steps import StaleStep, WriteResult, WriteStep, steps_of
from memqos.converge.undo import UndoEntries, UndoEntry
from memqos.kube.pod import Pod
from memqos.kube.resources_in_use import is_resized
from memqos.plan.changes import Change, compare, parts
from memqos.plan.cpuset import MEMS
from memqos.plan.names import inner
from memqos.plan.tree import Tree

if TYPE_CHECKING:
    from memqos.agent.core.numa_bindings import NumaBindings

_FETCH_WINDOW: Final = 15.0
"""Seconds in which the source is queried for a new cgroup. No source knows pause containers."""


class Reconciler:
    """Keeps a node as planned."""

    def __init__(self, planner: IntentPlanner, now: float, guard: NodeGuard | None = None) -> None:
        self.guard = guard
        self.source_pods: Sequence[Pod] = ()
        """All pods as the source last gave them, those that have ended too."""
        self.changed_at = now
        """When the intent of any of them last changed."""
        self.report = Report()
        self.observed = ObservedCgroups(planner.names)
        self._due = Due()
        self._due_pods: frozenset[str] = frozenset()
        self._selection = ChangeSelection()
        self._unknown: dict[str, float] = {}
        self._limit_writes: dict[str, float] = {}
        """Path of a pod → when memory.max of one of its containers was last written."""
        self._examined_pods: frozenset[str] = frozenset()
        self._notice_history = NoticeHistory()
        self.bindings: NumaBindings | None = None
        """Containers to be bound to NUMA nodes, where that is configured."""
        self._set_planner(planner, self._make_bindings(planner, self.observed), now)
        self.drift = DriftTracker(self.report, self.node_intent, self.configuration.fight)

    def reconfigure(self, planner: IntentPlanner, now: float) -> None:
        """Plan otherwise from now on."""
        pods, has_pods = self.source_pods, self.node_intent.has_pods
        same = planner.names == self.observed.names
        cgroups = self.observed if same else ObservedCgroups(planner.names)
        # First, as it may raise: then nothing has changed.
        bindings = self._make_bindings(planner, cgroups)
        self.observed = cgroups
        for cgroup in self.observed.by_path.values():
            cgroup.expected = {}
        self._set_planner(planner, bindings, now)
        self.drift.reconfigure(self.node_intent, self.configuration.fight)
        if self.drift.unconfirmed_since is not None:
            self.schedule.confirm_at = now
        if has_pods:
            self.accept_pods(pods, now)

    def _make_bindings(
        self, planner: IntentPlanner, cgroups: ObservedCgroups
    ) -> "NumaBindings | None":
        if planner.configuration.numa == "off":
            return None
        from memqos.agent.core.numa_bindings import bindings_of

        return bindings_of(planner, cgroups, self.report, self.bindings)

    def _set_planner(
        self, planner: IntentPlanner, bindings: "NumaBindings | None", now: float
    ) -> None:
        self.planner = planner
        self.configuration = planner.configuration
        self.bindings = bindings
        self.node_intent = NodeIntent(planner, self.observed, self.guard, bindings)
        self.schedule = Schedule(now, polls=self.configuration.mode == "enforce")
        self._restores = Restores(self.observed, self.schedule, self.report)
        self._convergence = Convergence(self.node_intent, self.observed, self.schedule, self.report)

    @property
    def pending(self) -> Mapping[str, tuple[Change, ...]]:
        """Path → what is not as planned there."""
        return self._convergence.pending

    # Events.

    def accept_pods(self, pods: Iterable[Pod], now: float) -> None:
        """Take in all the pods of the node, as the source gives them."""
        self.source_pods = tuple(pods)
        before = self.node_intent.by_path
        for intent in self.node_intent.accept_pods(self.source_pods):
            self.changed_at = now
            old = before.get(intent.path or "")
            if old is not None and is_resized(old.pod, intent.pod):
                self.drift.note_resize(old.path or "", now)
            if intent.path is None or self.node_intent.by_path.get(intent.path) is intent:
                report_pod_intent(self.report, intent)
            if intent.path is not None:
                self._reset_pod(intent.path)
                self.schedule.schedule_pod(intent.path, now)

    def accept_checkpoint(self, checkpoint: Checkpoint, now: float) -> None:
        """The kubelet's memory_manager_state was looked at."""
        if self.bindings is not None:
            for pod in self.bindings.accept_checkpoint(checkpoint):
                self.schedule.schedule_pod(pod, now)

    def note_cgroup_created(self, path: str, now: float) -> None:
        """A cgroup was made."""
        pod = self.observed.pod_of(path)
        if pod is not None:
            self.schedule.schedule_pod(pod, now)
            if not self.node_intent.knows_cgroup(path, pod):
                self.schedule.schedule_fetch(now)
        elif self.planner.names.recognise(path) is not None:
            self.schedule.resync_at = now

    def note_cgroup_removed(self, path: str, now: float) -> None:
        """A cgroup was removed."""
        pod = self.observed.pod_of(path)
        if path in self.observed:
            self._forget(path)
        if pod is not None:
            self.schedule.schedule_pod(pod, now)

    def note_limit_write(self, path: str, now: float) -> None:
        """memory.max of a container was written: as a rule by a kubelet that resizes it."""
        cgroup = self.observed.by_path.get(path)
        if (
            cgroup is None
            or cgroup.pod is None
            or now - cgroup.first_seen < self.configuration.fight.grace
        ):
            return  # the runtime sets all files of a container that it creates
        # Not a resize by itself: a runtime writes all files at every update, also at those that
        # memqos asks for. Repeated writes are looked at once a second.
        last_write = self._limit_writes.get(cgroup.pod, float("-inf"))
        self.schedule.schedule_pod(
            cgroup.pod, now if now - last_write >= RECHECK else now + RECHECK
        )
        self._limit_writes[cgroup.pod] = now

    def request_confirmation(self, now: float) -> None:
        """Have the kubelet's configuration read once more, unless a request is under way."""
        if self.drift.unconfirmed_since is None:
            self.drift.require_confirmation(now)
            self.schedule.confirm_at = now

    def note_kubelet_request(self) -> None:
        """The kubelet's configuration is requested, after all that was observed so far."""
        self.drift.is_requested = True

    def confirm(self, now: float, *, answered: bool) -> None:
        """Whether the kubelet has given its configuration, in answer to any request so far."""
        if answered:
            self.drift.confirm(now)
        elif self.drift.unconfirmed_since is not None:
            self.schedule.confirm_at = now + RECHECK

    def resync(self, now: float) -> None:
        """Events were missed, or a full pass was requested: read everything."""
        self.schedule.resync_at = now

    # The pass.

    def take_due(self, now: float, random: float = 0.5) -> Due:
        """What is due; `random`, from 0 to 1, spreads the resyncs of many nodes."""
        self._due = self.schedule.take_due(now)
        # Now, not in `scope`: a pass that fails in between would be due again at once, and again.
        self._due_pods = self.schedule.take_pods(now)
        if self._due.is_full:
            spread = 1 + self.configuration.jitter * (2 * random - 1)
            self.schedule.resync_at = now + self.configuration.resync * spread
        return self._due

    @property
    def is_full_pass(self) -> bool:
        """Whether what is due is the whole node."""
        return self._due.is_full

    def scope(self, now: float) -> ReadScope:
        """What to read: the cgroups above the pods always, else what is due."""
        self._due_pods |= self.schedule.take_pods(now)
        names, bindings = self.planner.names, self.bindings
        files = READ_FILES if bindings is None else (*READ_FILES, MEMS)
        if self._due.is_full:
            above = () if bindings is None else bindings.ancestors
            alone = [*above, *[each.path for each in self.node_intent.reserved]]
            return ReadScope((names.kubepods,), tuple(alone), files)
        return ReadScope(tuple(sorted(self._due_pods)), names.levels, files)

    def plan_writes(self, seen: NodeReading, now: float) -> tuple[WriteStep, ...]:
        """What to write, given what was read of the scope."""
        for what, why in seen.unreadable.items():
            self.report.log_error("read", f"{what}: {why}")
        happened = self.drift.update_markers(seen.markers, now)
        if happened.reload is not None and self.planner.names.driver == "systemd":
            # At daemon-reload systemd resets what it does not know of, on every unit.
            self.schedule.resync_at = now
        affected = self._update_observed(seen, now)
        for pod in self._due_pods:
            written = self._limit_writes.get(pod, float("-inf"))
            if self.drift.is_resizing(pod, now) or now - written < RECHECK:
                # A resize writes limits first, then the other files, container after container.
                self.schedule.schedule_pod(pod, now + RECHECK)
        other = self.node_intent.update_reservations()
        report_unreserved(self.report, self.node_intent, other)
        if self.bindings is not None:
            other |= self.bindings.update(affected, self.node_intent)
        for pod in affected | other | self._due_pods:
            for notice in self._notice_history.select_new(pod, self.node_intent.notices_of(pod)):
                intent = self.node_intent.by_path[pod]
                self.report.report_notice(intent.key, intent.pod, notice)
        self._examined_pods = frozenset(affected | other)
        tree = {
            each.path: each
            for pod in self._examined_pods
            for each in self.node_intent.cgroups_of(pod)
        }
        tree |= {each.path: each for each in self.node_intent.parent_cgroups}
        if self._due.is_full:
            tree |= {each.path: each for each in self.node_intent.reserved}
        names = self.planner.names
        paths = [each for path in tree for each in (path, inner(path))]
        files = self.observed.files_of(paths)
        compared = compare(Tree(tree), files, names, self.planner.page_size).changes
        changes = [
            each
            for each in compared
            if not self.drift.is_left_to_kubelet(each)
            and not (self.withholds_high and each.file == "memory.high")
        ]
        self._convergence.note_differences(
            [part for each in tree.values() for part in parts(each, files, names)], changes, now
        )
        self._selection = select_changes(
            changes, self.node_intent, self.observed, self.schedule, self.drift, now
        )
        if self.drift.unconfirmed_since is not None and self.schedule.confirm_at is None:
            self.schedule.confirm_at = now
        identities = {path: each.identity for path, each in self.observed.by_path.items()}
        return steps_of(self._selection.changes, identities, self.node_intent.kubelet_managed)

    @property
    def withholds_high(self) -> bool:
        """Whether memory.high stays as it is on this kernel, no matter what has set it."""
        return self.planner.node_settings.high_withheld is not None

    def due_restores(self, undo_entries: UndoEntries, now: float) -> tuple[UndoEntry, ...]:
        """What to restore, given all that memqos has written over; after `plan_writes`."""
        return self._restores.due(self._restorable_paths(), undo_entries, now)

    def settle_restores(
        self, done: RollbackResult, undo_entries: Sequence[UndoEntry], now: float
    ) -> None:
        """Take in what came of it."""
        self._restores.settle(done, undo_entries, now)
        self.node_intent.invalidate_reservations()
        if self.configuration.mode == "observe":
            self.schedule.resync_at = now

    @property
    def pending_restores(self) -> int:
        """Values still to be restored, of those that were looked at last."""
        return self._restores.pending

    def settle_writes(
        self, results: Sequence[WriteResult], stale: Sequence[StaleStep], now: float
    ) -> None:
        """Take in what came of the steps."""
        self._convergence.settle_writes(results, stale, self.drift, now)
        managed = self.node_intent.kubelet_managed
        if any((each.change.path, each.change.file) in managed for each in results):
            # The kubelet may have been restarted after it answered: asked again, it shows whether
            # the value that was written in its place is the one that it keeps.
            self.request_confirmation(now)
        # A pod waits for memory.min of others: only a memory.min that was written frees some.
        is_released = any(
            result.outcome == "written" and result.change.file == "memory.min" for result in results
        )
        for pod in self._selection.waiting:
            self.schedule.schedule_pod(pod, now if is_released else now + RECHECK)

    # Observation.

    def _update_observed(self, seen: NodeReading, now: float) -> set[str]:
        """Bring what is known up to date; the pods that this is about."""
        pods = list(self.observed.pods) if self._due.is_full else self._due_pods
        read = [*self.planner.names.levels]
        for pod in pods:
            read += self.observed.pod_cgroup_paths(pod)
        for path in read:
            if path not in seen.cgroups and path in self.observed:
                self._forget(path)
        new, changed, limited = self.observed.apply_observation(seen, now)
        for path in new:
            self._note_new_cgroup(path, now)
        for pod in {self.observed.pod_of(path) or "" for path in new} | limited:
            self.node_intent.accept_limits(pod)
        for pod in limited:
            self.drift.note_resize(pod, now)
            self.schedule.schedule_fetch(now)  # its source knows the new resources
        for each in changed:
            self.drift.note_change(each, now)
        self._unknown = {
            path: since
            for path, since in self._unknown.items()
            if now - since < _FETCH_WINDOW and not self._is_known(path)
        }
        if self._unknown:
            self.schedule.schedule_refetch(now)
        if new or self._due.is_full or any(pod not in self.node_intent.by_path for pod in pods):
            self.node_intent.invalidate_reservations()
        return set(self.observed.pods if self._due.is_full else pods)

    def _note_new_cgroup(self, path: str, now: float) -> None:
        pod = self.observed.pod_of(path)
        if pod is None:
            return
        if not self._due.is_full:
            self.schedule.schedule_pod(pod, now + RECHECK)
        if not self._is_known(path):
            self._unknown[path] = now
            if not self._due.fetches_pods:
                self.schedule.schedule_fetch(now)

    def _is_known(self, path: str) -> bool:
        """Whether the source knows a cgroup, or it was removed."""
        cgroup = self.observed.by_path.get(path)
        return (
            cgroup is None or cgroup.pod is None or self.node_intent.knows_cgroup(path, cgroup.pod)
        )

    def _restorable_paths(self) -> Iterator[str]:
        """The cgroups, of those looked at, that memqos does not write to."""
        for pod in self._examined_pods:
            if self.node_intent.should_restore("pod", pod):
                yield from self.observed.pod_cgroup_paths(pod)
        if self.node_intent.should_restore("qos"):
            yield from self.planner.names.levels
        if self._due.is_full and self.node_intent.should_restore("reserved"):
            yield from (each.path for each in self.node_intent.reserved)

    def _reset_pod(self, pod: str) -> None:
        """The intent of a pod has changed: nothing that was expected or reported of it holds."""
        for path in self.observed.pod_cgroup_paths(pod):
            self._restores.forget(path)
            if self.node_intent.should_restore("pod", pod):
                self._convergence.reset(path)
                if self.guard is not None:
                    self.guard.forget(path)

    def _forget(self, path: str) -> None:
        for each in self.observed.forget(path):
            self.schedule.forget(each)
            self.drift.forget(each)
            self._convergence.forget(each)
            self._restores.forget(each)
            self._limit_writes.pop(each, None)
        if self.bindings is not None and path not in self.observed.pods:
            self.bindings.forget_pod(path)
        self.node_intent.invalidate_reservations()
