"""Values that others change: told apart by cause, put back, and left alone after a fight."""

from typing import Final

from memqos.agent.configuration import Fight
from memqos.agent.core.drift import (
    Cause,
    Drift,
    Facts,
    Fights,
    Happened,
    Place,
    Signposts,
    Signs,
    attribute,
)
from memqos.agent.core.node_intent import Aims
from memqos.agent.core.observed import Changed, Known
from memqos.agent.core.pod_intent import KEPT
from memqos.agent.tally import Tally
from memqos.agent.telling import announce_contested
from memqos.plan.changes import Change, stored
from memqos.plan.tree import Level

_ABOVE_PODS: Final = ("kubepods", "qos")
_CONFIRMED: Final = 1.0
"""Seconds for which the kubelet's word about its configuration is good enough to act for it."""
_RESIZE: Final[tuple[Cause, str]] = ("cri-update", "the pod is being resized")
_ACTUATING: Final = 10.0
"""Seconds in which a kubelet that resizes a pod is looked at closely: it has to ask the runtime."""
_RESIZING: Final = 60.0
"""Seconds after which whatever changes a pod's cgroups has nothing to do with its resize."""


class Foreign:
    """Values that somebody else has changed."""

    def __init__(self, tally: Tally, aims: Aims, rule: Fight) -> None:
        self.drifts: dict[Place, Drift] = {}
        """The last one of each file."""
        self.unconfirmed: float | None = None
        """Since when the kubelet may be configured otherwise: it was restarted, or has written.

        A kubelet that starts zeroes protection above pods, and so does one that an administrator
        has told to protect nothing. Which of the two it was, only its configuration tells."""
        self.is_asked = False
        """Whether it was asked since: an answer to an earlier question tells nothing of it."""
        self._confirmed = float("-inf")
        self._tally = tally
        self._signposts = Signposts()
        self._resized: dict[str, float] = {}
        """Path of a pod → when its resources, or a limit of its containers, were last changed."""
        self.follow(aims, rule)

    def follow(self, aims: Aims, rule: Fight) -> None:
        """Something else is wanted from now on: fights begin again."""
        self.fights = Fights(rule)
        self._aims = aims
        self._rule = rule
        self._kubelet_says: dict[Place, str] = {}
        """Files that the kubelet keeps → the desired value that it did not agree with."""

    def notice(self, signs: Signs, now: float) -> Happened:
        """Take in the marks of others; what has happened since they were last seen."""
        new = self._signposts.notice(signs, now)
        if new.restart is not None:
            self.doubt(now)
        return new

    def doubt(self, now: float) -> None:
        """The kubelet may be configured otherwise from now on, whatever it was asked before."""
        self.unconfirmed, self.is_asked = now, False

    def confirm(self, now: float) -> None:
        """The kubelet has told its configuration."""
        if self.unconfirmed is None or self.is_asked:
            self.unconfirmed = None
            self._confirmed = now

    def resize(self, pod: str, now: float) -> None:
        """A pod's resources are being changed: what changes with them is no drift."""
        self._resized[pod] = now

    def is_resizing(self, pod: str, now: float) -> bool:
        """Whether more of a pod's cgroups may change any moment."""
        return now - self._resized.get(pod, float("-inf")) < _ACTUATING

    def is_kubelets(self, change: Change) -> bool:
        """Whether a change is left to the kubelet, which keeps that file itself.

        It counts its pods once a minute. Until then more than enough may be protected; too little
        is raised at once, unless the kubelet has already disagreed with the very value.
        """
        place = change.path, change.file
        if place not in self._aims.kubelet_keeps:
            return False
        disagreed = self._kubelet_says.get(place) == change.new
        return not change.raises or (disagreed and change.old != "0")

    def waits(self, change: Change, now: float) -> bool:
        """Whether a value may not be written yet, or not any more."""
        place = change.path, change.file
        is_old = now - self._confirmed > _CONFIRMED
        if place in self._aims.kubelet_keeps and is_old and self.unconfirmed is None:
            # It is written in the kubelet's place, with nothing to restore: so that must be true.
            self.doubt(now)
        if change.level in _ABOVE_PODS and self.unconfirmed is not None:
            return True
        # A hole is closed even in a file that was left alone.
        is_hole = change.level in _ABOVE_PODS and change.old == "0"
        return place in self.fights.left_alone and not is_hole

    def changed(self, changed: Changed, now: float) -> None:
        """A value is not what it was."""
        known, place = changed.cgroup, (changed.path, changed.file)
        level = self._level(changed.path, known)
        is_hole = level in _ABOVE_PODS and changed.found == "0"
        desired = self._kubelet_value(place)
        if level in _ABOVE_PODS and changed.found != desired:
            self.doubt(now)
        if desired is not None and not is_hole:
            if changed.found != desired:
                self._kubelet_says[place] = desired
            return
        if now - known.first_seen < self._rule.grace:
            return
        is_resized = self._is_resized(changed, now)
        cause, evidence = _RESIZE if is_resized else self._attribute(changed, level)
        drift = Drift(changed.path, changed.file, changed.held, changed.found, cause, evidence, now)
        if is_resized:
            self._tally.report_resize(drift)
            return
        self.drifts[place] = drift
        self._tally.drifted(drift)
        if not is_hole and self.fights.changed(drift):
            self._tally.gave_in(drift, self._rule)
            announce_contested(self._tally, self._aims.wish_of(known.pod), drift)

    def _attribute(self, changed: Changed, level: Level) -> tuple[Cause, str]:
        known = changed.cgroup
        return attribute(
            Facts(
                level,
                changed.path,
                changed.found,
                known.right_at,
                self._signposts.happened,
                self._aims.kubelet_wants(changed.path, changed.file, known.pod),
            )
        )

    def forget(self, path: str) -> None:
        """The cgroup is gone."""
        self.fights.forget(path)
        self._resized.pop(path, None)
        for file in KEPT:
            self.drifts.pop((path, file), None)
            self._kubelet_says.pop((path, file), None)

    def _kubelet_value(self, place: Place) -> str | None:
        """What the kubelet puts into a file that it keeps itself."""
        kept = self._aims.kubelet_keeps.get(place)
        if kept is None:
            return None
        return stored(place[1], kept.value, self._aims.desires.page_size)

    def _is_resized(self, changed: Changed, now: float) -> bool:
        pod = changed.cgroup.pod or ""
        return now - self._resized.get(pod, float("-inf")) < _RESIZING

    def _level(self, path: str, known: Known) -> Level:
        if known.pod is not None:
            return "pod" if path == known.pod else "container"
        if any(path == each.path for each in self._aims.reserved):
            return "reserved"
        return "kubepods" if path == self._aims.desires.names.kubepods else "qos"
