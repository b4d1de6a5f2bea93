"""The loop of an agent: waits for events and deadlines, and has a worker thread do what is due."""

import asyncio
import logging
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

from memqos.agent.core.reconciler import Reconciler
from memqos.agent.events import EventLog, LibraryLogHandler
from memqos.agent.metrics import metric_families
from memqos.agent.node_reader import NodeReader, ignore_notification
from memqos.agent.node_writer import NodeWriter
from memqos.agent.sampler import Sampler
from memqos.agent.state import AgentView, agent_state
from memqos.agent.watches import FolderWatches, WatchEvent
from memqos.agent.worker import LoadConfiguration, Worker
from memqos.host.sd_notify import ServiceNotifier
from memqos.plan.changes import magnitude
from memqos.serve.endpoints import monitoring_routes, parse_listen_address, state_route
from memqos.serve.exposition import Family
from memqos.serve.http import listen, listen_on_socket

_GATHER: Final = 0.02
"""Seconds in which events are collected after the first: cgroups are made in bursts."""


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
        self._log = log
        self._service = service
        self._clock = time.monotonic
        self._worker = Worker(
            reader,
            writer,
            load=load,
            log=log,
            service=service,
            version=version,
            sampler=sampler,
            clock=self._clock,
        )
        self._watches = FolderWatches(reader.fs.root, self._manifests())
        self._watch_events: list[WatchEvent] = []
        self._wake = asyncio.Event()
        self._stopping = False
        self._status_text = ""

    @property
    def core(self) -> Reconciler:
        """The worker's alone while a turn runs: everybody else reads `view`."""
        return self._worker.core

    @property
    def view(self) -> AgentView:
        """The agent at the end of the last turn."""
        return self._worker.view

    async def run(self) -> int:
        """Until SIGTERM or SIGINT; the exit code."""
        loop = asyncio.get_running_loop()
        # Passes and samples follow one another: the core has no lock.
        thread = ThreadPoolExecutor(1, "memqos")
        async with AsyncExitStack() as stack:
            stack.callback(thread.shutdown)
            # First: whoever reads that it has started may stop it.
            self._handle_signals(loop, stack)
            await self._serve(stack)
            self._update_watches()
            loop.add_reader(self._watches.fileno(), self._read_watches)
            stack.callback(self._watches.close)
            stack.callback(loop.remove_reader, self._watches.fileno())
            self._follow_sources(loop, stack)
            self._start_nri(loop)
            stack.callback(self._stop_nri)
            self._start_watchdog(stack)
            while not self._stopping:
                await self._wait()
                if not self._stopping:
                    events, self._watch_events = self._watch_events, []
                    await loop.run_in_executor(thread, self._worker.run_turn, events)
                    self._after_turn()
            self._service.notify(STOPPING=1, STATUS="stopping")
            if self._worker.nri is not None:
                # Before values are restored: from now on nothing is set that would have to be.
                self._worker.nri.retire()
            return await loop.run_in_executor(thread, self._worker.shut_down)

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
        states = state_route(self._state)
        on_socket = await listen_on_socket(states, configuration.state_socket)
        stack.push_async_callback(on_socket.close)
        await self._serve_records(stack)
        self._log.log(
            "info",
            "started",
            mode=configuration.mode,
            pods=self._reader.source.describe(),
            metrics=listener.address,
            state=on_socket.address,
        )

    async def _serve_records(self, stack: AsyncExitStack) -> None:
        """Serve the read endpoint, where the configuration says so."""
        if self._reader.configuration.endpoint.listen is None:
            return
        from memqos.agent.endpoint import listen_for_readers

        loop = asyncio.get_running_loop()

        def read_view() -> AgentView:
            loop.call_soon_threadsafe(self._have_counters_read)
            return self.view

        listener = await listen_for_readers(
            self._reader.configuration, read_view, self._reader.fs, self._log, stack
        )
        self._log.log("info", "the read endpoint is open", address=listener.address)

    def _readiness_problem(self) -> str | None:
        return self.view.readiness_problem()

    def _families(self) -> list[Family]:
        self._have_counters_read()
        return list(metric_families(self.view, self._reader.roots.proc))

    def _state(self) -> dict[str, Any]:
        self._have_counters_read()
        return agent_state(self.view, self._clock())

    def _have_counters_read(self) -> None:
        self._worker.counter_schedule.note_scrape(self._clock())
        self._wake.set()

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
        from memqos.agent.nri import NRI_WRITE_SECONDS, NriPlugin, NriRuntime

        plugin = self._worker.nri = NriPlugin(
            configuration.nri_socket,
            configuration.nri_deadline,
            view=lambda: self.view.node,
            journal=self._writer,
            read_usage=lambda path: magnitude(fs.read(path, "memory.current") or "0"),
            own_cgroup=self._reader.read_own_cgroup(),
            log=self._log,
        )
        self._writer.set_nri(
            NriRuntime(plugin, NRI_WRITE_SECONDS),
            lambda: plugin.runtime is not None,
            plugin.is_starting,
        )
        plugin.on_connected = self._notifier(loop, WatchEvent("missed"))
        plugin.on_unknown = self._notifier(loop, WatchEvent("pods"))
        plugin.start()

    def _stop_nri(self) -> None:
        plugin, self._worker.nri = self._worker.nri, None
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
        self._worker.reload()
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
        try:
            async with asyncio.timeout(max(0.0, self._worker.due_at - self._clock())):
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
        if self.view.status.is_complete or self.view.status.failing is not None:
            self._send_status()
        if self._worker.needs_watch_update:
            # New folders, and those that could not be watched before.
            self._worker.needs_watch_update = False
            self._update_watches()

    def _send_status(self) -> None:
        """What `systemctl status` shows."""
        text = self.view.readiness_problem() or "the agent is running"
        if text != self._status_text:
            self._status_text = text
            self._service.notify(STATUS=text)

    def _announce(self) -> None:
        report, announcer = self.core.report, self._reader.announcer
        announcements = report.take_announcements()
        if announcer is None:
            return
        announcer.accept(announcements, self._clock())
        if self._worker.needs_watch_update:
            announcer.keep_only_pods(self.core.source_pods)
        complaint = announcer.poster.complaint()
        if complaint is not None:
            report.log("warning", f"some Events were not posted: {complaint}")

    def _update_watches(self) -> None:
        before = self._watches.failure
        self._watches.update(self.core.planner.names, self._manifests())
        if self._watches.failure not in (None, before):
            self._log.log("warning", f"some cgroups are not watched: {self._watches.failure}")

    def _start_watchdog(self, stack: AsyncExitStack) -> None:
        if self._service.watchdog is not None:
            task = asyncio.create_task(self._keep_alive(self._service.watchdog / 2))
            stack.callback(task.cancel)

    async def _keep_alive(self, interval: float) -> None:
        while True:
            if self.view.health_problem(self._clock()) is None:
                self._service.notify(WATCHDOG=1)
            await asyncio.sleep(interval)

    def _manifests(self) -> tuple[str, ...]:
        pods = self._reader.configuration.pods
        return pods.files if pods.origin == "files" else ()
