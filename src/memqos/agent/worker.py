"""What an agent's worker thread does: a turn at a time, at whose end it publishes a view.

A turn may block. While it runs the loop does not touch the core, and answers out of the last view.
"""

import errno
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from memqos.agent.configuration import AgentConfiguration
from memqos.agent.core.report import ErrorKind
from memqos.agent.core.schedule import Backoff
from memqos.agent.core.view import node_view
from memqos.agent.events import EventLog
from memqos.agent.kernel_counters import CgroupCounters, CounterSchedule, read_counters
from memqos.agent.node_reader import NodeReader
from memqos.agent.node_writer import NodeWriter
from memqos.agent.reconcile import build_reconciler, note_kubelet_reply, reconfigure, run_pass
from memqos.agent.sampler import Sampler
from memqos.agent.state import AgentStatus, AgentView, EventCounts
from memqos.agent.watches import WatchEvent
from memqos.converge.rollback import refusal, unconfirmed_conflict
from memqos.converge.steps import FAILED
from memqos.errors import JournalError, MemqosError
from memqos.host.sd_notify import ServiceNotifier

if TYPE_CHECKING:
    from memqos.agent.nri import NriPlugin

_PASS: Final = "pass"
_DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_NEEDS_RESTART: Final = (
    "journal",
    "cgroup_root",
    "listen",
    "endpoint",
    "state_socket",
    "log_format",
    "guard",
    "recorder",
    "nri",
    "nri_socket",
    "nri_deadline",
)
"""Fields of the configuration that take a restart to change."""

LoadConfiguration = Callable[[], AgentConfiguration]
"""Reads the configuration again."""


class Worker:
    """Does what is due on the node, and takes in what has happened."""

    def __init__(
        self,
        reader: NodeReader,
        writer: NodeWriter,
        *,
        load: LoadConfiguration,
        log: EventLog,
        service: ServiceNotifier,
        version: str,
        sampler: Sampler | None,
        clock: Callable[[], float],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._sampler = sampler
        self._load = load
        self._log = log
        self._service = service
        self._clock = clock
        now = clock()
        guard = None if sampler is None else sampler.guard
        self.core = build_reconciler(reader, writer, now, guard)
        """This thread's alone while a turn runs: everybody else reads `view`."""
        self._status = AgentStatus(version=version, passed_at=now, reloaded=time.time())
        self._counters: dict[str, CgroupCounters] = {}
        self._counters_at = now
        self.counter_schedule = CounterSchedule()
        self.nri: NriPlugin | None = None
        self.needs_watch_update = False
        """Whether a turn has looked at all pods: their folders may be others now."""
        self._reloading = False
        self._is_ready_sent = False
        self._retries = Backoff()
        self.view = self._new_view()
        """The agent at the end of the last turn. It never changes; each turn sets another."""

    @property
    def due_at(self) -> float:
        """When the next turn is due, if nothing happens before."""
        at = min(self.core.schedule.due_at, self.counter_schedule.due_at)
        return at if self._sampler is None else min(at, self._sampler.due_at)

    def reload(self) -> None:
        """Read the configuration again at the next turn."""
        self._reloading = True

    def run_turn(self, events: list[WatchEvent]) -> None:
        """Do what is to be done; nothing that goes wrong ends the agent."""
        try:
            self._run_due(events, self._clock())
            self._set_status(passed_at=self._clock())
        except JournalError as error:
            is_full = error.errno in _DISK_FULL
            self._note_failure("journal", str(error), may_restart=not is_full)
            if is_full:
                # A restart frees no disk: the agent is up, observes, and is not ready until it can
                # write again.
                self._set_status(passed_at=self._clock())
                self._send_ready()
        except (MemqosError, OSError) as error:
            self._note_failure("read", str(error))
        except Exception as error:
            # An unforeseen error must not end the agent, and with it the protection of the node.
            self._note_failure("other", f"{type(error).__name__}: {error}")
        try:
            self.view = self._new_view()
        except Exception as error:
            # The last view stays, and ages: the health check has the agent restarted.
            self._note_failure("other", f"{type(error).__name__}: {error}")

    def _new_view(self) -> AgentView:
        announcer = self._reader.announcer
        poster = None if announcer is None else announcer.poster
        node = node_view(self.core)
        if node.is_converged != (self._status.converged_since is not None):
            self._set_status(converged_since=self._clock() if node.is_converged else None)
        return AgentView(
            status=self._status,
            node=node,
            pod_source=self._reader.source.describe(),
            counters=self._counters,
            counters_at=self._counters_at,
            sampler=None if self._sampler is None else self._sampler.view(),
            events=None if poster is None else EventCounts(poster.sent, poster.dropped),
            nri=None if self.nri is None else self.nri.view(),
        )

    def _set_status(self, **changed: Any) -> None:
        self._status = msgspec.structs.replace(self._status, **changed)

    def _run_due(self, events: list[WatchEvent], now: float) -> None:
        """Reload if asked to, take in events, do what is due, and sample."""
        if self._reloading:
            self._reloading = False
            self._reload(now)
        for each in events:
            self._accept_watch_event(each, now)
        if self.core.schedule.due_at <= now:
            self._pass()
        self._sample_containers(now)
        if self.counter_schedule.take_due(now):
            root, kubepods = self._reader.fs.root, self.core.planner.names.kubepods
            self._counters = read_counters(root, kubepods)
            self._counters_at = now

    def _sample_containers(self, now: float) -> None:
        """A sample that fails must not end the turn: values are more urgent than records."""
        if self._sampler is None or self._sampler.due_at > now:
            return
        try:
            self._sampler.sample(self.core, now)
        except Exception as error:
            self.core.report.log_error("other", f"{type(error).__name__}: {error}")

    def _accept_watch_event(self, event: WatchEvent, now: float) -> None:
        core = self.core
        if event.kind == "appeared":
            core.note_cgroup_created(event.path, now)
        elif event.kind == "vanished":
            core.note_cgroup_removed(event.path, now)
        elif event.kind == "limited":
            core.note_limit_write(event.path, now)
        elif event.kind == "pods":
            core.schedule.schedule_fetch(now)
        elif event.kind == "answer":
            note_kubelet_reply(core, self._reader, now)
        else:
            core.resync(now)

    def _pass(self) -> None:
        is_full = self.core.schedule.resync_at <= self._clock()
        complete = run_pass(self.core, self._reader, self._writer, self._clock, random.random)
        if is_full:
            # Only a full pass counts: partial ones may succeed while every full one fails.
            self._set_status(failing=None)
            self._retries.clear(_PASS)
            self._writer.rewrite_journal()
        self._set_status(journal_fault=self._writer.journal_fault)
        self._send_ready()
        if complete:
            self.needs_watch_update = True
            self._set_status(resynced=time.time(), is_complete=True)

    def _send_ready(self) -> None:
        """Ready without pods, too: the kubelet may be started after the agent."""
        if not self._is_ready_sent:
            self._is_ready_sent = True
            self._service.notify(READY=1)

    def _note_failure(self, kind: ErrorKind, why: str, *, may_restart: bool = True) -> None:
        now = self._clock()
        # While partial passes fail, too, they do not put off the resync that is already scheduled.
        if self._status.failing is None or self.core.is_full_pass:
            self.core.resync(now + self._retries.note_failure(_PASS, now))
        if why == self._status.failing:
            self.core.report.errors[kind] += 1
        else:
            self.core.report.log_error(kind, why)
        self._status = self._status.with_failure(why, now, may_restart=may_restart)

    def _reload(self, now: float) -> None:
        """A configuration that cannot be read, or cannot be used, changes nothing."""
        report = self.core.report
        self._service.notify(RELOADING=1, MONOTONIC_USEC=time.monotonic_ns() // 1000)
        before = self._reader.configuration
        try:
            loaded = self._load()
            fixed = {name: getattr(before, name) for name in _NEEDS_RESTART}
            self._configure(msgspec.structs.replace(loaded, **fixed))
            reconfigure(self.core, self._reader, self._writer, now)
        except (MemqosError, OSError) as error:
            self._configure(before)
            self._set_status(reload_fault=str(error))
            report.log_error("configuration", f"the previous configuration stays in use: {error}")
        else:
            self._set_status(reload_fault=None, reloaded=time.time())
            report.log("info", "reloaded", mode=loaded.mode)
            for name in _NEEDS_RESTART:
                if getattr(loaded, name) != fixed[name]:
                    report.log("warning", f"{name} needs a restart to change")
        finally:
            self._service.notify(READY=1)

    def _configure(self, configuration: AgentConfiguration) -> None:
        self._reader.configure(configuration)
        self._writer.configure(configuration)

    def shut_down(self) -> int:
        """Restore what was there before, if the configuration says so; the exit code."""
        code = self._restore_all() if self._writer.configuration.rollback_on_exit else 0
        if self._sampler is not None:
            self._sampler.close()
        self._log.log("info", "stopped")
        return code

    def _restore_all(self) -> int:
        """The exit code: 1 where something is not restored."""
        try:
            done = self._writer.restore_all()
        except (MemqosError, OSError) as error:
            self._log.log("error", f"not restored: {error}")
            return 1
        why = "the kubelet's configuration does not name it as a reserved cgroup"
        for path in done.refused:
            self._log.log("warning", refusal(path, why))
        why = "the kubelet has not confirmed that it keeps it"
        for each in done.not_written:
            if each.state == "unconfirmed":
                self._log.log("warning", unconfirmed_conflict(each, why))
        restored = sum(result.outcome == "written" for result in done.results)
        self._log.log("info", "restored", values=restored)
        return int(any(result.outcome in FAILED for result in done.results))
