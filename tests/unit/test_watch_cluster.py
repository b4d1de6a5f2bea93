"""top, status and web over the agents of a cluster, by their read endpoints."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.commands import memqos
from tests.fakes import recording
from tests.fakes.agent import MI, SteppedNode, a_pod, container_paths, view_of
from tests.fakes.apiserver import FakeApiServer, fake_api_server
from tests.fakes.client import with_openssl
from tests.fakes.kubeconfig import lead_to
from tests.fakes.kubelet import TlsFiles, self_signed
from tests.fakes.read_endpoint import SERVER_NAME, put_agent, serve_read_endpoint
from tests.unit.test_web_command import serving

from memqos.agent.kernel_counters import CgroupCounters
from memqos.cli.cluster_access import LiveCluster
from memqos.errors import Unreachable
from memqos.host.agent_endpoint import AgentAccess, AgentEndpoints

pytestmark = with_openssl

TOKEN = "jane-s-own-token"


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return self_signed(tmp_path_factory.mktemp("pki"), "agent", f"DNS:{SERVER_NAME}")


@pytest.fixture
def server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, identity: TlsFiles
) -> Iterator[FakeApiServer]:
    """A cluster with an agent on node-1, and jane, who may list all pods."""
    (tmp_path / "token").write_text(TOKEN)
    recording.write_example(str(tmp_path / "records"))
    folder = tmp_path / "node"
    folder.mkdir()
    node = SteppedNode(folder)
    pod = a_pod("u1", namespace="shop", containers=("api",))
    pod["metadata"]["name"] = "api-1"
    node.run_pod(pod)
    (path,) = container_paths(pod)
    node.kernel.set(path, "memory.max", str(128 * MI))
    node.settle()
    counters = CgroupCounters(100 * MI, {"high": 3, "oom_kill": 1}, {"some": 1.0, "full": 0.5})
    view = msgspec.structs.replace(view_of(node), counters={path: counters})
    with fake_api_server() as served:
        lead_to(served.url, tmp_path, monkeypatch)
        served.callers[TOKEN] = {"username": "jane"}
        served.rights |= {("jane", "list", "", ""), ("jane", "get", "shop", "api-1")}
        with serve_read_endpoint(
            lambda: view, node.kernel, identity, str(tmp_path / "records")
        ) as endpoint:
            put_agent(served, endpoint, identity)
            yield served
    node.crash()


@pytest.fixture
def options(server: FakeApiServer, tmp_path: Path) -> tuple[str, ...]:
    return ("--context", "dev", "--agent-token", str(tmp_path / "token"))


def test_top_has_the_containers_of_all_nodes(options: tuple[str, ...]) -> None:
    done = memqos("top", "--once", "-o", "json", "--interval", "0.2", *options)
    assert done.code == 0, done.err
    (row,) = done.data["containers"]
    assert (row["node"], row["pod"], row["container"]) == ("node-1", "shop/api-1", "api")
    assert (row["current"], row["kills"]) == (100 * MI, 1)
    assert row["planned"]["memory.high"]["rule"]


def test_the_limit_of_a_container_is_what_its_agent_reads(options: tuple[str, ...]) -> None:
    """An agent never writes memory.max, so it is not among the files that it desires."""
    data = memqos("top", "--once", "-o", "json", "--interval", "0.2", *options).data
    (row,) = data["containers"]
    assert row["max"] == 128 * MI
    assert (row["anon"], row["file"], row["swap"]) == (None, None, None), "not reported"
    table = memqos("top", "--once", "--interval", "0.2", *options).out
    assert "128Mi" in table.splitlines()[-1]


@pytest.mark.parametrize("command", [("top", "--once"), ("status",)])
def test_a_cluster_without_agents_is_no_node_without_one(
    server: FakeApiServer, options: tuple[str, ...], command: tuple[str, ...]
) -> None:
    done = memqos(*command, "--agent-namespace", "elsewhere", *options)
    assert done.code == 1
    assert "no agent of memqos runs here" in done.err
    assert "--agent-namespace" in done.err


def test_a_caller_without_the_right_sees_why(
    server: FakeApiServer, options: tuple[str, ...]
) -> None:
    server.rights.discard(("jane", "list", "", ""))
    done = memqos("top", "--once", "--interval", "0.2", *options)
    assert "1 node not read" in done.err


def test_status_sums_the_cluster_up(options: tuple[str, ...]) -> None:
    done = memqos("status", "--seconds", "0.1", "-o", "json", *options)
    assert done.data["containers"] == 1
    assert (done.data["mode"], done.data["nodes"], done.data["enforcing"]) == ("cluster", 1, 0)


def test_throttling_in_a_cluster_is_not_known_from_one_reading_of_its_agents(
    options: tuple[str, ...],
) -> None:
    done = memqos("status", "--seconds", "0.1", *options)
    assert "throttled    unknown yet: agents read the counters every ten seconds" in done.out
    data = memqos("status", "--seconds", "0.1", "-o", "json", *options).data
    assert (data["throttled"], data["throttlingKnown"]) == ([], False)


def test_without_the_records_of_an_agent_there_is_a_status(
    options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise Unreachable("the agent of node-1 is slow")

    monkeypatch.setattr(AgentEndpoints, "get_records", fail)
    done = memqos("status", "--seconds", "0.1", *options)
    assert done.code == 0
    assert "pods         1 pod," in done.out
    assert "note: the records are not known: the agent of node-1 is slow" in done.out


def put_agent_pod(server: FakeApiServer, name: str, node: str) -> None:
    labels = {"app.kubernetes.io/name": "memqos", "app.kubernetes.io/component": "agent"}
    server.pods.put(
        {
            "metadata": {"name": name, "namespace": "memqos-system", "labels": labels},
            "spec": {"nodeName": node, "containers": []},
            "status": {"phase": "Running"},
        }
    )


def test_the_address_of_one_agent_is_not_that_of_all(
    server: FakeApiServer, options: tuple[str, ...]
) -> None:
    port = server.forwards["memqos-agent-x", "9178"]
    direct = ("top", "--once", "--agent-address", f"127.0.0.1:{port}", *options)
    assert memqos(*direct).code == 0
    put_agent_pod(server, "memqos-agent-y", "node-2")
    done = memqos(*direct)
    assert done.code == 1
    assert "is one agent, and 2 run in namespace memqos-system" in done.err


def test_an_agent_in_a_new_pod_is_reached_and_with_a_new_token(
    server: FakeApiServer, options: tuple[str, ...], tmp_path: Path
) -> None:
    agents = AgentEndpoints(LiveCluster("dev").server, AgentAccess(token_file=options[-1]))
    assert agents.get_state("node-1")
    server.pods.delete("memqos-system", "memqos-agent-x")
    put_agent_pod(server, "memqos-agent-y", "node-1")
    server.forwards["memqos-agent-y", "9178"] = server.forwards.pop(("memqos-agent-x", "9178"))
    server.callers = {"a-newer-token": server.callers[TOKEN]}
    (tmp_path / "token").write_text("a-newer-token")
    assert list(agents.list_agents()) == ["node-1"]
    assert agents.get_state("node-1")


def test_the_page_shows_nodes_and_stories(options: tuple[str, ...], tmp_path: Path) -> None:
    with serving(tmp_path, *options) as found:
        assert "cluster" in found.data("/api/views")["views"]
        (node,) = found.data("/api/cluster")["nodes"]
        assert (node["name"], node["mode"], node["kills"]) == ("node-1", "observe", 1)
        (container,) = found.data("/api/story?pod=shop/api-1")["containers"]
        assert "killed" in {chapter["kind"] for chapter in container["chapters"]}
