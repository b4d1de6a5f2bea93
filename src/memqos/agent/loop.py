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

from memqos.agent.configuration import Configuration
from memqos.agent.core.pacing import Backoff
from memqos.agent.hand import Hand, nobody_listens
from memqos.agent.kernel_counters import Sampling, sampled
from memqos.agent.log import Forwarding, Log
from memqos.agent.metrics import families
from memqos.agent.reconcile import follow, run_pass, started, take_answer
from memqos.agent.reporting import state
from memqos.agent.sampler import Witness
from memqos.agent.status import Status
from memqos.agent.tally import ErrorKind
from memqos.agent.watching import News, Watches
from memqos.converge.rollback import refusal
from memqos.converge.writing import FAILED
from memqos.errors import MemqosError
from memqos.host.service import Service
from memqos.serve.addresses import address_of
from memqos.serve.endpoints import stated, watched
from memqos.serve.exposition import Family
from memqos.serve.http import listen, listen_on_socket

_GATHER: Final = 0.02
"""Seconds in which events gather after the first: cgroups are made in bursts."""
_PASS: Final = "pass"
_FIXED: Final = (
    "journal",
    "cgroup_root",
    "listen",
    "state_socket",
    "log_format",
    "guard",
    "recorder",
)
"""What of a configuration takes a restart."""

Load = Callable[[], Configuration]
"""Reads the configuration anew."""


class Agent:
    """Keeps one node converged until it is told to stop."""

    def __init__(
        self,
        hand: Hand,
        load: Load,
        log: Log,
        service: Service,
        version: str,
        witness: Witness | None = None,
    ) -> None:
        self._hand = hand
        self._witness = witness
        self._load = load
        self._log = log
        self._service = service
        self._clock = time.monotonic
        now = self._clock()
        core = started(hand, now, None if witness is None else witness.guard)
        self.status = Status(core, version, now, time.time(), witness)
        self._watches = Watches(hand.fs.root, self._manifests())
        self._news: list[News] = []
        self._wake = asyncio.Event()
        self._stopping = False
        self._reloading = False
        self._has_gaps = False
        self._is_announced = False
        self._work = ""
        self._retries = Backoff()
        self._sampling = Sampling()

    async def run(self) -> int:
        """Until SIGTERM or SIGINT; the exit code."""
        loop = asyncio.get_running_loop()
        # Passes and samples follow one another: the core has no lock.
        worker = ThreadPoolExecutor(1, "memqos")
        async with AsyncExitStack() as stack:
            stack.callback(worker.shutdown)
            await self._serve(stack)
            self._cover()
            loop.add_reader(self._watches.fileno(), self._happened)
            stack.callback(self._watches.close)
            stack.callback(loop.remove_reader, self._watches.fileno())
            for name, told in (("on_pods", News("pods")), ("on_answer", News("answer"))):
                setattr(self._hand, name, partial(loop.call_soon_threadsafe, self._hear, told))
                stack.callback(setattr, self._hand, name, nobody_listens)
            self._handle_signals(loop, stack)
            self._watch_over(stack)
            while not self._stopping:
                await self._wait()
                if not self._stopping:
                    news, self._news = self._news, []
                    await loop.run_in_executor(worker, self._turn, news)
                    self._told()
            self._service.tell(STOPPING=1, STATUS="stopping")
            return await loop.run_in_executor(worker, self._end)

    # On the loop.

    async def _serve(self, stack: AsyncExitStack) -> None:
        configuration = self._hand.configuration
        forwarding = Forwarding(self._log)
        logging.getLogger().addHandler(forwarding)
        stack.callback(logging.getLogger().removeHandler, forwarding)
        routes = watched(
            self._families, lambda: self.status.healthy(self._clock()), self.status.ready
        )
        address = address_of(configuration.listen)
        listener = await listen(routes, address.host, address.port)
        stack.push_async_callback(listener.close)
        states = stated(lambda: state(self.status, self._clock()))
        on_socket = await listen_on_socket(states, configuration.state_socket)
        stack.push_async_callback(on_socket.close)
        self._log.say(
            "info",
            "started",
            mode=configuration.mode,
            pods=self._hand.source.describe(),
            metrics=listener.address,
            state=on_socket.address,
        )

    def _families(self) -> list[Family]:
        self._sampling.asked(self._clock())
        self._wake.set()
        return list(families(self.status, self._hand.roots.proc))

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

    def _happened(self) -> None:
        self._news += self._watches.news()
        if self._news:
            self._wake.set()

    def _hear(self, news: News) -> None:
        self._news.append(news)
        self._wake.set()

    async def _wait(self) -> None:
        """Until something happens or is due, and then a little for what comes with it."""
        at = min(self.status.core.schedule.due_at, self._sampling.due_at)
        if self._witness is not None:
            at = min(at, self._witness.due_at)
        try:
            async with asyncio.timeout(max(0.0, at - self._clock())):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()
        if self._news:
            await asyncio.sleep(_GATHER)

    def _told(self) -> None:
        """What is to be done after a turn, on the loop."""
        self._tell_cluster()
        self._log.write(self.status.core.tally.taken())
        if self._has_gaps:
            # New folders, and those that could not be watched before.
            self._has_gaps = False
            self._cover()

    def _tell_cluster(self) -> None:
        core = self.status.core
        announcer = self.status.announcer = self._hand.announcer
        happened = core.tally.taken_announcements()
        if announcer is None:
            return
        announcer.take(happened, self._clock())
        if self._has_gaps:
            announcer.keep_only(core.told)
        complaint = announcer.poster.complaint()
        if complaint is not None:
            core.tally.say("warning", f"events are not all told: {complaint}")

    def _cover(self) -> None:
        before = self._watches.failure
        self._watches.cover(self.status.core.desires.names, self._manifests())
        if self._watches.failure not in (None, before):
            self._log.say("warning", f"not all is watched: {self._watches.failure}")

    def _watch_over(self, stack: AsyncExitStack) -> None:
        if self._service.watchdog is not None:
            task = asyncio.create_task(self._keep_alive(self._service.watchdog / 2))
            stack.callback(task.cancel)

    async def _keep_alive(self, interval: float) -> None:
        while True:
            if self.status.healthy(self._clock()) is None:
                self._service.tell(WATCHDOG=1)
            await asyncio.sleep(interval)

    # Off the loop.

    def _turn(self, news: list[News]) -> None:
        """Do what is to be done; nothing that goes wrong ends the agent."""
        try:
            self._do(news, self._clock())
            self.status.passed_at = self._clock()
        except (MemqosError, OSError) as error:
            self._failed("journal" if "journal" in str(error) else "read", str(error))
        except Exception as error:
            # One that nobody thought of must not take the protection of a whole node with it.
            self._failed("other", f"{type(error).__name__}: {error}")

    def _do(self, news: list[News], now: float) -> None:
        """Reload if asked to, take in the news, do what is due, and sample."""
        core = self.status.core
        if self._reloading:
            self._reloading = False
            self._reload(now)
        for each in news:
            self._take_in(each, now)
        if core.schedule.due_at <= now:
            self._pass()
        self._look_on(now)
        if self._sampling.take(now):
            self.status.samples = sampled(self._hand.fs.root, core.desires.names.kubepods)

    def _look_on(self, now: float) -> None:
        """What is only watched and recorded must not hold up what is kept."""
        if self._witness is None or self._witness.due_at > now:
            return
        try:
            self._witness.look(self.status.core, now)
        except Exception as error:
            self.status.core.tally.fail("other", f"{type(error).__name__}: {error}")

    def _take_in(self, news: News, now: float) -> None:
        core = self.status.core
        if news.kind == "appeared":
            core.appeared(news.path, now)
        elif news.kind == "vanished":
            core.vanished(news.path, now)
        elif news.kind == "limited":
            core.note_limit_write(news.path, now)
        elif news.kind == "pods":
            core.schedule.ask(now)
        elif news.kind == "answer":
            take_answer(core, self._hand, now)
        else:
            core.resync(now)

    def _pass(self) -> None:
        is_whole = self.status.core.schedule.resync_at <= self._clock()
        complete = run_pass(self.status.core, self._hand, self._clock, random.random)
        if is_whole:
            # Looks at a part of the node go well even where those at all of it fail.
            self.status.recover()
            self._retries.clear(_PASS)
            self._hand.mend_journal()
        self.status.unrecorded = self._hand.unrecorded
        if not self._is_announced:
            # It runs, even if nobody tells of pods yet: a kubelet may be started after it.
            self._is_announced = True
            self._service.tell(READY=1)
        if complete:
            self._has_gaps = True
            self.status.resynced = time.time()
            self.status.is_complete = True
        if self.status.is_complete:
            self._describe_work()

    def _describe_work(self) -> None:
        """What `systemctl status` shows."""
        work = self.status.ready() or "keeping the node converged"
        if work != self._work:
            self._work = work
            self._service.tell(STATUS=work)

    def _failed(self, kind: ErrorKind, why: str) -> None:
        core = self.status.core
        core.resync(self._clock() + self._retries.failed(_PASS, self._clock()))
        if why == self.status.failing:
            core.tally.errors[kind] += 1
        else:
            core.tally.fail(kind, why)
        self.status.fail(why, self._clock())

    def _reload(self, now: float) -> None:
        """A configuration that cannot be read, or cannot be worked under, changes nothing."""
        core = self.status.core
        self._service.tell(RELOADING=1, MONOTONIC_USEC=time.monotonic_ns() // 1000)
        before = self._hand.configuration
        try:
            told = self._load()
            fixed = {name: getattr(before, name) for name in _FIXED}
            self._hand.configure(msgspec.structs.replace(told, **fixed))
            follow(core, self._hand, now)
        except MemqosError as error:
            self._hand.configure(before)
            self.status.reload_refused = str(error)
            core.tally.fail("configuration", f"the running configuration stays: {error}")
        else:
            self.status.reload_refused = None
            self.status.reloaded = time.time()
            core.tally.say("info", "reloaded", mode=told.mode)
            for name in _FIXED:
                if getattr(told, name) != fixed[name]:
                    core.tally.say("warning", f"{name} takes a restart to change")
        self._service.tell(READY=1)

    def _end(self) -> int:
        code = 0
        if self._hand.configuration.rollback_on_exit:
            try:
                done = self._hand.roll_back()
            except MemqosError as error:
                self._log.say("error", f"not put back: {error}")
                return 1
            code = int(any(result.end in FAILED for result in done.results))
            put_back = sum(result.end == "written" for result in done.results)
            why = "the kubelet's configuration does not name it as a reserved cgroup"
            for path in done.refused:
                self._log.say("warning", refusal(path, why))
            self._log.say("info", "put back", values=put_back)
        if self._witness is not None:
            self._witness.close()
        self._log.say("info", "stopped")
        return code

    def _manifests(self) -> tuple[str, ...]:
        pods = self._hand.configuration.pods
        return () if pods.kubelet is not None or pods.cluster else pods.files
