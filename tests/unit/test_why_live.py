"""`memqos why` with what a live cluster tells: a pod's status, and the events about it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from tests.commands import Done, memqos
from tests.fakes import recording
from tests.fakes.apiserver import FakeApiServer, fake_api_server
from tests.fakes.kubeconfig import lead_to

from memqos.host.record_files import RecordWriter
from memqos.plan.memory import SHARE_OF_LIMIT
from memqos.record.format import (
    KillRecord,
    LevelRecord,
    ResizeRecord,
    Subject,
    ThrottleRecord,
    WriteRecord,
)

KILLED = {
    "reason": "OOMKilled",
    "exitCode": 137,
    "startedAt": "2026-03-02T10:00:00Z",
    "finishedAt": "2026-03-02T10:13:40Z",
}
EVICTION = "The node was low on resource: memory. Threshold quantity: 200Mi, available: 160Mi."


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApiServer]:
    with fake_api_server() as served:
        lead_to(served.url, tmp_path, monkeypatch)
        yield served


def put(
    server: FakeApiServer,
    *containers: dict[str, Any],
    name: str = "api-1",
    uid: str = "u1",
    node: str = "",
    **status: Any,
) -> None:
    """A pod with these containers' statuses, each with a limit of 512Mi."""
    limits = {"limits": {"memory": "512Mi"}}
    server.pods.put(
        {
            "metadata": {
                "name": name,
                "namespace": "shop",
                "uid": uid,
                "creationTimestamp": "2026-03-02T09:59:00Z",
            },
            "spec": {
                "nodeName": node,
                "containers": [{"name": each["name"], "resources": limits} for each in containers],
            },
            "status": {"qosClass": "Burstable", "containerStatuses": containers, **status},
        }
    )


def happened(
    server: FakeApiServer, reason: str, message: str, at: str, uid: str = "u1", **more: Any
) -> None:
    number = len(server.stores["events"].objects)
    about = {"kind": "Pod", "name": "api-1", "uid": uid, **more.pop("about", {})}
    server.stores["events"].put(
        {
            "metadata": {"name": f"e{number}", "namespace": "shop"},
            "involvedObject": about,
            "reason": reason,
            "message": message,
            "eventTime": f"2026-03-02T{at}.000000Z",
            "reportingComponent": "memqos.io/agent",
            **more,
        }
    )


def why(*arguments: str) -> Done:
    return memqos("why", "pod/api-1", "--context", "dev", *arguments)


def chapters(done: Done) -> list[tuple[str, str]]:
    (story,) = done.data["containers"]
    return [(each["kind"], each["what"]) for each in story["chapters"]]


class TestWithoutARecord:
    def test_a_kill_is_reported_with_what_would_have_prevented_it(
        self, server: FakeApiServer
    ) -> None:
        put(server, {"name": "api", "restartCount": 3, "lastState": {"terminated": KILLED}})
        done = why()
        assert done.code == 0
        assert "10:13:40  OOM-killed by the kernel" in done.out
        assert "the kubelet saw it end: OOMKilled, exit code 137, after 13 min 40 s" in done.out
        assert "rule max/limit" in done.out
        assert "a memory limit above 512Mi" in done.out
        assert "note: 3 restarts, as the kubelet counts them" in done.out
        assert f"source: {server.url} (context dev of " in done.out

    def test_another_end_is_no_kill(self, server: FakeApiServer) -> None:
        ended = {**KILLED, "reason": "Error", "exitCode": 1, "message": "bad\x1b[31m flag"}
        waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}
        put(server, {"name": "api", "lastState": {"terminated": ended}, "state": waiting})
        done = why()
        assert "ended by itself or by a signal: Error, exit code 1" in done.out
        assert "\x1b" not in done.out
        assert "note: it is not running now: CrashLoopBackOff: back-off 5m0s" in done.out

    def test_one_that_did_its_work_has_no_story(self, server: FakeApiServer) -> None:
        ended = {**KILLED, "reason": "Completed", "exitCode": 0}
        put(server, {"name": "api", "state": {"terminated": ended}})
        assert "nothing happened" in why().out
        drawn = why("-o", "svg")
        assert (drawn.code, drawn.out) == (1, "")
        assert drawn.err == (
            "memqos: there is nothing to draw of pod shop/api-1: nothing was recorded, and nothing "
            "happened – memqos agent records; without -o svg the pod is described\n"
        )

    def test_an_eviction_is_reported_once(self, server: FakeApiServer) -> None:
        chosen = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "TerminationByKubelet",
            "lastTransitionTime": "2026-03-02T10:35:06Z",
        }
        put(server, {"name": "api"}, reason="Evicted", message=EVICTION, conditions=[chosen])
        happened(server, "Evicted", EVICTION, "10:35:05", reportingComponent="kubelet")
        done = why("-o", "json")
        assert chapters(done) == [("evicted", "evicted by the kubelet")]
        (evicted,) = done.data["containers"][0]["chapters"]
        assert evicted["at"] == "2026-03-02T10:35:06.000Z"
        assert evicted["rule"] == "eviction/rank"
        assert evicted["evidence"][0] == EVICTION

    def test_a_resize_that_waits_is_reported(self, server: FakeApiServer) -> None:
        pending = {
            "type": "PodResizePending",
            "status": "True",
            "reason": "Deferred",
            "message": "Node didn't have enough resource: memory",
            "lastTransitionTime": "2026-03-02T10:20:00Z",
        }
        gone = {**pending, "type": "PodResizeInProgress", "status": "False"}
        put(server, {"name": "api"}, conditions=[pending, gone])
        done = why()
        assert "10:20:00  a resize waits: Deferred" in done.out
        assert "Node didn't have enough resource: memory" in done.out
        assert "under way" not in done.out

    def test_events_of_memqos_and_of_the_kubelet_are_in_their_place(
        self, server: FakeApiServer
    ) -> None:
        put(server, {"name": "api", "lastState": {"terminated": KILLED}})
        happened(server, "GuardWidened", "memory.high of api widened to 500Mi", "10:12:05")
        happened(
            server,
            "BackOff",
            "Back-off restarting failed container",
            "10:13:50",
            eventTime=None,
            reportingComponent="",
            source={"component": "kubelet"},
            count=7,
            firstTimestamp="2026-03-02T10:13:50Z",
            lastTimestamp="2026-03-02T10:20:00Z",
        )
        happened(server, "Pulled", "image is here", "10:00:00", reportingComponent="kubelet")
        done = why("-o", "json")
        assert chapters(done) == [
            ("guarded", "event GuardWidened of memqos: memory.high of api widened to 500Mi"),
            ("killed", "OOM-killed by the kernel"),
            (
                "told",
                "event BackOff of kubelet (7 times, last at 10:20:00): Back-off restarting failed "
                "container",
            ),
        ]
        (story,) = done.data["containers"]
        assert story["chapters"][2]["until"] == "2026-03-02T10:20:00.000Z"
        assert "1 other event: Pulled" in story["notes"]
        assert story["told_by"].startswith(server.url)

    def test_an_event_about_a_container_is_not_told_of_its_neighbour(
        self, server: FakeApiServer
    ) -> None:
        put(server, {"name": "api"}, {"name": "proxy"})
        about = {"fieldPath": "spec.containers{proxy}"}
        happened(server, "Unhealthy", "probe failed", "10:05:00", about=about)
        first, second = why("-o", "json").data["containers"]
        assert (first["container"], first["chapters"]) == ("api", [])
        assert [each["kind"] for each in second["chapters"]] == ["told"]

    def test_what_memqos_did_to_a_container_is_not_told_of_its_neighbour(
        self, server: FakeApiServer
    ) -> None:
        put(server, {"name": "api"}, {"name": "proxy"})
        both = "throttled above: memory.high 96Mi of api; memory.high 48Mi of proxy"
        happened(server, "ThrottleLimitSet", both, "10:00:05")
        happened(server, "GuardWidened", "memory.high of proxy widened to 50Mi", "10:05:00")
        happened(server, "MemoryProtected", "memory.low 64Mi of the pod", "10:00:05")
        first, second = why("-o", "json").data["containers"]
        assert [each["what"] for each in first["chapters"]] == [
            "event ThrottleLimitSet of memqos: memory.high 96Mi of api",
            "event MemoryProtected of memqos: memory.low 64Mi of the pod",
        ]
        assert [each["what"] for each in second["chapters"]] == [
            "event ThrottleLimitSet of memqos: memory.high 48Mi of proxy",
            "event MemoryProtected of memqos: memory.low 64Mi of the pod",
            "event GuardWidened of memqos: memory.high of proxy widened to 50Mi",
        ]

    def test_events_of_an_earlier_pod_of_the_name_are_not_its_own(
        self, server: FakeApiServer
    ) -> None:
        put(server, {"name": "api"}, uid="u2")
        happened(server, "GuardWidened", "long ago", "09:00:00", uid="u1")
        assert "long ago" not in why().out

    def test_of_a_pod_that_is_gone_events_are_left(self, server: FakeApiServer) -> None:
        happened(server, "GuardWidened", "memory.high of api widened", "10:12:05")
        done = why()
        assert "event GuardWidened of memqos" in done.out
        assert "note: the pod no longer exists in the cluster" in done.out

    def test_one_container_is_asked_for_by_name(self, server: FakeApiServer) -> None:
        put(server, {"name": "api"}, {"name": "proxy"})
        assert why("proxy").out.startswith("shop/api-1 proxy")
        assert "it has api, proxy" in why("other").err

    def test_it_is_drawn(self, server: FakeApiServer) -> None:
        put(server, {"name": "api", "lastState": {"terminated": KILLED}})
        done = why("-o", "svg")
        texts = [each.text for each in ET.fromstring(done.out).iter() if each.text]
        assert "shop/api-1 api" in texts
        assert "killed" in texts


class TestBesideARecord:
    @pytest.fixture
    def records(self, tmp_path: Path) -> str:
        recording.write_example(str(tmp_path / "records"))
        return str(tmp_path / "records")

    def uid(self, records: str) -> str:
        from memqos.host.record_files import read_recordings

        (uid,) = {each.who.uid for each in read_recordings(records) if each.who.pod == "api-1"}
        return uid

    def test_the_cluster_adds_to_what_is_recorded(
        self, server: FakeApiServer, records: str
    ) -> None:
        plain = memqos("why", "api-1", "-n", "shop", "--records", records, "-o", "json").data
        (before,) = plain["containers"]
        kill = next(each for each in before["chapters"] if each["kind"] == "killed")
        finished = {**KILLED, "finishedAt": kill["at"]}
        uid = self.uid(records)
        put(server, {"name": "api", "lastState": {"terminated": finished}}, uid=uid)
        event_text = "throttled above: memory.high 486.4Mi of api"
        happened(server, "ThrottleLimitSet", event_text, "10:00:04", uid=uid)
        happened(server, "AnnotationIgnored", "wrong", "10:01:00", uid=uid)
        (after,) = why("--records", records, "-o", "json").data["containers"]
        assert [each["kind"] for each in after["chapters"]] == [
            "changed",
            "changed",
            "told",
            *[each["kind"] for each in before["chapters"][2:]],
        ]
        (killed,) = [each for each in after["chapters"] if each["kind"] == "killed"]
        assert killed["evidence"][: len(kill["evidence"])] == kill["evidence"]
        assert "OOMKilled, exit code 137" in " ".join(killed["evidence"])
        assert killed["rule"] == kill["rule"]
        assert after["records"] == before["records"]

    def test_a_rule_that_is_not_recorded_is_that_of_explain(
        self, server: FakeApiServer, tmp_path: Path
    ) -> None:
        put(server, {"name": "api"}, node="node-1")
        recorder = RecordWriter(str(tmp_path / "own"))
        ten, high = recording.TEN, (512 << 20) * 8 // 10 // 4096 * 4096
        recorder.add(
            Subject(0, "shop", "api-1", "u1", "api", "Burstable"),
            LevelRecord(ten, current=high, anon=high, high=high, max=512 << 20),
            ThrottleRecord(
                ten + 9000, since=ten, is_over=True, events=9, full=10, high=high, anon=high
            ),
        )
        recorder.flush()

        def throttled() -> Any:
            (story,) = why("--records", recorder.folder, "-o", "json").data["containers"]
            (chapter,) = [each for each in story["chapters"] if each["kind"] == "throttled"]
            return chapter

        assert (throttled()["rule"], throttled()["because"]) == (None, "the rule is not recorded")
        memory = {"capacity": {"memory": "16Gi"}, "allocatable": {"memory": "15Gi"}}
        info = {"nodeInfo": {"kubeletVersion": "v1.25.3"}}
        server.answers["/api/v1/nodes/node-1"] = 403, {}, b"{}"
        assert "note: the node is unknown" in why("--records", recorder.folder).err
        del server.answers["/api/v1/nodes/node-1"]
        server.stores["nodes"].put({"metadata": {"name": "node-1"}, "status": memory | info})
        asked = ("explain", "pod/api-1", "-n", "shop", "--context", "dev", "--why", "-o", "json")
        (pod,) = memqos(*asked, "--gate", "MemoryQoS=true").data["pods"]
        because = pod["containers"][0]["values"]["memory.high"]["because"]
        assert because["rule"] == SHARE_OF_LIMIT.id
        assert (throttled()["rule"], throttled()["because"]) == (because["rule"], because["says"])
        assert len(throttled()["evidence"]) == 2

    def test_every_event_stays_at_its_own_time(self, server: FakeApiServer, tmp_path: Path) -> None:
        ten = recording.TEN
        recorder = RecordWriter(str(tmp_path / "own"))
        recorder.add(
            Subject(0, "shop", "api-1", "u1", "api", "Burstable"),
            WriteRecord(ten, "memory.high", "max", str(96 << 20)),
            ResizeRecord(ten + 20_000, 64 << 20, 64 << 20, 128 << 20, 256 << 20),
            WriteRecord(ten + 21_000, "memory.high", str(96 << 20), "max", by="runtime-update"),
            WriteRecord(ten + 24_000, "memory.high", "max", str(96 << 20)),
            WriteRecord(ten + 25_000, "memory.high", str(96 << 20), str(160 << 20)),
        )
        recorder.flush()
        put(server, {"name": "api"})
        front = "throttled above: "
        happened(server, "ThrottleLimitSet", f"{front}memory.high 96Mi of api", "10:00:00")
        back = "memory.high of api put back to 96Mi: it was max (runtime-update)"
        happened(server, "MemoryDrifted", back, "10:00:24")
        happened(server, "ThrottleLimitSet", f"{front}memory.high 160Mi of api", "10:00:25")
        happened(server, "MemoryContested", "memory.high of api stays at max", "10:00:26")
        (story,) = why("--records", recorder.folder, "-o", "json").data["containers"]
        assert [
            (each["at"][17:19], each["what"], each["evidence"]) for each in story["chapters"]
        ] == [
            (
                "00",
                "memqos set memory.high: max → 96Mi",
                ["event ThrottleLimitSet of memqos: memory.high 96Mi of api"],
            ),
            ("20", "resized in place: limit 128Mi → 256Mi", []),
            ("21", "another writer (runtime-update) set memory.high: 96Mi → max", []),
            (
                "24",
                "memqos set memory.high: max → 96Mi",
                [f"event MemoryDrifted of memqos: {back}"],
            ),
            (
                "25",
                "memqos set memory.high: 96Mi → 160Mi",
                ["event ThrottleLimitSet of memqos: memory.high 160Mi of api"],
            ),
            ("26", "event MemoryContested of memqos: memory.high of api stays at max", []),
        ]

    def test_an_event_that_happened_often_is_told_apart(
        self, server: FakeApiServer, tmp_path: Path
    ) -> None:
        recorder = RecordWriter(str(tmp_path / "own"))
        recorder.add(
            Subject(0, "shop", "api-1", "u1", "api", "Burstable"),
            WriteRecord(recording.TEN, "memory.high", "max", str(96 << 20)),
        )
        recorder.flush()
        put(server, {"name": "api"})
        series = {"count": 3, "lastObservedTime": "2026-03-02T10:07:00Z"}
        event_text = "memory.high 96Mi of api"
        happened(server, "ThrottleLimitSet", event_text, "10:00:00", series=series)
        done = why("--records", recorder.folder)
        assert "· event" not in done.out
        assert (
            f"event ThrottleLimitSet of memqos (3 times, last at 10:07:00): {event_text}"
            in done.out
        )

    def test_of_two_kills_the_nearest_is_the_one_that_the_kubelet_saw(
        self, server: FakeApiServer, tmp_path: Path
    ) -> None:
        recorder = RecordWriter(str(tmp_path / "own"))
        kills = [
            KillRecord(recording.TEN + second * 1000, comm="app", pid=second) for second in (0, 12)
        ]
        recorder.add(Subject(0, "shop", "api-1", "u1", "api", "Burstable"), *kills)
        recorder.flush()
        ended = {**KILLED, "finishedAt": "2026-03-02T10:00:13Z"}
        put(server, {"name": "api", "lastState": {"terminated": ended}})
        (story,) = why("--records", recorder.folder, "-o", "json").data["containers"]
        seen = ["OOMKilled" in " ".join(each["evidence"]) for each in story["chapters"]]
        assert seen == [False, True]

    def test_a_record_of_an_earlier_pod_is_left_aside(
        self, server: FakeApiServer, records: str
    ) -> None:
        put(server, {"name": "api"}, uid="another")
        done = why("--records", records)
        assert "the records here are of an earlier pod of this name" in done.err
        assert "nothing happened" in done.out

    def test_of_a_pod_that_is_gone_the_record_says_which_it_was(
        self, server: FakeApiServer, records: str
    ) -> None:
        happened(server, "AnnotationIgnored", "its own", "10:01:00", uid=self.uid(records))
        happened(server, "AnnotationIgnored", "another's", "10:02:00", uid="another")
        done = why("--records", records)
        assert "its own" in done.out
        assert "another's" not in done.out
        assert "throttled for" in done.out


class TestWhatIsNotAllowed:
    def test_a_missing_right_is_named(self, server: FakeApiServer) -> None:
        server.forbidden = {("GET", "pods"), ("GET", "events")}
        done = why()
        assert done.code == 1
        assert "jane may not get pods in namespace shop (403)" in done.err
        assert 'resources: ["pods"]' in done.err

    def test_the_pod_is_reported_without_its_events(self, server: FakeApiServer) -> None:
        server.forbidden = {("GET", "events")}
        put(server, {"name": "api", "lastState": {"terminated": KILLED}})
        done = why()
        assert done.code == 0
        assert "killed by the kernel" in done.out
        assert "jane may not list events in namespace shop (403)" in done.out
        assert 'resources: ["events"]' in done.out

    def test_a_pod_nobody_knows_is_an_error(self, server: FakeApiServer) -> None:
        done = why()
        assert done.code == 1
        assert "there is no pod api-1 in namespace shop, and no event about one" in done.err


class TestWhomToAsk:
    def test_nobody_is_asked_where_records_are_named(self, server: FakeApiServer) -> None:
        done = memqos("why", "api-1", "-n", "shop", "--records", "examples/records")
        assert done.code == 0
        assert server.request_log == []

    def test_a_namespace_is_enough(
        self, server: FakeApiServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr("memqos.cli.why.RECORDS_FOLDER", str(tmp_path / "none"))
        put(server, {"name": "api", "lastState": {"terminated": KILLED}})
        assert "killed by the kernel" in memqos("why", "api-1", "-n", "shop").out

    def test_records_are_enough_where_the_cluster_is_away(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        monkeypatch.setattr("memqos.cli.why.RECORDS_FOLDER", "examples/records")
        done = memqos("why", "api-1", "-n", "shop")
        assert done.code == 0
        assert "note: the cluster has no information" in done.err
        assert "recorded 2026-03-02" in done.out

    def test_unless_the_cluster_was_named(self, server: FakeApiServer) -> None:
        done = memqos("why", "api-1", "--context", "away")
        assert done.code == 1
        assert "nothing listens there" in done.err

    def test_a_snapshot_is_no_cluster(self) -> None:
        done = memqos("why", "api-1", "--context", "dev", "--snapshot", "tests/nodes/systemd.json")
        assert done.code == 64
