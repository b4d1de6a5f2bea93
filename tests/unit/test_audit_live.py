"""`memqos audit` of a live cluster: all of it, of one moment, and what it may not tell."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.commands import ROOT, memqos
from tests.fakes.apiserver import FakeApiServer, fake_api_server
from tests.fakes.kubeconfig import lead_to

from memqos.host.apiserver import pager

METRICS = "/apis/metrics.k8s.io/v1beta1/pods"
AUTOSCALERS = "/apis/autoscaling/v2/horizontalpodautoscalers"
CONFIGZ = "/api/v1/nodes/{}/proxy/configz"
WORKERS = ("worker-1", "worker-2", "worker-3")
DUMP = "examples/cluster/dump.json"

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def objects() -> list[Any]:
    items = json.loads((ROOT / DUMP).read_text())["items"]
    assert isinstance(items, list)
    return items


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApiServer]:
    """The cluster of the examples, in pages of five."""
    with fake_api_server() as served:
        served.answers["/version"] = 200, {}, b'{"gitVersion": "v1.36.2"}'
        served.answers[METRICS] = (
            200,
            {},
            (ROOT / "examples/cluster/metrics.json").read_bytes(),
        )
        served.answers[AUTOSCALERS] = 200, {}, b'{"metadata": {}, "items": []}'
        for worker in WORKERS:
            set_configuration(served, worker)
        for item in objects():
            kind = item.pop("kind")
            item.pop("apiVersion", None)
            served.stores[f"{kind.lower()}s"].put(item)
        lead_to(served.url, tmp_path, monkeypatch)
        monkeypatch.setattr(pager, "LIST_PAGE_SIZE", 5)
        yield served


def set_configuration(server: FakeApiServer, node: str, **fields: Any) -> None:
    """What the kubelet of a node answers, through the API server."""
    answer = json.dumps({"kubeletconfig": fields}).encode()
    server.answers[CONFIGZ.format(node)] = 200, {}, answer


def without_enablement(data: Any) -> Any:
    """A dump does not say what kubelets run with."""
    return {name: value for name, value in data.items() if name != "enablement"}


def forbidden(server: FakeApiServer, path: str) -> None:
    message = {"kind": "Status", "code": 403, "message": 'User "jane" cannot list it'}
    server.answers[path] = 403, {}, json.dumps(message).encode()


def expected(*arguments: str) -> Any:
    return memqos(
        "audit", DUMP, "--usage", "examples/cluster/metrics.json", "-o", "json", *arguments
    ).data


@pytest.mark.parametrize(
    "arguments", [(), ("cluster",), ("--context", "dev"), ("--jobs", "2"), ("--jobs", "3")]
)
def test_a_live_cluster_is_audited_as_its_dump_is(
    server: FakeApiServer, arguments: tuple[str, ...]
) -> None:
    done = memqos("audit", "-o", "json", *arguments)
    assert (done.code, done.err) == (0, "")
    assert without_enablement(done.data) == without_enablement(expected())


def test_it_is_read_in_pages_of_every_namespace(server: FakeApiServer) -> None:
    assert memqos("audit").code == 0
    pods = [each.query for each in server.request_log if each.path == "/api/v1/pods"]
    assert [each["limit"] for each in pods] == ["5", "5", "5"]
    assert ["continue" in each for each in pods] == [False, True, True]
    assert {each.path for each in server.request_log} == {
        METRICS,
        "/version",
        "/api/v1/pods",
        "/api/v1/nodes",
        "/api/v1/limitranges",
        "/api/v1/resourcequotas",
        AUTOSCALERS,
        *[CONFIGZ.format(worker) for worker in WORKERS],
    }


def test_compressed_answers_are_the_same(server: FakeApiServer) -> None:
    server.compresses = True
    done = memqos("audit", "-o", "json")
    assert without_enablement(done.data) == without_enablement(expected())


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_pages_that_expire_are_read_again_and_nothing_counts_twice(
    server: FakeApiServer, jobs: str
) -> None:
    def compacted() -> None:
        server.page_hook = lambda: None
        server.pods.delete("shop", "db-0")
        server.pods.forget()

    server.page_hook = compacted
    done = memqos("audit", "-o", "json", "--jobs", jobs)
    names = [pod["name"] for pod in done.data["pods"]]
    assert len(names) == len(set(names)) == done.data["counts"]["pods"] == 11
    assert "db-0" not in names
    assert (done.code, done.err) == (0, "")


def test_nodes_that_expire_are_forgotten_too(server: FakeApiServer) -> None:
    for number in range(9):
        server.stores["nodes"].put(
            {
                "metadata": {"name": f"spare-{number}"},
                "status": {
                    "capacity": {"memory": "1Gi", "cpu": "1"},
                    "nodeInfo": {"kubeletVersion": "v1.36.0"},
                },
            }
        )

    def compacted() -> None:
        server.page_hook = lambda: None
        server.stores["nodes"].delete("", "spare-0")
        server.stores["nodes"].forget()

    server.page_hook = compacted
    done = memqos("audit", "-o", "json")
    assert done.code == 0
    assert done.data["counts"]["nodes"] == 11
    assert "spare-0" not in [node["name"] for node in done.data["nodes"]]


def test_a_list_that_always_expires_is_given_up(server: FakeApiServer) -> None:
    def compacted() -> None:
        server.pods.put(server.pods.objects["shop", "db-0"])
        server.pods.forget()

    server.page_hook = compacted
    done = memqos("audit")
    assert done.code == 1
    assert "that resourceVersion of pods has expired (410)" in done.err
    assert done.out == ""


def test_a_namespace_or_labels_select_pods_and_their_usage(server: FakeApiServer) -> None:
    done = memqos("audit", "-n", "shop", "-l", "app=web", "-o", "json")
    assert "only pods in namespace shop with app=web were read" in " ".join(done.data["notes"])
    asked = {each.path: each.query for each in server.request_log}
    assert asked["/api/v1/namespaces/shop/pods"]["labelSelector"] == "app=web"
    assert "labelSelector" not in asked["/api/v1/namespaces/shop/limitranges"]
    metrics = "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods"
    assert asked[metrics] == {"labelSelector": "app=web"}


def test_usage_of_pods_that_are_gone_is_no_fault(server: FakeApiServer) -> None:
    server.pods.delete("shop", "db-0")
    done = memqos("audit", "-o", "json")
    assert (done.code, done.err) == (0, "")
    assert done.data["counts"]["measured"] == 11


@pytest.mark.parametrize("status", [404, 503])
def test_a_cluster_without_a_metrics_api_is_audited_all_the_same(
    server: FakeApiServer, status: int
) -> None:
    server.answers[METRICS] = status, {}, b"{}"
    done = memqos("audit", "-o", "json")
    assert (done.code, done.err) == (0, "")
    assert "usage of pods is unknown: the cluster has no metrics API" in done.data["notes"]
    assert done.data["counts"]["measured"] == 0


def test_usage_that_may_not_be_read_is_said_with_its_rule(server: FakeApiServer) -> None:
    forbidden(server, METRICS)
    done = memqos("audit")
    assert done.code == 0
    assert "note: usage of pods is unknown: the metrics API refuses: " in done.out
    assert "jane may not list pods in the whole cluster (403)" in done.out
    assert '\n    - apiGroups: ["metrics.k8s.io"]\n' in done.out
    page = memqos("audit", "-o", "html").out
    assert '<span class="line">    - apiGroups: [&quot;metrics.k8s.io&quot;]</span>' in page


def test_usage_that_breaks_off_is_a_fault(server: FakeApiServer) -> None:
    whole = (ROOT / "examples/cluster/metrics.json").read_bytes()
    server.answers[METRICS] = 200, {}, whole[: len(whole) // 2]
    done = memqos("audit", "-o", "json")
    assert done.code == 1
    assert "the file ends within this object" in done.err
    assert done.data["counts"]["pods"] == 12


def test_usage_given_in_files_is_not_asked_for(server: FakeApiServer) -> None:
    done = memqos("audit", "--usage", "examples/cluster/metrics.json", "-o", "json")
    assert without_enablement(done.data) == without_enablement(expected())
    assert METRICS not in [each.path for each in server.request_log]


@pytest.mark.parametrize("resource", ["nodes", "limitranges", "resourcequotas"])
def test_what_may_not_be_read_is_listed_and_the_rest_audited(
    server: FakeApiServer, resource: str
) -> None:
    forbidden(server, f"/api/v1/{resource}")
    done = memqos("audit", "-o", "json")
    assert done.code == 1
    assert f"jane may not list {resource} in the whole cluster (403)" in done.err
    assert f'resources: ["{resource}"]' in done.err
    assert "a ClusterRole with this rule grants it" in done.err
    assert done.data["counts"]["pods"] == 12
    assert f"may not list {resource}" in json.dumps(done.data["faults"])


def test_without_nodes_the_release_is_that_of_the_api_server(server: FakeApiServer) -> None:
    forbidden(server, "/api/v1/nodes")
    done = memqos("audit")
    assert "no Node was read: 12 pods audited without the memory of their nodes\n" in done.out
    assert "the release is that of the API server, v1.36.2" in done.out
    assert "kubectl" not in done.err


def test_without_pods_there_is_no_audit(server: FakeApiServer) -> None:
    forbidden(server, "/api/v1/namespaces/shop/pods")
    done = memqos("audit", "-n", "shop")
    assert (done.code, done.out) == (1, "")
    assert "jane may not list pods in namespace shop (403) – a Role with this rule" in done.err


def test_a_cluster_that_is_away_is_reported_once(server: FakeApiServer) -> None:
    done = memqos("audit", "--context", "away")
    assert (done.code, done.out) == (1, "")
    assert done.err.count("nothing listens there") == 1


def test_a_busy_server_is_asked_again(
    server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memqos.host.apiserver.client.time.sleep", lambda seconds: None)

    def busy() -> None:
        server.page_hook = lambda: None
        server.refusals.append((429, {"Retry-After": "0"}))

    server.page_hook = busy
    done = memqos("audit", "-o", "json")
    assert without_enablement(done.data) == without_enablement(expected())


def test_a_dump_is_compared_with_what_is_there_now(server: FakeApiServer) -> None:
    server.pods.delete("shop", "db-0")
    done = memqos(
        "audit", DUMP, "--policy", "HardReservation", "--compare", "cluster", "-o", "json"
    )
    assert done.code == 0
    (node,) = done.data["compared"]["nodes"]
    assert node["before"]["min"] - node["after"]["min"] == 4 << 30
    assert done.data["compared"]["with"].startswith(server.url)
    back = memqos("audit", "--policy", "HardReservation", "--compare", DUMP, "-o", "json")
    assert back.data["compared"]["nodes"][0]["after"]["min"] == node["before"]["min"]


@pytest.mark.parametrize(
    "arguments",
    [(DUMP, "--context", "dev"), (DUMP, "-n", "shop"), (DUMP, "-l", "a=b", "--compare", DUMP)],
)
def test_options_of_a_cluster_are_wrong_where_all_is_files(
    server: FakeApiServer, arguments: tuple[str, ...]
) -> None:
    assert memqos("audit", *arguments).code == 64
    assert server.request_log == []


@pytest.mark.parametrize("plural", ["pods", "nodes", "limitranges", "resourcequotas"])
def test_answers_saved_as_they_came_are_dumps(
    server: FakeApiServer, plural: str, tmp_path: Path
) -> None:
    kinds = {"pods": "Pod", "nodes": "Node", "limitranges": "LimitRange"}
    kind = kinds.get(plural, "ResourceQuota")
    items = [each for _, each in sorted(server.stores[plural].objects.items())]
    file = tmp_path / "raw.json"
    head = {"kind": f"{kind}List", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}}
    file.write_text(json.dumps(head | {"items": items}, separators=(",", ":")))
    rest = tmp_path / "rest.ndjson"
    rest.write_text("".join(json.dumps(each) + "\n" for each in objects() if each["kind"] != kind))
    done = memqos(
        "audit", str(rest), str(file), "--usage", "examples/cluster/metrics.json", "-o", "json"
    )
    assert (done.code, done.err) == (0, "")
    assert without_enablement(done.data) == without_enablement(expected())


def enablement_line(done: Any) -> str:
    lines = [line for line in done.out.splitlines() if line.startswith("MemoryQoS is ")]
    assert len(lines) == 1
    return str(lines[0])


class TestWhetherMemoryQosIsOn:
    def test_is_what_the_kubelets_say(self, server: FakeApiServer) -> None:
        for worker in WORKERS:
            set_configuration(server, worker, featureGates={"MemoryQoS": True})
        done = memqos("audit")
        assert enablement_line(done) == (
            "MemoryQoS is on: the running kubelet has MemoryQoS=true, by node/worker-1/configz; "
            "all 3 kubelets queried agree"
        )
        data = memqos("audit", "-o", "json").data
        assert (data["enablement"]["state"], data["enablement"]["source"]) == ("on", "configz")
        assert {each["when"] for each in data["findings"]} == {"today"}

    def test_is_off_by_default_where_no_kubelet_changes_it(self, server: FakeApiServer) -> None:
        assert enablement_line(memqos("audit")) == (
            "MemoryQoS is shown as if on: off today, the default of 1.36, not changed by "
            "node/worker-1/configz; all 3 kubelets queried agree"
        )

    def test_differs_between_nodes(self, server: FakeApiServer) -> None:
        set_configuration(server, "worker-2", featureGates={"MemoryQoS": True})
        assert enablement_line(memqos("audit")) == (
            "MemoryQoS is shown as if on: on for 1 of 3 kubelets queried (worker-2), off for the "
            "others"
        )

    def test_follows_the_policy_that_the_kubelets_have(self, server: FakeApiServer) -> None:
        for worker in WORKERS:
            set_configuration(
                server,
                worker,
                featureGates={"MemoryQoS": True},
                memoryReservationPolicy="TieredReservation",
            )
        data = memqos("audit", "-o", "json").data
        assert data["policy"] == "TieredReservation"
        assert data["memory"] == expected("--policy", "TieredReservation")["memory"]

    def test_is_a_guess_without_the_right_and_says_so(self, server: FakeApiServer) -> None:
        forbidden(server, CONFIGZ.format("worker-1"))
        done = memqos("audit")
        assert (done.code, done.err) == (0, "")
        assert (
            "note: the configuration of the kubelet of node worker-1 is unknown, the user may "
            "not get nodes/proxy (403): defaults are assumed – give it with --kubelet"
        ) in done.out.splitlines()
        assert enablement_line(done) == (
            "MemoryQoS is shown as if on: off today, the default of 1.36, and no kubelet "
            "configuration is known"
        )
        paths = [each.path for each in server.request_log]
        assert CONFIGZ.format("worker-2") not in paths, "it is the same right"

    def test_is_asked_of_others_where_a_kubelet_is_down(self, server: FakeApiServer) -> None:
        server.answers[CONFIGZ.format("worker-1")] = 503, {}, b"dial tcp: i/o timeout"
        done = memqos("audit")
        assert (
            "note: 1 kubelet of 3 queried kubelets did not answer: worker-1"
            in done.out.splitlines()
        )
        assert "all 2 kubelets queried agree" in enablement_line(done)

    def test_is_not_asked_where_a_file_says_it(self, server: FakeApiServer) -> None:
        assert memqos("audit", "--kubelet", "examples/node/kubelet.yaml").code == 0
        assert not [each for each in server.request_log if each.path.endswith("/configz")]


AUTOSCALER: Any = {
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {
        "scaleTargetRef": {"kind": "Deployment", "name": "web"},
        "metrics": [
            {
                "type": "Resource",
                "resource": {
                    "name": "memory",
                    "target": {"type": "Utilization", "averageUtilization": 80},
                },
            }
        ],
    },
}


class TestAutoscalers:
    def test_are_read(self, server: FakeApiServer) -> None:
        template = {**AUTOSCALER, "metadata": {"name": "agent", "namespace": "monitoring"}}
        template["spec"] = {
            **AUTOSCALER["spec"],
            "scaleTargetRef": {"kind": "DaemonSet", "name": "agent"},
        }
        listed = {"metadata": {}, "items": [AUTOSCALER, template]}
        server.answers[AUTOSCALERS] = 200, {}, json.dumps(listed).encode()
        found = memqos("audit", "-o", "json", "--rule", "pod/hpa").data["findings"]
        assert [each["where"] for each in found] == ["monitoring/agent-*"]

    def test_that_may_not_be_read_are_a_note(self, server: FakeApiServer) -> None:
        forbidden(server, AUTOSCALERS)
        done = memqos("audit")
        assert (done.code, done.err) == (0, "")
        assert '    - apiGroups: ["autoscaling"]' in done.out.splitlines()
