"""Values that something else changed: the likely writer by the evidence, and when to give in."""

from collections import deque
from typing import Final, NamedTuple

from memqos.agent.configuration import FightConfig
from memqos.agent.core.node_intent import NodeIntent
from memqos.agent.core.observed import (
    ChangedValue,
    Drift,
    DriftCause,
    ObservedCgroup,
    RestartMarkers,
)
from memqos.agent.core.pod_intent import WRITABLE_FILES
from memqos.agent.core.report import Report, announce_contested
from memqos.plan.changes import Change
from memqos.plan.tree import ABOVE_PODS, Level

ValueKey = tuple[str, str]
"""Path and file."""


class RestartTimes(NamedTuple):
    """When marks were seen to change."""

    reload: float | None = None
    restart: float | None = None


class DriftFacts(NamedTuple):
    """What is known about a value that was found changed."""

    level: Level
    path: str
    found: str
    since: float
    """When it was last seen as it should be."""
    happened: RestartTimes
    kubelet_value: str | None
    """What the kubelet alone would have there."""


def attribute_drift(facts: DriftFacts) -> tuple[DriftCause, str]:
    """Who it was, and the evidence."""
    above_pods = facts.level in ABOVE_PODS
    by_systemd = facts.path.endswith((".slice", ".scope"))
    # At daemon-reload systemd applies all properties it knows of a unit again, defaults included
    # (src/core/cgroup.c, cgroup_context_apply).
    if by_systemd and _is_after(facts.happened.reload, facts.since):
        return "daemon-reload", "systemd has reloaded its units since the value was last correct"
    if above_pods and _is_after(facts.happened.restart, facts.since):
        return "kubelet-restart", "the kubelet has restarted since the value was last correct"
    # Since 1.36 a kubelet's first UpdateCgroups() runs before it has pods and writes sums of 0; the
    # next comes a minute later (cm/qos_container_manager_linux.go, Start).
    if above_pods and facts.found == "0":
        return "kubelet-restart", "a kubelet that starts resets protection above the pods to 0"
    if facts.found == facts.kubelet_value:
        if facts.level == "container":
            return "cri-update", "it is the value that a kubelet sends to the runtime"
        return "kubelet-resync", "it is the value that the kubelet sets there"
    return "unknown", "there is no other evidence"


class FightCounter:
    """Counts how often values are fought over, and ends it."""

    def __init__(self, rule: FightConfig) -> None:
        self._times = rule.times
        self._seconds = rule.minutes * 60
        self._changes: dict[ValueKey, deque[float]] = {}
        self.contested: dict[ValueKey, Drift] = {}
        """Those that are no longer restored, with what happened last."""

    def count_change(self, drift: Drift) -> bool:
        """Note a change; whether it was the one too many."""
        place = drift.path, drift.file
        times = self._changes.setdefault(place, deque())
        times.append(drift.at)
        while times[0] < drift.at - self._seconds:
            times.popleft()
        if len(times) <= self._times:
            return False
        self.contested[place] = drift
        return True

    def forget(self, path: str) -> None:
        """The cgroup was removed."""
        for found in (self._changes, self.contested):
            for place in [place for place in found if place[0] == path]:
                del found[place]


class RestartWatch:
    """Remembers the marks of others, and when they changed."""

    def __init__(self) -> None:
        self._markers: RestartMarkers | None = None
        self.times = RestartTimes()

    def update(self, markers: RestartMarkers, now: float) -> RestartTimes:
        """Take in the marks of now; what has happened since they were last seen."""
        before, self._markers = self._markers, markers
        if before is None:
            return RestartTimes()
        restarted = markers.kubelet not in (before.kubelet, None)
        reloaded = markers.units_loaded != before.units_loaded
        new = RestartTimes(now if reloaded else None, now if restarted else None)
        self.times = RestartTimes(
            new.reload or self.times.reload, new.restart or self.times.restart
        )
        return new


def _is_after(moment: float | None, since: float) -> bool:
    return moment is not None and moment >= since


_CONFIRMED: Final = 1.0
"""Seconds for which the kubelet's word about its configuration is good enough to act for it."""
_RESIZE: Final[tuple[DriftCause, str]] = ("cri-update", "the pod is being resized")
_ACTUATING: Final = 10.0
"""Seconds in which a kubelet that resizes a pod is looked at closely: it updates the pod's cgroup
and its containers one after another (kuberuntime_manager.go, doPodResizeAction)."""
_RESIZING: Final = 60.0
"""Seconds after which whatever changes a pod's cgroups has nothing to do with its resize: a failed
one is tried again at the next sync of the pod, at most a minute later (syncFrequency)."""


class DriftTracker:
    """Values that something other than memqos has changed."""

    def __init__(self, report: Report, node_intent: NodeIntent, rule: FightConfig) -> None:
        self.drifts: dict[ValueKey, Drift] = {}
        """The last one of each file."""
        self.unconfirmed_since: float | None = None
        """Since when the kubelet may be configured otherwise: it was restarted, or has written.

        A kubelet that starts zeroes protection above pods, and so does one that an administrator
        has configured to protect nothing. Only its configuration shows which of the two it was."""
        self.is_requested = False
        """Whether it was asked since: the answer to an earlier request does not count."""
        self._confirmed_at = float("-inf")
        self._report = report
        self._restart_watch = RestartWatch()
        self._resized_at: dict[str, float] = {}
        """Path of a pod → when its resources, or a limit of its containers, were last changed."""
        self.reconfigure(node_intent, rule)

    def reconfigure(self, node_intent: NodeIntent, rule: FightConfig) -> None:
        """Another intent from now on: fights begin again."""
        self.fights = FightCounter(rule)
        self._node_intent = node_intent
        self._rule = rule
        self._disputed: dict[ValueKey, str] = {}
        """Files that the kubelet keeps → the desired value that it did not agree with."""

    def update_markers(self, markers: RestartMarkers, now: float) -> RestartTimes:
        """Take in the marks of others; what has happened since they were last seen."""
        new = self._restart_watch.update(markers, now)
        if new.restart is not None:
            self.require_confirmation(now)
        return new

    def require_confirmation(self, now: float) -> None:
        """The kubelet may be configured otherwise from now on, whatever it was asked before."""
        self.unconfirmed_since, self.is_requested = now, False

    def confirm(self, now: float) -> None:
        """The kubelet has given its configuration."""
        if self.unconfirmed_since is None or self.is_requested:
            self.unconfirmed_since = None
            self._confirmed_at = now

    def note_resize(self, pod: str, now: float) -> None:
        """A pod's resources are being changed: what changes with them is no drift."""
        self._resized_at[pod] = now

    def is_resizing(self, pod: str, now: float) -> bool:
        """Whether more of a pod's cgroups may change any moment."""
        return now - self._resized_at.get(pod, float("-inf")) < _ACTUATING

    def is_left_to_kubelet(self, change: Change) -> bool:
        """Whether a change is left to the kubelet, which keeps that file itself.

        It counts its pods once a minute. Until then more than enough may be protected; too little
        is raised at once, unless the kubelet has already disagreed with the very value.
        """
        place = change.path, change.file
        if place not in self._node_intent.kubelet_managed:
            return False
        disagreed = self._disputed.get(place) == change.new
        return not change.raises or (disagreed and change.old != "0")

    def must_wait(self, change: Change, now: float) -> bool:
        """Whether a value may not be written yet, or not any more."""
        place = change.path, change.file
        is_old = now - self._confirmed_at > _CONFIRMED
        if place in self._node_intent.kubelet_managed and is_old and self.unconfirmed_since is None:
            # It is written on behalf of the kubelet, with no undo entry: the kubelet must confirm
            # first that it is still configured so.
            self.require_confirmation(now)
        if change.level in ABOVE_PODS and self.unconfirmed_since is not None:
            return True
        # A 0 above the pods takes all protection away: it is raised even in a contested file.
        is_hole = change.level in ABOVE_PODS and change.old == "0"
        return place in self.fights.contested and not is_hole

    def note_change(self, changed: ChangedValue, now: float) -> None:
        """A value is not what it was."""
        cgroup, place = changed.cgroup, (changed.path, changed.file)
        level = self._level(changed.path, cgroup)
        is_hole = level in ABOVE_PODS and changed.found == "0"
        desired = self._node_intent.managed_value(place)
        if level in ABOVE_PODS and changed.found != desired:
            self.require_confirmation(now)
        if desired is not None and not is_hole:
            if changed.found != desired:
                self._disputed[place] = desired
            return
        if now - cgroup.first_seen < self._rule.grace:
            return
        is_resized = self._is_by_resize(changed, now)
        cause, evidence = _RESIZE if is_resized else self._attribute(changed, level)
        drift = Drift(
            path=changed.path,
            file=changed.file,
            expected=changed.expected,
            found=changed.found,
            cause=cause,
            evidence=evidence,
            at=now,
        )
        if is_resized:
            self._report.report_resize(drift)
            return
        self.drifts[place] = drift
        self._report.report_drift(drift)
        if not is_hole and self.fights.count_change(drift):
            self._report.report_contested(drift, self._rule)
            announce_contested(self._report, self._node_intent.intent_of(cgroup.pod), drift)

    def _attribute(self, changed: ChangedValue, level: Level) -> tuple[DriftCause, str]:
        cgroup = changed.cgroup
        return attribute_drift(
            DriftFacts(
                level,
                changed.path,
                changed.found,
                cgroup.converged_at,
                self._restart_watch.times,
                self._node_intent.kubelet_value(changed.path, changed.file, cgroup.pod),
            )
        )

    def forget(self, path: str) -> None:
        """The cgroup was removed."""
        self.fights.forget(path)
        self._resized_at.pop(path, None)
        for file in WRITABLE_FILES:
            self.drifts.pop((path, file), None)
            self._disputed.pop((path, file), None)

    def _is_by_resize(self, changed: ChangedValue, now: float) -> bool:
        pod = changed.cgroup.pod or ""
        return now - self._resized_at.get(pod, float("-inf")) < _RESIZING

    def _level(self, path: str, cgroup: ObservedCgroup) -> Level:
        if cgroup.pod is not None:
            return "pod" if path == cgroup.pod else "container"
        if any(path == each.path for each in self._node_intent.reserved):
            return "reserved"
        return "kubepods" if path == self._node_intent.planner.names.kubepods else "qos"
