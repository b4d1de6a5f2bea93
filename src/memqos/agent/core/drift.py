"""Values changed by somebody else: who it was as far as evidence goes, and when to give in."""

from collections import deque
from typing import Literal, NamedTuple

from memqos.agent.configuration import Fight
from memqos.plan.tree import Level

Cause = Literal["daemon-reload", "cri-update", "kubelet-resync", "kubelet-restart", "unknown"]
Place = tuple[str, str]
"""Path and file."""


class Signs(NamedTuple):
    """Marks that others leave behind when they are at work."""

    units_loaded: int | None = None
    """When systemd last loaded its units, as it says; None where there is no systemd."""
    kubelet: int | None = None
    """The inode of the kubelet's own cgroup, which is another one after a restart."""


class Happened(NamedTuple):
    """When marks were seen to change."""

    reload: float | None = None
    restart: float | None = None


class Drift(NamedTuple):
    """One value that somebody else has changed."""

    path: str
    file: str
    held: str
    found: str
    cause: Cause
    evidence: str
    at: float


class Facts(NamedTuple):
    """What is known about a value that was found changed."""

    level: Level
    path: str
    found: str
    since: float
    """When it was last seen as it should be."""
    happened: Happened
    kubelet_wants: str | None
    """What the kubelet alone would have there."""


def attribute(facts: Facts) -> tuple[Cause, str]:
    """Who it was, and what tells so."""
    above_pods = facts.level in ("kubepods", "qos")
    by_systemd = facts.path.endswith((".slice", ".scope"))
    if by_systemd and _since(facts.happened.reload, facts.since):
        return "daemon-reload", "systemd has loaded its units anew since it was last right"
    if above_pods and _since(facts.happened.restart, facts.since):
        return "kubelet-restart", "the kubelet's service was started anew since it was last right"
    if above_pods and facts.found == "0":
        return "kubelet-restart", "a kubelet that starts takes protection above the pods back to 0"
    if facts.found == facts.kubelet_wants:
        if facts.level == "container":
            return "cri-update", "it is the value a kubelet asks the runtime for"
        return "kubelet-resync", "it is the value the kubelet keeps there"
    return "unknown", "nothing else has changed that tells"


class Fights:
    """Counts how often values are fought over, and ends it."""

    def __init__(self, rule: Fight) -> None:
        self._times = rule.times
        self._seconds = rule.minutes * 60
        self._changed: dict[Place, deque[float]] = {}
        self.left_alone: dict[Place, Drift] = {}
        """Those that are no longer put back, with what happened last."""

    def changed(self, drift: Drift) -> bool:
        """Note a change; whether it was the one too many."""
        place = drift.path, drift.file
        times = self._changed.setdefault(place, deque())
        times.append(drift.at)
        while times[0] < drift.at - self._seconds:
            times.popleft()
        if len(times) <= self._times:
            return False
        self.left_alone[place] = drift
        return True

    def forget(self, path: str) -> None:
        """The cgroup is gone."""
        for found in (self._changed, self.left_alone):
            for place in [place for place in found if place[0] == path]:
                del found[place]


class Signposts:
    """Remembers the marks of others, and when they changed."""

    def __init__(self) -> None:
        self._signs: Signs | None = None
        self.happened = Happened()

    def notice(self, signs: Signs, now: float) -> Happened:
        """Take in the marks of now; what has happened since they were last seen."""
        before, self._signs = self._signs, signs
        if before is None:
            return Happened()
        restarted = signs.kubelet not in (before.kubelet, None)
        reloaded = signs.units_loaded != before.units_loaded
        new = Happened(now if reloaded else None, now if restarted else None)
        self.happened = Happened(
            new.reload or self.happened.reload, new.restart or self.happened.restart
        )
        return new


def _since(moment: float | None, since: float) -> bool:
    return moment is not None and moment >= since
