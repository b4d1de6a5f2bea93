"""What others do to the values an agent holds: noticed, attributed, and fought over for a while."""

from memqos.agent.configuration import Fight
from memqos.agent.core.aims import Aims
from memqos.agent.core.desires import KEPT
from memqos.agent.core.drift import Drift, Facts, Fights, Place, Signposts, Signs, attribute
from memqos.agent.core.known import Changed, Known
from memqos.agent.tally import Tally
from memqos.agent.telling import announce_contested
from memqos.plan.tree import Level


class Foreign:
    """Values that somebody else has changed."""

    def __init__(self, tally: Tally, aims: Aims, rule: Fight) -> None:
        self.drifts: dict[Place, Drift] = {}
        """The last one of each file."""
        self._tally = tally
        self._signposts = Signposts()
        self.follow(aims, rule)

    def follow(self, aims: Aims, rule: Fight) -> None:
        """Something else is wanted from now on: fights begin anew."""
        self.fights = Fights(rule)
        self._aims = aims
        self._rule = rule

    def reloaded(self, signs: Signs, now: float) -> bool:
        """Take in the marks of others; whether systemd has loaded its units since."""
        return self._signposts.notice(signs, now)

    def changed(self, changed: Changed, now: float) -> None:
        """A value is not what it was."""
        known = changed.cgroup
        if now - known.first_seen < self._rule.grace:
            return
        cause, evidence = attribute(
            Facts(
                self._level(changed.path, known),
                changed.path,
                changed.found,
                known.right_at,
                self._signposts.happened,
                self._aims.kubelet_wants(changed.path, changed.file, known.pod),
                changed.limit_moved,
            )
        )
        drift = Drift(changed.path, changed.file, changed.held, changed.found, cause, evidence, now)
        self.drifts[changed.path, changed.file] = drift
        self._tally.drifted(drift)
        if self.fights.changed(drift):
            self._tally.gave_in(drift, self._rule)
            announce_contested(self._tally, self._aims.wish_of(known.pod), drift)

    def forget(self, path: str) -> None:
        """The cgroup is gone."""
        self.fights.forget(path)
        for file in KEPT:
            self.drifts.pop((path, file), None)

    def _level(self, path: str, known: Known) -> Level:
        if known.pod is not None:
            return "pod" if path == known.pod else "container"
        if any(path == each.path for each in self._aims.reserved):
            return "reserved"
        return "kubepods" if path == self._aims.desires.names.kubepods else "qos"
