"""`memqos resize`: a running pod resized in place."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.commands import Done, memqos

ONE = {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}
TWO = {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}}


def pod(resources: dict[str, Any], name: str = "web", **container: Any) -> dict[str, Any]:
    containers = [{"name": "app", "image": "i", "resources": resources, **container}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": containers},
    }


def resize(old: Any, new: Any, tmp_path: Path, *options: str) -> Done:
    for file, documents in (("old.yaml", old), ("new.yaml", new)):
        many = documents if isinstance(documents, list) else [documents]
        (tmp_path / file).write_text(yaml.safe_dump_all(many))
    return memqos("resize", str(tmp_path / "old.yaml"), str(tmp_path / "new.yaml"), *options)


def test_every_value_that_changes_is_shown_before_and_after(tmp_path: Path) -> None:
    done = resize(pod(ONE), pod(TWO), tmp_path, "--capacity", "16Gi")
    assert done.code == 0
    assert "pod/web  can be resized · stays Burstable" in done.out
    rows = done.rows()
    assert ["pod", "memory.max", "1Gi", "2Gi"] in rows
    assert ["app", "memory.high", "on", "947.2Mi", "1.850Gi"] in rows
    assert ["off", "–", "–"] in rows
    assert ["oom_score_adj", "985", "969"] in rows
    assert not any("cpu.weight" in row for row in rows)


def test_a_running_container_keeps_its_oom_score_until_it_is_restarted(tmp_path: Path) -> None:
    done = resize(pod(ONE), pod(TWO), tmp_path, "--capacity", "16Gi")
    assert "app keeps oom_score_adj 985 until it is restarted" in done.out
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    restarted = resize(
        pod(ONE, resizePolicy=policy), pod(TWO, resizePolicy=policy), tmp_path, "--capacity", "16Gi"
    )
    assert "app is restarted: its resizePolicy for memory is RestartContainer" in restarted.out
    assert "app keeps" not in restarted.out


def test_a_policy_for_another_resource_restarts_nothing(tmp_path: Path) -> None:
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    done = resize(pod(ONE, resizePolicy=policy), pod(TWO, resizePolicy=policy), tmp_path)
    assert "is restarted" not in done.out


def test_a_cpu_resize_changes_cpu_alone(tmp_path: Path) -> None:
    more = {**ONE, "requests": {"cpu": "500m", "memory": "256Mi"}}
    done = resize(pod(ONE), pod(more), tmp_path, "-o", "json")
    (found,) = done.data["pods"]
    assert {change["file"] for change in found["changes"]} == {"cpu.weight"}


def test_the_class_may_not_change_and_the_place_is_reported(tmp_path: Path) -> None:
    guaranteed = {"cpu": "250m", "memory": "256Mi"}
    done = resize(pod(ONE), pod({"requests": guaranteed, "limits": guaranteed}), tmp_path)
    assert done.code == 2
    assert "cannot be resized · Burstable would become Guaranteed" in done.out
    assert "new.yaml:5:1: spec: Invalid value" in done.out
    assert "memory.max" not in done.out


def test_what_was_set_cannot_be_removed(tmp_path: Path) -> None:
    done = resize(pod(ONE), pod({"requests": ONE["requests"]}), tmp_path)
    assert done.code == 2
    assert "spec.containers[0].resources.limits: Forbidden: memory cannot be removed" in done.out


@pytest.mark.parametrize(
    ("release", "code", "says"),
    [
        ("1.30", 2, "has no resize subresource"),
        ("1.32", 2, "the gate InPlacePodVerticalScaling is off"),
        ("1.33", 2, "was 1Gi and cannot become 512Mi"),
        ("1.34", 0, "can be resized"),
    ],
)
def test_lowering_a_memory_limit_is_a_matter_of_the_release(
    release: str, code: int, says: str, tmp_path: Path
) -> None:
    less = {**ONE, "limits": {"memory": "512Mi"}}
    done = resize(pod(ONE), pod(less), tmp_path, "--release", release)
    assert done.code == code
    assert says in done.out


def test_a_gate_allows_what_the_release_does_not_by_default(tmp_path: Path) -> None:
    gate = ("--release", "1.32", "--gate", "InPlacePodVerticalScaling=true")
    assert resize(pod(ONE), pod(TWO), tmp_path, *gate).code == 0


def test_why_derives_what_the_values_become(tmp_path: Path) -> None:
    done = resize(pod(ONE), pod(TWO), tmp_path, "--why")
    assert "app memory.high → 1986420736" in done.out
    assert "rule high/above-request (KEP-2570, Alpha v1.27)" in done.out
    assert "class Burstable after: container app: cpu request 250m ≠ limit unset" in done.out


def test_data_has_exact_bytes_and_reasons(tmp_path: Path) -> None:
    done = resize(pod(ONE), pod(TWO), tmp_path, "-o", "json", "--why")
    (found,) = done.data["pods"]
    assert found["allowed"]
    assert found["qosClass"] == {"before": "Burstable", "after": "Burstable"}
    high = next(each for each in found["changes"] if each["file"] == "memory.high")
    assert (high["before"], high["after"]) == (993210368, 1986420736)
    assert high["because"]["rule"] == "high/above-request"
    assert done.data["terms"]["release"] == "1.36"


def test_a_refusal_is_data_too(tmp_path: Path) -> None:
    done = resize(pod(ONE), pod({"requests": ONE["requests"]}), tmp_path, "-o", "yaml")
    (found,) = yaml.safe_load(done.out)["pods"]
    assert not found["allowed"]
    assert found["errors"][0]["field"] == "spec.containers[0].resources.limits"
    assert found["changes"] == []


def test_nothing_changes_where_nothing_was_asked(tmp_path: Path) -> None:
    done = resize(pod(ONE), pod(ONE), tmp_path)
    assert done.code == 0
    assert "nothing changes on the node" in done.out


def test_a_pod_from_a_cluster_is_taken_as_it_runs(tmp_path: Path) -> None:
    running = pod(ONE)
    running["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555"
    running["status"] = {
        "phase": "Running",
        "qosClass": "Burstable",
        "containerStatuses": [
            {
                "name": "app",
                "state": {"running": {}},
                "resources": {**ONE, "limits": {"memory": "768Mi"}},
            }
        ],
    }
    done = resize(running, pod(TWO), tmp_path)
    assert ["pod", "memory.max", "768Mi", "2Gi"] in done.rows()
    assert "OLD has no status" not in done.out


def test_several_pods_are_matched_by_name(tmp_path: Path) -> None:
    old = [pod(ONE, "a"), pod(ONE, "b")]
    done = resize(old, [pod(TWO, "b"), pod(ONE, "c")], tmp_path)
    assert done.code == 1
    assert "pod/b  can be resized" in done.out
    assert "there is no pod/c in" in done.err


def test_single_pods_need_not_have_the_same_name(tmp_path: Path) -> None:
    done = resize(pod(ONE, "web"), pod(TWO, "web-new"), tmp_path)
    assert done.code == 0
    assert "NEW is pod/web-new" in done.out


def test_pods_that_could_never_have_been_created_are_refused(tmp_path: Path) -> None:
    done = resize(
        pod({"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}), pod(ONE), tmp_path
    )
    assert done.code == 1
    assert done.out == ""
    assert "must be less than or equal to memory limit of 1Gi" in done.err


@pytest.mark.parametrize("broken", ["old.yaml", "new.yaml"])
def test_a_quantity_that_is_none_is_found_in_either_file(broken: str, tmp_path: Path) -> None:
    bad = {"requests": {"memory": "1.5.2Gi"}}
    pair = (bad, ONE) if broken == "old.yaml" else (ONE, bad)
    done = resize(pod(pair[0]), pod(pair[1]), tmp_path)
    assert done.code == 1
    assert done.out == ""
    assert f"{broken}:11:17" in done.err


NODE = "tests/nodes/numa.json"
"""Eight pods on 2.9 Gi, a kubelet with the Static Memory Manager."""


def on_snapshot(tmp_path: Path, name: str, resources: dict[str, Any], *options: str) -> Done:
    new = pod(resources, name)
    new["spec"]["containers"][0]["name"] = "c0"
    new["metadata"]["namespace"] = "default"
    (tmp_path / "new.yaml").write_text(yaml.safe_dump(new))
    return memqos("resize", NODE, str(tmp_path / "new.yaml"), "--snapshot", NODE, *options)


def test_a_snapshot_answers_as_its_kubelet_would(tmp_path: Path) -> None:
    fits = on_snapshot(tmp_path, "p0-node1", {"requests": {"memory": "1Gi"}})
    assert fits.code == 0
    assert "the kubelet's decision: Accepted" in fits.out
    assert "note: the kubelet's decision is computed from a snapshot" in fits.out
    # The other pods of the snapshot request 258 Mi: only without them is there enough.
    too_much = on_snapshot(tmp_path, "p0-node1", {"requests": {"memory": "2600Mi"}}, "-o", "json")
    assert too_much.code == 2
    assert too_much.data["pods"][0]["kubelet"]["verdict"] == "Deferred"
    (tmp_path / "none.yaml").write_text(yaml.safe_dump(pod(ONE, "p0-node1")))
    alone = on_snapshot(
        tmp_path,
        "p0-node1",
        {"requests": {"memory": "2600Mi"}},
        "--others",
        str(tmp_path / "none.yaml"),
    )
    assert "the kubelet's decision: Accepted" in alone.out


def test_a_snapshot_that_does_not_say_its_cpus_has_no_answer_of_a_kubelet(tmp_path: Path) -> None:
    node = json.loads(Path(NODE).read_text())
    for files in node["cgroups"].values():
        files.pop("cpuset.cpus", None)
    (tmp_path / "node.json").write_text(json.dumps(node))
    done = resize(pod(ONE), pod(TWO), tmp_path, "--snapshot", str(tmp_path / "node.json"))
    assert done.code == 0
    assert "the kubelet's decision" not in done.out
    assert "note: the kubelet's decision is unknown: " in done.err
    assert "the cpus for pods are not in the snapshot" in done.err


@pytest.mark.parametrize("cpus", ["all", "0-99999999999", "0-"])
def test_a_snapshot_with_other_cpus_than_a_kernel_lists_is_refused(
    tmp_path: Path, cpus: str
) -> None:
    node = json.loads(Path(NODE).read_text())
    for files in node["cgroups"].values():
        files["cpuset.cpus"] = cpus
    (tmp_path / "node.json").write_text(json.dumps(node))
    done = resize(pod(ONE), pod(TWO), tmp_path, "--snapshot", str(tmp_path / "node.json"))
    assert f"'{cpus}' is not a list of cpus" in done.err
    assert "Traceback" not in done.err


def test_a_missing_file_is_reported() -> None:
    done = memqos("resize", "none.yaml", "examples/one.yaml")
    assert done.code == 1
    assert "none.yaml: no such file" in done.err


def test_usage_names_a_container_of_the_pod() -> None:
    files = ("examples/one.yaml", "examples/cluster/web-larger.yaml")
    done = memqos("resize", *files, "--usage", "ap=1Gi")
    assert done.code == 64
    assert "--usage: no container ap: there are app" in done.err
    assert memqos("resize", *files, "--usage", "app=1Gi").code == 0
    assert "for '--usage': '1GB'" in memqos("resize", *files, "--usage", "1GB").err


@pytest.mark.parametrize("arguments", [[], ["a"], ["a", "b", "c"], ["a", "b", "--factor", "2"]])
def test_wrong_usage_exits_with_64(arguments: list[str]) -> None:
    assert memqos("resize", *arguments).code == 64


SWAP = "examples/swap"
SWAPPING = ("--node", f"{SWAP}/node.yaml", "--kubelet", f"{SWAP}/kubelet.yaml")
NUMA = "tests/nodes/numa.json"


@pytest.mark.parametrize(
    ("arguments", "headline"),
    [
        (
            (f"{SWAP}/cache.yaml", f"{SWAP}/cache-larger.yaml", *SWAPPING),
            "pod/cache  valid, but cannot be resized in place · stays Burstable",
        ),
        (
            (NUMA, "examples/cluster/p0-larger.yaml", "--snapshot", NUMA),
            "pod/p0-node1 in default  cannot be resized now, the kubelet retries it · "
            "stays Burstable",
        ),
    ],
)
def test_the_first_line_is_the_verdict_of_the_kubelet_too(
    arguments: tuple[str, ...], headline: str
) -> None:
    done = memqos("resize", *arguments)
    assert (done.code, done.out.split("\n\n")[1].splitlines()[0]) == (2, headline)


def test_what_the_api_server_refuses_for_its_node_cannot_be_resized_there(tmp_path: Path) -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "worker"},
        "status": {
            "capacity": {"cpu": "4", "memory": "1Gi"},
            "allocatable": {"cpu": "4", "memory": "900Mi", "pods": "110"},
            "nodeInfo": {"kubeletVersion": "v1.36.0"},
        },
    }
    (tmp_path / "node.yaml").write_text(yaml.safe_dump(node))
    larger = {**TWO, "requests": {"cpu": "250m", "memory": "2Gi"}}
    done = resize(pod(ONE), pod(larger), tmp_path, "--node", str(tmp_path / "node.yaml"))
    assert "pod/web  cannot be resized on its node · stays Burstable" in done.out
    assert "the API server refuses it, NodeCapacity" in done.out
    assert "the kubelet would decide: Deferred" in done.out
    assert "fix: request at most what the node has for pods" in done.out


class TestOnANodeInAFile:
    """8Gi, of which the Node publishes 7Gi; its kubelet is of a release that knows Infeasible."""

    @pytest.fixture
    def node(self, tmp_path: Path) -> str:
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "worker"},
            "status": {
                "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
                "allocatable": {"cpu": "4", "memory": "7Gi", "pods": "110"},
                "nodeInfo": {"kubeletVersion": "v1.34.0"},
            },
        }
        file = tmp_path / "node.yaml"
        file.write_text(yaml.safe_dump(node))
        return str(file)

    def verdict(self, memory: str, tmp_path: Path, *options: str) -> str:
        larger = {"requests": {"cpu": "250m", "memory": memory}, "limits": {"memory": "8Gi"}}
        done = resize(pod(ONE), pod(larger), tmp_path, *options, "-o", "json")
        found = done.data["pods"][0]["kubelet"]["verdict"]
        assert isinstance(found, str)
        return found

    def test_what_the_node_never_has_is_infeasible(self, node: str, tmp_path: Path) -> None:
        assert self.verdict("7Gi", tmp_path, "--node", node) == "Accepted"
        assert self.verdict("7500Mi", tmp_path, "--node", node) == "Infeasible"

    def test_stated_memory_leaves_its_cpus_as_they_are(self, node: str, tmp_path: Path) -> None:
        for stated in (("--capacity", "8Gi"), ("--allocatable", "7Gi")):
            assert self.verdict("6Gi", tmp_path, "--node", node, *stated) == "Accepted"

    def test_a_configuration_that_is_tried_out_decides(self, node: str, tmp_path: Path) -> None:
        file = tmp_path / "kubelet.yaml"
        file.write_text(RESERVING)
        assert self.verdict("5Gi", tmp_path, "--node", node, "--kubelet", str(file)) == "Accepted"
        assert self.verdict("6Gi", tmp_path, "--node", node, "--kubelet", str(file)) == "Infeasible"


RESERVING = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
kubeReserved: {memory: 2500Mi}
"""


def test_a_stated_configuration_counts_on_the_node_of_a_snapshot(tmp_path: Path) -> None:
    file = tmp_path / "kubelet.yaml"
    file.write_text(RESERVING)
    larger = {"requests": {"memory": "1Gi"}}
    alone = on_snapshot(tmp_path, "p0-node1", larger)
    assert "the kubelet's decision: Accepted" in alone.out
    reserving = on_snapshot(tmp_path, "p0-node1", larger, "--kubelet", str(file))
    assert "the kubelet's decision: Deferred" in reserving.out
    small = on_snapshot(tmp_path, "p0-node1", larger, "--capacity", "1Gi")
    assert "the kubelet's decision: Deferred" in small.out
