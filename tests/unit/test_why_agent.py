"""`memqos why` for somebody without a login on the node: the cluster, and the agent's records."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.commands import Done, memqos
from tests.fakes import recording
from tests.fakes.agent import SteppedNode, a_pod, container_paths, view_of
from tests.fakes.apiserver import FakeApiServer, fake_api_server
from tests.fakes.client import with_openssl
from tests.fakes.kubeconfig import lead_to
from tests.fakes.kubelet import TlsFiles, self_signed
from tests.fakes.read_endpoint import SERVER_NAME, put_agent, serve_read_endpoint

pytestmark = with_openssl

TOKEN = "jane-s-own-token"
UID = recording.API.uid
KILLED = {
    "reason": "OOMKilled",
    "exitCode": 137,
    "startedAt": "2026-03-02T10:00:00Z",
    "finishedAt": "2026-03-02T10:12:52Z",
}


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return self_signed(tmp_path_factory.mktemp("pki"), "agent", f"DNS:{SERVER_NAME}")


@pytest.fixture
def server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, identity: TlsFiles
) -> Iterator[FakeApiServer]:
    """A cluster with an agent on node-1, whose records jane may read of api-1."""
    monkeypatch.setattr("memqos.cli.why.RECORDS_FOLDER", str(tmp_path / "none"))
    (tmp_path / "token").write_text(TOKEN)
    recording.write_example(str(tmp_path / "records"))
    folder = tmp_path / "node"
    folder.mkdir()
    node = SteppedNode(folder)
    pod = a_pod("u1", namespace="shop", containers=("api",))
    pod["metadata"]["name"] = "api-1"
    node.run_pod(pod)
    (path,) = container_paths(pod)
    node.kernel.set(path, "memory.current", str(100 << 20))
    statistics = {"anon": 60, "file": 30, "shmem": 10, "kernel": 10, "inactive_file": 15}
    text = "".join(f"{name} {amount << 20}\n" for name, amount in statistics.items())
    node.kernel.set(path, "memory.stat", text)
    node.settle()
    view = view_of(node)
    with fake_api_server() as served:
        lead_to(served.url, tmp_path, monkeypatch)
        served.callers[TOKEN] = {"username": "jane"}
        served.rights.add(("jane", "get", "shop", "api-1"))
        with serve_read_endpoint(
            lambda: view, node.kernel, identity, str(tmp_path / "records")
        ) as endpoint:
            put_agent(served, endpoint, identity)
            yield served
    node.crash()


def put_pod(server: FakeApiServer, name: str = "api-1", uid: str = UID, **status: Any) -> None:
    limits = {"limits": {"memory": "512Mi"}}
    server.pods.put(
        {
            "metadata": {"name": name, "namespace": "shop", "uid": uid, "labels": {"app": "api"}},
            "spec": {"nodeName": "node-1", "containers": [{"name": "api", "resources": limits}]},
            "status": {
                "qosClass": "Burstable",
                "containerStatuses": [{"name": "api", **status}],
            },
        }
    )


def why(tmp_path: Path, *arguments: str) -> Done:
    return memqos("why", *arguments, "--agent-token", str(tmp_path / "token"))


class TestAPod:
    def test_its_story_is_that_of_the_agents_records(
        self, server: FakeApiServer, tmp_path: Path
    ) -> None:
        put_pod(server, lastState={"terminated": KILLED})
        done = why(tmp_path, "pod/api-1")
        assert done.code == 0, done.err
        assert "evidence: records of the agent on node" in done.out
        assert "the pod's status" in done.out
        assert "512Mi were in use of 512Mi" in done.out
        assert "by kind: 505Mi anonymous, 4Mi page cache, 0 tmpfs, 2Mi kernel memory" in done.out
        assert "OOMKilled, exit code 137" in done.out
        assert done.out.count("OOM-killed by the kernel: api-server") == 1
        assert done.err == ""

    def test_a_pod_that_is_gone_is_found_by_its_events(
        self, server: FakeApiServer, tmp_path: Path
    ) -> None:
        server.stores["events"].put(
            {
                "metadata": {"name": "e", "namespace": "shop"},
                "involvedObject": {"kind": "Pod", "name": "api-1", "uid": UID},
                "reason": "Killing",
                "eventTime": "2026-03-02T10:13:00.000000Z",
                "source": {"component": "kubelet", "host": "node-1"},
            }
        )
        done = why(tmp_path, "pod/api-1")
        assert "OOM-killed by the kernel: api-server" in done.out
        assert "evidence: records of the agent on" in done.out

    def test_of_a_later_pod_of_the_name_earlier_records_are_not_shown(
        self, server: FakeApiServer, tmp_path: Path
    ) -> None:
        put_pod(server, uid="another")
        assert "killed" not in why(tmp_path, "pod/api-1").out

    def test_every_reading_is_shown_side_by_side(
        self, server: FakeApiServer, tmp_path: Path
    ) -> None:
        put_pod(server)
        done = why(tmp_path, "pod/api-1", "--readings")
        rows = {tuple(row[:-2]): row[-2:] for row in done.rows() if len(row) in (3, 4)}
        assert rows["usage",] == ["512Mi", "100Mi"]
        assert rows["working", "set"] == ["510Mi", "85Mi"]
        assert rows["tmpfs",] == ["0", "10Mi"]
        data = why(tmp_path, "pod/api-1", "--readings", "-o", "json").data
        (container,) = data["containers"]
        readings = {each["reading"]: each for each in container["readings"]}
        assert [each["bytes"] for each in readings["kernel"]["values"]] == [2 << 20, 10 << 20]
        assert readings["working set"]["v1"] == "memory.usage_in_bytes − total_inactive_file"
        assert container["sources"][0].startswith("records of the agent on")

    def test_directly_at_an_address(
        self, server: FakeApiServer, tmp_path: Path, identity: TlsFiles
    ) -> None:
        put_pod(server)
        port = server.forwards.pop(("memqos-agent-x", "9178"))
        address = ("--agent-address", f"127.0.0.1:{port}", "--agent-ca", str(identity.cert))
        assert "records of the agent" in why(tmp_path, "pod/api-1", *address).out


class TestWithoutTheAgent:
    @pytest.fixture(autouse=True)
    def killed(self, server: FakeApiServer) -> None:
        put_pod(server, lastState={"terminated": KILLED})

    def tells(self, done: Done, reason: str) -> None:
        """The statuses are told, and why there is no more."""
        assert done.code == 0
        assert "OOM-killed by the kernel" in done.out
        assert "evidence: the pod's status" in done.out
        assert f"note: there are no records: {reason}" in done.out
        assert TOKEN not in done.out + done.err

    def test_one_that_refuses(self, server: FakeApiServer, tmp_path: Path) -> None:
        server.rights.clear()
        self.tells(why(tmp_path, "pod/api-1"), "the agent of node-1 answers 403")

    def test_an_expired_token(self, server: FakeApiServer, tmp_path: Path) -> None:
        server.callers.clear()
        self.tells(why(tmp_path, "pod/api-1"), "the agent of node-1 answers 401")

    def test_no_agent_on_the_node(self, server: FakeApiServer, tmp_path: Path) -> None:
        server.pods.delete("memqos-system", "memqos-agent-x")
        self.tells(why(tmp_path, "pod/api-1"), "no agent of memqos runs on node node-1")

    def test_no_authority(self, server: FakeApiServer, tmp_path: Path) -> None:
        server.stores["configmaps"].delete("memqos-system", "memqos-agent-ca")
        self.tells(why(tmp_path, "pod/api-1"), "there is no ca.crt in ConfigMap")

    def test_no_right_to_port_forward(self, server: FakeApiServer, tmp_path: Path) -> None:
        server.forbidden = {("GET", "portforward")}
        done = why(tmp_path, "pod/api-1")
        assert 'resources: ["pods/portforward"]' in done.out
        assert "OOM-killed by the kernel" in done.out

    def test_no_token(self, server: FakeApiServer) -> None:
        done = memqos("why", "pod/api-1")
        assert "the user of this context has no token" in done.out
        assert "kubectl create token NAME --audience memqos.io/agent" in done.out
        assert "OOM-killed by the kernel" in done.out

    def test_a_token_file_that_holds_none(self, server: FakeApiServer, tmp_path: Path) -> None:
        (tmp_path / "token").write_text("two words")
        assert "this is not a token" in why(tmp_path, "pod/api-1").out


class TestAWorkload:
    def test_the_pods_that_died_are_told_of(self, server: FakeApiServer, tmp_path: Path) -> None:
        selector = {"matchLabels": {"app": "api"}}
        server.stores["deployments"].put(
            {"metadata": {"name": "api", "namespace": "shop"}, "spec": {"selector": selector}}
        )
        put_pod(server, lastState={"terminated": KILLED})
        put_pod(server, "api-2", "u2")
        for kind in ("deployment", "deploy"):
            done = why(tmp_path, f"{kind}/api")
            assert done.code == 0, done.err
            assert "shop/api-1 api" in done.out
            assert "api-2" not in done.out
            assert "records of the agent" in done.out

    def test_one_that_is_not_there_is_an_error(self, server: FakeApiServer, tmp_path: Path) -> None:
        done = why(tmp_path, "deployment/none")
        assert done.code == 1
        assert "there is no deployments/none in shop (404)" in done.err

    def test_files_know_no_workloads(self) -> None:
        done = memqos("why", "deployment/api", "--records", "examples/records")
        assert done.code == 64


class TestTheNamespace:
    def test_its_deaths_are_listed_with_what_was_in_use(
        self, server: FakeApiServer, tmp_path: Path
    ) -> None:
        put_pod(server, lastState={"terminated": KILLED})
        failed = {**KILLED, "reason": "Error", "exitCode": 1, "finishedAt": "2026-03-02T09:00:00Z"}
        put_pod(server, "job-1", "u3", state={"terminated": failed})
        put_pod(server, "fine", "u4")
        done = why(tmp_path)
        assert done.code == 0, done.err
        lines = done.out.splitlines()
        assert lines[1].split() == [
            *("2026-03-02", "10:12:52", "api-1", "api"),
            *("OOM-killed", "by", "the", "kernel", "512Mi", "512Mi"),
        ]
        assert "job-1 api" in lines[2]
        assert "Error, exit code 1" in lines[2]
        assert "fine" not in done.out
        data = why(tmp_path, "-o", "json").data
        assert [each["usage"] for each in data["deaths"]] == [512 << 20, None]

    def test_without_agents_it_says_why_usage_is_missing(
        self, server: FakeApiServer, tmp_path: Path
    ) -> None:
        put_pod(server, lastState={"terminated": KILLED})
        server.rights.clear()
        done = why(tmp_path)
        assert done.code == 0
        assert "note: there are no records: the agent of node-1 answers 403" in done.err
        assert "api-1 api" in done.out

    def test_where_nobody_died_that_is_said(self, server: FakeApiServer, tmp_path: Path) -> None:
        assert "no container in namespace shop has died" in why(tmp_path).out
