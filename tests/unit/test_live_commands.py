"""Commands that ask a live cluster: as kubectl is told where it is, and as the cluster holds it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.commands import Done, memqos
from tests.fakes.apiserver import FakeApiServer, fake_api_server, pod
from tests.fakes.kubeconfig import lead_to

VERSION = b'{"major": "1", "minor": "37", "gitVersion": "v1.37.2"}'


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApiServer]:
    with fake_api_server() as served:
        served.answers["/version"] = 200, {}, VERSION
        lead_to(served.url, tmp_path, monkeypatch)
        yield served


def in_shop(name: str, node: str | None = "node-1", **resources: Any) -> dict[str, Any]:
    made = pod(name, node)
    made["metadata"] |= {"namespace": "shop", "labels": {"app": name}}
    if resources:
        made["spec"]["containers"][0]["resources"] = resources
    return made


def node(name: str, memory: str = "8Gi") -> dict[str, Any]:
    has = {"cpu": "4", "memory": memory, "pods": "110"}
    return {
        "metadata": {"name": name},
        "status": {
            "capacity": has,
            "allocatable": has,
            "nodeInfo": {"kubeletVersion": "v1.36.4"},
        },
    }


def request_paths(server: FakeApiServer) -> list[str]:
    return [each.path for each in server.request_log]


class TestExplain:
    def test_a_pod_by_its_name(self, server: FakeApiServer) -> None:
        server.pods.put(in_shop("web-0"))
        done = memqos("explain", "pod/web-0")
        assert done.code == 0
        assert "Kubernetes 1.37" in done.out
        assert "the release is that of the API server, v1.37.2" in done.out
        assert "pod/web-0 in shop  Burstable" in done.out

    def test_a_pod_is_explained_on_the_node_it_runs_on(self, server: FakeApiServer) -> None:
        server.stores["nodes"].put(node("node-1"))
        server.pods.put(in_shop("web-0", requests={"memory": "1Gi"}))
        server.pods.put(in_shop("web-1", requests={"memory": "1Gi"}))
        server.pods.put(in_shop("new", None, requests={"memory": "1Gi"}))
        for pods in (["pod/web-0"], ["po/web-0", "pods/web-1"]):
            done = memqos("explain", *pods)
            assert "--node?" not in done.out
            assert "the release is that of the Node's kubelet, v1.36.4" in done.out
        assert request_paths(server).count("/api/v1/namespaces/shop/pods/web-0") == 2
        assert "--node?" in memqos("explain", "pod/new").out
        assert "--node?" in memqos("explain", "pod/web-0", "pod/new").out

    def test_its_kubelet_says_whether_memory_qos_is_on(self, server: FakeApiServer) -> None:
        server.stores["nodes"].put(node("node-1"))
        server.pods.put(in_shop("web-0", requests={"memory": "1Gi"}, limits={"memory": "2Gi"}))
        config = {"featureGates": {"MemoryQoS": True}, "memoryThrottlingFactor": 0.8}
        answer = json.dumps({"kubeletconfig": config}).encode()
        server.answers["/api/v1/nodes/node-1/proxy/configz"] = 200, {}, answer
        done = memqos("explain", "pod/web-0")
        assert (done.code, done.err) == (0, "")
        assert done.out.splitlines() == [
            "Kubernetes 1.36 · MemoryQoS on · policy None · factor 0.8 · node of 8Gi, 8Gi "
            "allocatable",
            "MemoryQoS is on: the running kubelet has MemoryQoS=true, by node/node-1/configz",
            "note: the release is that of the Node's kubelet, v1.36.4",
            "note: API server 1.37 sets defaults and validates "
            "pods; the values are those of the node's kubelet, v1.36.4",
            "",
            "pod/web-0 in shop  Burstable",
            "                     memory.                          oom_    cpu.",
            "     request  limit      min  low     high  max  score_adj  weight  max",
            "pod      1Gi    2Gi        –    –        –  2Gi                  1    –",
            "└ c      1Gi    2Gi        0    0  1.800Gi  2Gi        875       1  max",
            "  note: read from the cluster, which has set its defaults and accepted it",
        ]
        data = memqos("explain", "pod/web-0", "-o", "json").data
        assert data["enablement"]["source"] == "configz"

    def test_an_api_server_that_memqos_does_not_know_is_no_obstacle(
        self, server: FakeApiServer
    ) -> None:
        server.answers["/version"] = 200, {}, b'{"gitVersion": "v1.99.0"}'
        server.stores["nodes"].put(node("node-1"))
        server.pods.put(in_shop("web-0", requests={"memory": "1Gi"}))
        done = memqos("explain", "pod/web-0")
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith("Kubernetes 1.36 · MemoryQoS off")

    @pytest.mark.parametrize(
        ("status", "why"),
        [
            (403, "the user may not get nodes/proxy (403)"),
            (404, "the API server answers 404 for it"),
            (503, "the API server answers 503 for it"),
        ],
    )
    def test_without_its_answer_the_default_is_shown_and_the_reason(
        self, server: FakeApiServer, status: int, why: str
    ) -> None:
        server.stores["nodes"].put(node("node-1"))
        server.pods.put(in_shop("web-0", requests={"memory": "1Gi"}))
        server.answers["/api/v1/nodes/node-1/proxy/configz"] = status, {}, b"{}"
        done = memqos("explain", "pod/web-0")
        assert (done.code, done.err) == (0, "")
        assert done.out.splitlines()[1] == (
            "MemoryQoS is off: the default of 1.36, and no kubelet configuration is known"
        )
        assert (
            f"note: the configuration of the kubelet of node node-1 is unknown, {why}: defaults "
            "are assumed – give it with --kubelet"
        ) in done.out.splitlines()
        assert request_paths(server).count("/api/v1/nodes/node-1/proxy/configz") == 1

    def test_or_without_it_where_nodes_may_not_be_read(self, server: FakeApiServer) -> None:
        server.answers["/api/v1/nodes/node-1"] = 403, {}, b"{}"
        server.pods.put(in_shop("web-0", requests={"memory": "1Gi"}))
        done = memqos("explain", "pod/web-0")
        assert done.code == 0
        assert "--node?" in done.out
        assert "note: the node is unknown: " in done.err

    def test_it_is_taken_as_the_cluster_holds_it(self, server: FakeApiServer) -> None:
        # A new pod like this would be given a request of its limit.
        server.pods.put(in_shop("old", limits={"memory": "1Gi"}))
        done = memqos("explain", "po/old", "-o", "json")
        (explained,) = done.data["pods"]
        assert explained["defaulted"]["containers"]["c"]["requests"] == {}
        assert (
            "read from the cluster, which has set its defaults and accepted it"
            in (explained["notes"])
        )

    def test_all_of_a_namespace_or_those_with_labels(self, server: FakeApiServer) -> None:
        for name in ("web", "db"):
            server.pods.put(in_shop(name))
        both = memqos("explain", "-n", "shop", "-o", "json")
        assert [each["name"] for each in both.data["pods"]] == ["pod/db", "pod/web"]
        one = memqos("explain", "-l", "app=web", "-o", "json")
        assert [each["name"] for each in one.data["pods"]] == ["pod/web"]

    def test_nobody_there_is_reported(self, server: FakeApiServer) -> None:
        done = memqos("explain", "-n", "empty", "-l", "app=x")
        assert done.code == 0
        assert done.err == "there are no pods in namespace empty with app=x\n"

    def test_another_context(self, server: FakeApiServer) -> None:
        server.pods.put(pod("web"))
        assert memqos("explain", "pods/web", "--context", "other").code == 0
        assert "/api/v1/namespaces/default/pods/web" in request_paths(server)

    def test_the_template_of_a_workload(self, server: FakeApiServer) -> None:
        body = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
        }
        path = "/apis/apps/v1/namespaces/shop/deployments/web"
        server.answers[path] = 200, {}, json.dumps(body).encode()
        done = memqos("explain", "deploy/web")
        assert "deployment/web in shop  BestEffort" in done.out

    def test_on_a_node_of_the_cluster(self, server: FakeApiServer) -> None:
        server.stores["nodes"].put(node("worker-1"))
        done = memqos("explain", "examples/one.yaml", "--node", "node/worker-1")
        assert done.code == 0
        assert "the release is that of the Node's kubelet, v1.36.4" in done.out

    def test_a_release_may_be_asked_for(self, server: FakeApiServer) -> None:
        server.pods.put(in_shop("web"))
        done = memqos("explain", "pod/web", "--release", "1.30")
        assert "Kubernetes 1.30" in done.out
        assert "/version" not in request_paths(server)

    def test_a_file_comes_before_a_name(
        self, server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "pod" / "web"
        file.parent.mkdir()
        file.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: []}\n")
        monkeypatch.setattr("os.path.exists", lambda path: path == "pod/web")
        memqos("explain", "pod/web")
        assert server.request_log == []

    @pytest.mark.parametrize(
        "arguments", [[], ["a.yaml", "-l", "app=web"], ["examples/one.yaml", "--context", "dev"]]
    )
    def test_wrong_usage(self, server: FakeApiServer, arguments: list[str]) -> None:
        assert memqos("explain", *arguments).code == 64


class TestResize:
    SMALL, LARGE = {"memory": "1Gi"}, {"memory": "5Gi"}

    def with_image(self, made: dict[str, Any]) -> dict[str, Any]:
        made["spec"]["containers"][0]["image"] = "i"
        return made

    def resize(self, tmp_path: Path, *options: str) -> Done:
        new = self.with_image(in_shop("web-0", requests=self.LARGE))
        (tmp_path / "new.json").write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", **new}))
        return memqos("resize", "pod/web-0", str(tmp_path / "new.json"), *options)

    def test_a_live_pod_is_resized_on_its_node_beside_its_pods(
        self, server: FakeApiServer, tmp_path: Path
    ) -> None:
        server.stores["nodes"].put(node("node-1"))
        server.pods.put(self.with_image(in_shop("web-0", requests=self.SMALL)))
        fits = self.resize(tmp_path)
        assert (fits.code, "the kubelet's decision: Accepted" in fits.out) == (0, True), fits.out
        assert "the release is that of the Node's kubelet, v1.36.4" in fits.out
        server.pods.put(in_shop("db", "node-1", requests={"memory": "4Gi"}))
        server.pods.put(in_shop("elsewhere", "node-2", requests={"memory": "4Gi"}))
        deferred = self.resize(tmp_path)
        assert deferred.code == 2
        assert "the kubelet's decision: Deferred" in deferred.out

    def test_without_the_right_to_read_its_pods_there_is_no_answer_of_a_kubelet(
        self, server: FakeApiServer, tmp_path: Path
    ) -> None:
        server.stores["nodes"].put(node("node-1"))
        server.pods.put(self.with_image(in_shop("web-0", requests=self.SMALL)))
        server.answers["/api/v1/pods"] = 403, {}, b"{}"
        done = self.resize(tmp_path)
        assert done.code == 0
        assert "the kubelet's decision" not in done.out
        assert "the kubelet's decision is unknown without the pods of node-1" in done.err

    def test_a_context_is_of_no_use_to_files(self, server: FakeApiServer) -> None:
        done = memqos("resize", "examples/one.yaml", "examples/one.yaml", "--context", "other")
        assert done.code == 64


class TestHistory:
    """`size` and `backtest` of objects of a cluster."""

    @pytest.fixture
    def history(self, tmp_path: Path) -> str:
        file = tmp_path / "usage.csv"
        usage = "".join(f"shop/web-0/c,{at * 300},{200 << 20}\n" for at in range(900))
        file.write_text(f"series,t_seconds,usage_bytes\n{usage}")
        return str(file)

    @pytest.mark.parametrize("command", ["size", "backtest"])
    def test_go_by_the_release_of_the_cluster_as_explain_does(
        self, server: FakeApiServer, history: str, command: str
    ) -> None:
        limits = {"memory": "2Gi"}
        server.pods.put(in_shop("web-0", None, requests={"memory": "1Gi"}, limits=limits))
        done = memqos(command, "pod/web-0", "--context", "dev", "--history", history)
        assert done.code == 0
        assert "MemoryQoS is on: the default of 1.37, and no kubelet configuration" in done.out
        assert "note: the release is that of the API server, v1.37.2" in done.out
        options = ("--context", "dev", "--release", "1.30", "--history", history)
        assert "off in 1.30" in memqos(command, "pod/web-0", *options).out

    @pytest.mark.parametrize("command", ["size", "backtest"])
    def test_go_by_the_kubelet_of_a_pod_that_runs(
        self, server: FakeApiServer, history: str, command: str
    ) -> None:
        server.stores["nodes"].put(node("node-1"))
        config = {"featureGates": {"MemoryQoS": True}}
        answer = json.dumps({"kubeletconfig": config}).encode()
        server.answers["/api/v1/nodes/node-1/proxy/configz"] = 200, {}, answer
        limits = {"memory": "2Gi"}
        server.pods.put(in_shop("web-0", requests={"memory": "1Gi"}, limits=limits))
        done = memqos(command, "pod/web-0", "--context", "dev", "--history", history)
        assert "MemoryQoS is on: the running kubelet has MemoryQoS=true" in done.out

    def test_files_alone_need_no_cluster(self, server: FakeApiServer, history: str) -> None:
        memqos("size", "examples/one.yaml", "--context", "dev", "--history", history)
        assert server.request_log == []


class TestFit:
    def test_a_manifest_against_the_cluster(self, server: FakeApiServer) -> None:
        server.stores["nodes"].put(node("node-1"))
        server.stores["nodes"].put(node("node-2"))
        server.pods.put(in_shop("full", requests={"memory": "7900Mi"}))
        done = memqos("fit", "examples/one.yaml", "--context", "dev", "-o", "json")
        assert done.code == 0
        assert done.data["nodes"] == 2
        assert done.data["release"] == "1.36"
        (ended,) = [each for each in server.request_log if each.path == "/api/v1/pods"]
        assert "status.phase!=Succeeded" in ended.query["fieldSelector"]

    def test_the_word_cluster_means_the_current_context(self, server: FakeApiServer) -> None:
        server.stores["nodes"].put(node("node-1"))
        done = memqos("fit", "examples/one.yaml", "--nodes", "cluster")
        assert "1 node with 0 pods" in done.out

    def test_a_live_pod_is_counted_as_it_is_held(self, server: FakeApiServer) -> None:
        server.stores["nodes"].put(node("node-1"))
        server.pods.put(in_shop("old", limits={"memory": "100Gi"}))
        done = memqos("fit", "pod/old", "--nodes", "cluster")
        assert done.code == 0
        assert "it is bound to node-1 already" in done.out

    def test_pods_alone_may_come_from_the_cluster(
        self, server: FakeApiServer, tmp_path: Path
    ) -> None:
        nodes = tmp_path / "nodes.json"
        nodes.write_text(json.dumps({"apiVersion": "v1", "kind": "Node", **node("node-1")}))
        server.pods.put(in_shop("web"))
        done = memqos("fit", "examples/one.yaml", "--nodes", str(nodes), "--pods", "cluster")
        assert "1 node with 1 pod " in done.out

    @pytest.mark.parametrize(
        "command",
        [
            ["fit", "examples/one.yaml", "--nodes", "examples/cluster/nodes.yaml"],
            ["admit", "examples/one.yaml", "--namespace-state", "examples/cluster/namespace.yaml"],
        ],
    )
    def test_a_context_that_nothing_is_read_from_is_wrong_usage(
        self, server: FakeApiServer, command: list[str]
    ) -> None:
        assert memqos(*command).code != 64
        assert memqos(*command, "--context", "dev").code == 64

    def test_somebody_must_say_which_nodes(self, server: FakeApiServer) -> None:
        assert memqos("fit", "examples/one.yaml").code == 64


class TestAdmit:
    def prepared(self, server: FakeApiServer) -> None:
        where = {"namespace": "shop"}
        server.stores["limitranges"].put(
            {
                "metadata": {"name": "limits", **where},
                "spec": {"limits": [{"type": "Container", "max": {"memory": "64Mi"}}]},
            }
        )
        server.stores["resourcequotas"].put(
            {
                "metadata": {"name": "quota", **where},
                "spec": {"hard": {"pods": "1"}},
                "status": {"hard": {"pods": "1"}, "used": {"pods": "1"}},
            }
        )

    def admit(self, *options: str, namespace: str = "") -> Done:
        metadata = {"name": "web", **({"namespace": namespace} if namespace else {})}
        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
        return memqos("admit", "-", *options, stdin=json.dumps(manifest))

    def test_the_limits_and_quotas_of_its_namespace_hold(self, server: FakeApiServer) -> None:
        self.prepared(server)
        done = self.admit("--context", "dev")
        assert done.code == 2
        assert "the release is that of the API server, v1.37.2" in done.out
        assert "1 limit range, 1 quota" in done.out
        assert "pod/web in shop" in done.out

    def test_a_pod_goes_where_it_says(self, server: FakeApiServer) -> None:
        self.prepared(server)
        done = self.admit("--namespace-state", "cluster", namespace="elsewhere")
        assert done.code == 0
        assert "/api/v1/namespaces/elsewhere/limitranges" in request_paths(server)
        assert "/api/v1/namespaces/shop/limitranges" not in request_paths(server)

    def test_one_without_a_namespace_goes_where_it_is_sent(self, server: FakeApiServer) -> None:
        self.prepared(server)
        assert self.admit("-n", "other").code == 0
        assert self.admit("-n", "shop").code == 2

    def test_there_is_no_verdict_without_all_limits(self, server: FakeApiServer) -> None:
        server.stores["limitranges"].put(
            {"metadata": {"name": "bad", "namespace": "shop"}, "spec": {"limits": 5}}
        )
        done = self.admit("-n", "shop")
        assert done.code == 1
        assert "it could not be read completely, so there is no answer" in done.err


class TestRank:
    def prepared(self, server: FakeApiServer) -> None:
        server.stores["nodes"].put(node("node-1"))
        for name, request in (("small", "64Mi"), ("large", "1Gi")):
            server.pods.put(in_shop(name, requests={"memory": request}))
        server.pods.put(in_shop("other", "node-2"))
        items = [
            {
                "metadata": {"name": name, "namespace": "shop"},
                "containers": [{"name": "c", "usage": {"memory": "512Mi"}}],
            }
            for name in ("small", "large", "other")
        ]
        body = {"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "items": items}
        server.answers["/apis/metrics.k8s.io/v1beta1/pods"] = 200, {}, json.dumps(body).encode()

    def test_eviction_on_a_node_of_the_cluster(self, server: FakeApiServer) -> None:
        self.prepared(server)
        done = memqos("rank", "eviction", "--node-name", "node-1", "-o", "json")
        assert done.code == 0
        assert [each["pod"] for each in done.data["order"]] == ["shop/small", "shop/large"]
        assert "other" not in done.out
        assert done.data["release"] == "1.36"

    def test_a_cluster_that_measures_nothing(self, server: FakeApiServer) -> None:
        self.prepared(server)
        del server.answers["/apis/metrics.k8s.io/v1beta1/pods"]
        done = memqos("rank", "eviction", "--node-name", "node-1")
        assert done.code == 1
        assert "give --usage, or install metrics-server" in done.err

    def test_usage_may_come_from_elsewhere(self, server: FakeApiServer, tmp_path: Path) -> None:
        self.prepared(server)
        usage = tmp_path / "usage.yaml"
        usage.write_text("shop/small: 10Mi\nshop/large: 2Gi\n")
        done = memqos(
            "rank", "eviction", "--node-name", "node-1", "--usage", str(usage), "-o", "json"
        )
        assert done.data["order"][0]["pod"] == "shop/large"

    def test_a_node_nobody_knows(self, server: FakeApiServer) -> None:
        done = memqos("rank", "eviction", "--node-name", "node-9")
        assert done.code == 1
        assert "there is no node node-9" in done.err
        assert "kubectl get nodes" in done.err

    @pytest.mark.parametrize(
        "arguments",
        [
            ["--context", "dev"],
            ["--pods", "cluster"],
            ["--node-name", "n", "--snapshot", "tests/nodes/systemd.json"],
        ],
    )
    def test_wrong_usage(self, server: FakeApiServer, arguments: list[str]) -> None:
        assert memqos("rank", "eviction", *arguments).code == 64

    def test_killed_processes_are_named_by_live_pods(
        self, server: FakeApiServer, tmp_path: Path
    ) -> None:
        self.prepared(server)
        uid = "11111111-2222-3333-4444-555555555555"
        owner = in_shop("owner")
        owner["metadata"]["uid"] = uid
        server.pods.put(owner)
        cgroup = f"/kubepods/burstable/pod{uid}/{'a' * 64}"
        process = {"comm": "java", "oom_score_adj": 900, "rss": 1 << 30, "cgroup": cgroup}
        file = tmp_path / "processes.json"
        file.write_text(json.dumps([process]))
        done = memqos("rank", "oom", "--from", str(file), "--total", "4Gi", "--node-name", "node-1")
        assert done.code == 0
        assert "owner" in done.out


class TestPlan:
    def test_the_pods_of_this_node_come_from_the_cluster(
        self, server: FakeApiServer, tmp_path: Path
    ) -> None:
        server.stores["nodes"].put(node("node-1"))
        server.pods.put(in_shop("web"))
        server.pods.put(in_shop("other", "node-2"))
        root = ["--cgroup-root", str(tmp_path)]
        memqos("plan", "--context", "dev", "--node-name", "node-1", *root)
        (asked,) = [each for each in server.request_log if each.path == "/api/v1/pods"]
        assert asked.query["fieldSelector"] == "spec.nodeName=node-1"

    def test_the_node_says_the_release_and_what_is_left_to_pods(
        self, server: FakeApiServer, tmp_path: Path
    ) -> None:
        server.stores["nodes"].put(node("node-1", "1Gi"))
        (tmp_path / "kubepods").mkdir()
        root = ["--cgroup-root", str(tmp_path)]
        plan = memqos("plan", "--node-name", "node-1", "-o", "json", *root)
        assert "the running kubelet is v1.36.4, by its Node" in plan.data["notes"]
        assert plan.data["release"] == "1.36"
        shown = memqos("plan", "--node-name", "node-1", *root)
        assert "node of 1Gi" in shown.out

    def test_a_node_the_cluster_does_not_know_is_not_planned_as_empty(
        self, server: FakeApiServer, tmp_path: Path
    ) -> None:
        done = memqos("plan", "--pods", "cluster", "--cgroup-root", str(tmp_path))
        assert done.code == 1
        assert "--node-name" in done.err

    def test_a_file_of_pods_has_no_context(self, server: FakeApiServer) -> None:
        assert memqos("plan", "--pods", "x.yaml", "--context", "dev").code == 64


class TestTrouble:
    def test_a_right_that_is_missing_is_named_with_its_rule(self, server: FakeApiServer) -> None:
        message = {
            "kind": "Status",
            "code": 403,
            "message": 'User "jane" cannot get resource "pods"',
        }
        path = "/api/v1/namespaces/shop/pods/web"
        server.answers[path] = 403, {}, json.dumps(message).encode()
        done = memqos("explain", "pod/web")
        assert done.code == 1
        assert "jane may not get pods in namespace shop (403)" in done.err
        assert '      resources: ["pods"]\n      verbs: [get, list, watch]\n' in done.err

    def test_a_pod_that_is_not_there(self, server: FakeApiServer) -> None:
        done = memqos("explain", "pod/none")
        assert done.code == 1
        assert "there is no pods/none in shop (404)" in done.err

    def test_a_cluster_that_is_away(self, server: FakeApiServer) -> None:
        done = memqos("explain", "pod/web", "--context", "away")
        assert done.code == 1
        assert "http://127.0.0.1:1 (context away of" in done.err
        assert "nothing listens there – is the cluster running?" in done.err

    def test_a_context_that_is_not_there(self, server: FakeApiServer) -> None:
        done = memqos("explain", "pod/web", "--context", "none")
        assert done.code == 1
        assert "give --context, one of dev, other, away" in done.err

    def test_a_server_that_does_not_say_its_release(self, server: FakeApiServer) -> None:
        server.pods.put(in_shop("web"))
        server.answers["/version"] = 200, {}, b"{}"
        done = memqos("explain", "pod/web")
        assert done.code == 1
        assert "give --release" in done.err
