"""What an agent writes to its log: a line an event, for people or for programs."""

import logging
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, NamedTuple, Protocol, TextIO

import msgspec

from memqos.agent.configuration import AgentConfiguration, LogFormat
from memqos.agent.core.report import Announcement, LogEvent, LogSeverity
from memqos.converge.pod_sources import PodSource
from memqos.draw.text.terminal import visible
from memqos.errors import MemqosError
from memqos.kube.events import BETWEEN, FRONT, EventReason, PodEvent
from memqos.kube.pod import Pod
from memqos.plan.tree import cgroup_uid

_PRIORITIES: Final[Mapping[LogSeverity, int]] = {"debug": 7, "info": 6, "warning": 4, "error": 3}
"""As syslog counts them; the journal of systemd reads them at the start of a line."""
_QUIET: Final = "debug"


class EventLog:
    """Writes events, one a line; a line never holds another."""

    def __init__(
        self, form: LogFormat, *, to_journal: bool = False, stream: TextIO | None = None
    ) -> None:
        self.form = form
        self._to_journal = to_journal
        self._stream = sys.stderr if stream is None else stream

    def log(self, severity: LogSeverity, what: str, **fields: str | int | float) -> None:
        self.write([LogEvent(severity, what, fields)])

    def write(self, events: Iterable[LogEvent]) -> None:
        """Write all of them at once; what cannot be written, as on a full disk, is lost."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = self._as_json if self.form == "json" else self._as_text
        lines = [line(event, now) for event in events if event.severity != _QUIET]
        if lines:
            with suppress(OSError):
                self._stream.write("\n".join(lines) + "\n")
                self._stream.flush()

    def _as_json(self, event: LogEvent, now: str) -> str:
        record = {"time": now, "level": event.severity, "message": event.what, **event.fields}
        return _encode({name: _whole(value) for name, value in record.items()})

    def _as_text(self, event: LogEvent, now: str) -> str:
        # journald stamps lines itself and reads the priority from a leading "<N>" (sd-daemon(3)).
        front = f"<{_PRIORITIES[event.severity]}>" if self._to_journal else f"{now} "
        fields = [f"{name}={_quote(str(value))}" for name, value in event.fields.items()]
        return " ".join([f"{front}{event.severity}:", visible(event.what), *fields])


class LibraryLogHandler(logging.Handler):
    """Has what libraries log written as events."""

    def __init__(self, log: EventLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.log(
            "error" if record.levelno >= logging.ERROR else "warning", record.getMessage()
        )


def _quote(text: str) -> str:
    if text and text.isprintable() and not set(text) & set(' "='):
        return text
    return _encode(_whole(text))


def _encode(value: object) -> str:
    return visible(msgspec.json.encode(value).decode())


def _whole(value: str | float) -> str | float:
    """Without the halves of surrogate pairs that stand for bytes of a name that are not UTF-8."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


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
    """Collects announcements, and posts them when their time has come. Nothing here waits."""

    def __init__(self, poster: Poster) -> None:
        self.poster = poster
        self._pending: dict[tuple[str, EventReason], _PendingEvent] = {}
        self._posted: set[tuple[str, EventReason, str]] = set()
        self._now = 0.0

    def accept(self, announcements: Iterable[Announcement], now: float) -> None:
        """Take in what has happened, and post what is ripe."""
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
        """Post the rest, as far as that goes at once."""
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
            since, pod, notes = self._pending.pop((uid, reason))
            metadata = pod.metadata
            note = FRONT.get(reason, "") + BETWEEN.join(notes)
            happening = PodEvent(
                metadata.namespace or "default", metadata.name or "", uid, reason, note
            )
            self.poster.post(happening, self._now - since)


def announcer_of(configuration: AgentConfiguration, source: PodSource) -> Announcer | None:
    """Posts events of pods; None where pods do not come from a cluster, or it wants no events."""
    poster = source.event_poster() if configuration.events else None
    if poster is None:
        return None
    poster.start()
    return Announcer(poster)
