"""Follows the kernel's log for out-of-memory kills, and finds out whose they were."""

import os
import time
from collections.abc import Callable, Mapping

from memqos.agent.core.node_intent import NodeIntent
from memqos.agent.recorder.chronicle import FlightRecorder, subject_of
from memqos.agent.recorder.records import Subject
from memqos.errors import MemqosError
from memqos.host.kmsg import KernelLog
from memqos.kernel.oom_report import OomReader, OomReport

SubjectLookup = Callable[[str], Subject | None]
"""The container that a cgroup is planned for."""


class OomKillReader:
    """Kills as the kernel reports them. Times are milliseconds since 1970."""

    def __init__(self, log: KernelLog | None, flight_recorder: FlightRecorder | None) -> None:
        self.count = 0
        """Processes killed since the start."""
        self.log = log
        self._flight_recorder = flight_recorder
        self._reports = OomReader()

    def read_log(self, memory: Mapping[str, int], at: int, whose: SubjectLookup) -> None:
        """Read on. A report is over when nothing more is heard."""
        heard = False
        try:
            for record in () if self.log is None else self.log.records():
                heard = True
                for report in self._reports.feed(record):
                    self._record_kill(report, memory, at, whose)
        except MemqosError:
            self.log = None
        if not heard:
            self.flush(memory, at, whose)

    def flush(self, memory: Mapping[str, int], at: int, whose: SubjectLookup) -> None:
        """What was heard of the last report is all there is to it."""
        for report in self._reports.flush():
            self._record_kill(report, memory, at, whose)

    def close(self) -> None:
        if self.log is not None:
            self.log.close()

    def _record_kill(
        self, report: OomReport, memory: Mapping[str, int], at: int, whose: SubjectLookup
    ) -> None:
        self.count += len(report.victims)
        if self._flight_recorder is None:
            return
        # The log counts from the start of the machine, as this clock does.
        started = at - time.monotonic_ns() // 1_000_000
        machine = memory.get("MemTotal", 0) + memory.get("SwapTotal", 0)
        page_size = os.sysconf("SC_PAGE_SIZE")
        self._flight_recorder.record_kill(
            report, started + report.at // 1000, machine, page_size, whose
        )


def find_subject(node_intent: NodeIntent, path: str) -> Subject | None:
    """The container that a cgroup below a pod's belongs to, whether or not it is still there.

    One that dies as soon as it has started is known by nothing else. Where not even its name is
    planned, as nobody has told of it yet, it can only be the one container of its pod.
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
