"""An agent at work for long: pods come and go, much goes wrong, and containers are hostile.

`make soak` runs it, and it ends by itself. It is the agent's own loop, with its witness, records
and endpoints, on cgroups in a folder. In every round pods run while writes are refused, manifests
are broken and looks fail; then all that heals, the node must be as planned, and the pods end. What
is left then, in memory, descriptors, threads and watches, must not grow.
"""

import asyncio
import errno
import functools
import gc
import json
import os
import random
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest import mock

from tests.eventually import eventually_on_loop
from tests.fakes.agent import LEVELS, SteppedNode, a_pod, container_paths, pod_path
from tests.fakes.node import memory_folder
from tests.footprint import Footprint, check_flat, footprint

from memqos.agent import flight_recorder, node_writer
from memqos.agent.configuration import FightConfig, GuardConfig, PodSourceConfig, RecorderConfig
from memqos.agent.events import EventLog
from memqos.agent.loop import Agent
from memqos.agent.pod_source import agent_pod_source
from memqos.agent.sampler import sampler_of
from memqos.host.sd_notify import ServiceNotifier
from memqos.serve.endpoints import parse_listen_address

LOW, HIGH = "memory.low", "memory.high"
REFUSALS: Final = (errno.EBUSY, errno.EINVAL, errno.EACCES, errno.ENODEV)
KEPT_WRITES: Final = 64
"""After these the journal is compacted: no soak would reach 5,000 often enough."""
FSYNC: Final = os.fsync


class Bounds(NamedTuple):
    """How much of it, and when it ends: after so many rounds, or sooner after so many seconds."""

    rounds: int
    fewest: int
    """Rounds that it takes to tell growth from a beginning, however long they take."""
    seconds: float
    pods: int
    """A round."""
    nested: int
    """How deep a hostile container nests cgroups."""
    many: int
    """And how many it makes side by side."""


LONG: Final = Bounds(rounds=400, fewest=60, seconds=480, pods=20, nested=1100, many=1000)


class Node(SteppedNode):
    """Cgroups, manifests in a folder, and an agent with all of its parts."""

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self.manifests = folder / "manifests"
        self.manifests.mkdir()
        super().__init__(
            folder,
            pods=PodSourceConfig(files=(str(self.manifests),)),
            listen="127.0.0.1:0",
            state_socket=str(folder / "state.sock"),
            resync=1.0,
            fight=FightConfig(times=1_000_000, grace=0.0),
            guard=GuardConfig(interval=0.05),
            recorder=RecorderConfig(folder=str(folder / "records"), containers=16),
        )
        self.reader.source = agent_pod_source(self.configuration.pods)
        self.dice = dice
        self.look = self.reader.read_cgroups
        self.sampler, _ = sampler_of(self.configuration, self.kernel, str(folder / "proc"))
        self.lines = (folder / "log").open("w", encoding="utf-8")
        self.agent = Agent(
            self.reader,
            self.writer,
            load=lambda: self.configuration,
            log=EventLog("json", stream=self.lines),
            service=ServiceNotifier({}),
            version="0.0",
            sampler=self.sampler,
        )

    # Pods.

    def start_pod(self, manifest: dict[str, Any]) -> None:
        fresh = self.manifests / "fresh"
        fresh.write_text(json.dumps(manifest))
        fresh.rename(self.manifests / f"{manifest['metadata']['uid']}.json")
        for path in (pod_path(manifest), *container_paths(manifest)):
            self.kernel.make(path)

    def stop_pod(self, manifest: dict[str, Any]) -> None:
        _remove(self.kernel.root + pod_path(manifest))
        (self.manifests / f"{manifest['metadata']['uid']}.json").unlink()

    def nest(self, container: str, bounds: Bounds) -> None:
        """What a container does that may make cgroups."""
        deep = container
        for _ in range(bounds.nested):
            deep += "/n"
            self.kernel.make(deep)
        for number in range(bounds.many):
            self.kernel.make(f"{container}/m{number}")

    def drift(self, paths: list[str]) -> None:
        """Others write, as a kubelet does that starts, and a runtime that updates."""
        fresh = str(self.folder / "fresh")
        for path in (*LEVELS[:2], *self.dice.sample(paths, len(paths) // 2)):
            for file, value in ((LOW, "0"), (HIGH, "max")):
                # At once, as the kernel takes values: nobody ever reads half of one.
                Path(fresh).write_text(f"{value}\n")
                os.replace(fresh, f"{self.kernel.root}{path}/{file}")

    def is_converged(self, pods: list[dict[str, Any]]) -> bool:
        containers = [path for pod in pods for path in container_paths(pod)]
        return (
            all(self.mi(path, LOW) == 64 * len(pods) for path in LEVELS[:2])
            and all(self.mi(path, LOW) == 64 for path in map(pod_path, pods))
            and all((self.mi(each, LOW), self.mi(each, HIGH)) == (64, 96) for each in containers)
        )

    def has_forgotten(self) -> bool:
        node = self.agent.view.node
        known = node.pods, node.observed_pods, node.pending, self.sampler.containers
        return not any(known) and self.mi(LEVELS[0], LOW) == 0

    # What goes wrong.

    def break_things(self, paths: list[str]) -> None:
        for path in self.dice.sample(paths, len(paths) // 3):
            self.kernel.refusals[path, self.dice.choice((LOW, HIGH))] = self.dice.choice(REFUSALS)
        (self.manifests / "broken.json").write_text(self.dice.choice(("{", "[" * 2000)))
        if self.dice.random() < 0.3:
            os.fsync = _fail_for_want_of_space
        failures = iter(
            self.dice.choice((OSError(errno.EMFILE, "too many"), RuntimeError("a surprise")))
            for _ in range(self.dice.randrange(3))
        )

        def look(scope: Any) -> Any:
            for failure in failures:
                raise failure
            return self.look(scope)

        self.reader.read_cgroups = look  # type: ignore[method-assign]

    def mend_things(self) -> None:
        self.kernel.refusals.clear()
        os.fsync = FSYNC
        (self.manifests / "broken.json").unlink()
        self.reader.read_cgroups = self.look  # type: ignore[method-assign]

    # Those who ask.

    async def ask(self, path: str, *, to_the_end: bool = True) -> bytes:
        reader, writer = await asyncio.open_connection(*parse_listen_address(self.address))
        writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        answer = await reader.read() if to_the_end else b""
        writer.transport.abort()
        return answer

    @property
    def address(self) -> str:
        """Where the agent listens, as its log says first."""
        with open(self.lines.name, encoding="utf-8") as log:
            return str(json.loads(log.readline())["metrics"])

    def errors(self) -> int:
        return sum(self.agent.view.node.counts.errors.values())


async def soak(node: Node, bounds: Bounds, each: Callable[[Node], None]) -> list[Footprint]:
    """Have it live through the rounds; `each` is called in all of them."""
    running = asyncio.create_task(node.agent.run())
    prints: list[Footprint] = []
    end = time.monotonic() + bounds.seconds

    async def wait(what: str, holds: Callable[[], object]) -> None:
        def look() -> object:
            assert not running.done(), running.result()
            return holds()

        await eventually_on_loop(what, look)

    try:
        await wait("it is ready", lambda: node.agent.view.status.is_complete)
        while len(prints) < bounds.rounds and (
            len(prints) < bounds.fewest or time.monotonic() < end
        ):
            await _round(node, bounds, len(prints), wait)
            each(node)
            prints.append(footprint())
        assert node.agent.view.readiness_problem() is None
    finally:
        node.agent.stop()
        await running
    assert running.result() == 0
    return prints


async def _round(node: Node, bounds: Bounds, number: int, wait: Any) -> None:
    pods = [a_pod(f"{number:06}x{index:04}") for index in range(bounds.pods)]
    paths = [path for pod in pods for path in (pod_path(pod), *container_paths(pod))]
    before = node.errors()
    node.break_things(paths)
    for pod in pods:
        node.start_pod(pod)
        if node.dice.random() < 0.2:
            node.stop_pod(pod)
            node.start_pod(pod)
        await asyncio.sleep(0)
    if number % 4 == 0:
        node.nest(container_paths(pods[0])[0], bounds)
    await node.ask("/metrics", to_the_end=False)
    await wait("it has run into something", lambda: node.errors() > before)
    node.drift(paths)
    node.mend_things()
    # What has failed is tried again later and later: a reload has it tried at once.
    reloaded = node.agent.view.status.reloaded
    node.agent.reload()
    await wait("it is reloaded", lambda: node.agent.view.status.reloaded != reloaded)
    await wait("all is as planned", functools.partial(node.is_converged, pods))
    assert b"memqos_desired_bytes{" in await node.ask("/metrics")
    for pod in pods:
        node.stop_pod(pod)
    await wait("all is forgotten", node.has_forgotten)


def _fail_for_want_of_space(fd: object) -> None:
    """A disk that is full, as journal and records find it."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _remove(folder: str) -> None:
    """However deep it is: neither shutil nor os.walk gets to the bottom of a thousand levels."""
    found = [folder]
    for each in found:
        with os.scandir(each) as entries:
            for entry in entries:
                if entry.is_dir():
                    found.append(entry.path)
                else:
                    os.unlink(entry.path)
    try:
        for each in reversed(found):
            os.rmdir(each)
    except OSError as error:
        # The agent has just written: in a folder the file is there again, in a kernel it is not.
        if error.errno != errno.ENOTEMPTY:
            raise
        _remove(folder)


@contextmanager
def traced() -> Iterator[None]:
    """While memory is accounted for, and what is kept for a while is kept for a moment."""
    with (
        mock.patch.object(node_writer, "COMPACT_AFTER", KEPT_WRITES),
        mock.patch.object(flight_recorder, "LATE_REPORT_MS", 0),
    ):
        # What other tests have left is not looked at in every round.
        gc.collect()
        gc.freeze()
        tracemalloc.start()
        try:
            yield
        finally:
            tracemalloc.stop()


def run(bounds: Bounds, each: Callable[[Node], None] = lambda _: None) -> list[Footprint]:
    """A node's life within these bounds; what it held on to after each round."""

    async def main(folder: Path) -> list[Footprint]:
        node = Node(folder, random.Random(bounds.rounds))
        try:
            return await soak(node, bounds, each)
        finally:
            os.fsync = FSYNC
            node.crash()
            node.lines.close()
            _remove(node.kernel.root)

    with memory_folder() as folder, traced():
        return asyncio.run(main(folder))


def main() -> int:
    """The long one; what it came to is said at its end."""
    began = time.monotonic()
    prints = run(LONG)
    lives, took = len(prints) * LONG.pods, time.monotonic() - began
    sys.stdout.write(f"{lives} pods in {len(prints)} rounds and {took:.0f} s\n")
    for name in Footprint._fields:
        figures = [getattr(each, name) for each in prints]
        sys.stdout.write(f"{name}: {min(figures)} to {max(figures)}, {figures[-1]} at the end\n")
    check_flat(prints)
    return 0


if __name__ == "__main__":
    sys.exit(main())
