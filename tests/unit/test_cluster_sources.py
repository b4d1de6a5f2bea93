"""A node as its cluster sees it: nothing is taken for an empty node that is none."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tests.eventually import PATIENCE, eventually
from tests.fakes.apiserver import FakeApiServer, Faults, fake_api_server, pod

from memqos.converge.cluster_node import ClusterPods, WatchedNode, node_kubelet_endpoint
from memqos.converge.pod_sources import PodSource
from memqos.errors import InputError, Unreachable
from memqos.host.apiserver.client import ApiClient
from memqos.host.apiserver.kubeconfig import Cluster, ClusterAccess, User
from memqos.host.apiserver.reflector import WatchTimings
from memqos.kube.node import Node

QUICK = WatchTimings(watch=(1, 1), read_timeout=0.3, short=0.0, slowness=0.01)


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with fake_api_server() as served:
        yield served


def client(server: FakeApiServer) -> ApiClient:
    return ApiClient(
        ClusterAccess(Cluster(server=server.url), User(), "a test"), read_timeout=PATIENCE
    )


def node(name: str = "node-1", memory: str = "7Gi") -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"allocatable": {"memory": memory}}}


def names(source: PodSource) -> list[str]:
    return sorted(each.metadata.name or "" for each in source.pods())


class TestAsked:
    def test_the_pods_bound_to_a_node(self, server: FakeApiServer) -> None:
        server.stores["nodes"].put(node())
        server.pods.put(pod("here"))
        server.pods.put(pod("there", "node-2"))
        source: PodSource = ClusterPods(client(server), "node-1")
        assert names(source) == ["here"]
        assert source.describe() == f"node node-1 at {server.url} (a test)"

    def test_a_node_nobody_knows_is_not_an_empty_one(self, server: FakeApiServer) -> None:
        with pytest.raises(InputError, match="there is no node node-1"):
            ClusterPods(client(server), "node-1").pods()


class TestFollowed:
    @pytest.fixture
    def followed(self, server: FakeApiServer) -> Iterator[WatchedNode]:
        self.changes = 0

        def count() -> None:
            self.changes += 1

        source = WatchedNode(client(server), "node-1", on_change=count, timings=QUICK)
        source.start()
        yield source
        source.stop()

    def test_pods_and_node_are_as_the_cluster_has_them(
        self, server: FakeApiServer, followed: WatchedNode
    ) -> None:
        server.stores["nodes"].put(node())
        server.pods.put(pod("web"))
        eventually(
            "both are there", lambda: followed.node() is not None and names(followed) == ["web"]
        )
        before = self.changes
        server.stores["nodes"].put(node(memory="6Gi"))
        eventually("it follows the node", lambda: _allocatable(followed) == {"memory": "6Gi"})
        server.pods.delete("default", "web")
        eventually("the pod is gone", lambda: names(followed) == [])
        eventually("both changes are told", lambda: self.changes >= before + 2)

    def test_while_the_server_is_away_the_last_state_stays(
        self, server: FakeApiServer, followed: WatchedNode
    ) -> None:
        server.stores["nodes"].put(node())
        server.pods.put(pod("web"))
        eventually(
            "both are there", lambda: followed.node() is not None and names(followed) == ["web"]
        )
        server.faults = Faults(refused=1.0)
        eventually("the server is missed", lambda: followed._pods.fault is not None)
        server.pods.put(pod("new"))
        assert names(followed) == ["web"]
        server.faults = Faults()
        eventually(
            "it follows again", lambda: names(followed) == ["new", "web"] and followed.fault is None
        )

    def test_a_node_nobody_knows_is_not_an_empty_one(self, followed: WatchedNode) -> None:
        with pytest.raises(InputError, match="there is no node node-1"):
            followed.pods()

    def test_silence_is_no_empty_node(self) -> None:
        away = ApiClient(ClusterAccess(Cluster(server="http://127.0.0.1:1"), User(), "a test"))
        source = WatchedNode(away, "node-1", timings=QUICK)
        source.start()
        try:
            with pytest.raises(Unreachable):
                source.wait(0.3)
        finally:
            source.stop()


def _allocatable(source: WatchedNode) -> object:
    found = source.node()
    return None if found is None else found.status.allocatable


class TestItsKubelet:
    KNOWN = ClusterAccess(
        Cluster(server="https://api", certificate_authority="/ca.crt"),
        User(token_file="/token"),
        "a test",
    )

    def node_at(self, *addresses: tuple[str, str], port: int = 10250) -> Node:
        status = {
            "addresses": [{"type": kind, "address": address} for kind, address in addresses],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        return msgspec.convert({"status": status}, Node)

    @pytest.mark.parametrize(
        ("address", "url"),
        [("10.0.0.7", "https://10.0.0.7:10250"), ("fd00::7", "https://[fd00::7]:10250")],
    )
    def test_is_where_its_node_says(self, address: str, url: str) -> None:
        node = self.node_at(("Hostname", "worker-1"), ("InternalIP", address))
        found = node_kubelet_endpoint(node, self.KNOWN)
        assert found is not None
        assert found.url == url

    def test_is_asked_at_the_first_of_its_addresses(self) -> None:
        found = node_kubelet_endpoint(
            self.node_at(("InternalIP", "10.0.0.7"), ("InternalIP", "fd00::7")), self.KNOWN
        )
        assert found is not None
        assert found.url == "https://10.0.0.7:10250"

    def test_is_not_asked_where_nobody_vouches_for_it(self) -> None:
        node = self.node_at(("InternalIP", "10.0.0.7"))
        unsigned = ClusterAccess(Cluster(server="https://api"), User(token_file="/token"), "a test")
        assert node_kubelet_endpoint(node, unsigned) is None

    def test_is_not_asked_by_who_has_nothing_to_show_it(self) -> None:
        node = self.node_at(("InternalIP", "10.0.0.7"))
        nobody = ClusterAccess(
            Cluster(server="https://api", certificate_authority="/ca.crt"), User(), "a test"
        )
        assert node_kubelet_endpoint(node, nobody) is None

    def test_is_not_asked_where_its_node_does_not_say(self) -> None:
        assert node_kubelet_endpoint(self.node_at(("Hostname", "worker-1")), self.KNOWN) is None
        assert node_kubelet_endpoint(Node(), self.KNOWN) is None

    def test_the_api_server_is_never_asked_to_pass_it_on(self, server: FakeApiServer) -> None:
        server.stores["nodes"].put(node())
        ClusterPods(client(server), "node-1").pods()
        assert not [each.path for each in server.request_log if "proxy" in each.path]
