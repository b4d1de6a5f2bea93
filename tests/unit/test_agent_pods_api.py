"""An agent that has its pods from the kubelet's PodsAPI, and from others where there is none."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.eventually import PATIENCE, eventually
from tests.fakes.agent import SteppedNode, a_pod, container_paths
from tests.fakes.apiserver import FakeApiServer, fake_api_server, pod
from tests.fakes.kubeconfig import lead_to
from tests.fakes.kubelet import fake_kubelet
from tests.fakes.node import memory_folder
from tests.fakes.pods_api import FakePodsApi, fake_pods_api

from memqos.agent.configuration import PodSourceConfig
from memqos.agent.pod_source import AutomaticPods, agent_pod_source
from memqos.agent.pods_api_watch import PodsApiTimings, WatchedPodsApi
from memqos.cli.agent import flag_values
from memqos.converge.pod_sources import PodSource
from memqos.errors import Unreachable
from memqos.host.pods_api import PodsNotReady
from memqos.kube.pod import Pod


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApiServer]:
    with fake_api_server() as served:
        lead_to(served.url, tmp_path, monkeypatch)
        served.stores["nodes"].put({"metadata": {"name": "node-1"}})
        served.pods.put(pod("of-the-cluster"))
        yield served


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as made:
        yield made


@pytest.fixture
def api(folder: Path) -> Iterator[FakePodsApi]:
    with fake_pods_api(folder / "pods-api.sock", is_up=False) as served:
        served.put(pod("of-the-kubelet") | {"metadata": {"name": "of-the-kubelet", "uid": "k"}})
        yield served


@contextlib.contextmanager
def source_of(api: FakePodsApi, **more: Any) -> Iterator[PodSource]:
    changed = more.pop("on_change", None)
    config = PodSourceConfig(files=(), socket=api.socket, **{"source": "auto", **more})
    source = agent_pod_source(config, on_change=changed)
    try:
        yield source
    finally:
        source.stop()


def names(source: PodSource) -> list[str | None]:
    return [each.metadata.name for each in source.pods()]


class TestAuto:
    def test_the_pods_api_comes_first(self, api: FakePodsApi, server: FakeApiServer) -> None:
        api.run(api.start)
        with source_of(api, node_name="node-1") as source:
            assert names(source) == ["of-the-kubelet"]
            assert source.describe() == f"the kubelet's PodsAPI at {api.socket}"
            eventually("the cluster says of the node", lambda: source.node() is not None)
            assert source.event_poster() is not None
        assert {each.path for each in server.request_log} == {"/api/v1/nodes"}

    def test_then_a_kubelet_s_endpoint(self, api: FakePodsApi, server: FakeApiServer) -> None:
        listed = {"kind": "PodList", "items": [pod("of-the-endpoint")]}
        with (
            fake_kubelet({"/pods": listed}) as kubelet,
            source_of(api, kubelet=kubelet.url) as source,
        ):
            assert names(source) == ["of-the-endpoint"]
            assert source.describe() == f"the kubelet at {kubelet.url}"
            endpoint = source.kubelet_endpoint(None)
            assert endpoint is not None
            assert endpoint.url == kubelet.url
        assert not server.request_log

    def test_then_the_api_server(self, api: FakePodsApi, server: FakeApiServer) -> None:
        with source_of(api, node_name="node-1") as source:
            before = source.describe()
            assert names(source) == ["of-the-cluster"]
            assert source.describe().startswith(f"node node-1 at {server.url}")
            assert before == f"the kubelet's PodsAPI at {api.socket}, else {source.describe()}"

    def test_a_socket_that_appears_is_turned_to(
        self, api: FakePodsApi, server: FakeApiServer
    ) -> None:
        changed = threading.Event()
        with source_of(api, node_name="node-1", on_change=changed.set) as source:
            assert names(source) == ["of-the-cluster"]
            changed.clear()
            api.run(api.start)
            assert changed.wait(PATIENCE)
            eventually("the kubelet is asked", lambda: names(source) == ["of-the-kubelet"])
            assert not [each for each in threading.enumerate() if each.name == "watch pods"]

    def test_a_kubelet_that_is_starting_is_waited_for(
        self, api: FakePodsApi, server: FakeApiServer
    ) -> None:
        api.mood = "starting"
        api.run(api.start)
        with source_of(api, node_name="node-1") as source:
            with pytest.raises(PodsNotReady):
                source.pods()
            api.mood = "well"
            eventually("it is ready", lambda: _is_answered(source))
            assert names(source) == ["of-the-kubelet"]

    def test_without_a_cluster_the_pods_api_is_all(
        self, api: FakePodsApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
        with source_of(api) as source:
            with pytest.raises(Unreachable, match="no such socket, and there is no API server to"):
                source.pods()
            assert source.lacks_pods is False
            api.run(api.start)
            eventually("it is served", lambda: _is_answered(source))
            assert names(source) == ["of-the-kubelet"]
            assert source.node() is None
            assert source.kubelet_endpoint(None) is None
            assert source.event_poster() is None

    def test_a_kubelet_that_stays_away_gives_way(self, api: FakePodsApi) -> None:
        is_ready = threading.Event()

        class Other(PodSource):
            def pods(self) -> list[Pod]:
                assert is_ready.is_set()
                return [msgspec.convert(pod("of-the-other"), Pod)]

            def describe(self) -> str:
                return "the other"

        api.run(api.start)
        timings = PodsApiTimings(silent=0.0, slowness=0.01)
        watched = WatchedPodsApi(api.socket, timings=timings)
        watched.start()
        source = AutomaticPods(watched, Other(), prepare_other=is_ready.is_set)
        try:
            assert names(source) == ["of-the-kubelet"]
            api.run(api.end)
            eventually("it is noticed", lambda: not watched.is_served)
            assert names(source) == ["of-the-kubelet"]
            assert source.stale_reason is not None
            is_ready.set()
            eventually("the other is asked", lambda: names(source) == ["of-the-other"])
            api.run(api.start)
            eventually("the kubelet is back", lambda: names(source) == ["of-the-kubelet"])
        finally:
            source.stop()


def _is_answered(source: PodSource) -> bool:
    try:
        source.pods()
    except Unreachable:
        return False
    return True


def test_values_stay_while_the_kubelet_is_away(folder: Path) -> None:
    with fake_pods_api(folder / "pods-api.sock") as api:
        manifest = a_pod("u1")
        api.put(manifest)
        node = SteppedNode(folder, pods=PodSourceConfig(source="podsapi", socket=api.socket))
        node.reader.source.stop()
        source = WatchedPodsApi(api.socket, timings=PodsApiTimings(unlisted=0.1, slowness=0.01))
        node.reader.source = source
        source.start()
        try:
            node.run_pod(manifest, listed=False)
            node.settle()
            (path,) = container_paths(manifest)
            high = node.read(path, "memory.high")
            assert high != "max"
            api.mood = "starting"
            before = api.watches
            api.restart()
            eventually("it is asked again", lambda: api.watches > before)
            node.wait(200)
            assert node.read(path, "memory.high") == high
            api.mood = "well"
            api.lose("u1")
            eventually("the pod is gone", lambda: not node.reader.source.pods())
        finally:
            node.crash()


def test_the_log_says_when_pods_come_from_elsewhere(folder: Path) -> None:
    with fake_pods_api(folder / "pods-api.sock", is_up=False) as api:
        node = SteppedNode(folder, events=False)
        try:
            node.reader.source = WatchedPodsApi(api.socket)
            (note,) = [
                what for _, what in node.reader.take_settings_notes() if "pods come from" in what
            ]
            assert note == f"pods come from the kubelet's PodsAPI at {api.socket}"
            assert not any("pods come" in what for _, what in node.reader.take_settings_notes())
        finally:
            node.crash()


def test_how_a_flag_names_it() -> None:
    assert flag_values({"field_pods_files": "podsapi"}) == {"pods.source": "podsapi"}
    assert flag_values({"field_pods_files": "podsapi:/s"}) == {
        "pods.source": "podsapi",
        "pods.socket": "/s",
    }
    assert flag_values({"field_pods_files": "./podsapi"}) == {"pods.files": ("./podsapi",)}
