"""Looks at what containers do: lets the guard judge, and has it recorded. Runs off the loop.

The kernel notifies whose events have changed; now and then a container's usage is read. Only where
these have changed, or a minute has passed, all of its files are. What is written to the disk is
written by a thread of its own, so that a slow disk holds up nothing else.
"""

import os
from collections import Counter
from collections.abc import Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple
from zlib import crc32

from memqos.agent.configuration import AgentConfiguration
from memqos.agent.core.guard import GuardStep, GuardTuning
from memqos.agent.core.node_guard import GuardMove, NodeGuard
from memqos.agent.core.reconciler import Reconciler
from memqos.agent.core.report import Report
from memqos.agent.flight_recorder import FlightRecorder
from memqos.agent.oom_kills import OomKills
from memqos.agent.state import GuardView, RecorderView, SamplerView
from memqos.agent.watches import EVENTS_FILE, EventWatches
from memqos.errors import MemqosError
from memqos.host.cgroups import CgroupFs
from memqos.host.kmsg import KernelLog
from memqos.host.record_clock import RecordClock, record_clock_of
from memqos.host.record_files import RecordBounds, RecordWriter
from memqos.kernel.file_formats import meminfo_of, stall_of
from memqos.kube.pod import Pod
from memqos.plan.names import inner
from memqos.plan.tree import Cgroup
from memqos.record.format import Subject, subject_of
from memqos.record.readings import RECORDED_FILES

_PRUNE: Final = 3600.0
_USAGE: Final = 15.0
"""Seconds after which what is in use is read, whatever the kernel notifies."""
_FULL_SAMPLE: Final = 60.0
"""Seconds after which a container is looked at fully, whatever its files say."""
_CHANGE: Final = 0.05
"""Share of what was in use by which that must have changed for a full reading."""
_KI: Final = 1024


class _LastLook(NamedTuple):
    """What is remembered of a container to see that nothing has become of it."""

    events: str
    current: int
    current_at: float
    """When that was read."""
    full_at: float
    """When the last full look was."""

    def is_current(self, now: float) -> bool:
        return now - self.current_at < _USAGE and now - self.full_at < _FULL_SAMPLE


class _Moment(NamedTuple):
    """One moment by two clocks that are never set."""

    now: float
    """Seconds of the agent's clock."""
    at: int
    """Milliseconds since 1970, of the recorder's."""

    def at_time(self, then: float) -> int:
        """When that was by the recorder's clock, given the agent's."""
        return self.at - round((self.now - then) * 1000)


class Sampler:
    """What an agent sees of its containers between two passes."""

    def __init__(
        self,
        fs: CgroupFs,
        *,
        guard: NodeGuard | None = None,
        recorder: RecordWriter | None = None,
        log: KernelLog | None = None,
        interval: float = 5.0,
        proc: str = "/proc",
    ) -> None:
        self.guard = guard
        self.recorder = recorder
        self.guard_moves: Counter[GuardStep] = Counter()
        """Steps of the guard since the start."""
        self.due_at = float("-inf")
        self._fs = fs
        self._interval = interval
        self._proc = proc
        self._clock = RecordClock() if recorder is None else recorder.clock
        self._flight_recorder = None if recorder is None else FlightRecorder(recorder)
        self.oom_kills = OomKills(log, self._flight_recorder)
        self._recorded_pods: object = None
        self._disk_fault: str | None = None
        self._last_looks: dict[str, _LastLook] = {}
        self._event_watches = EventWatches(fs.root)
        self._watch_failure: str | None = None
        self._last: _Moment | None = None
        self._pruned_at: float | None = None
        self._writer = ThreadPoolExecutor(1, "memqos-records")
        self._writing: Future[None] | None = None
        self._is_closed = False

    @property
    def containers(self) -> Collection[str]:
        """Cgroups of the containers that it samples."""
        return self._last_looks.keys()

    def view(self) -> SamplerView:
        """What was counted so far."""
        guard, recorder = self.guard, self.recorder
        return SamplerView(
            kills=self.oom_kills.count,
            kills_by_container=dict(self.oom_kills.by_container),
            guard=None
            if guard is None
            else GuardView(guard.widened, dict(self.guard_moves), len(guard.excluded)),
            recorder=None
            if recorder is None
            else RecorderView(recorder.fault is None, recorder.lost),
        )

    def sample(self, core: Reconciler, now: float) -> None:
        """See what has become of the containers, and what to do about it."""
        self.due_at = now + self._interval
        moment = _Moment(now, int(self._clock() * 1000))
        memory = self._read_meminfo()
        swap_free = memory.get("SwapFree", 0)
        containers: set[str] = set()
        places: set[str] = set()
        self._event_watches.read_changes()
        for pod_object, pod, cgroup in _containers(core):
            # With the systemd driver crun puts processes and limits into a cgroup "container" below
            # the scope (libcrun/cgroup-systemd.c, since 0.14).
            within = inner(cgroup.path)
            place = within if within in core.observed else cgroup.path
            is_changed = self._needs_sample(cgroup.path, place, core, now)
            if is_changed is None:
                continue
            containers.add(cgroup.path)
            places.add(place)
            if is_changed:
                self._sample_container(core, pod_object, pod, cgroup, place, moment, swap_free)
        self._count_kills(core, places, moment)
        self._forget(containers, places)
        self._report_unwatched(core)
        self._record(core, memory, containers, moment)
        self._last = moment

    def _count_kills(self, core: Reconciler, places: set[str], moment: _Moment) -> None:
        """By the counters of pods, where the kernel's log cannot be read."""
        for path in tuple(core.observed.pods) if self.oom_kills.log is None else ():
            intent, identity = core.node_intent.by_path.get(path), core.observed.by_path[path]
            places.add(path)
            if intent is None or self._event_watches.is_quiet(path, identity.identity):
                continue
            self._event_watches.watch(path, identity.identity)
            self.oom_kills.note_pod_events(intent, self._read_events, moment.at, core.report)
        self.oom_kills.keep_only(core.observed.by_path.keys(), core.source_pods)

    def _needs_sample(self, path: str, place: str, core: Reconciler, now: float) -> bool | None:
        """Whether a container is to be looked at fully; None where it was removed."""
        identity, last = core.observed.by_path[place].identity, self._last_looks.get(path)
        is_quiet = self._event_watches.is_quiet(place, identity)
        is_guarded = self.guard is not None and self.guard.is_active(path)
        if last is not None and is_quiet and not is_guarded and last.is_current(now):
            return False
        if not is_quiet:
            self._event_watches.watch(place, identity)
        events = last.events if last is not None and is_quiet else self._read_events(place)
        is_same = last is not None and events == last.events and not is_guarded
        if last is not None and is_same and last.is_current(now):
            return False
        current = self._fs.read(place, "memory.current")
        if current is None or not current.isdecimal():
            return None
        usage = int(current)
        if last is None:
            # Spread over the interval: containers met in one pass would be sampled together for
            # ever.
            early = crc32(path.encode()) / (1 << 32)
            self._last_looks[path] = _LastLook(
                events, usage, now - early * _USAGE, now - early * _FULL_SAMPLE
            )
            return True
        if (
            is_same
            and now - last.full_at < _FULL_SAMPLE
            and abs(usage - last.current) <= _CHANGE * last.current
        ):
            self._last_looks[path] = last._replace(current_at=now)
            return False
        self._last_looks[path] = _LastLook(events, usage, now, now)
        return True

    def _sample_container(
        self,
        core: Reconciler,
        spec: Pod,
        pod: str,
        cgroup: Cgroup,
        place: str,
        moment: _Moment,
        swap_free: int,
    ) -> None:
        self._note_unchanged(cgroup.path)
        files = self._fs.read_all(place, RECORDED_FILES)
        if self._flight_recorder is not None:
            who = subject_of(spec, cgroup.container or "")
            self._flight_recorder.record_sample(
                cgroup.path, who, files, moment.at, swap_free, cgroup.settings.get("memory.high")
            )
        self._run_guard(core, cgroup, pod, files, moment, swap_free)

    def _note_unchanged(self, path: str) -> None:
        """What has become of a container has done so since the last look."""
        if self._last is None:
            return
        if self.guard is not None:
            self.guard.note_unchanged(path, self._last.now)
        if self._flight_recorder is not None:
            self._flight_recorder.note_unchanged(path, self._last.at)

    def _forget(self, containers: set[str], places: set[str]) -> None:
        for path in self._last_looks.keys() - containers:
            self._note_unchanged(path)
            del self._last_looks[path]
        if self.guard is not None:
            self.guard.keep_only(containers)
        self._event_watches.keep_only(places)

    def _report_unwatched(self, core: Reconciler) -> None:
        unheard, self._watch_failure = self._watch_failure, self._event_watches.failure
        if self._watch_failure not in (None, unheard):
            core.report.log(
                "warning",
                f"events of containers are polled instead of watched: {self._watch_failure}",
            )

    def close(self) -> None:
        """Have all that was seen on the disk; it may be called again."""
        if self._is_closed:
            return
        self._is_closed = True
        self.oom_kills.flush(self._read_meminfo(), int(self._clock() * 1000))
        self.oom_kills.close()
        if self.recorder is not None:
            self._writer.submit(self.recorder.flush)
        self._writer.shutdown()
        self._event_watches.close()

    def _run_guard(
        self,
        core: Reconciler,
        cgroup: Cgroup,
        pod: str,
        files: dict[str, str],
        moment: _Moment,
        swap_free: int,
    ) -> None:
        if self.guard is None or core.withholds_high:
            return
        if not core.node_intent.is_enforced(cgroup, pod):
            return
        excluded = cgroup.path in self.guard.excluded
        move = self.guard.judge_container(cgroup, files, moment.now, swap_free)
        if move is not None:
            self._note_guard_move(core, cgroup, move, moment.at)
        if move is not None or excluded != (cgroup.path in self.guard.excluded):
            core.schedule.schedule_pod(pod, moment.now)

    def _note_guard_move(self, core: Reconciler, cgroup: Cgroup, move: GuardMove, at: int) -> None:
        assert self.guard is not None
        kind = move.decision.kind
        if kind == "keep":
            return
        self.guard_moves[kind] += 1
        if self._flight_recorder is not None:
            self._flight_recorder.record_guard_move(move, self.guard.tuning.steps, at)
        core.report.log(
            "warning" if kind == "widen" else "info",
            "the guard raises memory.high: the container makes no progress"
            if kind == "widen"
            else "the guard lowers memory.high: the pressure is over",
            pod=cgroup.pod or "",
            container=cgroup.container or "",
            planned=move.planned,
            high="max" if move.decision.high is None else move.decision.high,
            step=f"{move.decision.step} of {self.guard.tuning.steps}",
        )

    def _record(
        self, core: Reconciler, memory: dict[str, int], containers: set[str], moment: _Moment
    ) -> None:
        at = moment.at
        written, drifts = core.report.take_values()
        self.oom_kills.read_log(memory, at, core.node_intent, core.report)
        if self._flight_recorder is None or self.recorder is None:
            return
        # By time; records of one moment in the order of cause and effect.
        if core.source_pods is not self._recorded_pods:
            self._recorded_pods = core.source_pods
            is_new = self._last is None or core.changed_at > self._last.now
            self._flight_recorder.record_pods(
                core.source_pods, moment.at_time(core.changed_at) if is_new else at
            )
        for drift in drifts:
            when = moment.at_time(drift.at)
            self._flight_recorder.record_drift(
                drift.path, drift.file, drift.expected, drift.found, drift.cause, when
            )
        for change, done in written:
            self._flight_recorder.record_write(change, moment.at_time(done))
        stall = stall_of(self._read_proc("pressure/memory"))
        available, total = memory.get("MemAvailable", 0), memory.get("MemTotal", 0)
        self._flight_recorder.record_pressure(
            at, available, total, stall.some.total, stall.full.total
        )
        self._flight_recorder.keep_only(containers, at)
        self._report_disk_fault(core.report)
        if self._writing is None or self._writing.done():
            live = list(self._flight_recorder.live_subjects)
            self._writing = self._writer.submit(self._flush, self.recorder, moment.now, live)

    def _report_disk_fault(self, report: Report) -> None:
        """Say once that nothing can be recorded, and once that it can again."""
        assert self.recorder is not None
        fault, before = self.recorder.fault, self._disk_fault
        self._disk_fault = fault
        if fault is not None and before is None:
            report.log("warning", "records cannot be written: is the disk full?", why=fault)
        elif fault is None and before is not None:
            report.log("info", "records are written again", lost=self.recorder.lost)

    def _flush(self, recorder: RecordWriter, now: float, live: list[Subject]) -> None:
        recorder.flush()
        if self._pruned_at is None or now - self._pruned_at > _PRUNE:
            self._pruned_at = now
            recorder.prune(live)

    def _read_events(self, path: str) -> str:
        return self._fs.read(path, EVENTS_FILE) or ""

    def _read_meminfo(self) -> dict[str, int]:
        return meminfo_of(self._read_proc("meminfo"))

    def _read_proc(self, name: str) -> str:
        try:
            with open(f"{self._proc}/{name}", encoding="ascii") as file:
                return file.read()
        except OSError:
            return ""


def sampler_of(
    configuration: AgentConfiguration, fs: CgroupFs, proc: str
) -> tuple[Sampler, str | None]:
    """The sampler of a configuration; why the kernel's log is not read, if it is not."""
    guard_config, recorder_config = configuration.guard, configuration.recorder
    guard = recorder = log = why = None
    if not guard_config.off:
        tuning = GuardTuning(
            period=guard_config.period, steps=guard_config.steps, calm=guard_config.calm
        )
        page_size = os.sysconf("SC_PAGE_SIZE")
        guard = NodeGuard(
            tuning, exclude_anonymous=guard_config.exclude_anonymous, page_size=page_size
        )
    if not recorder_config.off:
        bounds = RecordBounds(
            recorder_config.kib_each * _KI, recorder_config.containers, recorder_config.days
        )
        recorder = RecordWriter(recorder_config.folder, bounds, clock=record_clock_of(proc))
    try:
        log = KernelLog()
    except MemqosError as error:
        why = str(error)
    sampler = Sampler(
        fs, guard=guard, recorder=recorder, log=log, interval=guard_config.interval, proc=proc
    )
    return sampler, why


def _containers(core: Reconciler) -> Iterator[tuple[Pod, str, Cgroup]]:
    """The containers that are there, as planned: the pod, its path, the cgroup."""
    for path in tuple(core.observed.pods):
        intent = core.node_intent.by_path.get(path)
        for cgroup in () if intent is None else intent.cgroups:
            if intent is not None and cgroup.container and cgroup.path in core.observed:
                yield intent.pod, path, cgroup
