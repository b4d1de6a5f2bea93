"""Values changed by somebody else: who it was as far as evidence goes, and when to give in."""

from collections import deque
from typing import Literal, NamedTuple

from memqos.agent.configuration import FightConfig
from memqos.plan.tree import Level

DriftCause = Literal["daemon-reload", "cri-update", "kubelet-resync", "kubelet-restart", "unknown"]
ValueKey = tuple[str, str]
"""Path and file."""


class RestartMarkers(NamedTuple):
    """Marks that others leave behind when they are at work."""

    units_loaded: int | None = None
    """When systemd last loaded its units, as it says; None where there is no systemd."""
    kubelet: int | None = None
    """The inode of the kubelet's own cgroup, which is another one after a restart."""


class RestartTimes(NamedTuple):
    """When marks were seen to change."""

    reload: float | None = None
    restart: float | None = None


class Drift(NamedTuple):
    """One value that somebody else has changed."""

    path: str
    file: str
    expected: str
    found: str
    cause: DriftCause
    evidence: str
    at: float


class DriftFacts(NamedTuple):
    """What is known about a value that was found changed."""

    level: Level
    path: str
    found: str
    since: float
    """When it was last seen as it should be."""
    happened: RestartTimes
    kubelet_wants: str | None
    """What the kubelet alone would have there."""


def attribute_drift(facts: DriftFacts) -> tuple[DriftCause, str]:
    """Who it was, and what tells so."""
    above_pods = facts.level in ("kubepods", "qos")
    by_systemd = facts.path.endswith((".slice", ".scope"))
    if by_systemd and _is_after(facts.happened.reload, facts.since):
        return "daemon-reload", "systemd has loaded its units anew since it was last right"
    if above_pods and _is_after(facts.happened.restart, facts.since):
        return "kubelet-restart", "the kubelet's service was started anew since it was last right"
    if above_pods and facts.found == "0":
        return "kubelet-restart", "a kubelet that starts takes protection above the pods back to 0"
    if facts.found == facts.kubelet_wants:
        if facts.level == "container":
            return "cri-update", "it is the value a kubelet asks the runtime for"
        return "kubelet-resync", "it is the value the kubelet keeps there"
    return "unknown", "nothing else has changed that tells"


class FightCounter:
    """Counts how often values are fought over, and ends it."""

    def __init__(self, rule: FightConfig) -> None:
        self._times = rule.times
        self._seconds = rule.minutes * 60
        self._changes: dict[ValueKey, deque[float]] = {}
        self.contested: dict[ValueKey, Drift] = {}
        """Those that are no longer put back, with what happened last."""

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
        """The cgroup is gone."""
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
