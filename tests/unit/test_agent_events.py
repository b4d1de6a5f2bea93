"""What a cluster is told, in Events, of what an agent does to its pods."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.fakes.agent import MI, SteppedNode, a_pod, container_paths, pod_path, run_until, view_of
from tests.fakes.apiserver import FakeApiServer, fake_api_server
from tests.fakes.kubeconfig import lead_to
from tests.fakes.node import memory_folder
from tests.unit.test_sampler import Watched, end_watching

from memqos.agent.configuration import FightConfig, PodSourceConfig
from memqos.agent.configuration.sources import load_configuration
from memqos.agent.core.report import Announcement
from memqos.agent.events import GATHER, Announcer, EventLog
from memqos.agent.loop import Agent
from memqos.agent.metrics import metric_families
from memqos.errors import MemqosError
from memqos.host.sd_notify import ServiceNotifier
from memqos.kube.events import PodEvent, clauses
from memqos.kube.pod import Pod
from memqos.serve.exposition import exposition

HIGH = "memory.high"
STATIC = """
kind: KubeletConfiguration
apiVersion: kubelet.config.k8s.io/v1beta1
featureGates: {MemoryQoS: true}
memoryManagerPolicy: Static
reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as made:
        yield made
        end_watching()


def announced(bed: SteppedNode) -> list[tuple[str, str]]:
    return [(each.reason, each.what) for each in bed.core.report.take_announcements()]


class TestWhatIsAnnounced:
    def test_protection_and_throttling_of_a_pod(self, folder: Path) -> None:
        bed = SteppedNode(folder)
        bed.run_pod(a_pod("u1"))
        bed.settle()
        assert sorted(announced(bed)) == [
            ("MemoryProtected", "memory.low 64Mi of a"),
            ("MemoryProtected", "memory.low 64Mi of the pod"),
            ("ThrottleLimitSet", "memory.high 96Mi of a"),
        ]

    def test_of_which_container_can_be_told_from_the_note(self, folder: Path) -> None:
        bed = SteppedNode(folder)
        pod = bed.run_pod(a_pod("u1", containers=("a", "b2")))
        bed.wait(30)
        bed.kernel.set(container_paths(pod)[1], "memory.high", "max")
        bed.core.resync(bed.now)
        bed.settle()
        announcer = Announcer(posted := Posted())
        announcer.accept(bed.core.report.take_announcements(), bed.now)
        announcer.stop()
        message = [
            (each.container, each.file, each.value)
            for posted_event in posted.events
            for each in clauses(posted_event.reason, posted_event.note)
        ]
        assert sorted(message, key=str) == [
            ("a", "memory.high", "96Mi"),
            ("a", "memory.low", "64Mi"),
            ("b2", "memory.high", "96Mi"),
            ("b2", "memory.high", "96Mi"),
            ("b2", "memory.low", "64Mi"),
            (None, "memory.low", "128Mi"),
        ]

    def test_nothing_where_nothing_is_written(self, folder: Path) -> None:
        bed = SteppedNode(folder, mode="observe")
        bed.run_pod(a_pod("u1"))
        bed.wait(200)
        assert announced(bed) == []

    def test_nothing_of_pods_that_are_only_observed(self, folder: Path) -> None:
        bed = SteppedNode(folder)
        bed.run_pod(a_pod("u1", annotations={"memqos.io/mode": "observe"}))
        bed.wait(200)
        assert announced(bed) == []

    def test_nothing_when_an_agent_is_started_again(self, folder: Path) -> None:
        bed = SteppedNode(folder)
        pod = bed.run_pod(a_pod("u1"))
        bed.settle()
        bed.crash()
        bed.start()
        bed.pods.manifests["u1"] = pod
        bed.wait(200)
        assert announced(bed) == []

    def test_a_value_that_goes_down_by_steps_once_it_is_there(self, folder: Path) -> None:
        bed = SteppedNode(folder)
        pod = a_pod("u1")
        (container,) = container_paths(pod)
        bed.run_pod(pod)
        bed.kernel.set(container, "memory.current", str(120 * MI))
        bed.settle()
        assert "ThrottleLimitSet" not in {reason for reason, _ in announced(bed)}
        bed.kernel.set(container, "memory.current", str(40 * MI))
        bed.wait(60)
        assert announced(bed) == [("ThrottleLimitSet", "memory.high 96Mi of a")]

    def test_a_value_that_was_put_back(self, folder: Path) -> None:
        bed = SteppedNode(folder)
        pod = bed.run_pod(a_pod("u1"))
        bed.wait(30)
        announced(bed)
        bed.kernel.set(container_paths(pod)[0], HIGH, "max")
        bed.wait(61)
        assert announced(bed) == [
            ("MemoryDrifted", "memory.high of a restored to 96Mi: it was max (unknown)")
        ]

    def test_a_value_that_is_no_longer_put_back(self, folder: Path) -> None:
        bed = SteppedNode(folder, fight=FightConfig(times=1, minutes=10))
        pod = bed.run_pod(a_pod("u1"))
        bed.wait(30)
        announced(bed)
        for _ in range(3):
            bed.kernel.set(pod_path(pod), "memory.low", "4096")
            bed.wait(61)
        assert announced(bed) == [
            ("MemoryDrifted", "memory.low of the pod restored to 64Mi: it was 4Ki (unknown)"),
            (
                "MemoryContested",
                "memory.low of the pod stays at 4Ki: something else keeps changing it "
                "(unknown), though it should be 64Mi",
            ),
        ]

    def test_thousands_of_bad_annotations_in_one_line_and_once(self, folder: Path) -> None:
        bed = SteppedNode(folder)
        pod = a_pod("u1", annotations={f"memqos.io/a{n:04}": "x" for n in range(7500)})
        bed.run_pod(pod)
        bed.settle()
        bed.pods.manifests["u1"] = a_pod(
            "u1", annotations=pod["metadata"]["annotations"], labels={"changed": "often"}
        )
        bed.wait(120)
        (line,) = bed.log_events("ignored")
        assert line.what.startswith("7500 annotations ignored: memqos.io/a0000: there is no such")
        assert line.what.endswith("; and 7495 more")
        assert len(line.what) < 1500
        assert [reason for reason, _ in announced(bed)].count("AnnotationIgnored") == 1
        text = exposition(metric_families(view_of(bed))).decode()
        assert 'memqos_annotations_refused{namespace="default",pod="u1"} 7500\n' in text

    def test_a_bad_annotation_again_when_it_is_back(self, folder: Path) -> None:
        bed = SteppedNode(folder)
        bed.run_pod(a_pod("u1", annotations={"memqos.io/mode": "x"}))
        for annotations in ({}, {"memqos.io/mode": "x"}):
            bed.wait(120)
            bed.pods.manifests["u1"] = a_pod("u1", annotations=annotations)
        bed.wait(120)
        assert len(bed.log_events("annotation ignored: memqos.io/mode: ")) == 2

    def test_steps_of_the_guard_and_back(self, folder: Path) -> None:
        node = Watched(folder)
        announced(node.bed)
        node.lives(30, stuck=True)
        widened = announced(node.bed)
        assert {reason for reason, _ in widened} == {"GuardWidened"}
        assert widened[0][1] == "memory.high of a raised to 104Mi: below that it made no progress"
        node.lives(600)
        *narrowed, last = announced(node.bed)
        assert {reason for reason, _ in narrowed} == {"GuardNarrowed"}
        assert last == ("ThrottleLimitSet", "memory.high 96Mi of a")

    def test_an_annotation_that_is_ignored(self, folder: Path) -> None:
        bed = SteppedNode(folder, mode="observe")
        bed.run_pod(a_pod("u1", annotations={"memqos.io/mod": "observe"}))
        bed.settle()
        ((reason, what),) = announced(bed)
        assert reason == "AnnotationIgnored"
        assert "memqos.io/mod" in what

    def test_memory_that_is_not_aligned(self, folder: Path) -> None:
        bed = SteppedNode(folder, mode="observe", gates={"PodLevelResources": True})
        (folder / "kubelet" / "config.yaml").write_text(STATIC)
        pod = a_pod("u1", 100, 100)
        stanza = {"cpu": "1", "memory": "100Mi"}
        pod["spec"]["resources"] = {"requests": stanza, "limits": stanza}
        pod["spec"]["containers"][0]["resources"] = {}
        bed.pods.manifests["u1"] = pod
        bed.wait(130)
        assert {reason for reason, _ in announced(bed)} == {"NumaNotAligned"}


class Posted:
    """One who keeps what is to be told."""

    sent = dropped = 0

    def __init__(self) -> None:
        self.events: list[PodEvent] = []
        self.known: set[str] = set()
        self.ago = 0.0

    def post(self, happening: PodEvent, ago: float = 0.0) -> None:
        self.events.append(happening)
        self.ago = ago

    def forget_pods_but(self, uids: set[str]) -> None:
        self.known = uids

    def complaint(self) -> MemqosError | None:
        return None

    def stop(self) -> None:
        """There is nothing to be stopped."""


class TestGathering:
    @pytest.fixture
    def announcer(self) -> Announcer:
        return Announcer(Posted())

    def announcement(
        self, what: str, reason: Any = "MemoryProtected", uid: str = "u1"
    ) -> Announcement:
        bed_pod = a_pod(uid, namespace="shop")
        return Announcement(_pod(bed_pod), reason, what)

    def take_notes(self, announcer: Announcer) -> list[str]:
        assert isinstance(announcer.poster, Posted)
        events, announcer.poster.events = announcer.poster.events, []
        return [each.note for each in events]

    def test_what_happens_within_seconds_is_one_event(self, announcer: Announcer) -> None:
        announcer.accept([self.announcement("a"), self.announcement("b")], 10)
        announcer.accept([self.announcement("c"), self.announcement("a")], 11)
        assert self.take_notes(announcer) == []
        announcer.accept([], 10 + GATHER)
        assert self.take_notes(announcer) == ["protected from reclaim: a; b; c"]
        assert isinstance(announcer.poster, Posted)
        assert announcer.poster.ago == GATHER
        announcer.accept([], 100)
        assert self.take_notes(announcer) == []

    def test_pods_and_reasons_are_told_apart(self, announcer: Announcer) -> None:
        announcer.accept(
            [
                self.announcement("a"),
                self.announcement("a", uid="u2"),
                self.announcement("x", "GuardWidened"),
            ],
            10,
        )
        announcer.accept([], 20)
        assert len(self.take_notes(announcer)) == 3

    def test_a_state_is_reported_once_as_long_as_the_pod_is_there(
        self, announcer: Announcer
    ) -> None:
        ignored = self.announcement("a", "AnnotationIgnored")
        for second in range(0, 100, 10):
            announcer.accept([ignored], second)
        assert self.take_notes(announcer) == ["a"]
        announcer.keep_only_pods([])
        announcer.accept([ignored], 200)
        announcer.accept([], 210)
        assert self.take_notes(announcer) == ["a"]

    def test_the_rest_is_reported_in_the_end(self, announcer: Announcer) -> None:
        announcer.accept([self.announcement("x", "GuardWidened")], 10)
        announcer.stop()
        assert self.take_notes(announcer) == ["x"]


def _pod(manifest: dict[str, Any]) -> Pod:
    return msgspec.convert(manifest, Pod)


class InCluster:
    """An agent whose pods come from an API server."""

    def __init__(self, folder: Path, server: FakeApiServer, **options: Any) -> None:
        self.server = server
        self.lines = folder / "log"
        server.stores["nodes"].put({"metadata": {"name": "node"}})
        self.bed = SteppedNode(
            folder,
            pods=PodSourceConfig(files=(), cluster=True, node_name="node"),
            listen="127.0.0.1:0",
            state_socket=str(folder / "state.sock"),
            **options,
        )

    def run(self, *script: Callable[[], bool]) -> None:
        async def main() -> None:
            with self.lines.open("w", encoding="utf-8") as stream:
                log = EventLog("json", stream=stream)
                self.agent = Agent(
                    self.bed.reader,
                    self.bed.writer,
                    load=lambda: self.bed.configuration,
                    log=log,
                    service=ServiceNotifier({}),
                    version="0.0",
                )
                await run_until(self.agent, *script)

        try:
            asyncio.run(main())
        finally:
            self.bed.crash()

    def start(self, manifest: dict[str, Any]) -> None:
        for path in (pod_path(manifest), *container_paths(manifest)):
            self.bed.kernel.make(path)
        self.server.pods.put(manifest)

    def events(self) -> dict[str, dict[str, Any]]:
        return {each["reason"]: each for each in self.server.stores["events"].objects.values()}

    def warnings(self) -> list[str]:
        lines = [json.loads(line) for line in self.lines.read_text().splitlines()]
        return [line["message"] for line in lines if line["level"] == "warning"]

    def metric(self, name: str) -> float:
        found = {each.name: list(each.samples) for each in metric_families(self.agent.view)}
        return found[name][0].value


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApiServer]:
    with fake_api_server() as served:
        lead_to(served.url, tmp_path, monkeypatch)
        monkeypatch.setattr("memqos.agent.events.GATHER", 0.3)
        # What is gathered is posted at the next look.
        monkeypatch.setattr("memqos.agent.core.schedule.POLL", 0.1)
        yield served


class TestInACluster:
    def test_a_pod_is_told_what_was_done_to_it(self, folder: Path, server: FakeApiServer) -> None:
        node = InCluster(folder, server)
        node.start(a_pod("u1", namespace="shop"))
        node.run(
            lambda: len(node.events()) == 2, lambda: node.metric("memqos_events_sent_total") == 2
        )
        events = node.events()
        assert events["MemoryProtected"]["note"] == (
            "protected from reclaim: memory.low 64Mi of the pod; memory.low 64Mi of a"
        )
        throttled = events["ThrottleLimitSet"]
        assert throttled["note"] == "throttled above: memory.high 96Mi of a"
        assert throttled["regarding"] == {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "shop",
            "name": "u1",
            "uid": "u1",
        }
        assert throttled["reportingController"] == "memqos.io/agent"
        assert throttled["reportingInstance"] == "node"
        assert node.metric("memqos_events_dropped_total") == 0

    def test_an_agent_that_observes_tells_nothing(
        self, folder: Path, server: FakeApiServer
    ) -> None:
        node = InCluster(folder, server, mode="observe", resync=0.05)
        node.start(a_pod("u1"))
        passes: list[float] = []

        def passed() -> bool:
            at = node.agent.view.status.resynced
            if at is not None and at not in passes:
                passes.append(at)
            return len(passes) > 2

        node.run(passed)
        assert not [each for each in server.request_log if each.method != "GET"]

    def test_one_that_may_not_tell_says_so_once_and_goes_on(
        self, folder: Path, server: FakeApiServer
    ) -> None:
        server.forbidden = {("POST", "events")}
        node = InCluster(folder, server)
        first, second = a_pod("u1"), a_pod("u2")
        node.start(first)

        def start_another() -> bool:
            node.start(second)
            return True

        node.run(
            lambda: bool(_event_warnings(node)),
            start_another,
            lambda: node.bed.kernel.read(container_paths(second)[0], HIGH) == str(96 * MI),
            lambda: node.metric("memqos_events_dropped_total") >= 4,
        )
        (message,) = _event_warnings(node)
        assert 'resources: ["events"]' in message
        assert "verbs: [create, patch]" in message

    def test_one_whose_server_does_not_take_events_enforces_all_the_same(
        self, folder: Path, server: FakeApiServer
    ) -> None:
        server.answers["/apis/events.k8s.io/v1/namespaces/default/events"] = (429, {}, b"")
        node = InCluster(folder, server)
        pod = a_pod("u1")
        node.start(pod)
        node.run(
            lambda: node.bed.kernel.read(container_paths(pod)[0], HIGH) == str(96 * MI),
            lambda: bool(_event_warnings(node)),
        )

    def test_events_can_be_turned_off(self, folder: Path, server: FakeApiServer) -> None:
        node = InCluster(folder, server, events=False)
        pod = a_pod("u1")
        node.start(pod)
        node.run(lambda: node.bed.kernel.read(container_paths(pod)[0], HIGH) == str(96 * MI))
        assert node.bed.reader.announcer is None
        assert not node.events()

    def test_turned_off_and_on_again_they_are_reported_again(
        self, folder: Path, server: FakeApiServer
    ) -> None:
        reader = InCluster(folder, server).bed.reader
        found = [reader.announcer]
        for changed in ({"resync": 30.0}, {"events": False}, {"events": True}):
            reader.configure(msgspec.structs.replace(reader.configuration, **changed))
            found.append(reader.announcer)
        first, same, none, again = found
        assert first is same is not None
        assert none is None
        assert again not in (None, first)
        reader.close()

    def test_they_are_for_a_cluster(self, folder: Path, tmp_path: Path) -> None:
        assert SteppedNode(folder).reader.announcer is None
        file = tmp_path / "memqos.yaml"
        head = "apiVersion: memqos.io/v1alpha1\nkind: AgentConfiguration\n"
        file.write_text(f"{head}events: false\n")
        assert not load_configuration(str(file), {}, {}).events


def _event_warnings(node: InCluster) -> list[str]:
    return [each for each in node.warnings() if "some Events were not posted" in each]
