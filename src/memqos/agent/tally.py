"""What an agent has done, counted, and what it has to say."""

from collections import Counter
from typing import Final, Literal, NamedTuple

from memqos.agent.configuration import FightConfig
from memqos.agent.core.drift import Drift
from memqos.agent.core.notices import Notice
from memqos.kube.events import EventReason
from memqos.kube.pod import Pod
from memqos.plan.changes import Change
from memqos.serve.exposition import Histogram

LogSeverity = Literal["debug", "info", "warning", "error"]
ErrorKind = Literal["source", "read", "write", "journal", "configuration", "numa", "other"]

_WRITE_BOUNDS: Final = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
_RECONCILE_BOUNDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)
_QUEUE_LIMIT: Final = 10_000
"""Events kept while nobody takes them."""


class LogEvent(NamedTuple):
    """Something a person may want to know."""

    severity: LogSeverity
    what: str
    fields: dict[str, str | int | float]


class Announcement(NamedTuple):
    """Something that concerns a pod, and whoever asks its cluster about it."""

    pod: Pod
    reason: EventReason
    what: str


class WrittenValue(NamedTuple):
    """A value that is in place, and since when."""

    change: Change
    at: float


class Report:
    """Counts since the start, and events since they were last taken."""

    def __init__(self) -> None:
        self.drifts: Counter[tuple[str, str]] = Counter()
        """(file, cause) → how often."""
        self.writes: Counter[tuple[str, str]] = Counter()
        """(file, end) → how often."""
        self.restores: Counter[tuple[str, str]] = Counter()
        """(file, end) → how often a value was given back; the end is `conflict` if it was left."""
        self.errors: Counter[ErrorKind] = Counter()
        self.write_seconds = Histogram(_WRITE_BOUNDS)
        self.reconcile_seconds = {
            trigger: Histogram(_RECONCILE_BOUNDS) for trigger in ("event", "resync")
        }
        self._events: list[LogEvent] = []
        self._written: list[WrittenValue] = []
        self._changed: list[Drift] = []
        self._announcements: list[Announcement] = []
        self._refused: dict[str, tuple[str, ...]] = {}
        """namespace/name → the ignored annotations that were reported last."""

    def note_write(self, change: Change, now: float) -> None:
        """Note a value that is in place."""
        if len(self._written) < _QUEUE_LIMIT:
            self._written.append(WrittenValue(change, now))

    def take_values(self) -> tuple[list[WrittenValue], list[Drift]]:
        """The values written, and those that others have changed, once."""
        taken = self._written, self._changed
        self._written, self._changed = [], []
        return taken

    def announce(self, pod: Pod, reason: EventReason, what: str) -> None:
        """Have a pod's cluster told."""
        if len(self._announcements) < _QUEUE_LIMIT:
            self._announcements.append(Announcement(pod, reason, what))

    def take_announcements(self) -> list[Announcement]:
        """All announcements so far, once."""
        announcements, self._announcements = self._announcements, []
        return announcements

    def has_new_refusals(self, key: str, refused: tuple[str, ...]) -> bool:
        """Whether this was not refused to a pod the last time; `key` is namespace/name."""
        was = self._refused.pop(key, ())
        if refused:
            if len(self._refused) >= _QUEUE_LIMIT:
                del self._refused[next(iter(self._refused))]
            self._refused[key] = refused
        return was != refused

    def log(self, severity: LogSeverity, what: str, **fields: str | int | float) -> None:
        """Have something told."""
        if len(self._events) < _QUEUE_LIMIT:
            self._events.append(LogEvent(severity, what, fields))

    def log_error(self, kind: ErrorKind, error: object) -> None:
        """Count an error, and have it told."""
        self.errors[kind] += 1
        self.log("error", str(error), kind=kind)

    def report_notice(self, key: str, pod: Pod, notice: Notice) -> None:
        """Have the author of a pod told, here and by its cluster; `key` is namespace/name."""
        hint = {} if notice.hint is None else {"hint": notice.hint}
        self.log("warning", notice.what, pod=key, reason=notice.reason, **hint)
        self.announce(pod, "NumaNotAligned", " – ".join([notice.what, *hint.values()]))

    def report_drift(self, drift: Drift) -> None:
        """Count a value that somebody else has changed, and have it told."""
        self.drifts[drift.file, drift.cause] += 1
        self._note_drift(drift)
        self.log("warning", "changed by others", **_drift_fields(drift), evidence=drift.evidence)

    def report_resize(self, drift: Drift) -> None:
        """Have it told that a resize has changed a value, which is no drift."""
        self._note_drift(drift)
        place = f"{drift.path}/{drift.file}"
        self.log("info", "changed by a resize", place=place, found=drift.found)

    def _note_drift(self, drift: Drift) -> None:
        if len(self._changed) < _QUEUE_LIMIT:
            self._changed.append(drift)

    def report_contested(self, drift: Drift, rule: FightConfig) -> None:
        """Have it told that a value is not put back any more."""
        self.log(
            "error",
            f"changed by others more than {rule.times} times in {rule.minutes:g} minutes: "
            "left alone from now on",
            **_drift_fields(drift),
        )

    def take_log_events(self) -> list[LogEvent]:
        """All events so far, once."""
        events, self._events = self._events, []
        return events


def _drift_fields(drift: Drift) -> dict[str, str]:
    return {
        "place": f"{drift.path}/{drift.file}",
        "held": drift.expected,
        "found": drift.found,
        "cause": drift.cause,
    }
