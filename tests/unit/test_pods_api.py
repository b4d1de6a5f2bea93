"""The kubelet's PodsAPI as a source of pods, against a server that others have written."""

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from tests.commands import ROOT, memqos
from tests.eventually import PATIENCE, eventually
from tests.fakes.node import memory_folder
from tests.fakes.pod_messages import encode_pod
from tests.fakes.pods_api import FakePodsApi, Mood, fake_pods_api

from memqos.agent.pods_api_watch import PodsApiTimings, WatchedPodsApi
from memqos.converge.pod_sources import PODS_API_SOCKET, PodsApiPods, pods_api_socket
from memqos.errors import Unreachable
from memqos.host.pods_api import PodsApiClient, PodsNotReady, decode_pod
from memqos.host.protowire import MalformedMessage
from memqos.kube.pod import Pod

WHOLE: dict[str, Any] = {
    "metadata": {
        "name": "a",
        "generateName": "a-",
        "namespace": "shop",
        "uid": "uid-a",
        "labels": {"app": "shop", "empty": ""},
        "annotations": {"memqos.io/placement": "pods"},
        "creationTimestamp": "2026-08-20T10:00:00Z",
        "deletionTimestamp": "2026-08-20T11:00:00Z",
        "deletionGracePeriodSeconds": 30,
    },
    "spec": {
        "nodeName": "node1",
        "securityContext": {"supplementalGroupsPolicy": "Strict"},
        "containers": [
            {
                "name": "c",
                "image": "i",
                "command": ["sleep"],
                "resources": {
                    "requests": {"memory": "1Gi", "cpu": "250m"},
                    "limits": {"cpu": "1"},
                    "claims": [{"name": "gpu", "request": "one"}],
                },
                "resizePolicy": [{"resourceName": "memory", "restartPolicy": "NotRequired"}],
            }
        ],
        "initContainers": [{"name": "s", "image": "i", "resources": {}, "restartPolicy": "Always"}],
        "ephemeralContainers": [{"name": "e", "image": "i", "resources": {}}],
        "volumes": [{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}],
        "resources": {"limits": {"memory": "3Gi"}},
        "overhead": {"memory": "120Mi"},
        "os": {"name": "linux"},
        "resourceClaims": [{"name": "gpu"}],
        "priorityClassName": "high",
        "priority": -5,
        "tolerations": [
            {
                "key": "k",
                "operator": "Equal",
                "value": "v",
                "effect": "NoExecute",
                "tolerationSeconds": 3,
            }
        ],
        "terminationGracePeriodSeconds": 0,
        "activeDeadlineSeconds": 60,
    },
    "status": {
        "phase": "Running",
        "reason": "r",
        "message": "m",
        "startTime": "2026-08-20T10:00:01Z",
        "qosClass": "Burstable",
        "conditions": [
            {
                "type": "PodResizePending",
                "status": "True",
                "reason": "Deferred",
                "lastTransitionTime": "2026-08-20T10:00:03Z",
            }
        ],
        "containerStatuses": [
            {
                "name": "c",
                "containerID": "containerd://1",
                "restartCount": 2,
                "state": {"running": {"startedAt": "2026-08-20T10:00:02Z"}},
                "lastState": {
                    "terminated": {
                        "exitCode": 137,
                        "reason": "OOMKilled",
                        "startedAt": "2026-08-20T10:00:02Z",
                        "finishedAt": "2026-08-20T10:00:03Z",
                    }
                },
                "allocatedResources": {"memory": "1Gi"},
                "resources": {"requests": {"memory": "1Gi"}},
            }
        ],
        "initContainerStatuses": [{"name": "s", "restartCount": 0, "state": {}, "lastState": {}}],
        "ephemeralContainerStatuses": [{"name": "e", "restartCount": 0}],
        "allocatedResources": {"memory": "1Gi"},
        "resources": {"limits": {"memory": "3Gi"}},
        "nodeAllocatableResourceClaimStatuses": [
            {
                "resourceClaimName": "buffers",
                "containers": ["c"],
                "mapping": [{"name": "memory", "quantity": "2Gi"}],
                "overhead": [{"name": "memory", "perPod": "8Mi", "perContainer": "4Mi"}],
            }
        ],
    },
}


def a_pod(name: str, memory: str = "1Gi") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {
            "nodeName": "node1",
            "containers": [{"name": "c", "resources": {"requests": {"memory": memory}}}],
        },
        "status": {"phase": "Running"},
    }


def names(pods: list[Pod]) -> list[str]:
    return sorted(each.metadata.name or "" for each in pods)


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as made:
        yield made


@pytest.fixture
def api(folder: Path) -> Iterator[FakePodsApi]:
    with fake_pods_api(folder / "pods-api.sock") as served:
        yield served


QUICK = PodsApiTimings(answer=PATIENCE, slowness=0.01, short=0.0, unlisted=0.0)


@contextlib.contextmanager
def watched(
    api: FakePodsApi, timings: PodsApiTimings = QUICK, **more: Any
) -> Iterator[WatchedPodsApi]:
    source = WatchedPodsApi(api.socket, timings=timings, **more)
    source.start()
    try:
        yield source
    finally:
        source.stop()


class TestDecoding:
    def test_a_pod_is_the_same_as_in_json(self) -> None:
        assert decode_pod(encode_pod(WHOLE)) == msgspec.convert(WHOLE, Pod)

    @pytest.mark.parametrize(
        "file", sorted((ROOT / "tests/nodes").glob("*.json")), ids=lambda file: file.stem
    )
    def test_so_are_those_of_real_kubelets(self, file: Path) -> None:
        manifests = json.loads(file.read_text())["pods"]["items"]
        assert manifests
        for manifest in manifests:
            assert decode_pod(encode_pod(manifest)) == msgspec.convert(manifest, Pod)

    def test_every_field_that_memqos_reads_has_its_number(self) -> None:
        decoded = {
            (type(struct), name) for struct, name in _set_fields(decode_pod(encode_pod(WHOLE)))
        }
        missing = {name for kind, name in _fields(Pod) if (kind, name) not in decoded}
        assert not missing

    def test_texts_that_the_api_s_encoders_leave_empty_are_not_set(self) -> None:
        pod = decode_pod(encode_pod({"metadata": {"uid": "u"}, "spec": {}, "status": {}}))
        assert pod == msgspec.convert({"metadata": {"uid": "u"}, "status": {}}, Pod)

    @pytest.mark.parametrize(
        "data",
        [b"\xff\xff", b"\x0a\x05ab", b"\x08\x01", b"\x0a\x02\x0d\x00", b"\x0a\x02\x08\x01"],
        ids=["no number", "cut off", "a number for a message", "cut within", "a number for a text"],
    )
    def test_what_is_no_pod_is_refused(self, data: bytes) -> None:
        with pytest.raises(MalformedMessage):
            decode_pod(data)

    def test_a_time_that_no_calendar_has_is_refused(self) -> None:
        far = b"\x0a\x0e\x42\x0c\x08" + b"\xff" * 9 + b"\x01"
        with pytest.raises(MalformedMessage):
            decode_pod(far)


_NOT_ABOUT_A_NODE = {"affinity", "nodeSelector", "ports"}
"""Where a scheduler may put a pod, and what admission looks at: the pods here are on their node."""


def _fields(kind: Any) -> Iterator[tuple[Any, str]]:
    """All fields of a struct, and of those in it."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        for field in msgspec.structs.fields(kind):
            if field.encode_name not in _NOT_ABOUT_A_NODE:
                yield kind, field.encode_name
                yield from _fields(field.type)
    for part in get_args(kind):
        yield from _fields(part)


def _set_fields(value: Any) -> Iterator[tuple[msgspec.Struct, str]]:
    """All fields that are set in a struct, and in those in it."""
    if isinstance(value, msgspec.Struct):
        for field in msgspec.structs.fields(value):
            found = getattr(value, field.name)
            if found not in (None, ""):
                yield value, field.encode_name
                yield from _set_fields(found)
    elif isinstance(value, tuple):
        for each in value:
            yield from _set_fields(each)


class TestCalls:
    def test_a_list_of_a_full_node(self, api: FakePodsApi) -> None:
        for number in range(250):
            api.put(a_pod(f"p{number}"))
        source = PodsApiPods(api.socket)
        assert len(source.pods()) == 250
        assert source.describe() == f"the kubelet's PodsAPI at {api.socket}"

    def test_a_kubelet_that_is_starting_has_no_empty_list(self, api: FakePodsApi) -> None:
        api.mood = "starting"
        with pytest.raises(PodsNotReady, match="has not listed all of its pods yet – wait"):
            PodsApiPods(api.socket).pods()

    def test_a_refusal_has_the_kubelet_s_words(self, api: FakePodsApi) -> None:
        api.mood = "refuses"
        with pytest.raises(Unreachable, match="ListPods was refused: too many requests"):
            PodsApiPods(api.socket).pods()

    def test_garbage_is_no_empty_list(self, api: FakePodsApi) -> None:
        api.mood = "garbage"
        with pytest.raises(Unreachable, match=r"not what it should be.*socket of a kubelet's Pod"):
            PodsApiPods(api.socket).pods()

    def test_a_pod_without_a_uid_is_refused(self, api: FakePodsApi) -> None:
        api.pods["x"] = encode_pod({"metadata": {"name": "x"}})
        with pytest.raises(Unreachable, match="a pod without a UID"):
            PodsApiPods(api.socket).pods()

    def test_without_an_answer_in_time_the_kubelet_is_unreachable(self, api: FakePodsApi) -> None:
        api.mood = "hangs"
        with pytest.raises(Unreachable, match=r"no answer within 0\.1 s – is the kubelet up"):
            PodsApiClient(api.socket, 0.1).list_pods()

    def test_without_a_socket_the_gate_is_named(self, folder: Path) -> None:
        with pytest.raises(Unreachable, match=r"No such file or directory – .*gate PodsAPI on"):
            PodsApiPods(str(folder / "none.sock")).pods()

    def test_how_commands_name_it(self) -> None:
        assert pods_api_socket("podsapi") == PODS_API_SOCKET
        assert pods_api_socket("podsapi:/run/x.sock") == "/run/x.sock"
        assert pods_api_socket("./podsapi") is None
        assert pods_api_socket("https://127.0.0.1:10250") is None


class TestWatch:
    def test_pods_follow_the_kubelet_s(self, api: FakePodsApi) -> None:
        changed = threading.Semaphore(0)
        api.put(a_pod("a"))
        with watched(api, on_change=changed.release) as source:
            assert names(source.pods()) == ["a"]
            assert changed.acquire(timeout=PATIENCE)
            api.put(a_pod("b"))
            assert changed.acquire(timeout=PATIENCE)
            assert names(source.pods()) == ["a", "b"]
            api.put(a_pod("b", "2Gi"))
            assert changed.acquire(timeout=PATIENCE)
            (larger,) = [each for each in source.pods() if each.metadata.name == "b"]
            assert larger == msgspec.convert(a_pod("b", "2Gi"), Pod)
            api.delete("uid-a")
            assert changed.acquire(timeout=PATIENCE)
            assert names(source.pods()) == ["b"]
            assert api.watches == 1

    def test_a_change_that_memqos_does_not_read_is_none(self, api: FakePodsApi) -> None:
        changed: list[None] = []
        api.put(a_pod("a"))
        with watched(api, on_change=lambda: changed.append(None)) as source:
            source.pods()
            heartbeat = a_pod("a")
            heartbeat["metadata"]["resourceVersion"] = "2"
            api.put(heartbeat)
            api.send(7, b"an event of a later release")
            api.put(a_pod("b"))
            eventually("the pod after it is there", lambda: len(source.pods()) == 2)
        assert len(changed) == 2

    def test_a_node_without_pods_is_an_answer(self, api: FakePodsApi) -> None:
        with watched(api) as source:
            assert source.pods() == []
            assert source.is_served

    def test_a_watch_that_is_cut_off_is_taken_up_again(self, api: FakePodsApi) -> None:
        api.put(a_pod("a"))
        api.put(a_pod("b"))
        with watched(api) as source:
            assert names(source.pods()) == ["a", "b"]
            api.lose("uid-a")
            api.cut_off()
            eventually("what was missed is known", lambda: names(source.pods()) == ["b"])
            assert api.watches == 2

    def test_a_pod_that_a_kubelet_does_not_list_yet_stays(self, api: FakePodsApi) -> None:
        """A kubelet of 1.36 that was restarted: static pods first, then those of the cluster."""
        api.put(a_pod("of-the-cluster"))
        api.put(a_pod("static"))
        with watched(api, msgspec.structs.replace(QUICK, unlisted=PATIENCE)) as source:
            assert names(source.pods()) == ["of-the-cluster", "static"]
            api.lose("uid-of-the-cluster")
            api.cut_off()
            eventually("the partial list has come", lambda: api.watching)
            api.put(a_pod("new"))
            eventually("it is taken in", lambda: len(source.pods()) == 3)
            assert names(source.pods()) == ["new", "of-the-cluster", "static"]
            # An event says that it is gone.
            api.put(a_pod("of-the-cluster"))
            api.delete("uid-of-the-cluster")
            eventually("it is removed", lambda: names(source.pods()) == ["new", "static"])

    def test_a_second_list_confirms_that_a_pod_is_gone(self, api: FakePodsApi) -> None:
        api.put(a_pod("a"))
        api.put(a_pod("b"))
        with watched(api, msgspec.structs.replace(QUICK, unlisted=0.05)) as source:
            assert names(source.pods()) == ["a", "b"]
            api.lose("uid-a")
            api.cut_off()
            eventually("it is removed", lambda: names(source.pods()) == ["b"])
            assert api.watches >= 3

    def test_pods_stay_while_the_kubelet_is_restarted(self, api: FakePodsApi) -> None:
        api.put(a_pod("a"))
        with watched(api) as source:
            assert names(source.pods()) == ["a"]
            api.mood = "starting"
            api.restart()
            eventually("it is asked again", lambda: api.watches >= 4)
            assert names(source.pods()) == ["a"]
            assert source.is_served
            api.put(a_pod("b"))
            api.mood = "well"
            eventually("the new pod is known", lambda: names(source.pods()) == ["a", "b"])
            assert source.stale_reason is None

    @pytest.mark.parametrize("mood", ["garbage", "huge", "refuses"])
    def test_a_list_that_breaks_off_takes_no_pod_away(self, api: FakePodsApi, mood: Mood) -> None:
        api.put(a_pod("a"))
        api.put(a_pod("b"))
        timings = msgspec.structs.replace(QUICK, silent=0.0)
        with watched(api, timings) as source:
            assert names(source.pods()) == ["a", "b"]
            api.mood = mood
            api.cut_off()
            eventually("it was tried", lambda: api.watches >= 3)
            assert names(source.pods()) == ["a", "b"]
            assert source.stale_reason is not None
            assert not source.is_served

    def test_silence_within_the_list_ends_the_watch(self, api: FakePodsApi) -> None:
        api.put(a_pod("a"))
        api.mood = "hangs within the list"
        timings = msgspec.structs.replace(QUICK, answer=0.1)
        with watched(api, timings) as source:
            eventually("it is asked again", lambda: api.watches >= 2)
            with pytest.raises(Unreachable, match="no message in time – is the kubelet up"):
                source.pods()
            api.mood = "well"
            eventually("the list is there", lambda: source.is_served)
            assert names(source.pods()) == ["a"]

    def test_a_kubelet_that_is_starting_has_no_pods_yet(self, api: FakePodsApi) -> None:
        api.mood = "starting"
        with watched(api) as source:
            with pytest.raises(PodsNotReady):
                source.pods()
            assert source.is_served

    def test_a_socket_may_appear_later(self, folder: Path) -> None:
        with fake_pods_api(folder / "pods-api.sock", is_up=False) as api, watched(api) as source:
            with pytest.raises(Unreachable, match="no such socket – the kubelet's feature gate"):
                source.pods()
            assert not source.is_served
            api.put(a_pod("a"))
            api.run(api.start)
            eventually("it is served", lambda: source.is_served)
            assert names(source.pods()) == ["a"]

    def test_a_watch_is_renewed(self, api: FakePodsApi) -> None:
        api.put(a_pod("a"))
        with watched(api, msgspec.structs.replace(QUICK, renewal=(0.05, 0.05))) as source:
            assert names(source.pods()) == ["a"]
            api.lose("uid-a")
            eventually("the missed event is made up for", lambda: not source.pods())
            assert source.stale_reason is None

    def test_it_stops_while_it_waits(self, api: FakePodsApi) -> None:
        with watched(api) as source:
            source.pods()
            source.stop()
            assert not source._thread.is_alive()


class TestCommands:
    def test_a_plan_is_that_of_the_same_pods_in_a_file(self, api: FakePodsApi) -> None:
        file = ROOT / "tests/nodes/systemd.json"
        snapshot = json.loads(file.read_text())
        for manifest in snapshot["pods"]["items"]:
            api.put(manifest)
        options = ("plan", "--release", "1.38", "--gate", "MemoryQoS=true", "-o", "json")
        by_file, by_socket = (
            memqos(*options, "--cgroup-root", str(ROOT / "examples/tree/cgroup"), "--pods", source)
            for source in (str(file), f"podsapi:{api.socket}")
        )
        assert by_socket.data == by_file.data
        assert len(by_socket.data["missing"]) == 40

    @pytest.mark.parametrize("command", ["plan", "apply", "doctor", "snapshot"])
    def test_a_socket_that_is_not_there_is_no_node_without_pods(
        self, command: str, folder: Path
    ) -> None:
        done = memqos(command, "--pods", f"podsapi:{folder}/none.sock")
        assert done.code != 0
        assert "none.sock: No such file or directory – is the kubelet up" in done.err

    def test_it_takes_no_credentials(self) -> None:
        done = memqos("plan", "--pods", "podsapi", "--token-file", "t")
        assert "--token-file needs a kubelet" in done.err


def test_nobody_pays_for_a_client_that_is_not_used(folder: Path) -> None:
    code = (
        "import sys, memqos.cli.plan, memqos.cli.apply, memqos.cli.doctor, memqos.cli.snapshot\n"
        "from memqos.agent.pods_api_watch import WatchedPodsApi\n"
        f"source = WatchedPodsApi({str(folder / 'none.sock')!r})\n"
        "source.start(); source.wait(); source.stop()\n"
        "print([name for name in ('asyncio', 'h2', 'memqos.host.pods_api') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
