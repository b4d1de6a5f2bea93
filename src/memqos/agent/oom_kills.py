"""Out-of-memory kills: read in the kernel's log, else by the counters of pods; counted, announced.

Where the log cannot be read, as in most containers, memory.events of a pod's cgroup is read: it
counts the kills in all of its containers, and outlives them.
"""

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Final

from memqos.agent.core.node_intent import NodeIntent
from memqos.agent.core.pod_intent import PodIntent
from memqos.agent.core.report import Report
from memqos.agent.flight_recorder import FlightRecorder
from memqos.errors import MemqosError
from memqos.host.kmsg import KernelLog
from memqos.kernel.file_formats import events_of, processes_killed
from memqos.kernel.memory_usage import MemoryUsage
from memqos.kernel.oom_report import OomReader, OomReport
from memqos.kube.events import kill_clause
from memqos.kube.pod import Pod
from memqos.record.format import KillRecord, Subject, subject_of
from memqos.record.readings import kill_record, level_of
from memqos.record.usage import describe_kinds, kill_usage, level_usage
from memqos.units import format_bytes, pluralize

_NOT_PLAIN: Final = re.compile(r"[^\w.+:/-]", re.ASCII)
_ContainerKey = tuple[str, str, str]
"""Namespace, pod and container; the container is empty where it is not known which."""
ReadEvents = Callable[[str], str]
"""memory.events of a cgroup; empty where it was removed."""


class OomKills:
    """Kills since the start. Times are milliseconds since 1970."""

    def __init__(self, log: KernelLog | None, flight_recorder: FlightRecorder | None) -> None:
        self.count = 0
        """Processes killed."""
        self.by_container: Counter[_ContainerKey] = Counter()
        self.log = log
        self._flight_recorder = flight_recorder
        self._reports = OomReader()
        self._counts: dict[str, int] = {}
        """Path of a pod or container → the kills that its own counter has shown."""
        self._has_baseline = False

    def read_log(
        self, memory: Mapping[str, int], at: int, node_intent: NodeIntent, report: Report
    ) -> None:
        """Read on. A report is over when nothing more is logged."""
        is_logged = False
        try:
            for record in () if self.log is None else self.log.records():
                is_logged = True
                for found in self._reports.feed(record):
                    self._note_report(found, memory, at, node_intent, report)
        except MemqosError:
            self.close()
            self.log = None
        if not is_logged:
            self.flush(memory, at, node_intent, report)

    def flush(
        self,
        memory: Mapping[str, int],
        at: int,
        node_intent: NodeIntent | None = None,
        report: Report | None = None,
    ) -> None:
        """What was logged of the last report is all there is to it."""
        for found in self._reports.flush():
            self._note_report(found, memory, at, node_intent, report)

    def close(self) -> None:
        if self.log is not None:
            self.log.close()

    def note_pod_events(
        self, intent: PodIntent, read_events: ReadEvents, at: int, report: Report
    ) -> None:
        """The events of a pod have changed: count the kills, and say in which containers."""
        assert intent.path is not None
        killed = self._increase(intent.path, read_events(intent.path))
        if not killed and self._has_baseline:
            return
        alive, gone = list[tuple[str, str, int]](), list[tuple[str, str]]()
        for cgroup in intent.cgroups:
            if cgroup.container:
                text = read_events(cgroup.path)
                if text:
                    increase = self._increase(cgroup.path, text)
                    alive.append((cgroup.path, cgroup.container, increase))
                else:
                    gone.append((cgroup.path, cgroup.container))
        for path, container, count in alive:
            self._note_count(intent.pod, path, container, min(count, killed), report)
            killed -= min(count, killed)
        if not killed:
            return
        path, container = gone[0] if len(gone) == 1 else ("", "")
        if self._flight_recorder is not None and path:
            self._flight_recorder.record_kill_count(path, killed, at)
        self._note_count(intent.pod, path, container, killed, report)

    def keep_only(self, paths: Collection[str], pods: Collection[Pod]) -> None:
        """All pods were looked at: these are the cgroups and the pods there are."""
        # What an agent finds at its start was counted by the one before it.
        self._has_baseline = True
        self._counts = {path: count for path, count in self._counts.items() if path in paths}
        if self.by_container:
            known = {(each.metadata.namespace or "default", each.metadata.name) for each in pods}
            for key in [key for key in self.by_container if key[:2] not in known]:
                del self.by_container[key]

    def _increase(self, path: str, events: str) -> int:
        now = processes_killed(events_of(events))
        before = self._counts.get(path, 0 if self._has_baseline else now)
        self._counts[path] = now
        return max(0, now - before)

    def _note_count(self, pod: Pod, path: str, container: str, killed: int, report: Report) -> None:
        """Kills of which nothing is known but their number."""
        if not killed:
            return
        self._count(subject_of(pod, container), killed)
        recorder = self._flight_recorder
        reading = None if recorder is None else recorder.last_reading(path)
        what = f"{pluralize(killed, 'process', 'processes')} killed: out of memory"
        if reading is not None:
            limit = "no limit" if reading.max is None else f"limit {format_bytes(reading.max)}"
            what += f" ({limit}), last seen{_with_usage(level_usage(level_of(reading)))}"
        report.announce(pod, "OOMKilled", kill_clause(container, what))

    def _note_report(
        self,
        found: OomReport,
        memory: Mapping[str, int],
        at: int,
        node_intent: NodeIntent | None,
        report: Report | None,
    ) -> None:
        path = found.task_cgroup or ""
        planned = None if node_intent is None else find_subject(node_intent, path)
        # printk stamps records with local_clock(), which starts at boot and stops in suspend as
        # CLOCK_MONOTONIC does.
        killed_at = at - time.monotonic_ns() // 1_000_000 + found.at // 1000
        machine = memory.get("MemTotal", 0) + memory.get("SwapTotal", 0)
        kill = kill_record(found, killed_at, machine, os.sysconf("SC_PAGE_SIZE"))
        recorder = self._flight_recorder
        who = planned if recorder is None else recorder.record_kill(path, kill, planned)
        self._count(who, len(found.victims))
        intent = None if node_intent is None else _intent_of(node_intent, who)
        if who is not None and intent is not None and report is not None:
            what = describe_kill(kill, intent.path or "")
            report.announce(intent.pod, "OOMKilled", kill_clause(who.container, what))

    def _count(self, who: Subject | None, killed: int) -> None:
        self.count += killed
        if who is not None and not who.is_node:
            self.by_container[who.namespace, who.pod, who.container] += killed


def describe_kill(kill: KillRecord, pod: str) -> str:
    """A kill for the owner of a pod: the victim, whose limit it was, what the memory was."""
    # A process chooses its own name.
    victim = _NOT_PLAIN.sub("?", kill.comm) or "a process"
    along = f" and {pluralize(kill.along, 'other')}" if kill.along else ""
    if kill.constraint != "memcg":
        return f"{victim}{along} killed: the node was out of memory"
    of = "" if kill.limit is None else f" of {format_bytes(kill.limit)}"
    whose = _describe_limit(kill.oom_cgroup, pod)
    return f"{victim}{along} killed: {whose}{of} was reached{_with_usage(kill_usage(kill))}"


def _describe_limit(cgroup: str, pod: str) -> str:
    if cgroup == pod:
        return "the pod's memory limit"
    if not cgroup or cgroup.startswith(f"{pod}/"):
        return "the container's memory limit"
    return f"the memory limit of {_NOT_PLAIN.sub('?', cgroup)}"


def _with_usage(usage: MemoryUsage) -> str:
    """What was in use, by its kinds, and the gauge that people look at."""
    kinds = describe_kinds(usage)
    if not kinds:
        return "" if usage.usage is None else f" with {format_bytes(usage.usage)} in use"
    shown = usage.working_set
    gauge = "" if shown is None else f", working set {format_bytes(shown)}"
    return f" with {kinds}{gauge}"


def _intent_of(node_intent: NodeIntent, who: Subject | None) -> PodIntent | None:
    if who is None or who.is_node:
        return None
    for intent in node_intent.intents.values():
        if subject_of(intent.pod, who.container).key == who.key:
            return intent
    return None


def find_subject(node_intent: NodeIntent, path: str) -> Subject | None:
    """The container that a cgroup below a pod's belongs to, whether or not it is still there.

    One that dies as soon as it has started is known by nothing else. Where not even its name is
    planned, as no source has it yet, it can only be the one container of its pod.
    """
    pod = path
    while pod and pod not in node_intent.by_path:
        pod = pod.rpartition("/")[0]
    intent = node_intent.by_path.get(pod)
    if intent is None:
        return None
    containers = [cgroup for cgroup in intent.cgroups if cgroup.container]
    found = [each for each in containers if f"{path}/".startswith(f"{each.path}/")]
    if not found and len(containers) == 1:
        found = containers
    return subject_of(intent.pod, found[0].container or "") if found else None
