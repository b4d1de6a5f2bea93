"""Events on pods about what memqos does to them, and how few of them are enough.

What is told again is counted, not told again: an event that exists is refreshed with how often it
happened, at most every few minutes. A pod may only be told so much. An event is named by what it
says and the hour it says it in, so that an agent that is started anew meets its own.
"""

import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final, Literal, NamedTuple

import msgspec

EventReason = Literal[
    "MemoryProtected",
    "ThrottleLimitSet",
    "GuardWidened",
    "GuardNarrowed",
    "MemoryDrifted",
    "MemoryContested",
    "AnnotationIgnored",
    "NumaNotAligned",
]
EventSeverity = Literal["Normal", "Warning"]

CONTROLLER: Final = "memqos.io/agent"
GROUP_VERSION: Final = "events.k8s.io/v1"
REFRESH_SECONDS: Final = 300.0
"""How long repetitions are only counted."""
FORGET_SECONDS: Final = 3600.0
"""API servers keep events for an hour; what happens again after that is news."""
KNOWN: Final = 4096
# Bounds of the API server: pkg/apis/core/validation/events.go.
_LONGEST_NOTE: Final = 1024
_LONGEST_INSTANCE: Final = 128
_LONGEST_POD_IN_NAME: Final = 200


class _Told(NamedTuple):
    severity: EventSeverity
    action: str


_TOLD: Final[dict[EventReason, _Told]] = {
    "MemoryProtected": _Told("Normal", "Protect"),
    "ThrottleLimitSet": _Told("Normal", "Throttle"),
    "GuardWidened": _Told("Warning", "Widen"),
    "GuardNarrowed": _Told("Normal", "Narrow"),
    "MemoryDrifted": _Told("Warning", "Restore"),
    "MemoryContested": _Told("Warning", "LeaveAlone"),
    "AnnotationIgnored": _Told("Warning", "Ignore"),
    "NumaNotAligned": _Told("Warning", "Align"),
}


FRONT: Final[dict[EventReason, str]] = {
    "MemoryProtected": "kept while others are short of memory: ",
    "ThrottleLimitSet": "slowed down from here on: ",
}
"""What a note begins with."""
BETWEEN: Final = "; "
_VALUE: Final = re.compile(
    r"(memory\.[a-z]+|cpuset\.mems)(?: (?P<set>\S+))? of (the pod|[a-z0-9-]+)"
    r"(?: put back to (?P<restored>[^:\s]+))?"
)
_OF_VALUES: Final = frozenset(_TOLD) - {"AnnotationIgnored", "NumaNotAligned"}


class Clause(NamedTuple):
    """One of the things that a note says."""

    says: str
    container: str | None = None
    """None where it is about the whole pod, or does not say."""
    file: str = ""
    value: str = ""
    """What the file was set to, if that is what it says."""


def clauses(reason: str, note: str) -> tuple[Clause, ...]:
    """What a note of memqos says, one thing after the other: containers of a pod share a note."""
    if reason not in _OF_VALUES:
        return (Clause(note),)
    return tuple(map(_clause, note.removeprefix(FRONT.get(reason, "")).split(BETWEEN)))


def _clause(says: str) -> Clause:
    found = _VALUE.match(says)
    if found is None:
        return Clause(says)
    container = None if found[3] == "the pod" else found[3]
    return Clause(says, container, found[1], found["set"] or found["restored"] or "")


class PodEvent(msgspec.Struct, frozen=True):
    """Something memqos did to a pod, or could not do."""

    namespace: str
    pod: str
    uid: str
    reason: EventReason
    note: str


class Create(msgspec.Struct, frozen=True):
    """Tell of it for the first time."""

    happening: PodEvent
    name: str
    at: float = 0.0
    """When it happened, in seconds since 1970: it may be sent much later."""


class Refresh(msgspec.Struct, frozen=True):
    """Tell how often it has happened by now."""

    happening: PodEvent
    name: str
    count: int
    at: float = 0.0
    """When it happened the last time."""


class Bucket:
    """So many at once, and one more every so many seconds."""

    def __init__(self, size: int, seconds: float) -> None:
        self._size = size
        self._seconds = seconds
        self._left = float(size)
        self._at: float | None = None

    def has(self, now: float) -> bool:
        """Whether there is one left."""
        if self._at is not None:
            # A clock that is set back must not reduce the tokens that are left.
            passed = max(0.0, now - self._at)
            self._left = min(self._size, self._left + passed / self._seconds)
        self._at = now
        return self._left >= 1

    def take(self) -> None:
        self._left -= 1

    @property
    def next_in(self) -> float:
        """Seconds from the last look until there is one."""
        return max(0.0, 1 - self._left) * self._seconds


class _Known(msgspec.Struct):
    name: str
    count: int
    told_at: float
    happened_at: float


class EventBook:
    """What has been told, and to whom. Time comes in as seconds, from wherever."""

    def __init__(self) -> None:
        self.dropped = 0
        """Those that were too many."""
        self._known: dict[PodEvent, _Known] = {}
        self._of_pods: dict[str, Bucket] = {}

    def decide(self, happening: PodEvent, now: float) -> Create | Refresh | None:
        """What to send about something that happened; None where nothing has to be."""
        known = self._known.get(happening)
        if known is not None and now - known.happened_at < FORGET_SECONDS:
            known.count += 1
            known.happened_at = now
            if now - known.told_at < REFRESH_SECONDS:
                return None
        else:
            known = None
        if not self._may(happening.uid, now):
            self.dropped += 1
            return None
        if known is not None:
            known.told_at = now
            return Refresh(happening, known.name, known.count)
        self._make_room(now)
        name = _name(happening, now)
        self._known[happening] = _Known(name, 1, now, now)
        return Create(happening, name)

    def forget(self, happening: PodEvent) -> None:
        """The event is gone, or never came to be: the next time is the first again."""
        self._known.pop(happening, None)

    def forget_pods_but(self, uids: Iterable[str]) -> None:
        """Pods that are gone are not told of again."""
        there = set(uids)
        self._of_pods = {uid: each for uid, each in self._of_pods.items() if uid in there}
        self._known = {key: each for key, each in self._known.items() if key.uid in there}

    def _may(self, uid: str, now: float) -> bool:
        of_pod = self._of_pods.get(uid)
        if of_pod is None:
            if len(self._of_pods) >= KNOWN:
                del self._of_pods[next(iter(self._of_pods))]
            of_pod = self._of_pods[uid] = Bucket(5, 300.0)
        if not of_pod.has(now):
            return False
        of_pod.take()
        return True

    def _make_room(self, now: float) -> None:
        if len(self._known) < KNOWN:
            return
        old = {key for key, each in self._known.items() if now - each.happened_at > FORGET_SECONDS}
        for key in old or {next(iter(self._known))}:
            del self._known[key]


def event_of(create: Create, instance: str, at: str) -> dict[str, Any]:
    """The Event as the API server takes it; `at` is a time with microseconds."""
    happening = create.happening
    told = _TOLD[happening.reason]
    return {
        "apiVersion": GROUP_VERSION,
        "kind": "Event",
        "metadata": {"name": create.name, "namespace": happening.namespace},
        "eventTime": at,
        "type": told.severity,
        "reason": happening.reason,
        "action": told.action,
        "note": _short(happening.note),
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": happening.namespace,
            "name": happening.pod,
            "uid": happening.uid,
        },
        "reportingController": CONTROLLER,
        "reportingInstance": instance[:_LONGEST_INSTANCE],
    }


def series_of(refresh: Refresh, at: str) -> dict[str, Any]:
    """What to change of an event that happened again."""
    return {"series": {"count": refresh.count, "lastObservedTime": at}}


def _short(note: str) -> str:
    """The note in so many bytes as events may have."""
    data = note.encode()
    if len(data) <= _LONGEST_NOTE:
        return note
    return data[: _LONGEST_NOTE - 3].decode("utf-8", "ignore") + "…"


def _name(happening: PodEvent, now: float) -> str:
    """The same for the same within an hour, whoever asks."""
    said = (happening.uid, happening.reason, happening.note, str(int(now // FORGET_SECONDS)))
    digest = blake2b("\0".join(said).encode("utf-8", "replace"), digest_size=8).hexdigest()
    return f"{happening.pod[:_LONGEST_POD_IN_NAME].rstrip('.-')}.{digest}"
