"""A node with pods, and an agent's core at work on it under a clock of one's own."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

import msgspec
from tests.eventually import PATIENCE, eventually_on_loop
from tests.fakes.cgroups import FakeKernel
from tests.fakes.machine import put

from memqos.agent.configuration import AgentConfiguration
from memqos.agent.core.report import LogEvent
from memqos.agent.core.schedule import Backoff
from memqos.agent.core.view import node_view
from memqos.agent.kernel_counters import CgroupCounters
from memqos.agent.loop import Agent
from memqos.agent.node_reader import NodeReader, new_kubelet_executor
from memqos.agent.node_writer import NodeWriter
from memqos.agent.reconcile import build_reconciler, note_kubelet_reply, reconfigure, run_pass
from memqos.agent.sampler import Sampler
from memqos.agent.state import AgentStatus, AgentView, EventCounts, NriView
from memqos.converge.direct_driver import DirectDriver
from memqos.converge.pod_sources import PodSource
from memqos.converge.rollback import RollbackResult
from memqos.errors import MemqosError
from memqos.host.machine import Roots
from memqos.kube.pod import Pod

MI: Final = 1 << 20
MEMORY: Final = 4096 * MI
KUBEPODS: Final = "/kubepods"
LEVELS: Final = (KUBEPODS, f"{KUBEPODS}/burstable", f"{KUBEPODS}/besteffort")
KUBELET: Final = """
kind: KubeletConfiguration
apiVersion: kubelet.config.k8s.io/v1beta1
featureGates: {MemoryQoS: false}
"""
RESERVING_KUBELET: Final = """
kind: KubeletConfiguration
apiVersion: kubelet.config.k8s.io/v1beta1
featureGates: {MemoryQoS: true}
memoryReservationPolicy: TieredReservation
memoryThrottlingFactor: 0.5
"""
OWN: Final[dict[str, Any]] = {
    "gates": {"MemoryQoS": True},
    "policy": "TieredReservation",
    "factor": 0.5,
}
"""What an agent is configured with where it protects pods whatever the kubelet does."""
PROC: Final = {
    "meminfo": f"MemTotal: {MEMORY // 1024} kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n",
    "mounts": "",
    "self": {"cgroup": "0::/system.slice/memqos.service\n"},
    "sys": {"kernel": {"osrelease": "6.1\n", "random": {"boot_id": "this-boot\n"}}},
}
P = ParamSpec("P")
T = TypeVar("T")
NUMA_NODES: Final = 4
"""Of a GiB each."""


def numa_sys(pages: int = 0) -> dict[str, Any]:
    """What the kernel shows of the NUMA nodes; the last one has huge pages of 2 MiB."""
    last = NUMA_NODES - 1
    nodes = {
        f"node{i}": {
            "meminfo": f"Node {i} MemTotal: {MEMORY // NUMA_NODES // 1024} kB\n",
            "distance": " ".join("10" if i == j else "20" for j in range(NUMA_NODES)) + "\n",
            "hugepages": {"hugepages-2048kB": {"nr_hugepages": f"{pages if i == last else 0}\n"}},
        }
        for i in range(NUMA_NODES)
    }
    return {"devices": {"system": {"node": nodes}}}


def a_pod(
    uid: str,
    request: int = 64,
    limit: int = 128,
    *,
    containers: tuple[str, ...] = ("a",),
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    priority: int | None = None,
    created: str | None = None,
) -> dict[str, Any]:
    """A running pod; each container asks for so many Mi."""
    stanza = {"requests": {"memory": f"{request}Mi"}, "limits": {"memory": f"{limit}Mi"}}
    if request == limit:
        stanza = {name: {**each, "cpu": "1"} for name, each in stanza.items()}
    if not request:
        stanza = {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": uid,
            "namespace": namespace,
            "uid": uid,
            "labels": dict(labels or {}),
            "annotations": dict(annotations or {}),
            "creationTimestamp": created,
        },
        "spec": {
            "nodeName": "node",
            "priority": priority,
            "containers": [
                {"name": name, "image": "i", "resources": stanza} for name in containers
            ],
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [
                {"name": name, "containerID": f"containerd://{uid}{name}"} for name in containers
            ],
        },
    }


def pod_path(manifest: Mapping[str, Any]) -> str:
    """Where the pod's cgroup is."""
    resources = manifest["spec"]["containers"][0]["resources"]
    parent = LEVELS[1]
    if not resources:
        parent = LEVELS[2]
    elif "cpu" in resources["limits"]:
        parent = KUBEPODS
    return f"{parent}/pod{manifest['metadata']['uid']}"


def container_paths(manifest: Mapping[str, Any]) -> list[str]:
    """Where its containers' cgroups are."""
    statuses = manifest["status"]["containerStatuses"]
    ids = [each["containerID"].partition("://")[2] for each in statuses]
    return [f"{pod_path(manifest)}/{id}" for id in ids]


async def run_until(agent: Agent, *script: Callable[[], object]) -> int:
    """Have an agent run until all of it has come true, one after the other; its exit code.

    It tries again in fractions of a second what has failed: no test waits for longer pauses.
    """
    agent._worker._retries = Backoff(first=0.02)
    agent.core.schedule.backoff = Backoff(first=0.02)
    running = asyncio.create_task(agent.run())

    def holds(step: Callable[[], object]) -> object:
        assert not running.done(), running.result()
        return step()

    try:
        for number, step in enumerate(script):
            await eventually_on_loop(f"step {number} of the script", partial(holds, step))
    finally:
        agent.stop()
        await running
    return running.result()


class FakePodSource(PodSource):
    """A source that tells what it is told to."""

    def __init__(self) -> None:
        self.manifests: dict[str, dict[str, Any]] = {}
        self.fetches = 0
        self.failure: Exception | None = None
        self._decoded: dict[str, tuple[dict[str, Any], Pod]] = {}

    def pods(self) -> list[Pod]:
        self.fetches += 1
        if self.failure is not None:
            raise self.failure
        return [self._pod(uid, manifest) for uid, manifest in self.manifests.items()]

    def describe(self) -> str:
        return "the test"

    def _pod(self, uid: str, manifest: dict[str, Any]) -> Pod:
        kept = self._decoded.get(uid)
        if kept is None or kept[0] is not manifest:
            kept = self._decoded[uid] = manifest, msgspec.convert(manifest, Pod)
        return kept[1]


class Delayed(Executor):
    """Asks at once, on a clock of one's own, and has the answers come so many seconds later."""

    seconds = 0.0

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._coming: list[tuple[float, float, Callable[[], None]]] = []
        """When it was asked, when the answer comes, and how."""
        self.answers = 0
        """How many answers have come."""
        self._waited = 0.0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        answer: Future[T] = Future()
        try:
            deliver = partial(answer.set_result, fn(*args, **kwargs))
        except MemqosError as error:
            deliver = partial(answer.set_exception, error)
        if self.seconds:
            self._coming.append((self._clock(), self._clock() + self.seconds, deliver))
        else:
            deliver()
            self.answers += 1
        return answer

    def __len__(self) -> int:
        """How many answers are on their way."""
        return len(self._coming)

    @property
    def due_at(self) -> float:
        """When the next answer comes."""
        return min([at for _, at, _ in self._coming], default=float("inf"))

    @property
    def waited(self) -> float:
        """Seconds so far in which an answer was on its way; questions come one at a time."""
        return self._waited + sum(self._clock() - asked for asked, _, _ in self._coming)

    def lose(self) -> None:
        """Nobody is there to take the answers."""
        self._waited = self.waited
        self._coming.clear()

    def deliver(self) -> bool:
        """Have those come that are due; whether there were any."""
        now = self._clock()
        due = [each for each in self._coming if each[1] <= now]
        self._coming = [each for each in self._coming if each[1] > now]
        for asked, _, deliver in due:
            self._waited += now - asked
            self.answers += 1
            deliver()
        return bool(due)


class SteppedNode:
    """A node under an agent that is stepped by hand."""

    kubelet = KUBELET

    def __init__(self, folder: Path, *more: str, **options: Any) -> None:
        """`more` is what the kubelet's configuration says besides."""
        self.folder = folder
        self.kernel = FakeKernel(folder)
        self.now = 1000.0
        self.pods = FakePodSource()
        self.asker = Delayed(lambda: self.now)
        self.events: list[LogEvent] = []
        if not (self.kernel.folder / "kubepods").exists():
            (self.kernel.folder / "cgroup.controllers").write_text("cpuset cpu memory\n")
            for path in LEVELS:
                self.kernel.make(path)
        put(folder / "proc", PROC)
        put(folder / "sys", numa_sys())
        put(folder / "kubelet", {"config.yaml": "".join([self.kubelet, *more])})
        self.start(**options)

    def start(self, **options: Any) -> None:
        """Start an agent, as after a crash."""
        own = OWN if options.get("release", "1.38") is not None else {}
        options = {"release": "1.38", "mode": "enforce", "jitter": 0.0, **own, **options}
        self.configuration = AgentConfiguration(
            cgroup_root=self.kernel.root, journal=str(self.folder / "run"), **options
        )
        roots = Roots(**{name: str(self.folder / name) for name in ("proc", "sys", "kubelet")})
        driver = DirectDriver(self.kernel, PATIENCE)
        self.writer = NodeWriter(self.configuration, self.kernel, roots=roots, driver=driver)
        self.reader = NodeReader(
            self.configuration,
            self.kernel,
            roots=roots,
            clock=lambda: self.now,
            new_executor=self.new_asker,
        )
        if self.configuration.pods.origin == "files":
            self.reader.source = self.pods
        self.prepare()
        self.core = build_reconciler(self.reader, self.writer, self.now)

    def new_asker(self) -> Executor:
        """Who asks the kubelet."""
        return self.asker

    def prepare(self) -> None:
        """Before the agent looks at the machine for the first time."""

    def reload(self, **options: Any) -> None:
        self.configuration = msgspec.structs.replace(self.configuration, **options)
        source = self.reader.source
        self.reader.configure(self.configuration)
        self.writer.configure(self.configuration)
        self.reader.source = source
        reconfigure(self.core, self.reader, self.writer, self.now)

    def crash(self) -> None:
        """The agent is gone, and its locks with it."""
        self.reader.close()
        self.writer.close()

    def roll_back(self) -> RollbackResult:
        """Put back all that was there before the agent wrote."""
        return self.writer.restore_all()

    # The node's own doing.

    def run_pod(self, manifest: dict[str, Any], *, listed: bool = True) -> dict[str, Any]:
        """A pod's cgroups are made, and the source tells of it."""
        if listed:
            self.pods.manifests[manifest["metadata"]["uid"]] = manifest
        for path in (pod_path(manifest), *container_paths(manifest)):
            self.kernel.make(path, {"memory.max": "max"})
            self.core.note_cgroup_created(path, self.now)
        return manifest

    def end_pod(self, manifest: dict[str, Any]) -> None:
        """Its cgroups vanish; of a folder with children only the last rmdir counts."""
        for path in (*container_paths(manifest), pod_path(manifest)):
            self.kernel.remove(path)
            self.core.note_cgroup_removed(path, self.now)
        self.pods.manifests.pop(manifest["metadata"]["uid"], None)

    # Time.

    def run_due_pass(self) -> bool:
        """One pass, if something is due."""
        if self.core.schedule.due_at > self.now:
            return False
        run_pass(self.core, self.reader, self.writer, lambda: self.now)
        self.events += self.core.report.take_log_events()
        return True

    def settle(self, at_most: int = 50) -> None:
        """Passes until nothing is due now."""
        for _ in range(at_most):
            if not self.run_due_pass():
                return
        raise AssertionError("there is always something to do")

    def wait(self, seconds: float) -> None:
        """Let time go by; what falls due on the way is done in time."""
        end = self.now + seconds
        while (due_at := min(self.core.schedule.due_at, self.asker.due_at)) <= end:
            self.now = max(self.now, due_at)
            if self.asker.deliver():
                note_kubelet_reply(self.core, self.reader, self.now)
            self.settle()
        self.now = end

    # What is there.

    def read(self, path: str, file: str) -> str:
        content = self.kernel.read(path, file)
        assert content is not None
        return content

    def mi(self, path: str, file: str) -> float | str:
        content = self.read(path, file)
        return content if content == "max" else int(content) / MI

    def log_events(self, words: str) -> list[LogEvent]:
        return [event for event in self.events if words in event.what]


def view_of(
    node: SteppedNode,
    sampler: Sampler | None = None,
    *,
    counters: Mapping[str, CgroupCounters] | None = None,
    events: EventCounts | None = None,
    nri: NriView | None = None,
    **status: Any,
) -> AgentView:
    """What an agent would publish of a node now."""
    known = {"version": "1.0", "passed_at": node.now, "reloaded": 1.7e9, **status}
    return AgentView(
        status=AgentStatus(**known),
        node=node_view(node.core),
        counters=counters or {},
        sampler=None if sampler is None else sampler.view(),
        events=events,
        nri=nri,
    )


class Threaded(SteppedNode):
    """The kubelet is asked by a thread, as in an agent that runs."""

    def new_asker(self) -> Executor:
        return new_kubelet_executor()


def kubelet_threads() -> list[threading.Thread]:
    """The threads that ask kubelets, or wait to."""
    return [each for each in threading.enumerate() if each.name.startswith("memqos-kubelet")]
