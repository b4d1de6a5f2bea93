"""An agent that has its pods from the API server."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.eventually import PATIENCE, eventually
from tests.fakes.agent import (
    KUBELET,
    LEVELS,
    MEMORY,
    MI,
    RESERVING_KUBELET,
    SteppedNode,
    Threaded,
    a_pod,
    kubelet_threads,
)
from tests.fakes.apiserver import FakeApiServer, fake_api_server, pod
from tests.fakes.client import with_openssl
from tests.fakes.kubeconfig import lead_to
from tests.fakes.kubelet import (
    FakeKubelet,
    SilentKubelet,
    TlsFiles,
    fake_kubelet,
    self_signed,
    silent_kubelet,
)
from tests.fakes.node import memory_folder

from memqos.agent.configuration import PodSourceConfig
from memqos.agent.configuration.sources import load_configuration
from memqos.agent.pod_source import agent_pod_source
from memqos.agent.reconcile import note_kubelet_reply
from memqos.errors import InputError
from memqos.host.apiserver.kubeconfig import Cluster, ClusterAccess, User


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApiServer]:
    with fake_api_server() as served:
        lead_to(served.url, tmp_path, monkeypatch)
        yield served


def test_pods_are_those_of_its_node_and_changes_are_reported(server: FakeApiServer) -> None:
    server.stores["nodes"].put({"metadata": {"name": "node-1"}})
    server.pods.put(pod("here"))
    server.pods.put(pod("there", "node-2"))
    changed = threading.Event()
    source = agent_pod_source(
        PodSourceConfig(files=(), cluster=True, node_name="node-1"), on_change=changed.set
    )
    try:
        assert [each.metadata.name for each in source.pods()] == ["here"]
        changed.clear()
        server.pods.put(pod("new"))
        assert changed.wait(PATIENCE)
        assert sorted(each.metadata.name or "" for each in source.pods()) == ["here", "new"]
    finally:
        source.stop()


def test_a_cluster_takes_the_place_of_the_default_folder(tmp_path: Path) -> None:
    file = tmp_path / "memqos.yaml"
    head = "apiVersion: memqos.io/v1alpha1\nkind: AgentConfiguration\n"
    file.write_text(f"{head}pods: {{cluster: true, nodeName: node-1}}\n")
    configuration = load_configuration(str(file), {}, {})
    assert configuration.pods == PodSourceConfig(files=(), cluster=True, node_name="node-1")
    file.write_text(f"{head}pods: {{cluster: true, files: [a]}}\n")
    with pytest.raises(InputError, match="keep one"):
        load_configuration(str(file), {}, {})
    file.write_text(f"{head}pods: {{nodeName: node-1}}\n")
    with pytest.raises(InputError, match=r"set pods\.cluster"):
        load_configuration(str(file), {}, {})


GI = 1 << 30
FACTOR = 0.5
RESERVED = "kubeReserved: {memory: 256Mi}\nevictionHard: {memory.available: 100Mi}\n"


def a_node(allocatable: str, version: str = "v1.38.0", **more: Any) -> dict[str, Any]:
    """As a kubelet publishes it."""
    return {
        "metadata": {"name": "node"},
        "status": {
            "capacity": {"cpu": "4", "memory": f"{MEMORY >> 10}Ki", "pods": "110"},
            "allocatable": {"cpu": "4", "memory": allocatable, "pods": "110"},
            "nodeInfo": {"kubeletVersion": version},
            **more,
        },
    }


def unlimited() -> dict[str, Any]:
    """A pod whose memory.high follows from what the node leaves to pods."""
    manifest = a_pod("u1")
    del manifest["spec"]["containers"][0]["resources"]["limits"]
    return manifest


class Reserving(SteppedNode):
    """A node whose kubelet keeps memory back."""

    kubelet = RESERVING_KUBELET + RESERVED


class ThreadedReserving(Threaded, Reserving):
    """The same, with a thread that asks its kubelet."""


class Node:
    """An agent stepped by hand, on a node that a cluster speaks of."""

    running: ClassVar[list[SteppedNode]] = []
    bed_type: ClassVar[type[SteppedNode]] = Reserving

    def __init__(
        self, folder: Path, server: FakeApiServer, node: dict[str, Any], **options: Any
    ) -> None:
        self.server = server
        server.stores["nodes"].put(node)
        server.pods.put(unlimited())
        self.bed = self.bed_type(
            folder,
            pods=PodSourceConfig(files=(), cluster=True, node_name="node"),
            events=False,
            **{"release": None, **options},
        )
        self.running.append(self.bed)
        self.path = f"{LEVELS[1]}/podu1/u1a"
        for path in (f"{LEVELS[1]}/podu1", self.path):
            self.bed.kernel.make(path)
        self.bed.settle()

    def high(self) -> int:
        return int(self.bed.read(self.path, "memory.high"))

    def tell(self, node: dict[str, Any]) -> None:
        """The Node changes, and the agent hears of it."""
        before = self.bed.reader.source.node()
        self.server.stores["nodes"].put(node)
        eventually("the agent hears of it", lambda: self.bed.reader.source.node() != before)
        self.bed.core.schedule.schedule_fetch(self.bed.now)
        self.bed.wait(5)


def expected(unreserved: int) -> int:
    """The rule: from the request on, a share of what lies up to what is left to pods."""
    request = 64 << 20
    return int((request + (unreserved - request) * FACTOR) // 4096) * 4096


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as made:
        yield made
        while Node.running:
            Node.running.pop().crash()


class TestTheNode:
    def test_says_what_is_left_to_pods(self, folder: Path, server: FakeApiServer) -> None:
        # By the file 256Mi are reserved; flags of the kubelet have made it 1Gi.
        node = Node(folder, server, a_node("2972Mi"))
        assert node.high() == expected(3 * GI)
        assert node.high() != expected(MEMORY - 256 * MI)
        message = node.bed.log_events("the Node leaves 3Gi to pods")
        assert "but the kubelet's configuration would leave 3.75Gi" in message[0].what

    def test_and_the_file_where_it_does_not(
        self, folder: Path, server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Reserving, "kubelet", KUBELET + RESERVED)
        node = Node(folder, server, {"metadata": {"name": "node"}}, release="1.38")
        assert node.high() == expected(MEMORY - 256 * MI)

    def test_that_changes_is_followed(self, folder: Path, server: FakeApiServer) -> None:
        node = Node(folder, server, a_node("2972Mi"))
        node.tell(a_node("1948Mi"))
        assert node.high() == expected(2 * GI)
        node.tell(a_node("3996Mi"))
        assert node.high() == expected(4 * GI)

    def test_that_only_lives_on_changes_nothing(self, folder: Path, server: FakeApiServer) -> None:
        node = Node(folder, server, a_node("2972Mi"))
        before = node.bed.core.planner
        changed = a_node("2972Mi")
        changed["metadata"]["labels"] = {"zone": "a"}
        node.tell(changed)
        assert node.bed.core.planner is before

    def test_says_the_release(self, folder: Path, server: FakeApiServer) -> None:
        node = Node(folder, server, a_node("2972Mi", "v1.34.2+k3s1"), policy="TieredReservation")
        assert node.bed.core.planner.node_settings.settings.release.minor == 34
        assert node.bed.log_events("policy TieredReservation is ignored")

    def test_never_has_more_than_the_machine(self, folder: Path, server: FakeApiServer) -> None:
        boast = a_node("999Gi")
        boast["status"]["capacity"]["memory"] = "1000Gi"
        node = Node(folder, server, boast)
        assert node.bed.core.planner.node_settings.capacity.memory == MEMORY
        assert node.high() == expected(MEMORY)

    def test_that_is_not_heard_of_any_more_is_reported_and_keeps_its_values(
        self, folder: Path, server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("memqos.converge.cluster_node._STALE", 0.0)
        node = Node(folder, server, a_node("2972Mi"))
        before = node.high()
        source = node.bed.reader.source
        server.stopping = True
        eventually("the server is missed", lambda: source.stale_reason is not None)
        node.bed.wait(130)
        assert node.bed.core.report.errors["source"] >= 1
        assert node.high() == before

    def test_that_makes_no_sense_is_reported_and_the_file_holds(
        self, folder: Path, server: FakeApiServer
    ) -> None:
        node = Node(folder, server, a_node("lots"))
        (message,) = node.bed.log_events("the Node object is ignored")
        assert message.severity == "warning"
        assert node.high() == expected(MEMORY - 256 * MI)


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return self_signed(tmp_path_factory.mktemp("pki"), "node", "IP:127.0.0.1")


@with_openssl
class TestItsKubelet:
    """Told of itself at its own endpoint, to who shows a token, over a connection that is sure."""

    CONFIGZ: ClassVar = {
        "kubeletconfig": {
            "featureGates": {"MemoryQoS": True},
            "memoryReservationPolicy": "TieredReservation",
            "memoryThrottlingFactor": 0.25,
        }
    }

    def node(
        self,
        folder: Path,
        server: FakeApiServer,
        kubelet: FakeKubelet | SilentKubelet,
        identity: TlsFiles,
        monkeypatch: pytest.MonkeyPatch,
    ) -> Node:
        (folder / "token").write_text("s3cr3t\n")
        access = ClusterAccess(
            Cluster(server=server.url, certificate_authority=str(identity.cert)),
            User(token_file=str(folder / "token")),
            "a test",
        )
        # Over plain HTTP the fake server is not shown the token, and does not ask for one.
        monkeypatch.setattr("memqos.host.apiserver.kubeconfig.cluster_access", lambda: access)
        port = int(kubelet.url.rpartition(":")[2])
        return Node(
            folder,
            server,
            a_node(
                "2972Mi",
                addresses=[{"type": "InternalIP", "address": "127.0.0.1"}],
                daemonEndpoints={"kubeletEndpoint": {"Port": port}},
            ),
        )

    def test_is_believed_before_its_file(
        self,
        folder: Path,
        server: FakeApiServer,
        identity: TlsFiles,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        with fake_kubelet({"/configz": self.CONFIGZ}, identity) as kubelet:
            node = self.node(folder, server, kubelet, identity, monkeypatch)
            assert node.bed.core.planner.node_settings.settings.factor == 0.25
            path, headers = kubelet.request_log[0]
            assert (path, headers["Authorization"]) == ("/configz", "Bearer s3cr3t")
            node.bed.wait(2)
            asked = len(kubelet.request_log)
            for _ in range(3):
                node.bed.core.resync(node.bed.now)
                node.bed.settle()
            # Until it had settled perhaps more than once, for values that the kubelet keeps itself.
            assert len(kubelet.request_log) == asked

    @pytest.mark.parametrize("answer", [(403, b"Forbidden"), (404, b""), (200, b"{}")])
    def test_that_does_not_tell_has_its_file_read(
        self,
        folder: Path,
        server: FakeApiServer,
        identity: TlsFiles,
        monkeypatch: pytest.MonkeyPatch,
        answer: tuple[int, bytes],
    ) -> None:
        with fake_kubelet({"/configz": answer}, identity) as kubelet:
            node = self.node(folder, server, kubelet, identity, monkeypatch)
            assert node.bed.core.planner.node_settings.settings.factor == FACTOR
            (message,) = node.bed.log_events("does not report its configuration")
            assert ("nodes/configz" in message.what) == (answer[0] == 403)

    def test_that_is_down_is_believed_on_and_asked_again_until_it_answers(
        self,
        folder: Path,
        server: FakeApiServer,
        identity: TlsFiles,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        with fake_kubelet({"/configz": self.CONFIGZ}, identity) as kubelet:
            bed = self.node(folder, server, kubelet, identity, monkeypatch).bed
            grounds = bed.reader.settings_source

            def is_fresh_after(seconds: float) -> bool:
                bed.wait(seconds)
                return grounds.is_fresh

            grounds.refresh()
            assert is_fresh_after(70)
            bed.core.resync(bed.now)
            assert not is_fresh_after(0)  # it was asked before the last look
            planner = bed.core.planner
            kubelet.raw = b""
            grounds.refresh()
            bed.core.resync(bed.now)
            assert not is_fresh_after(0)
            assert bed.core.planner is planner
            asked = len(kubelet.request_log)
            bed.wait(10)
            assert len(kubelet.request_log) - asked == 3  # after 1 s, 2 s and 4 s
            kubelet.raw = None
            assert is_fresh_after(10)
            asked = len(kubelet.request_log)
            bed.wait(200)
            assert len(kubelet.request_log) == asked
            # One that refuses from now on is not down: its file says what it is.
            kubelet.answers["/configz"] = 403, b""
            assert is_fresh_after(200)
            assert bed.core.planner.node_settings.settings.factor == FACTOR

    def test_that_does_not_answer_holds_nothing_up(
        self,
        folder: Path,
        server: FakeApiServer,
        identity: TlsFiles,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr("memqos.converge.cluster_node._KUBELET_SECONDS", PATIENCE)
        monkeypatch.setattr(Node, "bed_type", ThreadedReserving)
        with silent_kubelet() as kubelet:
            node = self.node(folder, server, kubelet, identity, monkeypatch)
            bed = node.bed
            eventually("it is asked", lambda: kubelet.open == 1)
            assert "has not reported its version" in str(bed.core.planner.node_settings.doubt)
            server.pods.put(a_pod("new"))
            eventually("the agent hears of it", lambda: len(bed.reader.source.pods()) == 2)
            bed.core.resync(bed.now)
            bed.settle()
            assert {pod.metadata.name for pod in bed.core.source_pods} == {"u1", "new"}
            assert bed.read(node.path, "memory.high") == "max"
            assert kubelet.open == len(kubelet.connections) == 1
            kubelet.hang_up()
            eventually("that is an answer", bed.reader.settings_source.is_due)
            note_kubelet_reply(bed.core, bed.reader, bed.now)
            bed.settle()
            # What was read of its file holds while it is silent.
            assert node.high() == expected(3 * GI)
            bed.crash()
        assert kubelet_threads() == []

    def test_of_another_authority_is_not_shown_the_token(
        self,
        folder: Path,
        server: FakeApiServer,
        identity: TlsFiles,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
    ) -> None:
        stranger = self_signed(tmp_path, "stranger", "IP:127.0.0.1")
        with fake_kubelet({"/configz": self.CONFIGZ}, stranger) as kubelet:
            node = self.node(folder, server, kubelet, identity, monkeypatch)
            assert node.bed.core.planner.node_settings.settings.factor == FACTOR
            assert node.bed.log_events("its certificate is not trusted")
            assert kubelet.request_log == []

    def test_is_not_asked_where_a_file_was_named(
        self,
        folder: Path,
        server: FakeApiServer,
        identity: TlsFiles,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        with fake_kubelet({"/configz": self.CONFIGZ}, identity) as kubelet:
            node = self.node(folder, server, kubelet, identity, monkeypatch)
            kubelet.request_log.clear()
            named = str(folder / "kubelet" / "config.yaml")
            node.bed.reload(kubelet_config=named)
            assert node.bed.core.planner.node_settings.settings.factor == FACTOR
            assert kubelet.request_log == []
