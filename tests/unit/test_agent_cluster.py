"""An agent that has its pods from the API server."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.apiserver import FakeApiServer, fake_api_server, pod

from memqos.agent.configuration import Source
from memqos.agent.configuration.reading import configuration_from
from memqos.agent.pod_source import source_of, stop
from memqos.errors import InputError


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApiServer]:
    with fake_api_server() as served:
        kubeconfig = tmp_path / "config"
        kubeconfig.write_text(
            "apiVersion: v1\nkind: Config\ncurrent-context: test\n"
            f"clusters: [{{name: test, cluster: {{server: '{served.url}'}}}}]\n"
            "users: [{name: test, user: {}}]\n"
            "contexts: [{name: test, context: {cluster: test, user: test}}]\n"
        )
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        yield served


def test_pods_are_those_of_its_node_and_changes_are_told(server: FakeApiServer) -> None:
    server.stores["nodes"].put({"metadata": {"name": "node-1"}})
    server.pods.put(pod("here"))
    server.pods.put(pod("there", "node-2"))
    told = threading.Event()
    source = source_of(Source(files=(), cluster=True, node_name="node-1"), on_change=told.set)
    try:
        assert [each.metadata.name for each in source.pods()] == ["here"]
        told.clear()
        server.pods.put(pod("new"))
        assert told.wait(30)
        assert sorted(each.metadata.name or "" for each in source.pods()) == ["here", "new"]
    finally:
        stop(source)


def test_a_cluster_takes_the_place_of_the_default_folder(tmp_path: Path) -> None:
    file = tmp_path / "memqos.yaml"
    head = "apiVersion: memqos.io/v1alpha1\nkind: AgentConfiguration\n"
    file.write_text(f"{head}pods: {{cluster: true, nodeName: node-1}}\n")
    configuration = configuration_from(str(file), {}, {})
    assert configuration.pods == Source(files=(), cluster=True, node_name="node-1")
    file.write_text(f"{head}pods: {{cluster: true, files: [a]}}\n")
    with pytest.raises(InputError, match="keep one"):
        configuration_from(str(file), {}, {})
    file.write_text(f"{head}pods: {{nodeName: node-1}}\n")
    with pytest.raises(InputError, match=r"set pods\.cluster"):
        configuration_from(str(file), {}, {})
