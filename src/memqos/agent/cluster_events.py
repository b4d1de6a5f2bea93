"""What the cluster is told of a node's pods: announcements of a few seconds become one event."""

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from memqos.agent.configuration import AgentConfiguration
from memqos.agent.pod_source import cluster_source
from memqos.agent.tally import Announcement
from memqos.converge.sources import PodSource
from memqos.errors import MemqosError
from memqos.kube.events import BETWEEN, FRONT, EventReason, PodEvent
from memqos.kube.pod import Pod
from memqos.plan.tree import cgroup_uid

GATHER: Final = 3.0
"""Seconds in which what happens to a pod is one event: its containers start one after another."""
_POSTED_ONCE: Final[frozenset[EventReason]] = frozenset({"AnnotationIgnored", "NumaNotAligned"})
"""States of a pod, which are news once."""


class Poster(Protocol):
    """Sends events, some time."""

    sent: int

    @property
    def dropped(self) -> int: ...

    def post(self, happening: PodEvent, ago: float = 0.0) -> None: ...

    def forget_pods_but(self, uids: set[str]) -> None: ...

    def complaint(self) -> MemqosError | None: ...

    def stop(self) -> None: ...


class _PendingEvent(NamedTuple):
    since: float
    pod: Pod
    notes: dict[str, None]
    """In order, each once."""


class Announcer:
    """Gathers announcements, and has them told when their time has come. Nothing here waits."""

    def __init__(self, poster: Poster) -> None:
        self.poster = poster
        self._pending: dict[tuple[str, EventReason], _PendingEvent] = {}
        self._posted: set[tuple[str, EventReason, str]] = set()
        self._now = 0.0

    def accept(self, announcements: Iterable[Announcement], now: float) -> None:
        """Take in what has happened, and tell what is ripe."""
        for pod, reason, what in announcements:
            uid = cgroup_uid(pod)
            if uid is None or self._is_repeated(uid, reason, what):
                continue
            key = uid, reason
            if key not in self._pending:
                self._pending[key] = _PendingEvent(now, pod, {})
            self._pending[key].notes[what] = None
        self._now = now
        self._post_ripe(now - GATHER)

    def keep_only_pods(self, pods: Iterable[Pod]) -> None:
        """These are the pods there are."""
        uids = {uid for pod in pods if (uid := cgroup_uid(pod)) is not None}
        self._posted = {each for each in self._posted if each[0] in uids}
        self.poster.forget_pods_but(uids)

    def stop(self) -> None:
        """Tell the rest, as far as that goes at once."""
        self._post_ripe(float("inf"))
        self.poster.stop()

    def _is_repeated(self, uid: str, reason: EventReason, what: str) -> bool:
        if reason not in _POSTED_ONCE:
            return False
        is_old = (uid, reason, what) in self._posted
        self._posted.add((uid, reason, what))
        return is_old

    def _post_ripe(self, until: float) -> None:
        ripe = [key for key, each in self._pending.items() if each.since <= until]
        for uid, reason in ripe:
            since, pod, said = self._pending.pop((uid, reason))
            metadata = pod.metadata
            note = FRONT.get(reason, "") + BETWEEN.join(said)
            happening = PodEvent(
                metadata.namespace or "default", metadata.name or "", uid, reason, note
            )
            self.poster.post(happening, self._now - since)


def announcer_of(configuration: AgentConfiguration, source: PodSource) -> Announcer | None:
    """Who tells the cluster; nobody where pods do not come from one, or it is not to be told."""
    if not configuration.events:
        return None
    followed = cluster_source(source)
    if followed is None:
        return None
    from memqos.host.apiserver.events import EventPoster

    poster = EventPoster(followed.server, followed.name)
    poster.start()
    return Announcer(poster)
