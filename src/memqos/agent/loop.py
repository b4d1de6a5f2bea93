"""The loop of an agent: waits for events and deadlines, and has passes run off the loop."""

import asyncio
import logging
import random
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

import msgspec

from memqos.agent.configuration import AgentConfiguration
from memqos.agent.core.report import ErrorKind
from memqos.agent.core.schedule import Backoff
from memqos.agent.events import EventLog, LibraryLogHandler
from memqos.agent.kernel_counters import CounterSchedule, read_counters
from memqos.agent.metrics import metric_families
from memqos.agent.node_writer import NodeWriter, ignore_pod_changes
from memqos.agent.reconcile import build_reconciler, note_kubelet_reply, reconfigure, run_pass
from memqos.agent.sampler import Sampler
from memqos.agent.state import AgentStatus, agent_state
from memqos.agent.watches import FolderWatches, WatchEvent
from memqos.converge.rollback import refusal
from memqos.converge.steps import FAILED
from memqos.errors import MemqosError
from memqos.host.sd_notify import ServiceNotifier
from memqos.serve.endpoints import monitoring_routes, parse_listen_address, state_route
from memqos.serve.exposition import Family
from memqos.serve.http import listen, listen_on_socket

_GATHER: Final = 0.02
"""Seconds in which events gather after the first: cgroups are made in bursts."""
_PASS: Final = "pass"
_NEEDS_RESTART: Final = (
    "journal",
    "cgroup_root",
    "listen",
    "state_socket",
    "log_format",
    "guard",
    "recorder",
)
"""What of a configuration takes a restart."""

LoadConfiguration = Callable[[], AgentConfiguration]
"""Reads the configuration anew."""


class Agent:
    """Keeps one node converged until it is told to stop."""

    def __init__(
        self,
        node: NodeWriter,
        load: LoadConfiguration,
        log: EventLog,
        service: ServiceNotifier,
        version: str,
        sampler: Sampler | None = None,
    ) -> None:
        self._node = node
        self._sampler = sampler
        self._load = load
        self._log = log
        self._service = service
        self._clock = time.monotonic
        now = self._clock()
        core = build_reconciler(node, now, None if sampler is None else sampler.guard)
        self.status = AgentStatus(core, version, now, time.time(), sampler)
        self._watches = FolderWatches(node.fs.root, self._manifests())
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
            for name, told in (
                ("on_pods", WatchEvent("pods")),
                ("on_answer", WatchEvent("answer")),
            ):
                setattr(
                    self._node,
                    name,
                    partial(loop.call_soon_threadsafe, self._note_watch_event, told),
                )
                stack.callback(setattr, self._node, name, ignore_pod_changes)
            self._handle_signals(loop, stack)
            self._start_watchdog(stack)
            while not self._stopping:
                await self._wait()
                if not self._stopping:
                    news, self._watch_events = self._watch_events, []
                    await loop.run_in_executor(worker, self._turn, news)
                    self._after_turn()
            self._service.notify(STOPPING=1, STATUS="stopping")
            return await loop.run_in_executor(worker, self._shut_down)

    # In the event loop.

    async def _serve(self, stack: AsyncExitStack) -> None:
        configuration = self._node.configuration
        forwarding = LibraryLogHandler(self._log)
        logging.getLogger().addHandler(forwarding)
        stack.callback(logging.getLogger().removeHandler, forwarding)
        routes = monitoring_routes(
            self._families,
            lambda: self.status.health_problem(self._clock()),
            self.status.readiness_problem,
        )
        address = parse_listen_address(configuration.listen)
        listener = await listen(routes, address.host, address.port)
        stack.push_async_callback(listener.close)
        states = state_route(lambda: agent_state(self.status, self._clock()))
        on_socket = await listen_on_socket(states, configuration.state_socket)
        stack.push_async_callback(on_socket.close)
        self._log.log(
            "info",
            "started",
            mode=configuration.mode,
            pods=self._node.source.describe(),
            metrics=listener.address,
            state=on_socket.address,
        )

    def _families(self) -> list[Family]:
        self._counter_schedule.note_scrape(self._clock())
        self._wake.set()
        return list(metric_families(self.status, self._node.roots.proc))

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
        """Read the configuration anew at the next turn."""
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
        at = min(self.status.core.schedule.due_at, self._counter_schedule.due_at)
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
        self._log.write(self.status.core.report.take_log_events())
        if self._needs_watch_update:
            # New folders, and those that could not be watched before.
            self._needs_watch_update = False
            self._update_watches()

    def _announce(self) -> None:
        core = self.status.core
        announcer = self.status.announcer = self._node.announcer
        happened = core.report.take_announcements()
        if announcer is None:
            return
        announcer.accept(happened, self._clock())
        if self._needs_watch_update:
            announcer.keep_only_pods(core.source_pods)
        complaint = announcer.poster.complaint()
        if complaint is not None:
            core.report.log("warning", f"events are not all told: {complaint}")

    def _update_watches(self) -> None:
        before = self._watches.failure
        self._watches.update(self.status.core.planner.names, self._manifests())
        if self._watches.failure not in (None, before):
            self._log.log("warning", f"not all is watched: {self._watches.failure}")

    def _start_watchdog(self, stack: AsyncExitStack) -> None:
        if self._service.watchdog is not None:
            task = asyncio.create_task(self._keep_alive(self._service.watchdog / 2))
            stack.callback(task.cancel)

    async def _keep_alive(self, interval: float) -> None:
        while True:
            if self.status.health_problem(self._clock()) is None:
                self._service.notify(WATCHDOG=1)
            await asyncio.sleep(interval)

    # In the worker thread, which may block.

    def _turn(self, events: list[WatchEvent]) -> None:
        """Do what is to be done; nothing that goes wrong ends the agent."""
        try:
            self._run_due(events, self._clock())
            self.status.passed_at = self._clock()
        except (MemqosError, OSError) as error:
            self._note_failure("journal" if "journal" in str(error) else "read", str(error))
        except Exception as error:
            # An unforeseen error must not end the agent, and with it the protection of the node.
            self._note_failure("other", f"{type(error).__name__}: {error}")

    def _run_due(self, events: list[WatchEvent], now: float) -> None:
        """Reload if asked to, take in the news, do what is due, and sample."""
        core = self.status.core
        if self._reloading:
            self._reloading = False
            self._reload(now)
        for each in events:
            self._accept_watch_event(each, now)
        if core.schedule.due_at <= now:
            self._pass()
        self._sample_containers(now)
        if self._counter_schedule.take_due(now):
            self.status.counters = read_counters(self._node.fs.root, core.planner.names.kubepods)

    def _sample_containers(self, now: float) -> None:
        """What is only watched and recorded must not hold up what is kept."""
        if self._sampler is None or self._sampler.due_at > now:
            return
        try:
            self._sampler.sample(self.status.core, now)
        except Exception as error:
            self.status.core.report.log_error("other", f"{type(error).__name__}: {error}")

    def _accept_watch_event(self, event: WatchEvent, now: float) -> None:
        core = self.status.core
        if event.kind == "appeared":
            core.note_cgroup_created(event.path, now)
        elif event.kind == "vanished":
            core.note_cgroup_removed(event.path, now)
        elif event.kind == "limited":
            core.note_limit_write(event.path, now)
        elif event.kind == "pods":
            core.schedule.schedule_fetch(now)
        elif event.kind == "answer":
            note_kubelet_reply(core, self._node, now)
        else:
            core.resync(now)

    def _pass(self) -> None:
        is_whole = self.status.core.schedule.resync_at <= self._clock()
        complete = run_pass(self.status.core, self._node, self._clock, random.random)
        if is_whole:
            # Only a full pass counts: partial ones may succeed while every full one fails.
            self.status.recover()
            self._retries.clear(_PASS)
            self._node.rewrite_journal()
        self.status.journal_fault = self._node.journal_fault
        if not self._is_ready_sent:
            # Ready without pods, too: the kubelet may be started after the agent.
            self._is_ready_sent = True
            self._service.notify(READY=1)
        if complete:
            self._needs_watch_update = True
            self.status.resynced = time.time()
            self.status.is_complete = True
        if self.status.is_complete:
            self._send_status()

    def _send_status(self) -> None:
        """What `systemctl status` shows."""
        work = self.status.readiness_problem() or "keeping the node converged"
        if work != self._status_text:
            self._status_text = work
            self._service.notify(STATUS=work)

    def _note_failure(self, kind: ErrorKind, why: str) -> None:
        core = self.status.core
        core.resync(self._clock() + self._retries.note_failure(_PASS, self._clock()))
        if why == self.status.failing:
            core.report.errors[kind] += 1
        else:
            core.report.log_error(kind, why)
        self.status.fail(why, self._clock())

    def _reload(self, now: float) -> None:
        """A configuration that cannot be read, or cannot be worked under, changes nothing."""
        core = self.status.core
        self._service.notify(RELOADING=1, MONOTONIC_USEC=time.monotonic_ns() // 1000)
        before = self._node.configuration
        try:
            told = self._load()
            fixed = {name: getattr(before, name) for name in _NEEDS_RESTART}
            self._node.configure(msgspec.structs.replace(told, **fixed))
            reconfigure(core, self._node, now)
        except MemqosError as error:
            self._node.configure(before)
            self.status.reload_fault = str(error)
            core.report.log_error("configuration", f"the running configuration stays: {error}")
        else:
            self.status.reload_fault = None
            self.status.reloaded = time.time()
            core.report.log("info", "reloaded", mode=told.mode)
            for name in _NEEDS_RESTART:
                if getattr(told, name) != fixed[name]:
                    core.report.log("warning", f"{name} takes a restart to change")
        self._service.notify(READY=1)

    def _shut_down(self) -> int:
        code = 0
        if self._node.configuration.rollback_on_exit:
            try:
                done = self._node.restore_all()
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
        pods = self._node.configuration.pods
        return () if pods.kubelet is not None or pods.cluster else pods.files
