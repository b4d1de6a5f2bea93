"""Looks at what containers do: lets the guard judge, and has it recorded. Runs off the loop.

The kernel tells whose events have changed; now and then a container's usage is read. Only where
these have changed, or a minute has passed, all of its files are. What is written to the disk is
written by a thread of its own, so that a slow disk holds up nothing else.
"""

import os
from collections import Counter
from collections.abc import Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final, NamedTuple
from zlib import crc32

from memqos.agent.alarms import EVENTS, Alarms
from memqos.agent.configuration import Configuration
from memqos.agent.core.guard import Step, Tuning
from memqos.agent.core.guarding import Guard, Move
from memqos.agent.core.reconciler import Reconciler
from memqos.agent.deaths import Deaths, planned_for
from memqos.agent.recorder.chronicle import Chronicle, who_is
from memqos.agent.recorder.clock import Clock, clock_of
from memqos.agent.recorder.files import Bounds, Recorder
from memqos.agent.recorder.recording import FILES
from memqos.agent.recorder.records import Who
from memqos.agent.tally import Tally
from memqos.errors import MemqosError
from memqos.host.cgroups import CgroupFs
from memqos.host.kmsg import KernelLog
from memqos.kernel.meminfo import meminfo_of
from memqos.kernel.stall import stall_of
from memqos.kube.pod import Pod
from memqos.plan.names import inner
from memqos.plan.tree import Cgroup

_PRUNE: Final = 3600.0
_USAGE: Final = 15.0
"""Seconds after which what is in use is read, whatever the kernel tells."""
_FULLY: Final = 60.0
"""Seconds after which a container is looked at fully, whatever its files say."""
_CHANGE: Final = 0.05
"""Share of what was in use by which that must have changed to be worth a full look."""
_KI: Final = 1024


class _Brief(NamedTuple):
    """What is remembered of a container to see that nothing has become of it."""

    events: str
    current: int
    current_at: float
    """When that was read."""
    full_at: float
    """When the last full look was."""

    def is_current(self, now: float) -> bool:
        return now - self.current_at < _USAGE and now - self.full_at < _FULLY


class _Moment(NamedTuple):
    """One and the same moment by two clocks that nobody sets."""

    now: float
    """Seconds of the agent's clock."""
    at: int
    """Milliseconds since 1970, of the recorder's."""

    def earlier(self, then: float) -> int:
        """When that was by the recorder's clock, given the agent's."""
        return self.at - round((self.now - then) * 1000)


class Witness:
    """What an agent sees of its containers between two passes."""

    def __init__(
        self,
        fs: CgroupFs,
        *,
        guard: Guard | None = None,
        recorder: Recorder | None = None,
        log: KernelLog | None = None,
        interval: float = 5.0,
        proc: str = "/proc",
    ) -> None:
        self.guard = guard
        self.recorder = recorder
        self.moves: Counter[Step] = Counter()
        """Steps of the guard since the start."""
        self.due_at = float("-inf")
        self._fs = fs
        self._interval = interval
        self._proc = proc
        self._clock = Clock() if recorder is None else recorder.clock
        self._chronicle = None if recorder is None else Chronicle(recorder)
        self.deaths = Deaths(log, self._chronicle)
        self._told: object = None
        self._fault: str | None = None
        self._brief: dict[str, _Brief] = {}
        self._alarms = Alarms(fs.root)
        self._unheard: str | None = None
        self._last: _Moment | None = None
        self._pruned_at: float | None = None
        self._writer = ThreadPoolExecutor(1, "memqos-records")
        self._writing: Future[None] | None = None
        self._is_closed = False

    @property
    def containers(self) -> Collection[str]:
        """Cgroups of the containers that it samples."""
        return self._brief.keys()

    def look(self, core: Reconciler, now: float) -> None:
        """See what has become of the containers, and what to do about it."""
        self.due_at = now + self._interval
        moment = _Moment(now, int(self._clock() * 1000))
        memory = self._meminfo()
        swap_free = memory.get("SwapFree", 0)
        there: set[str] = set()
        places: set[str] = set()
        self._alarms.hear()
        for wish_pod, pod, cgroup in _containers(core):
            # crun keeps processes and limits one level down.
            within = inner(cgroup.path)
            place = within if within in core.cgroups else cgroup.path
            is_changed = self._is_changed(cgroup.path, place, core, now)
            if is_changed is None:
                continue
            there.add(cgroup.path)
            places.add(place)
            if is_changed:
                self._look_fully(core, wish_pod, pod, cgroup, place, moment, swap_free)
        self._forget(there, places)
        self._tell_unheard(core)
        self._record(core, memory, there, moment)
        self._last = moment

    def _is_changed(self, path: str, place: str, core: Reconciler, now: float) -> bool | None:
        """Whether a container is to be looked at fully; None of one that is gone."""
        identity, last = core.cgroups.by_path[place].identity, self._brief.get(path)
        is_silent = self._alarms.are_silent(place, identity)
        is_guarded = self.guard is not None and self.guard.is_at_it(path)
        if last is not None and is_silent and not is_guarded and last.is_current(now):
            return False
        if not is_silent:
            self._alarms.set(place, identity)
        events = last.events if last is not None and is_silent else self._events(place)
        is_same = last is not None and events == last.events and not is_guarded
        if last is not None and is_same and last.is_current(now):
            return False
        current = self._fs.read(place, "memory.current")
        if current is None or not current.isdecimal():
            return None
        usage = int(current)
        if last is None:
            # Those that are met at once are not all looked at at once ever after.
            early = crc32(path.encode()) / (1 << 32)
            self._brief[path] = _Brief(events, usage, now - early * _USAGE, now - early * _FULLY)
            return True
        if (
            is_same
            and now - last.full_at < _FULLY
            and abs(usage - last.current) <= _CHANGE * last.current
        ):
            self._brief[path] = last._replace(current_at=now)
            return False
        self._brief[path] = _Brief(events, usage, now, now)
        return True

    def _look_fully(
        self,
        core: Reconciler,
        wish_pod: Pod,
        pod: str,
        cgroup: Cgroup,
        place: str,
        moment: _Moment,
        swap_free: int,
    ) -> None:
        self._unchanged_until_last(cgroup.path)
        files = self._fs.read_all(place, FILES)
        if self._chronicle is not None:
            who = who_is(wish_pod, cgroup.container or "")
            self._chronicle.looked(cgroup.path, who, files, moment.at, swap_free)
        self._guard(core, cgroup, pod, files, moment, swap_free)

    def _unchanged_until_last(self, path: str) -> None:
        """What has become of a container has done so since the last look."""
        if self._last is None:
            return
        if self.guard is not None:
            self.guard.unchanged(path, self._last.now)
        if self._chronicle is not None:
            self._chronicle.unchanged(path, self._last.at)

    def _forget(self, there: set[str], places: set[str]) -> None:
        for path in self._brief.keys() - there:
            self._unchanged_until_last(path)
            del self._brief[path]
        if self.guard is not None:
            self.guard.keep_only(there)
        self._alarms.keep_only(places)

    def _tell_unheard(self, core: Reconciler) -> None:
        unheard, self._unheard = self._unheard, self._alarms.failure
        if self._unheard not in (None, unheard):
            core.tally.say("warning", f"events of containers have to be read: {self._unheard}")

    def close(self) -> None:
        """Have all that was seen on the disk; it may be called again."""
        if self._is_closed:
            return
        self._is_closed = True
        self.deaths.end(self._meminfo(), int(self._clock() * 1000), lambda path: None)
        self.deaths.close()
        if self.recorder is not None:
            self._writer.submit(self.recorder.flush)
        self._writer.shutdown()
        self._alarms.close()

    def _guard(
        self,
        core: Reconciler,
        cgroup: Cgroup,
        pod: str,
        files: dict[str, str],
        moment: _Moment,
        swap_free: int,
    ) -> None:
        if self.guard is None or not core.aims.is_enforced(cgroup, pod):
            return
        excluded = cgroup.path in self.guard.excluded
        move = self.guard.look(cgroup, files, moment.now, swap_free)
        if move is not None:
            self._moved(core, cgroup, move, moment.at)
        if move is not None or excluded != (cgroup.path in self.guard.excluded):
            core.schedule.look_at(pod, moment.now)

    def _moved(self, core: Reconciler, cgroup: Cgroup, move: Move, at: int) -> None:
        assert self.guard is not None
        kind = move.decision.kind
        if kind == "keep":
            return
        self.moves[kind] += 1
        if self._chronicle is not None:
            self._chronicle.moved(move, self.guard.tuning.steps, at)
        core.tally.say(
            "warning" if kind == "widen" else "info",
            "the guard widens memory.high: it cannot progress"
            if kind == "widen"
            else "the guard narrows memory.high: the pressure is gone",
            pod=cgroup.pod or "",
            container=cgroup.container or "",
            planned=move.planned,
            high="max" if move.decision.high is None else move.decision.high,
            step=f"{move.decision.step} of {self.guard.tuning.steps}",
        )

    def _record(
        self, core: Reconciler, memory: dict[str, int], there: set[str], moment: _Moment
    ) -> None:
        at = moment.at
        written, drifts = core.tally.taken_values()
        self.deaths.hear(memory, at, partial(planned_for, core.aims))
        if self._chronicle is None or self.recorder is None:
            return
        # Each at its own time, and at one and the same time in the order of cause and effect.
        if core.told is not self._told:
            self._told = core.told
            is_new = self._last is None or core.changed_at > self._last.now
            self._chronicle.pods(core.told, moment.earlier(core.changed_at) if is_new else at)
        for drift in drifts:
            when = moment.earlier(drift.at)
            self._chronicle.drifted(
                drift.path, drift.file, drift.held, drift.found, drift.cause, when
            )
        for change, done in written:
            self._chronicle.wrote(change, moment.earlier(done))
        stall = stall_of(self._text("pressure/memory"))
        available, total = memory.get("MemAvailable", 0), memory.get("MemTotal", 0)
        self._chronicle.pressed(at, available, total, stall.some.total, stall.full.total)
        self._chronicle.keep_only(there, at)
        self._tell_of_the_disk(core.tally)
        if self._writing is None or self._writing.done():
            living = list(self._chronicle.living)
            self._writing = self._writer.submit(self._flush, self.recorder, moment.now, living)

    def _tell_of_the_disk(self, tally: Tally) -> None:
        """Say once that nothing can be recorded, and once that it can again."""
        assert self.recorder is not None
        fault, before = self.recorder.fault, self._fault
        self._fault = fault
        if fault is not None and before is None:
            tally.say("warning", "nothing is recorded: the disk does not take it", why=fault)
        elif fault is None and before is not None:
            tally.say("info", "recording goes on", lost=self.recorder.lost)

    def _flush(self, recorder: Recorder, now: float, living: list[Who]) -> None:
        recorder.flush()
        if self._pruned_at is None or now - self._pruned_at > _PRUNE:
            self._pruned_at = now
            recorder.prune(living)

    def _events(self, path: str) -> str:
        return self._fs.read(path, EVENTS) or ""

    def _meminfo(self) -> dict[str, int]:
        return meminfo_of(self._text("meminfo"))

    def _text(self, name: str) -> str:
        try:
            with open(f"{self._proc}/{name}", encoding="ascii") as file:
                return file.read()
        except OSError:
            return ""


def witness_of(configuration: Configuration, fs: CgroupFs, proc: str) -> tuple[Witness, str | None]:
    """The witness that a configuration asks for; why the kernel's log is not read, if it is not."""
    guarding, recording = configuration.guard, configuration.recorder
    guard = recorder = log = why = None
    if not guarding.off:
        tuning = Tuning(period=guarding.period, steps=guarding.steps, calm=guarding.calm)
        page_size = os.sysconf("SC_PAGE_SIZE")
        guard = Guard(tuning, exclude_anonymous=guarding.exclude_anonymous, page_size=page_size)
    if not recording.off:
        bounds = Bounds(recording.kib_each * _KI, recording.containers, recording.days)
        recorder = Recorder(recording.folder, bounds, clock=clock_of(proc))
    try:
        log = KernelLog()
    except MemqosError as error:
        why = str(error)
    witness = Witness(
        fs, guard=guard, recorder=recorder, log=log, interval=guarding.interval, proc=proc
    )
    return witness, why


def _containers(core: Reconciler) -> Iterator[tuple[Pod, str, Cgroup]]:
    """The containers that are there, as planned: the pod, its path, the cgroup."""
    for path in tuple(core.cgroups.pods):
        wish = core.aims.by_path.get(path)
        for cgroup in () if wish is None else wish.cgroups:
            if wish is not None and cgroup.container and cgroup.path in core.cgroups:
                yield wish.pod, path, cgroup
