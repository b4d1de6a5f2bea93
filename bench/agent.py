"""An agent on a fake tree: processor, memory, reads and writes, how soon values are in place."""

import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from tests.fakes.agent import SteppedNode, a_pod, container_paths, pod_path

from memqos.agent.configuration import PodSourceConfig
from memqos.agent.core.node_guard import NodeGuard
from memqos.agent.core.observed import READ_FILES
from memqos.agent.events import EventLog
from memqos.agent.loop import Agent
from memqos.agent.pod_source import agent_pod_source
from memqos.agent.sampler import Sampler
from memqos.host.record_files import RecordWriter
from memqos.host.sd_notify import ServiceNotifier

PODS = 250
SIZES = (50, 250, 1000)
SECONDS = 120
SCRAPE = 30
SETTLING = 15
"""Seconds in which an agent that was just started writes its values and first records."""
NEW_PODS = 200
RESIZES = 100
MOST_CPU, MOST_MB = 1.0, 60
KERNEL = {
    "memory.max": "max",
    "memory.events": "low 0\nhigh 3\nmax 0\noom 0\noom_kill 0\noom_group_kill 0",
    "memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=17\n"
    "full avg10=0.00 avg60=0.00 avg300=0.00 total=11",
}


def report() -> Iterator[str]:
    """Takes some three minutes: figures are averages over two."""
    sys.addaudithook(_count_opens)
    for size in SIZES:
        yield from _counts(size)
        with AgentNode(size) as node, AgentProcess(node) as child:
            yield _growth(child)
            if size == PODS:
                yield _steady(child)
                yield _latency(node)
                yield _repair(node)


class AgentNode:
    """A folder with a tree of pods of two containers each, and their manifests."""

    def __init__(self, pods: int) -> None:
        self.pods = pods

    def __enter__(self) -> "AgentNode":
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self._folder = tempfile.TemporaryDirectory(prefix="memqos-bench-", dir=memory)
        self.folder = Path(self._folder.name)
        (self.folder / "manifests").mkdir()
        self.bed = SteppedNode(self.folder, mode="observe")
        self.bed.crash()
        for number in range(self.pods):
            pod = self.manifest(f"p{number}")
            self.write_manifest(pod)
            self.make(pod)
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def manifest(self, uid: str) -> dict[str, Any]:
        return a_pod(uid, 1, 2, containers=("a", "b"))

    def write_manifest(self, pod: dict[str, Any]) -> None:
        file = self.folder / "manifests" / f"{pod['metadata']['uid']}.json"
        file.with_suffix(".new").write_text(json.dumps(pod))
        file.with_suffix(".new").rename(file)

    def make(self, pod: dict[str, Any]) -> None:
        """Create cgroups as the kernel does: with all of their files at once."""
        for path in (pod_path(pod), *container_paths(pod)):
            self.bed.kernel.make("/staged", KERNEL)
            os.rename(f"{self.bed.kernel.root}/staged", f"{self.bed.kernel.root}{path}")


class AgentProcess:
    """The agent in a process of its own."""

    def __init__(self, node: AgentNode, *options: str) -> None:
        self.pods = node.pods
        self._folder = node.folder
        self._options = options

    def __enter__(self) -> "AgentProcess":
        command = [sys.executable, os.path.abspath(__file__), str(self._folder), *self._options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            entry = json.loads(line)
            if entry["message"] == "started":
                self.address = entry["metrics"]
                break
        while self.get("/readyz") != 200:
            time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate()

    def get(self, path: str) -> int:
        connection = http.client.HTTPConnection(self.address, timeout=60)
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status

    @property
    def cpu(self) -> float:
        """Seconds of processor time."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def resident(self) -> float:
        """Mega (not mebi) bytes."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.partition("VmRSS:")[2].split()[0]) * 1024 / 1e6


def serve(folder: Path, nri_socket: str | None = None) -> None:
    """The agent, on the fake tree of a folder, perhaps as an NRI plugin."""
    more = {} if nri_socket is None else {"nri": "on", "nri_socket": nri_socket}
    bed = SteppedNode(
        folder,
        pods=PodSourceConfig(files=(str(folder / "manifests"),)),
        listen="127.0.0.1:0",
        state_socket=str(folder / "state.sock"),
        jitter=0.1,
        **more,
    )
    bed.reader.source = agent_pod_source(bed.configuration.pods)

    class Quiet(EventLog):
        def write(self, events: Any) -> None:
            super().write([event for event in events if event.what == "started"])

    sampler = Sampler(
        bed.kernel,
        guard=NodeGuard(),
        recorder=RecordWriter(str(folder / "records")),
        proc=str(folder / "proc"),
    )

    async def run() -> int:
        return await Agent(
            bed.reader,
            bed.writer,
            load=lambda: bed.configuration,
            log=Quiet("json"),
            service=ServiceNotifier({}),
            version="bench",
            sampler=sampler,
        ).run()

    asyncio.run(run())


def _steady(child: AgentProcess) -> str:
    """Averaged over two minutes with two resyncs and a scrape every thirty seconds."""
    time.sleep(SETTLING)
    child.get("/metrics")
    before, start = child.cpu, time.monotonic()
    for _ in range(SECONDS // SCRAPE):
        time.sleep(SCRAPE)
        child.get("/metrics")
    share = (child.cpu - before) / (time.monotonic() - start) * 100
    return (
        f"{PODS} pods × 2 containers, {SECONDS} s, a scrape every {SCRAPE} s: "
        f"{share:.2f} % of a core (at most {MOST_CPU:g}), "
        f"{child.resident:.0f} MB resident (at most {MOST_MB})"
    )


def _growth(child: AgentProcess, times: int = 5) -> str:
    child.get("/metrics")
    before = child.cpu
    for _ in range(times):
        child.get("/metrics")
    scrape = (child.cpu - before) / times
    return f"{child.pods} pods: {scrape * 1000:.0f} ms a scrape, {child.resident:.0f} MB resident"


def _latency(node: AgentNode) -> str:
    """From the creation of a container's cgroup to its memory.high, one pod at a time."""
    pods = [node.manifest(f"n{number}") for number in range(NEW_PODS)]
    for pod in pods:
        node.write_manifest(pod)
    time.sleep(3)
    times = []
    for pod in pods:
        node.make(pod)
        made = time.perf_counter()
        paths = container_paths(pod)
        while any(node.bed.kernel.read(path, "memory.high") == "max" for path in paths):
            time.sleep(0.0005)
        times.append(time.perf_counter() - made)
    return f"from cgroup to values, {NEW_PODS} pods beside {PODS}: {_percentiles(times)}"


def _repair(node: AgentNode) -> str:
    """From a resize that removes memory.high until it is restored, one pod at a time."""
    times = []
    for number in range(RESIZES):
        path = container_paths(node.manifest(f"p{number}"))[0]
        high = node.bed.kernel.read(path, "memory.high")
        node.bed.kernel.set(path, "memory.high", "max")
        node.bed.kernel.set(path, "memory.max", str((8 << 20) + number * 4096))
        done = time.perf_counter()
        while node.bed.kernel.read(path, "memory.high") != high:
            time.sleep(0.0005)
        times.append(time.perf_counter() - done)
    return f"from a resize to repaired values, {RESIZES} pods of {PODS}: {_percentiles(times)}"


def _percentiles(times: list[float]) -> str:
    times.sort()
    p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
    return f"p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms"


_opened: list[str] = []
_is_counting = [False]


def _count_opens(event: str, arguments: tuple[Any, ...]) -> None:
    if _is_counting[0] and event == "open" and str(arguments[0]).rpartition("/")[2] in READ_FILES:
        _opened.append(str(arguments[0]))


def _counts(pods: int) -> Iterator[str]:
    """Opened files and writes of a converged resync and of one pod's start."""
    with AgentNode(pods) as node:
        bed = SteppedNode(node.folder)
        bed.pods.manifests = {f"p{number}": node.manifest(f"p{number}") for number in range(pods)}
        bed.wait(10)
        writes: list[str] = []
        bed.kernel.before_write = lambda path, _file: writes.append(path)
        bed.core.resync(bed.now)
        yield f"{pods} pods, a converged resync: {_counted(bed, writes)}"
        bed.run_pod(node.manifest("new"))
        bed.now += 1
        yield f"{pods} pods, and one more starts: {_counted(bed, writes)}"
        bed.crash()


def _counted(bed: SteppedNode, writes: list[str]) -> str:
    _opened.clear()
    writes.clear()
    _is_counting[0] = True
    start = time.process_time()
    bed.settle()
    cpu = time.process_time() - start
    _is_counting[0] = False
    return f"{len(_opened)} files opened, {len(writes)} written, {cpu * 1000:.1f} ms of processor"


if __name__ == "__main__":
    serve(Path(sys.argv[1]), *sys.argv[2:])
