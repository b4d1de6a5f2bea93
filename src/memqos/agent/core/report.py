"""What an agent reports: counters, log events, and announcements to the authors of pods."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from memqos.agent.configuration import FightConfig
from memqos.agent.core.node_intent import NodeIntent
from memqos.agent.core.observed import Drift
from memqos.agent.core.pod_intent import Notice, NoticeReason, PodIntent
from memqos.converge.undo import UndoEntry
from memqos.kernel.file_formats import describe_nodes, nodes_in
from memqos.kube.events import EventReason
from memqos.kube.pod import Pod
from memqos.plan.changes import DEFAULTS, Change
from memqos.plan.cpuset import MEMS
from memqos.plan.levels import PROTECTION_FILES
from memqos.plan.names import outer
from memqos.plan.rules import HIGH_WIDENED
from memqos.serve.exposition import Histogram
from memqos.units import format_bytes


class NoticeHistory:
    """What has been reported of each pod."""

    def __init__(self) -> None:
        self._reasons: dict[str, frozenset[NoticeReason]] = {}

    def select_new(self, pod: str, notices: Sequence[Notice]) -> list[Notice]:
        """Those of a pod's notices that were not there before."""
        reported = self._reasons.pop(pod, frozenset())
        if notices:
            self._reasons[pod] = frozenset([notice.reason for notice in notices])
        return [notice for notice in notices if notice.reason not in reported]


LogSeverity = Literal["debug", "info", "warning", "error"]
ErrorKind = Literal["source", "read", "write", "journal", "configuration", "numa", "other"]

_WRITE_BOUNDS: Final = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
_RECONCILE_BOUNDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)
_QUEUE_LIMIT: Final = 10_000
"""Events kept while nothing takes them."""


class LogEvent(NamedTuple):
    """Something a person may want to know."""

    severity: LogSeverity
    what: str
    fields: dict[str, str | int | float]


class Announcement(NamedTuple):
    """An event about a pod, for the log and for its cluster."""

    pod: Pod
    reason: EventReason
    what: str


class WrittenValue(NamedTuple):
    """A value that is in place, and since when."""

    change: Change
    at: float


class ReportCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a report at one moment."""

    drifts: Mapping[tuple[str, str], int]
    writes: Mapping[tuple[str, str], int]
    restores: Mapping[tuple[str, str], int]
    errors: Mapping[ErrorKind, int]
    write_seconds: Histogram
    reconcile_seconds: Mapping[str, Histogram]


class Report:
    """Counts since the start, and events since they were last taken."""

    def __init__(self) -> None:
        self.drifts: Counter[tuple[str, str]] = Counter()
        """(file, cause) → how often."""
        self.writes: Counter[tuple[str, str]] = Counter()
        """(file, end) → how often."""
        self.restores: Counter[tuple[str, str]] = Counter()
        """(file, end) → how often a value was restored; the end is `conflict` if it was left."""
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

    def counts(self) -> ReportCounts:
        """The counts of now."""
        return ReportCounts(
            drifts=dict(self.drifts),
            writes=dict(self.writes),
            restores=dict(self.restores),
            errors=dict(self.errors),
            write_seconds=self.write_seconds.copy(),
            reconcile_seconds={name: each.copy() for name, each in self.reconcile_seconds.items()},
        )

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
        """Have an event posted to a pod's cluster."""
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
        """Add a log event."""
        if len(self._events) < _QUEUE_LIMIT:
            self._events.append(LogEvent(severity, what, fields))

    def log_error(self, kind: ErrorKind, error: object) -> None:
        """Count an error, and log it."""
        self.errors[kind] += 1
        self.log("error", str(error), kind=kind)

    def report_notice(self, key: str, pod: Pod, notice: Notice) -> None:
        """Report to the author of a pod, in the log and in its cluster; `key` is namespace/name."""
        hint = {} if notice.hint is None else {"hint": notice.hint}
        self.log("warning", notice.what, pod=key, reason=notice.reason, **hint)
        self.announce(pod, "NumaNotAligned", " – ".join([notice.what, *hint.values()]))

    def report_drift(self, drift: Drift) -> None:
        """Count a value that something else has changed, and log it."""
        self.drifts[drift.file, drift.cause] += 1
        self._note_drift(drift)
        self.log(
            "warning", "changed by another writer", **_drift_fields(drift), evidence=drift.evidence
        )

    def report_resize(self, drift: Drift) -> None:
        """Log that a resize has changed a value, which is no drift."""
        self._note_drift(drift)
        place = f"{drift.path}/{drift.file}"
        self.log("info", "changed by a resize", place=place, found=drift.found)

    def _note_drift(self, drift: Drift) -> None:
        if len(self._changed) < _QUEUE_LIMIT:
            self._changed.append(drift)

    def report_contested(self, drift: Drift, rule: FightConfig) -> None:
        """Log that a value is not restored any more."""
        self.log(
            "error",
            f"changed by another writer more than {rule.times} times in {rule.minutes:g} "
            f"minutes: not restored any more",
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


_NAMED: Final = 20
"""So many pods are named in one message."""


def report_pod_intent(report: Report, intent: PodIntent) -> None:
    """Report what a pod's author should know."""
    if (
        report.has_new_refusals(intent.key, intent.refused_annotations)
        and intent.refused_annotations
    ):
        refused = "; ".join(intent.refused_annotations)
        more = intent.ignored_annotations - len(intent.refused_annotations)
        which = f"{refused}; and {more} more" if more else refused
        many = (
            "annotation"
            if intent.ignored_annotations == 1
            else f"{intent.ignored_annotations} annotations"
        )
        report.log("warning", f"{many} ignored: {which}", pod=intent.key)
        report.announce(intent.pod, "AnnotationIgnored", which)
    for unresolved in intent.unresolved:
        container = {} if unresolved.container is None else {"container": unresolved.container}
        report.log("debug", f"unresolved: {unresolved.why}", pod=intent.key, **container)


def report_unreserved(report: Report, node_intent: NodeIntent, changed: Iterable[str]) -> None:
    """Report whose memory.min is not reserved from now on, and whose is again."""
    for is_out, words in (
        (True, "memory.min not reserved: the sum would exceed minShare of the node's memory"),
        (False, "memory.min reserved again"),
    ):
        named = sorted(
            intent.key
            for path in changed
            if (path in node_intent.unreserved) == is_out
            and (intent := node_intent.by_path.get(path)) is not None
        )
        if named:
            more = "" if len(named) <= _NAMED else " …"
            pods = ", ".join(named[:_NAMED]) + more
            report.log(
                "warning" if is_out else "info", words, pods=pods, limit=node_intent.reservable
            )


def report_restore_conflict(report: Report, entry: UndoEntry, found: str) -> None:
    """Report a value that is not restored."""
    report.restores[entry.file, "conflict"] += 1
    report.log(
        "warning",
        "not restored: changed by another writer since",
        place=f"{entry.path}/{entry.file}",
        found=found,
        before=entry.original,
    )


def report_write(
    report: Report, change: Change, value: str, now: float, done: str = "written"
) -> None:
    """Report one value that is in place."""
    report.note_write(change, now)
    of = {"pod": change.pod, "container": change.container}
    report.log(
        "info",
        done,
        place=f"{change.path}/{change.file}",
        old=change.old,
        new=value,
        rule=change.setting.rule.id,
        **{name: whose for name, whose in of.items() if whose is not None},
    )


def announce_written(
    report: Report, intent: PodIntent | None, change: Change, value: str, drift: Drift | None
) -> None:
    """Announce a value that is in place to a pod's cluster; none that was reset."""
    if intent is None:
        return
    of, amount = change.container or "the pod", _amount(change.file, value)
    if drift is not None and (drift.found, drift.expected) == (change.old, value):
        found = _amount(change.file, drift.found)
        what = f"{change.file} of {of} restored to {amount}: it was {found} ({drift.cause})"
        report.announce(intent.pod, "MemoryDrifted", what)
    elif change.file == MEMS or value == DEFAULTS.get(change.file):
        return
    elif change.file in PROTECTION_FILES:
        report.announce(intent.pod, "MemoryProtected", f"{change.file} {amount} of {of}")
    elif change.setting.rule is not HIGH_WIDENED:
        report.announce(intent.pod, "ThrottleLimitSet", f"memory.high {amount} of {of}")
    elif change.raises:
        what = f"memory.high of {of} raised to {amount}: below that it made no progress"
        report.announce(intent.pod, "GuardWidened", what)
    else:
        what = f"memory.high of {of} lowered to {amount}: the pressure is over"
        report.announce(intent.pod, "GuardNarrowed", what)


def announce_contested(report: Report, intent: PodIntent | None, drift: Drift) -> None:
    """Announce to a pod's cluster that a value is no longer restored."""
    if intent is None:
        return
    path = outer(drift.path)
    of = next((each.container for each in intent.cgroups if each.path == path), None) or "the pod"
    found, expected = _amount(drift.file, drift.found), _amount(drift.file, drift.expected)
    what = (
        f"{drift.file} of {of} stays at {found}: something else keeps changing it "
        f"({drift.cause}), though it should be {expected}"
    )
    report.announce(intent.pod, "MemoryContested", what)


def _amount(file: str, content: str) -> str:
    if file == MEMS:
        return describe_nodes(nodes_in(content)) if content else "any node"
    return format_bytes(int(content)) if content.isdigit() else content
