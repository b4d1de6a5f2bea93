"""Events on pods about what memqos does to them, deduplicated and rate-limited.

A repetition is counted, not sent again: the existing event gets a new count, at most every few
minutes. The number of events per pod is limited. The name of an event is derived from its content
and the hour, so that a restarted agent finds its own events.
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
    "OOMKilled",
]
EventSeverity = Literal["Normal", "Warning"]

CONTROLLER: Final = "memqos.io/agent"
GROUP_VERSION: Final = "events.k8s.io/v1"
REFRESH_SECONDS: Final = 300.0
"""How long repetitions are only counted."""
FORGET_SECONDS: Final = 3600.0
"""API servers keep events for an hour; a repetition after that is a new event."""
MAX_TRACKED: Final = 4096
"""Events, and pods, that are remembered."""
# Bounds of the API server: pkg/apis/core/validation/events.go.
_LONGEST_NOTE: Final = 1024
_LONGEST_INSTANCE: Final = 128
_LONGEST_POD_IN_NAME: Final = 200


class _EventType(NamedTuple):
    severity: EventSeverity
    action: str


_EVENT_TYPES: Final[dict[EventReason, _EventType]] = {
    "MemoryProtected": _EventType("Normal", "Protect"),
    "ThrottleLimitSet": _EventType("Normal", "Throttle"),
    "GuardWidened": _EventType("Warning", "Widen"),
    "GuardNarrowed": _EventType("Normal", "Narrow"),
    "MemoryDrifted": _EventType("Warning", "Restore"),
    "MemoryContested": _EventType("Warning", "LeaveAlone"),
    "AnnotationIgnored": _EventType("Warning", "Ignore"),
    "NumaNotAligned": _EventType("Warning", "Align"),
    "OOMKilled": _EventType("Warning", "Kill"),
}


FRONT: Final[dict[EventReason, str]] = {
    "MemoryProtected": "protected from reclaim: ",
    "ThrottleLimitSet": "throttled above: ",
}
"""What a note begins with."""
BETWEEN: Final = "; "
_FRONT: Final = re.compile(r"^[a-z ]+: (?=memory\.)")
"""Whatever a note begins with: agents of earlier versions used other words."""
_VALUE: Final = re.compile(
    r"(memory\.[a-z]+|cpuset\.mems)(?: (?P<set>\S+))? of (the pod|[a-z0-9-]+)"
    r"(?: (?:restored|put back) to (?P<restored>[^:\s]+))?"
)
_KILL: Final = re.compile(r"container (?P<container>[a-z0-9-]+): ")
_OF_VALUES: Final = frozenset(_EVENT_TYPES) - {"AnnotationIgnored", "NumaNotAligned", "OOMKilled"}


class Clause(NamedTuple):
    """One clause of a note."""

    text: str
    container: str | None = None
    """None where it is about the whole pod, or names no container."""
    file: str = ""
    value: str = ""
    """What the file was set to, where the clause is about that."""


def clauses(reason: str, note: str) -> tuple[Clause, ...]:
    """The clauses of a note of memqos: containers of a pod share a note."""
    if reason == "OOMKilled":
        return tuple(map(_parse_kill_clause, note.split(BETWEEN)))
    if reason not in _OF_VALUES:
        return (Clause(note),)
    return tuple(map(_clause, _FRONT.sub("", note).split(BETWEEN)))


def kill_clause(container: str, what: str) -> str:
    """What a note says of a kill; the container is empty where it is not known."""
    return f"container {container}: {what}" if container else what


def _parse_kill_clause(text: str) -> Clause:
    found = _KILL.match(text)
    return Clause(text, None if found is None else found["container"])


def _clause(text: str) -> Clause:
    found = _VALUE.match(text)
    if found is None:
        return Clause(text)
    container = None if found[3] == "the pod" else found[3]
    return Clause(text, container, found[1], found["set"] or found["restored"] or "")


class PodEvent(msgspec.Struct, frozen=True):
    """Something memqos did to a pod, or could not do."""

    namespace: str
    pod: str
    uid: str
    reason: EventReason
    note: str


class Create(msgspec.Struct, frozen=True):
    """Create an event."""

    happening: PodEvent
    name: str
    at: float = 0.0
    """When it happened, in seconds since 1970: it may be sent much later."""


class Refresh(msgspec.Struct, frozen=True):
    """Update the count of an existing event."""

    happening: PodEvent
    name: str
    count: int
    at: float = 0.0
    """When it happened the last time."""


class Bucket:
    """A token bucket: `size` at once, and one more every `seconds`."""

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


class _SentEvent(msgspec.Struct):
    name: str
    count: int
    sent_at: float
    happened_at: float


class EventBook:
    """The events sent so far. The caller passes the time, in seconds of any clock."""

    def __init__(self) -> None:
        self.dropped = 0
        """How many exceeded the limit of their pod."""
        self._sent: dict[PodEvent, _SentEvent] = {}
        self._of_pods: dict[str, Bucket] = {}

    def decide(self, happening: PodEvent, now: float) -> Create | Refresh | None:
        """What to send about something that happened; None where nothing is sent."""
        sent = self._sent.get(happening)
        if sent is not None and now - sent.happened_at < FORGET_SECONDS:
            sent.count += 1
            sent.happened_at = now
            if now - sent.sent_at < REFRESH_SECONDS:
                return None
        else:
            sent = None
        if not self._take_token(happening.uid, now):
            self.dropped += 1
            return None
        if sent is not None:
            sent.sent_at = now
            return Refresh(happening, sent.name, sent.count)
        self._evict(now)
        name = _name(happening, now)
        self._sent[happening] = _SentEvent(name, 1, now, now)
        return Create(happening, name)

    def forget(self, happening: PodEvent) -> None:
        """The event was deleted or never stored: the next repetition creates it again."""
        self._sent.pop(happening, None)

    def forget_pods_but(self, uids: Iterable[str]) -> None:
        """Forget the events of all pods but these."""
        current = set(uids)
        self._of_pods = {uid: each for uid, each in self._of_pods.items() if uid in current}
        self._sent = {key: each for key, each in self._sent.items() if key.uid in current}

    def _take_token(self, uid: str, now: float) -> bool:
        of_pod = self._of_pods.get(uid)
        if of_pod is None:
            if len(self._of_pods) >= MAX_TRACKED:
                del self._of_pods[next(iter(self._of_pods))]
            of_pod = self._of_pods[uid] = Bucket(5, 300.0)
        if not of_pod.has(now):
            return False
        of_pod.take()
        return True

    def _evict(self, now: float) -> None:
        if len(self._sent) < MAX_TRACKED:
            return
        old = {key for key, each in self._sent.items() if now - each.happened_at > FORGET_SECONDS}
        for key in old or {next(iter(self._sent))}:
            del self._sent[key]


def event_of(create: Create, instance: str, at: str) -> dict[str, Any]:
    """The Event as the API server takes it; `at` is a time with microseconds."""
    happening = create.happening
    event_type = _EVENT_TYPES[happening.reason]
    return {
        "apiVersion": GROUP_VERSION,
        "kind": "Event",
        "metadata": {"name": create.name, "namespace": happening.namespace},
        "eventTime": at,
        "type": event_type.severity,
        "reason": happening.reason,
        "action": event_type.action,
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
    """The note, cut to the bytes that an event may have."""
    data = note.encode()
    if len(data) <= _LONGEST_NOTE:
        return note
    return data[: _LONGEST_NOTE - 3].decode("utf-8", "ignore") + "…"


def _name(happening: PodEvent, now: float) -> str:
    """The same name for the same event within an hour, whichever process derives it."""
    identity = (happening.uid, happening.reason, happening.note, str(int(now // FORGET_SECONDS)))
    digest = blake2b("\0".join(identity).encode("utf-8", "replace"), digest_size=8).hexdigest()
    return f"{happening.pod[:_LONGEST_POD_IN_NAME].rstrip('.-')}.{digest}"
