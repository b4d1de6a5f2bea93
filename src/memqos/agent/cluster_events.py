"""What the cluster is told of a node's pods: announcements of a few seconds become one event."""

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from memqos.agent.configuration import Configuration
from memqos.agent.pod_source import followed_by
from memqos.agent.tally import Announcement
from memqos.converge.sources import PodSource
from memqos.errors import MemqosError
from memqos.kube.events import BETWEEN, FRONT, Happening, Reason
from memqos.kube.pod import Pod
from memqos.plan.tree import cgroup_uid

GATHER: Final = 3.0
"""Seconds in which what happens to a pod is one event: its containers start one after another."""
_LASTING: Final[frozenset[Reason]] = frozenset({"AnnotationIgnored", "NumaNotAligned"})
"""States of a pod, which are news once."""


class Poster(Protocol):
    """Sends events, some time."""

    sent: int

    @property
    def dropped(self) -> int: ...

    def tell(self, happening: Happening, ago: float = 0.0) -> None: ...

    def forget_pods_but(self, uids: set[str]) -> None: ...

    def complaint(self) -> MemqosError | None: ...

    def stop(self) -> None: ...


class _Gathered(NamedTuple):
    since: float
    pod: Pod
    said: dict[str, None]
    """In order, each once."""


class Announcer:
    """Gathers announcements, and has them told when their time has come. Nothing here waits."""

    def __init__(self, poster: Poster) -> None:
        self.poster = poster
        self._gathered: dict[tuple[str, Reason], _Gathered] = {}
        self._lasting: set[tuple[str, Reason, str]] = set()
        self._now = 0.0

    def take(self, announcements: Iterable[Announcement], now: float) -> None:
        """Take in what has happened, and tell what is ripe."""
        for pod, reason, what in announcements:
            uid = cgroup_uid(pod)
            if uid is None or self._is_old(uid, reason, what):
                continue
            key = uid, reason
            if key not in self._gathered:
                self._gathered[key] = _Gathered(now, pod, {})
            self._gathered[key].said[what] = None
        self._now = now
        self._tell(now - GATHER)

    def keep_only(self, pods: Iterable[Pod]) -> None:
        """These are the pods there are."""
        uids = {uid for pod in pods if (uid := cgroup_uid(pod)) is not None}
        self._lasting = {each for each in self._lasting if each[0] in uids}
        self.poster.forget_pods_but(uids)

    def stop(self) -> None:
        """Tell the rest, as far as that goes at once."""
        self._tell(float("inf"))
        self.poster.stop()

    def _is_old(self, uid: str, reason: Reason, what: str) -> bool:
        if reason not in _LASTING:
            return False
        is_old = (uid, reason, what) in self._lasting
        self._lasting.add((uid, reason, what))
        return is_old

    def _tell(self, until: float) -> None:
        ripe = [key for key, each in self._gathered.items() if each.since <= until]
        for uid, reason in ripe:
            since, pod, said = self._gathered.pop((uid, reason))
            metadata = pod.metadata
            note = FRONT.get(reason, "") + BETWEEN.join(said)
            happening = Happening(
                metadata.namespace or "default", metadata.name or "", uid, reason, note
            )
            self.poster.tell(happening, self._now - since)


def announcer_of(configuration: Configuration, source: PodSource) -> Announcer | None:
    """Who tells the cluster; nobody where pods do not come from one, or it is not to be told."""
    if not configuration.events:
        return None
    followed = followed_by(source)
    if followed is None:
        return None
    from memqos.host.apiserver.events import EventPoster

    poster = EventPoster(followed.server, followed.name)
    poster.start()
    return Announcer(poster)
