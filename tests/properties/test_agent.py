"""Whatever happens on a node: an agent brings it where it should be, and can take it all back."""

import contextlib
import errno
from typing import Any, Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.fakes.agent import LEVELS, MI, SteppedNode, a_pod, container_paths, pod_path
from tests.fakes.node import memory_folder

from memqos.agent.configuration import AgentMode, FightConfig
from memqos.errors import InputError
from memqos.kube.selector import Selector

FILES: Final = ("memory.min", "memory.low", "memory.high")
SHARE: Final = 0.1
LIMIT: Final = int(4096 * MI * SHARE)
ODD: Final = 12288
"""Added to what others write, so that it is never what an agent would."""

sizes = st.sampled_from([(64, 128), (32, 256), (100, 100), (250, 250), (0, 0)])
names = st.sampled_from(["u1", "u2", "u3", "u4"])
namespaces = st.sampled_from([(), ("kube-system",), ("default",), ("default", "kube-system")])
OBSERVE: Final = {"memqos.io/mode": "observe"}


class Killed(BaseException):
    """The agent is no more."""


class Node(RuleBasedStateMachine):
    """A model beside the node: what others last wrote to each file."""

    def __init__(self) -> None:
        super().__init__()
        memory = memory_folder()
        self._folder = memory
        self.mode: AgentMode = "enforce"
        self.unselected: tuple[str, ...] = ("kube-system",)
        self.canary: tuple[str, ...] | None = None
        self.has_unseen_entry = False
        """Whether an agent that observes was started where another had written."""
        self.bed = SteppedNode(memory.__enter__(), **self.options())
        self.bed.kernel.before_write = self.before_write
        self.really_write = self.bed.kernel.write
        self.bed.kernel.write = self.write  # type: ignore[method-assign]
        self.running: dict[str, dict[str, Any]] = {}
        self.theirs: dict[tuple[str, str], str] = {}
        self.ours: set[tuple[str, str]] = set()
        self.writes_left: int | None = None
        for path in LEVELS:
            self.made(path)

    def options(self) -> dict[str, Any]:
        return {
            "min_share": SHARE,
            "fight": FightConfig(times=10_000),
            "mode": self.mode,
            "select": Selector(not_namespaces=self.unselected),
            "canary": None if self.canary is None else Selector(not_namespaces=self.canary),
        }

    def is_written_to(self, namespace: str | None, annotations: dict[str, str] | None) -> bool:
        left = (*self.unselected, *(self.canary or ()))
        return self.mode == "enforce" and namespace not in left and annotations != OBSERVE

    def made(self, path: str) -> None:
        for file in FILES:
            self.theirs[path, file] = self.bed.read(path, file)

    def before_write(self, path: str, file: str) -> None:
        """Every write of the agent comes by here."""
        if self.writes_left is not None:
            if not self.writes_left:
                raise Killed
            self.writes_left -= 1
        self.reserves_no_more_than_its_share()
        assert file in FILES

    def write(self, path: str, file: str, value: str) -> None:
        """Where it does not write it gives back, and nothing else, as far as it has been told."""
        if path not in LEVELS:
            listed = [pod.metadata for pod in self.bed.core.source_pods]
            allowed = [
                self.is_written_to(each.namespace, each.annotations)
                for each in listed
                if each.uid == self.owner(path)
            ]
            assert allowed == [True] or value == self.theirs[path, file], path
        self.really_write(path, file, value)
        self.ours.add((path, file))

    def owner(self, path: str) -> str:
        name = next(part for part in path.split("/") if part.startswith("pod"))
        return name.removeprefix("pod")

    def paths(self) -> list[str]:
        pods = [(pod_path(pod), *container_paths(pod)) for pod in self.running.values()]
        return [*LEVELS, *(path for paths in pods for path in paths)]

    # Pods.

    @rule(
        uid=names,
        size=sizes,
        namespace=st.sampled_from(["default", "default", "kube-system"]),
        priority=st.sampled_from([None, 5, 2_000_000_000]),
        listed=st.booleans(),
        observe=st.sampled_from([False, False, True]),
    )
    def start(
        self,
        uid: str,
        size: tuple[int, int],
        namespace: str,
        priority: int | None,
        listed: bool,
        observe: bool,
    ) -> None:
        if uid in self.running or uid in self.bed.pods.manifests:
            return
        pod = a_pod(
            uid,
            *size,
            containers=("a", "b"),
            namespace=namespace,
            priority=priority,
            annotations=OBSERVE if observe else None,
        )
        self.running[uid] = self.bed.run_pod(pod, listed=listed)
        for path in (pod_path(pod), *container_paths(pod)):
            self.made(path)

    @rule(uid=names)
    def end(self, uid: str) -> None:
        pod = self.running.pop(uid, None)
        if pod is not None:
            self.gone(pod)
            self.bed.end_pod(pod)

    @rule(uid=names)
    def end_unnoticed(self, uid: str) -> None:
        """The event is lost, and the source goes on telling of the pod."""
        pod = self.running.pop(uid, None)
        if pod is not None:
            self.gone(pod)
            self.bed.kernel.remove(pod_path(pod))
            self.bed.pods.manifests.pop(uid, None)

    def gone(self, pod: dict[str, Any]) -> None:
        for path in (pod_path(pod), *container_paths(pod)):
            for file in FILES:
                self.theirs.pop((path, file))
                self.ours.discard((path, file))
                self.bed.kernel.refusals.pop((path, file), None)

    @rule(uid=names)
    def tell(self, uid: str) -> None:
        if uid in self.running:
            self.bed.pods.manifests[uid] = self.running[uid]

    @rule(uid=names, request=st.sampled_from([16, 48]), limit=st.sampled_from([96, 200]))
    def resize(self, uid: str, request: int, limit: int) -> None:
        pod = self.running.get(uid)
        if pod is None or "burstable" not in pod_path(pod):
            return
        meta = pod["metadata"]
        resized = a_pod(
            uid,
            request,
            limit,
            containers=("a", "b"),
            namespace=meta["namespace"],
            priority=pod["spec"]["priority"],
            annotations=meta["annotations"],
        )
        self.changed(resized)

    def changed(self, pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        self.running[uid] = pod
        if uid in self.bed.pods.manifests:
            self.bed.pods.manifests[uid] = pod

    # Whom it reaches.

    @rule(uid=names, observe=st.booleans())
    def annotate(self, uid: str, observe: bool) -> None:
        pod = self.running.get(uid)
        if pod is not None:
            annotations = dict(OBSERVE) if observe else {}
            self.changed({**pod, "metadata": {**pod["metadata"], "annotations": annotations}})

    @rule(unselected=namespaces, canary=st.none() | namespaces)
    def select(self, unselected: tuple[str, ...], canary: tuple[str, ...] | None) -> None:
        self.unselected, self.canary = unselected, canary
        self.bed.reload(**self.options())

    @rule(mode=st.sampled_from(["observe", "enforce"]))
    def turn(self, mode: AgentMode) -> None:
        self.mode = mode
        self.has_unseen_entry = self.has_unseen_entry and mode == "observe"
        self.bed.reload(**self.options())

    # Others.

    @rule(data=st.data(), file=st.sampled_from(FILES), amount=st.integers(0, 300))
    def external_write(self, data: st.DataObject, file: str, amount: int) -> None:
        path = data.draw(st.sampled_from(self.paths()))
        value = str(amount * MI + ODD)
        self.bed.kernel.set(path, file, value)
        self.theirs[path, file] = value
        self.ours.discard((path, file))

    @rule(data=st.data(), usage=st.integers(0, 300))
    def use(self, data: st.DataObject, usage: int) -> None:
        path = data.draw(st.sampled_from(self.paths()))
        self.bed.kernel.set(path, "memory.current", str(usage * MI))

    @rule(data=st.data(), file=st.sampled_from(FILES))
    def refuse(self, data: st.DataObject, file: str) -> None:
        path = data.draw(st.sampled_from(self.paths()))
        self.bed.kernel.refusals[path, file] = errno.EBUSY

    @rule()
    def forgive(self) -> None:
        self.bed.kernel.refusals.clear()

    @rule(fails=st.booleans())
    def source(self, fails: bool) -> None:
        self.bed.pods.failure = InputError("out of order") if fails else None

    # Time, and the end of agents.

    @rule(seconds=st.sampled_from([0, 0.3, 1, 6, 70]))
    def wait(self, seconds: float) -> None:
        self.bed.wait(seconds)

    @rule(writes=st.integers(0, 12))
    def crash(self, writes: int) -> None:
        """Killed before one of its next writes, and started again."""
        self.writes_left = writes
        with contextlib.suppress(Killed):
            self.bed.wait(70)
        self.writes_left = None
        self.bed.crash()
        self.bed.start(**self.options())
        self.has_unseen_entry = self.mode == "observe"

    @invariant()
    def reserves_no_more_than_its_share(self) -> None:
        mine = 0
        for pod in self.running.values():
            path = pod_path(pod)
            amount = self.bed.read(path, "memory.min")
            if (path, "memory.min") in self.ours and amount != self.theirs[path, "memory.min"]:
                mine += int(amount)
        assert mine <= LIMIT

    def teardown(self) -> None:
        try:
            self.converges()
            self.can_be_taken_back()
        finally:
            self.bed.crash()
            self._folder.__exit__(None, None, None)

    def converges(self) -> None:
        self.bed.kernel.refusals.clear()
        self.bed.pods.failure = None
        for path in self.paths():
            self.bed.kernel.set(path, "memory.current", "0")
        self.bed.wait(400)
        for uid, pod in self.running.items():
            if uid in self.bed.pods.manifests:
                self.is_as_it_should_be(pod)
        if self.bed.core.node_intent.enforces:
            self.levels_hold_the_sums()
            assert not self.bed.core.pending.keys() & set(LEVELS)
        elif self.running.keys() <= self.bed.pods.manifests.keys() and not self.has_unseen_entry:
            self.are_as_others_left_them(*LEVELS)

    def is_as_it_should_be(self, pod: dict[str, Any]) -> None:
        metadata = pod["metadata"]
        if self.is_written_to(metadata["namespace"], metadata["annotations"]):
            self.is_as_wanted(pod)
            paths = {pod_path(pod), *container_paths(pod)}
            assert not self.bed.core.pending.keys() & paths
        elif not self.has_unseen_entry:
            self.are_as_others_left_them(pod_path(pod), *container_paths(pod))

    def levels_hold_the_sums(self) -> None:
        sums = {level: dict.fromkeys(FILES[:2], 0) for level in LEVELS}
        for path in map(pod_path, self.running.values()):
            for file in FILES[:2]:
                for level in {path.rpartition("/")[0], LEVELS[0]}:
                    sums[level][file] += int(self.bed.read(path, file))
        for level in LEVELS:
            for file in FILES[:2]:
                assert int(self.bed.read(level, file)) == sums[level][file]

    def are_as_others_left_them(self, *paths: str) -> None:
        for path in paths:
            for file in FILES:
                assert self.bed.read(path, file) == self.theirs[path, file], (path, file)

    def is_as_wanted(self, pod: dict[str, Any]) -> None:
        """By rules written down once more, and simpler."""
        stanza = pod["spec"]["containers"][0]["resources"]
        request, limit = (
            int(stanza.get(kind, {}).get("memory", "0Mi")[:-2]) for kind in ("requests", "limits")
        )
        path = pod_path(pod)
        hard = request == limit and request > 0
        out = path in self.bed.core.node_intent.unreserved
        throttled = pod["spec"]["priority"] != 2_000_000_000
        for container in container_paths(pod):
            high = (request + limit) / 2 if request != limit else "max"
            if not request:
                high = 2048.0
            expected = (
                request if hard and not out else 0,
                0 if hard else request,
                high if throttled else "max",
            )
            assert tuple(self.bed.mi(container, file) for file in FILES) == expected
        expected = (2 * request if hard and not out else 0, 0 if hard else 2 * request, "max")
        assert tuple(self.bed.mi(path, file) for file in FILES) == expected

    def can_be_taken_back(self) -> None:
        self.bed.roll_back()
        self.are_as_others_left_them(*self.paths())


Node.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=20,
)
TestANode = Node.TestCase
