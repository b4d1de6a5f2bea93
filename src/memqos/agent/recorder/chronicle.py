"""What an agent sees and does, turned into records of the containers it happens to."""

from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec

from memqos.agent.core.guarding import Move
from memqos.agent.recorder.files import Recorder
from memqos.agent.recorder.recording import (
    Memory,
    Pace,
    ending,
    guarded,
    killed,
    notice,
    reading_of,
)
from memqos.agent.recorder.records import (
    Changed,
    Evicted,
    Lived,
    Pressed,
    Record,
    Resized,
    Who,
    brief,
)
from memqos.errors import InputError
from memqos.kernel.oom_report import OomReport
from memqos.kube.pod import Pod, ResourceList, ResourceRequirements
from memqos.kube.resources import MEMORY, memory_in
from memqos.kube.resources_in_use import in_force
from memqos.kube.shape import amounts_of, containers_of
from memqos.plan.changes import Change

NODE: Final = Who(0)
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


class Chronicle:
    """Keeps the records of a node. Times are milliseconds since 1970."""

    def __init__(self, recorder: Recorder, pace: Pace | None = None) -> None:
        self.recorder = recorder
        self._pace = pace or Pace()
        self._whose: dict[str, Who] = {}
        self._gone: dict[str, tuple[int, Who]] = {}
        """Whose a cgroup was that has vanished, and when: its death may be told of later."""
        self._memories: dict[str, Memory] = {}
        self._amounts: dict[tuple[str, str], tuple[int | None, int | None]] = {}
        self._evicted: set[str] = set()
        self._node: _Node | None = None

    @property
    def living(self) -> Collection[Who]:
        """Those whose cgroups are there, and the node."""
        return [*self._whose.values(), NODE]

    def looked(
        self, path: str, who: Who, files: Mapping[str, str], at: int, swap_free: int = 0
    ) -> None:
        """A container's cgroup was looked at."""
        reading = reading_of(files, at, swap_free)
        if reading is None:
            return
        records: list[Record] = []
        if path not in self._memories:
            records.append(Lived(at, "appeared", brief(path)))
        self._whose[path] = who
        memory = self._memories.get(path, Memory())
        self._memories[path], noticed = notice(memory, reading, self._pace)
        records += noticed
        if records:
            self.recorder.note(who, *records)

    def unchanged(self, path: str, at: int) -> None:
        """A container was looked at briefly, and is as it was."""
        memory = self._memories.get(path)
        if memory is not None and memory.last is not None:
            last = msgspec.structs.replace(memory.last, at=at)
            self._memories[path] = msgspec.structs.replace(memory, last=last)

    def vanished(self, path: str, at: int) -> None:
        """A container's cgroup is gone. What was last known of it is written down."""
        who, memory = self._whose.pop(path, None), self._memories.pop(path, None)
        if who is not None and memory is not None:
            self._gone[path] = at, who
            self.recorder.note(who, *ending(memory), Lived(at, "vanished", brief(path)))

    def keep_only(self, paths: Collection[str], at: int) -> None:
        """All other cgroups are gone."""
        for path in self._memories.keys() - set(paths):
            self.vanished(path, at)
        for path in [key for key, (since, _) in self._gone.items() if at - since > LATE_REPORT_MS]:
            del self._gone[path]

    def moved(self, move: Move, steps: int, at: int) -> None:
        """The guard has decided on a step."""
        self._note(move.path, guarded(move.decision, move.old, steps, at))

    def wrote(self, change: Change, at: int) -> None:
        """memqos has written a value."""
        reason = change.setting.because
        self._note(
            change.path,
            Changed(at, change.file, change.old, change.new, reason.rule, brief(reason.says)),
        )

    def drifted(self, path: str, file: str, held: str, found: str, by: str, at: int) -> None:
        """Somebody else has written a value."""
        self._note(path, Changed(at, file, held, found, by=brief(by)))

    def died(
        self,
        report: OomReport,
        at: int,
        machine: int,
        page_size: int,
        otherwise: Callable[[str], Who | None] = lambda path: None,
    ) -> Who:
        """The kernel has killed; whom it is told of: the container, or the node if it is none's.

        `otherwise` is asked about cgroups that were never looked at.
        """
        path = report.task_cgroup or ""
        who = self._owner(path) or self._former_owner(path) or otherwise(path) or NODE
        self.recorder.note(who, killed(report, at, machine, page_size))
        return who

    def pods(self, pods: Collection[Pod], at: int) -> None:
        """The pods of the node, as they are told now: who was evicted, and who resized."""
        for pod in pods:
            self._resizes(pod, at)
            status, uid = pod.status, pod.metadata.uid or ""
            if status is None or status.reason != _EVICTED or uid in self._evicted:
                continue
            self._evicted.add(uid)
            message = brief(status.message or "")
            for container in containers_of(pod):
                who = who_is(pod, container.name)
                self.recorder.note(who, Evicted(at, brief(status.reason), message))
        there = {pod.metadata.uid or "" for pod in pods}
        self._evicted &= there
        for key in [key for key in self._amounts if key[0] not in there]:
            del self._amounts[key]

    def pressed(self, at: int, available: int, total: int, some: int, full: int) -> None:
        """The node's own memory; pressure in microseconds since it was started."""
        now, last = _Node(at, available, some, full), self._node
        if last is not None:
            waited = at - last.at
            moved = abs(available - last.available) >= _RELIEF * total
            if waited < (self._pace.at_most if moved else _EVERY):
                return
            some, full = ((now.some - last.some), (now.full - last.full))
            shares = [min(1000, max(0, each) // max(1, waited)) for each in (some, full)]
            self.recorder.note(NODE, Pressed(at, available, total, *shares))
        self._node = now

    def _resizes(self, pod: Pod, at: int) -> None:
        for container in containers_of(in_force(pod)):
            key = pod.metadata.uid or "", container.name
            stanza = container.resources or ResourceRequirements()
            try:
                amounts = _memory(stanza.requests), _memory(stanza.limits)
            except InputError:
                continue
            before = self._amounts.get(key)
            self._amounts[key] = amounts
            if before is not None and before != amounts:
                record = Resized(at, before[0], amounts[0], before[1], amounts[1])
                self.recorder.note(who_is(pod, container.name), record)

    def _note(self, path: str, record: Record) -> None:
        who = self._owner(path)
        if who is not None:
            self.recorder.note(who, record)

    def _owner(self, path: str) -> Who | None:
        """Whose a cgroup is: containers, and some runtimes, make cgroups of their own within."""
        while path and path not in self._whose:
            path = path.rpartition("/")[0]
        return self._whose.get(path)

    def _former_owner(self, path: str) -> Who | None:
        while path and path not in self._gone:
            path = path.rpartition("/")[0]
        return self._gone[path][1] if path else None


def who_is(pod: Pod, container: str) -> Who:
    """A container of a pod, for the recorder."""
    metadata, status = pod.metadata, pod.status
    return Who(
        0,
        brief(metadata.namespace or "default"),
        brief(metadata.name or ""),
        brief(metadata.uid or ""),
        brief(container),
        brief((status.qos_class if status is not None else None) or ""),
    )


def _memory(amounts: ResourceList | None) -> int | None:
    found = amounts_of(amounts, "resources")
    return memory_in(found) if MEMORY in found else None
