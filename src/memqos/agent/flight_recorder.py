"""What an agent sees and does, turned into records of the containers it happens to."""

import os
from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from memqos.agent.core.guard import GuardDecision
from memqos.agent.core.node_guard import GuardMove
from memqos.errors import InputError
from memqos.host.record_files import RecordWriter
from memqos.kube.pod import Pod, ResourceList, ResourceRequirements
from memqos.kube.resources import MEMORY, memory_in
from memqos.kube.resources_in_use import with_resources_in_use
from memqos.kube.shape import amounts_of, containers_of
from memqos.plan.changes import Change, as_stored
from memqos.plan.setting import Setting
from memqos.record.format import (
    NODE_SUBJECT,
    CountRecord,
    EvictionRecord,
    FlightRecord,
    GuardRecord,
    KillRecord,
    LifeRecord,
    PressureRecord,
    ResizeRecord,
    Subject,
    ThrottleRecord,
    WriteRecord,
    subject_of,
    truncate_text,
)
from memqos.record.readings import (
    MemoryReading,
    ReadingHistory,
    RecordingRate,
    final_records,
    reading_of,
    records_since,
)

_EVICTED: Final = "Evicted"
_EVERY: Final = 60_000
LATE_REPORT_MS: Final = 60_000
"""Milliseconds after a cgroup is removed in which the kernel's report of a kill in it may come."""
_RELIEF: Final = 0.02
"""Share of the node's memory by which what is available must have changed."""


class _Node(msgspec.Struct, frozen=True):
    at: int
    available: int
    some: int
    full: int


class FlightRecorder:
    """Keeps the records of a node. Times are milliseconds since 1970."""

    def __init__(self, recorder: RecordWriter, rate: RecordingRate | None = None) -> None:
        self.writer = recorder
        self._rate = rate or RecordingRate()
        self._subjects: dict[str, Subject] = {}
        self._removed: dict[str, tuple[int, Subject]] = {}
        """Whose a cgroup was that has vanished, and when: its kill may be reported later."""
        self._histories: dict[str, ReadingHistory] = {}
        self._amounts: dict[tuple[str, str], tuple[int | None, int | None]] = {}
        self._evicted: set[str] = set()
        self._node: _Node | None = None

    @property
    def live_subjects(self) -> Collection[Subject]:
        """Those whose cgroups are there, and the node."""
        return [*self._subjects.values(), NODE_SUBJECT]

    def record_sample(
        self,
        path: str,
        who: Subject,
        files: Mapping[str, str],
        at: int,
        swap_free: int = 0,
        planned_high: Setting | None = None,
    ) -> None:
        """A container's cgroup was looked at.

        Where throttling starts at the planned memory.high, the rule of the plan is recorded too: no
        write need be on record, as a kubelet may have set it, or a write is no longer in the file.
        """
        reading = reading_of(files, at, swap_free)
        if reading is None:
            return
        records: list[FlightRecord] = []
        if path not in self._histories:
            records.append(LifeRecord(at, "appeared", truncate_text(path)))
        self._subjects[path] = who
        memory = self._histories.get(path, ReadingHistory())
        self._histories[path], noticed = records_since(memory, reading, self._rate)
        records += noticed
        if planned_high is not None and any(map(_is_start, noticed)):
            records += _rule_in_place(planned_high, reading)
        if records:
            self.writer.add(who, *records)

    def note_unchanged(self, path: str, at: int) -> None:
        """A container was looked at briefly, and is as it was."""
        memory = self._histories.get(path)
        if memory is not None and memory.last is not None:
            last = msgspec.structs.replace(memory.last, at=at)
            self._histories[path] = msgspec.structs.replace(memory, last=last)

    def record_removal(self, path: str, at: int) -> None:
        """A container's cgroup was removed. What was last known of it is written down."""
        who, memory = self._subjects.pop(path, None), self._histories.pop(path, None)
        if who is not None and memory is not None:
            self._removed[path] = at, who
            self.writer.add(
                who, *final_records(memory), LifeRecord(at, "vanished", truncate_text(path))
            )

    def keep_only(self, paths: Collection[str], at: int) -> None:
        """All other cgroups were removed."""
        for path in self._histories.keys() - set(paths):
            self.record_removal(path, at)
        for path in [
            key for key, (since, _) in self._removed.items() if at - since > LATE_REPORT_MS
        ]:
            del self._removed[path]

    def record_guard_move(self, move: GuardMove, steps: int, at: int) -> None:
        """The guard has decided on a step."""
        self._note(move.path, guard_record(move.decision, move.old, steps, at))

    def record_write(self, change: Change, at: int) -> None:
        """memqos has written a value."""
        reason = change.setting.because
        self._note(
            change.path,
            WriteRecord(
                at, change.file, change.old, change.new, reason.rule, truncate_text(reason.text)
            ),
        )

    def record_drift(
        self, path: str, file: str, expected: str, found: str, by: str, at: int
    ) -> None:
        """Something else has written a value."""
        self._note(path, WriteRecord(at, file, expected, found, by=truncate_text(by)))

    def record_kill(self, path: str, kill: KillRecord, otherwise: Subject | None = None) -> Subject:
        """The kernel has killed; who it is recorded of: the container, or the node if it is none's.

        `otherwise` is the container of a cgroup that was never looked at.
        """
        who = self._owner(path) or self._former_owner(path) or otherwise or NODE_SUBJECT
        self.writer.add(who, kill)
        return who

    def record_kill_count(self, path: str, count: int, at: int) -> None:
        """The kernel has counted kills in a container whose own counter went with its cgroup."""
        self._note(path, CountRecord(at, "oom_kill", count))

    def last_reading(self, path: str) -> MemoryReading | None:
        """A container as it was last looked at."""
        history = self._histories.get(path)
        return None if history is None else history.last

    def record_pods(self, pods: Collection[Pod], at: int) -> None:
        """The pods of the node, as the source has them now: who was evicted, and who resized."""
        for pod in pods:
            self._record_resizes(pod, at)
            status, uid = pod.status, pod.metadata.uid or ""
            if status is None or status.reason != _EVICTED or uid in self._evicted:
                continue
            self._evicted.add(uid)
            message = truncate_text(status.message or "")
            for container in containers_of(pod):
                who = subject_of(pod, container.name)
                self.writer.add(who, EvictionRecord(at, truncate_text(status.reason), message))
        uids = {pod.metadata.uid or "" for pod in pods}
        self._evicted &= uids
        for key in [key for key in self._amounts if key[0] not in uids]:
            del self._amounts[key]

    def record_pressure(self, at: int, available: int, total: int, some: int, full: int) -> None:
        """The node's own memory; pressure in microseconds since it was started."""
        now, last = _Node(at, available, some, full), self._node
        if last is not None:
            waited = at - last.at
            moved = abs(available - last.available) >= _RELIEF * total
            if waited < (self._rate.at_most if moved else _EVERY):
                return
            some, full = ((now.some - last.some), (now.full - last.full))
            shares = [min(1000, max(0, each) // max(1, waited)) for each in (some, full)]
            self.writer.add(NODE_SUBJECT, PressureRecord(at, available, total, *shares))
        self._node = now

    def _record_resizes(self, pod: Pod, at: int) -> None:
        for container in containers_of(with_resources_in_use(pod)):
            key = pod.metadata.uid or "", container.name
            stanza = container.resources or ResourceRequirements()
            try:
                amounts = _memory(stanza.requests), _memory(stanza.limits)
            except InputError:
                continue
            before = self._amounts.get(key)
            self._amounts[key] = amounts
            if before is not None and before != amounts:
                record = ResizeRecord(at, before[0], amounts[0], before[1], amounts[1])
                self.writer.add(subject_of(pod, container.name), record)

    def _note(self, path: str, record: FlightRecord) -> None:
        who = self._owner(path)
        if who is not None:
            self.writer.add(who, record)

    def _owner(self, path: str) -> Subject | None:
        """Whose a cgroup is: containers, and some runtimes, make cgroups of their own within."""
        while path and path not in self._subjects:
            path = path.rpartition("/")[0]
        return self._subjects.get(path)

    def _former_owner(self, path: str) -> Subject | None:
        while path and path not in self._removed:
            path = path.rpartition("/")[0]
        return self._removed[path][1] if path else None


def _is_start(record: FlightRecord) -> bool:
    return isinstance(record, ThrottleRecord) and not record.is_over


def _rule_in_place(setting: Setting, reading: MemoryReading) -> list[FlightRecord]:
    """The rule of memory.high, where the value in place is the planned one."""
    value = "max" if reading.high is None else str(reading.high)
    if as_stored("memory.high", setting.value, os.sysconf("SC_PAGE_SIZE")) != value:
        return []
    text = truncate_text(setting.rule.text)
    return [WriteRecord(reading.at, "memory.high", value, value, setting.rule.id, text)]


def guard_record(decision: GuardDecision, old: int | None, steps: int, at: int) -> GuardRecord:
    """A step of the guard as a record."""
    assert decision.kind != "keep"
    signs = decision.signs
    return GuardRecord(
        at,
        kind=decision.kind,
        old=old,
        new=decision.high,
        step=decision.step,
        steps=steps,
        events=0 if signs is None else round(signs.events),
        full=0 if signs is None or signs.stalled is None else round(signs.stalled * 1000),
    )


def _memory(amounts: ResourceList | None) -> int | None:
    found = amounts_of(amounts, "resources")
    return memory_in(found) if MEMORY in found else None
