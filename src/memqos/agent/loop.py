"""The loop of an agent: waits for events and deadlines, and runs passes in a worker thread."""

import asyncio
import logging
import random
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from memqos.agent.configuration import AgentConfiguration
from memqos.agent.core.report import ErrorKind
from memqos.agent.core.schedule import Backoff
from memqos.agent.core.view import node_view
from memqos.agent.events import EventLog, LibraryLogHandler
from memqos.agent.kernel_counters import CgroupCounters, CounterSchedule, read_counters
from memqos.agent.metrics import metric_families
from memqos.agent.node_reader import NodeReader, ignore_notification
from memqos.agent.node_writer import NodeWriter
from memqos.agent.reconcile import build_reconciler, note_kubelet_reply, reconfigure, run_pass
from memqos.agent.sampler import Sampler
from memqos.agent.state import AgentStatus, AgentView, EventCounts, agent_state
from memqos.agent.watches import FolderWatches, WatchEvent
from memqos.converge.rollback import refusal
from memqos.converge.steps import FAILED
from memqos.errors import JournalError, MemqosError
from memqos.host.sd_notify import ServiceNotifier
from memqos.plan.changes import magnitude
from memqos.serve.endpoints import monitoring_routes, parse_listen_address, state_route
from memqos.serve.exposition import Family
from memqos.serve.http import listen, listen_on_socket

if TYPE_CHECKING:
    from memqos.agent.nri import NriPlugin

_GATHER: Final = 0.02
"""Seconds in which events are collected after the first: cgroups are made in bursts."""
_PASS: Final = "pass"
_NEEDS_RESTART: Final = (
    "journal",
    "cgroup_root",
    "listen",
    "state_socket",
    "log_format",
    "guard",
    "recorder",
    "nri",
    "nri_socket",
)
"""Fields of the configuration that take a restart to change."""

LoadConfiguration = Callable[[], AgentConfiguration]
"""Reads the configuration again."""


class Agent:
    """Keeps one node converged until it is stopped."""

    def __init__(
        self,
        reader: NodeReader,
        writer: NodeWriter,
        *,
        load: LoadConfiguration,
        log: EventLog,
        service: ServiceNotifier,
        version: str,
        sampler: Sampler | None = None,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._sampler = sampler
        self._load = load
        self._log = log
        self._service = service
        self._clock = time.monotonic
        now = self._clock()
        guard = None if sampler is None else sampler.guard
        self.core = build_reconciler(reader, writer, now, guard)
        """The worker's alone while a turn runs: everybody else reads `view`."""
        self._status = AgentStatus(version=version, passed_at=now, reloaded=time.time())
        self._counters: dict[str, CgroupCounters] = {}
        self._nri: NriPlugin | None = None
        self.view = self._new_view()
        """The agent at the end of the last turn. It never changes; each turn sets another."""
        self._watches = FolderWatches(reader.fs.root, self._manifests())
        self._watch_events: list[WatchEvent] = []
        self._wake = asyncio.Event()
        self._stopping = False
        self._reloading = False
        self._needs_watch_update = False
        self._is_ready_sent = False
        self._status_text = ""
        self._retries = Backoff()
        self._counter_schedule = CounterSchedule()

    async def run(self) -> int:
        """Until SIGTERM or SIGINT; the exit code."""
        loop = asyncio.get_running_loop()
        # Passes and samples follow one another: the core has no lock.
        worker = ThreadPoolExecutor(1, "memqos")
        async with AsyncExitStack() as stack:
            stack.callback(worker.shutdown)
            await self._serve(stack)
            self._update_watches()
            loop.add_reader(self._watches.fileno(), self._read_watches)
            stack.callback(self._watches.close)
            stack.callback(loop.remove_reader, self._watches.fileno())
            self._follow_sources(loop, stack)
            self._start_nri(loop)
            stack.callback(self._stop_nri)
            self._handle_signals(loop, stack)
            self._start_watchdog(stack)
            while not self._stopping:
                await self._wait()
                if not self._stopping:
                    events, self._watch_events = self._watch_events, []
                    await loop.run_in_executor(worker, self._turn, events)
                    self._after_turn()
            self._service.notify(STOPPING=1, STATUS="stopping")
            # Before values are put back: from now on nothing is set that would have to be.
            self._stop_nri()
            return await loop.run_in_executor(worker, self._shut_down)

    # In the event loop.

    async def _serve(self, stack: AsyncExitStack) -> None:
        configuration = self._reader.configuration
        forwarding = LibraryLogHandler(self._log)
        logging.getLogger().addHandler(forwarding)
        stack.callback(logging.getLogger().removeHandler, forwarding)
        routes = monitoring_routes(
            self._families,
            lambda: self.view.health_problem(self._clock()),
            self._readiness_problem,
        )
        address = parse_listen_address(configuration.listen)
        listener = await listen(routes, address.host, address.port)
        stack.push_async_callback(listener.close)
        states = state_route(lambda: agent_state(self.view, self._clock()))
        on_socket = await listen_on_socket(states, configuration.state_socket)
        stack.push_async_callback(on_socket.close)
        self._log.log(
            "info",
            "started",
            mode=configuration.mode,
            pods=self._reader.source.describe(),
            metrics=listener.address,
            state=on_socket.address,
        )

    def _readiness_problem(self) -> str | None:
        return self.view.readiness_problem()

    def _families(self) -> list[Family]:
        self._counter_schedule.note_scrape(self._clock())
        self._wake.set()
        return list(metric_families(self.view, self._reader.roots.proc))

    def _follow_sources(self, loop: asyncio.AbstractEventLoop, stack: AsyncExitStack) -> None:
        """Have the threads of sources wake the loop."""

        def ignore() -> None:
            self._reader.on_pods = self._reader.on_answer = ignore_notification

        self._reader.on_pods = self._notifier(loop, WatchEvent("pods"))
        self._reader.on_answer = self._notifier(loop, WatchEvent("answer"))
        stack.callback(ignore)

    def _notifier(self, loop: asyncio.AbstractEventLoop, event: WatchEvent) -> Callable[[], object]:
        """For other threads to call."""
        return partial(loop.call_soon_threadsafe, self._note_watch_event, event)

    def _start_nri(self, loop: asyncio.AbstractEventLoop) -> None:
        """Become a plugin of the runtime; its thread reads views, and wakes the loop."""
        configuration, fs = self._reader.configuration, self._reader.fs
        if configuration.nri == "off":
            return
        from memqos.agent.nri import WRITE_SECONDS, NriPlugin, NriRuntime

        plugin = self._nri = NriPlugin(
            configuration.nri_socket,
            view=lambda: self.view.node,
            journal=self._writer,
            read_usage=lambda path: magnitude(fs.read(path, "memory.current") or "0"),
            own_cgroup=self._reader.read_own_cgroup(),
            log=self._log,
        )
        self._writer.set_nri(NriRuntime(plugin, WRITE_SECONDS), lambda: plugin.runtime is not None)
        plugin.on_connected = self._notifier(loop, WatchEvent("missed"))
        plugin.on_unknown = self._notifier(loop, WatchEvent("pods"))
        plugin.start()

    def _stop_nri(self) -> None:
        plugin, self._nri = self._nri, None
        if plugin is not None:
            plugin.stop()

    def _handle_signals(self, loop: asyncio.AbstractEventLoop, stack: AsyncExitStack) -> None:
        handlers = {
            signal.SIGTERM: self.stop,
            signal.SIGINT: self.stop,
            signal.SIGHUP: self.reload,
        }
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
            stack.callback(loop.remove_signal_handler, number)

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()

    def reload(self) -> None:
        """Read the configuration again at the next turn."""
        self._reloading = True
        self._wake.set()

    def _read_watches(self) -> None:
        self._watch_events += self._watches.read_events()
        if self._watch_events:
            self._wake.set()

    def _note_watch_event(self, event: WatchEvent) -> None:
        self._watch_events.append(event)
        self._wake.set()

    async def _wait(self) -> None:
        """Until something happens or is due, and then a little for what comes with it."""
        at = min(self.core.schedule.due_at, self._counter_schedule.due_at)
        if self._sampler is not None:
            at = min(at, self._sampler.due_at)
        try:
            async with asyncio.timeout(max(0.0, at - self._clock())):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()
        if self._watch_events:
            await asyncio.sleep(_GATHER)

    def _after_turn(self) -> None:
        """What is to be done after a turn, on the loop."""
        self._announce()
        self._log.write(self.core.report.take_log_events())
        if self.view.status.is_complete:
            self._send_status()
        if self._needs_watch_update:
            # New folders, and those that could not be watched before.
            self._needs_watch_update = False
            self._update_watches()

    def _send_status(self) -> None:
        """What `systemctl status` shows."""
        text = self.view.readiness_problem() or "keeping the node converged"
        if text != self._status_text:
            self._status_text = text
            self._service.notify(STATUS=text)

    def _announce(self) -> None:
        report, announcer = self.core.report, self._reader.announcer
        announcements = report.take_announcements()
        if announcer is None:
            return
        announcer.accept(announcements, self._clock())
        if self._needs_watch_update:
            announcer.keep_only_pods(self.core.source_pods)
        complaint = announcer.poster.complaint()
        if complaint is not None:
            report.log("warning", f"events are not all told: {complaint}")

    def _update_watches(self) -> None:
        before = self._watches.failure
        self._watches.update(self.core.planner.names, self._manifests())
        if self._watches.failure not in (None, before):
            self._log.log("warning", f"not all is watched: {self._watches.failure}")

    def _start_watchdog(self, stack: AsyncExitStack) -> None:
        if self._service.watchdog is not None:
            task = asyncio.create_task(self._keep_alive(self._service.watchdog / 2))
            stack.callback(task.cancel)

    async def _keep_alive(self, interval: float) -> None:
        while True:
            if self.view.health_problem(self._clock()) is None:
                self._service.notify(WATCHDOG=1)
            await asyncio.sleep(interval)

    # In the worker thread, which may block.

    def _turn(self, events: list[WatchEvent]) -> None:
        """Do what is to be done; nothing that goes wrong ends the agent."""
        try:
            self._run_due(events, self._clock())
            self._set_status(passed_at=self._clock())
        except JournalError as error:
            self._note_failure("journal", str(error))
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
        return AgentView(
            status=self._status,
            node=node_view(self.core),
            pod_source=self._reader.source.describe(),
            counters=self._counters,
            sampler=None if self._sampler is None else self._sampler.view(),
            events=None if poster is None else EventCounts(poster.sent, poster.dropped),
            nri=None if self._nri is None else self._nri.view(),
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
        if self._counter_schedule.take_due(now):
            root, kubepods = self._reader.fs.root, self.core.planner.names.kubepods
            self._counters = read_counters(root, kubepods)

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
        if not self._is_ready_sent:
            # Ready without pods, too: the kubelet may be started after the agent.
            self._is_ready_sent = True
            self._service.notify(READY=1)
        if complete:
            self._needs_watch_update = True
            self._set_status(resynced=time.time(), is_complete=True)

    def _note_failure(self, kind: ErrorKind, why: str) -> None:
        self.core.resync(self._clock() + self._retries.note_failure(_PASS, self._clock()))
        if why == self._status.failing:
            self.core.report.errors[kind] += 1
        else:
            self.core.report.log_error(kind, why)
        self._status = self._status.with_failure(why, self._clock())

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
        except MemqosError as error:
            self._configure(before)
            self._set_status(reload_fault=str(error))
            report.log_error("configuration", f"the running configuration stays: {error}")
        else:
            self._set_status(reload_fault=None, reloaded=time.time())
            report.log("info", "reloaded", mode=loaded.mode)
            for name in _NEEDS_RESTART:
                if getattr(loaded, name) != fixed[name]:
                    report.log("warning", f"{name} takes a restart to change")
        self._service.notify(READY=1)

    def _configure(self, configuration: AgentConfiguration) -> None:
        self._reader.configure(configuration)
        self._writer.configure(configuration)

    def _shut_down(self) -> int:
        code = 0
        if self._writer.configuration.rollback_on_exit:
            try:
                done = self._writer.restore_all()
            except MemqosError as error:
                self._log.log("error", f"not put back: {error}")
                return 1
            code = int(any(result.outcome in FAILED for result in done.results))
            put_back = sum(result.outcome == "written" for result in done.results)
            why = "the kubelet's configuration does not name it as a reserved cgroup"
            for path in done.refused:
                self._log.log("warning", refusal(path, why))
            self._log.log("info", "put back", values=put_back)
        if self._sampler is not None:
            self._sampler.close()
        self._log.log("info", "stopped")
        return code

    def _manifests(self) -> tuple[str, ...]:
        pods = self._reader.configuration.pods
        return pods.files if pods.origin == "files" else ()
