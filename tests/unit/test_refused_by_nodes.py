"""What a kubelet refuses, in every command that places pods on nodes; and pods on Windows."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.commands import ROOT, Done, memqos

MIXED = "examples/cluster/mixed-nodes.yaml"
ON_WINDOWS = "PodLevelResourcesNotSupported: pod-level resources are not supported on Windows"
GATE_OFF = "PodLevelResourcesNotSupported: PodLevelResources feature gate is disabled"


def test_fit_never_calls_a_node_the_best_whose_kubelet_refuses_the_pod() -> None:
    done = memqos("fit", "examples/ide.yaml", "--nodes", MIXED)
    assert done.code == 0
    assert done.out == (
        "Kubernetes 1.36 · 4 nodes with 0 pods · resources only, without taints and affinity\n"
        "note: the release is that of the node's kubelet, v1.36.4\n"
        "\n"
        "pod/myide  fits 2 of 4 nodes, best new-1 (least allocated 71, balanced 69)\n"
        "  requests cpu 500m, memory 128Mi\n"
        "            free          score\n"
        "node         cpu  memory  least  balanced\n"
        "new-1          2     4Gi     71        69\n"
        "old-1          1     2Gi     42        64\n"
        f"win-1         16    64Gi      –         –  its kubelet refuses it: {ON_WINDOWS}\n"
        f"gate-off-1     8    32Gi      –         –  its kubelet refuses it: {GATE_OFF}\n"
        "  note: kubelets before 1.32 ignore spec.resources and use the resources of the "
        "containers only: old-1\n"
    )


def test_a_pod_without_pod_level_resources_fits_all_of_them() -> None:
    done = memqos("fit", "examples/one.yaml", "--nodes", MIXED, "-o", "json")
    (pod,) = done.data["pods"]
    assert (pod["fitting"], pod["best"]) == (4, "win-1")
    assert [node["refused"] for node in pod["nodes"]] == [None] * 4
    assert pod["notes"] == [
        "it names no operating system, neither spec.os nor the nodeSelector kubernetes.io/os, so "
        "Windows nodes count: win-1"
    ]


@pytest.mark.parametrize(
    "spec", [{"nodeSelector": {"kubernetes.io/os": "linux"}}, {"os": {"name": "linux"}}]
)
def test_a_pod_that_names_linux_fits_no_windows_node(spec: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "pod.json"
    containers = [{"name": "c", "image": "i"}]
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    file.write_text(json.dumps({**manifest, "spec": {"containers": containers, **spec}}))
    (pod,) = memqos("fit", str(file), "--nodes", MIXED, "-o", "json").data["pods"]
    assert (pod["fitting"], pod["notes"]) == (3, [])
    assert [node["node"] for node in pod["nodes"] if node["refused"]] == ["win-1"]
    windows = "examples/node/windows.yaml"
    (explained,) = memqos("explain", str(file), "--node", windows, "-o", "json").data["pods"]
    assert any("refuses it" in note for note in explained["notes"])


def test_a_virtual_node_reports_linux_with_a_capital_letter(tmp_path: Path) -> None:
    """Virtual Kubelet has `Linux` in nodeInfo, and `linux` in the label."""
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "vk", "labels": {"kubernetes.io/os": "linux"}},
        "status": {
            "capacity": {"cpu": "8", "memory": "64Gi", "pods": "110"},
            "nodeInfo": {"kubeletVersion": "v1.36.0", "operatingSystem": "Linux"},
        },
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "containers": [{"name": "c", "image": "i"}],
        },
    }
    files = [tmp_path / "node.json", tmp_path / "pod.json"]
    for file, each in zip(files, (node, pod), strict=True):
        file.write_text(json.dumps(each))
    done = memqos("fit", str(files[1]), "--nodes", str(files[0]))
    assert "pod/p  fits 1 of 1 node, best vk" in done.out
    assert "node/os" not in memqos("audit", *map(str, files)).out


def test_an_api_server_that_drops_pod_level_resources_leaves_kubelets_nothing_to_refuse() -> None:
    done = memqos("fit", "examples/ide.yaml", "--nodes", MIXED, "--release", "1.33", "-o", "json")
    (pod,) = done.data["pods"]
    assert pod["fitting"] == 4


def test_many_nodes_are_counted_with_the_reason_of_their_kubelets(tmp_path: Path) -> None:
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"win-{number}"},
            "status": {
                "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"},
                "nodeInfo": {"kubeletVersion": "v1.36.0", "operatingSystem": "windows"},
            },
        }
        for number in range(30)
    ]
    file = tmp_path / "nodes.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes}))
    done = memqos("fit", "examples/ide.yaml", "--nodes", str(file))
    assert done.code == 2
    assert done.out.splitlines()[-3:] == [
        "pod/myide  fits no node",
        "  requests cpu 500m, memory 128Mi",
        f"  the kubelets of 30 nodes refuse it: {ON_WINDOWS}",
    ]


def test_a_windows_pod_is_shown_without_cgroup_values() -> None:
    done = memqos("explain", "examples/windows.yaml")
    assert done.code == 0
    assert done.out.partition("\n\n")[2] == (
        "pod/iis  Burstable on Windows, without cgroups\n"
        "     request  limit\n"
        "web    256Mi    1Gi\n"
        "  applies: QoS class and requests, for scheduling and eviction\n"
        "  applies: limits of containers, which the runtime sets on their job objects\n"
        "  applies: Memory Manager: only the policies None and BestEffort "
        "(WindowsCPUAndMemoryAffinity)\n"
        "  does not apply: cgroups, and so Memory QoS: memory.min, memory.low, memory.high\n"
        "  does not apply: oom_score_adj: Windows has no OOM killer\n"
        "  does not apply: pod-level resources, and limits of a pod as a whole\n"
        "  does not apply: in-place resize\n"
    )


@pytest.mark.parametrize(
    "arguments",
    [["examples/windows.yaml"], ["examples/one.yaml", "--node", "examples/node/windows.yaml"]],
)
def test_scripts_get_no_cgroup_values_of_a_windows_pod(arguments: list[str]) -> None:
    (pod,) = memqos("explain", *arguments, "-o", "json").data["pods"]
    assert pod["os"] == "windows"
    assert pod["pod"] == {}
    assert [container["values"] for container in pod["containers"]] == [{}]


def test_a_picture_says_that_the_kubelet_refuses_the_pod(tmp_path: Path) -> None:
    node = (ROOT / "examples/node/node.yaml").read_text()
    (tmp_path / "old.yaml").write_text(node.replace("v1.36.4", "v1.33.1"))
    arguments = ("--node", str(tmp_path / "old.yaml"), "--release", "1.36", "-o", "svg")
    done = memqos("explain", "examples/ide.yaml", *arguments)
    assert f"note: the kubelet of this node, 1.33, refuses it: {GATE_OFF}" in done.out


def test_there_is_no_picture_of_a_windows_pod() -> None:
    done = memqos("explain", "examples/windows.yaml", "-o", "svg")
    assert (done.out, done.err) == (
        "",
        "no pod here has cgroup values: there is nothing to draw\n",
    )


def notes(done: Done) -> list[str]:
    return [line.strip() for line in done.out.splitlines() if "  note: " in line]


def test_explain_says_what_the_kubelet_of_the_node_refuses() -> None:
    done = memqos("explain", "examples/ide.yaml", "--node", "examples/node/windows.yaml")
    assert notes(done) == [f"note: the kubelet of this node, 1.36, refuses it: {ON_WINDOWS}"]
    linux = memqos("explain", "examples/windows.yaml", "--node", "examples/node/node.yaml")
    assert notes(linux) == [
        "note: the kubelet of this node, 1.36, refuses it: PodOSNotSupported: Failed to admit pod "
        "as the OS field doesn't match node OS"
    ]


def test_numa_admission_asks_the_managers_only_about_pods_that_the_kubelet_does_not_refuse(
    tmp_path: Path,
) -> None:
    stored = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "uid": "1"},
        "spec": {
            "resources": {"requests": {"memory": "1Gi"}},
            "containers": [{"name": "c", "image": "i"}],
        },
        "status": {"phase": "Pending"},
    }
    file = tmp_path / "pod.json"
    file.write_text(json.dumps(stored))
    done = memqos(
        *("numa", "admit", str(file), "--machine", "examples/numa/machine.yaml"),
        *("--kubelet", "examples/numa/kubelet.yaml", "--release", "1.33"),
    )
    assert done.code == 2
    assert done.out.splitlines()[2:] == [
        "pod/p  BestEffort  refused: PodLevelResourcesNotSupported",
        "  PodLevelResources feature gate is disabled",
    ]


def test_a_plan_names_pods_that_run_but_would_be_refused_if_they_were_created_again(
    tmp_path: Path,
) -> None:
    snapshot: dict[str, Any] = json.loads((ROOT / "tests/nodes/cgroupfs.json").read_text())
    assert "would refuse" not in memqos("plan", "--snapshot", "tests/nodes/cgroupfs.json").err
    snapshot["kubelet"] = "v1.33.1"
    file = tmp_path / "node.json"
    file.write_text(json.dumps(snapshot))
    shown = memqos("plan", "--snapshot", str(file), "--release", "1.36")
    refusal = f"the kubelet here, 1.33, would refuse it if it were created again: {GATE_OFF}"
    assert f"note: default/p5-node1: {refusal}" in shown.err


def test_an_audit_names_pods_that_their_kubelets_would_refuse(tmp_path: Path) -> None:
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"ide-{node}", "namespace": "dev", "uid": node},
            "spec": {
                "nodeName": node,
                "resources": {"requests": {"memory": "128Mi"}, "limits": {"memory": "1Gi"}},
                "containers": [{"name": "c", "image": "i"}],
            },
            "status": {"phase": "Running"},
        }
        for node in ("new-1", "gate-off-1", "old-1", "win-1")
    ]
    file = tmp_path / "pods.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
    done = memqos("audit", MIXED, str(file), "--downgrade", "1.31", "--rule", "pod")
    assert done.code == 0
    assert "\n".join(done.out.partition("warning")[1:]) == (
        "warning\n  pod/node-refuses  2 places\n"
        "  the kubelet of their node would refuse these pods if they were created again\n"
        f"  · dev/ide-gate-off-1: one pod: kubelet 1.33 on gate-off-1: {GATE_OFF}\n"
        f"  · dev/ide-win-1: one pod: kubelet 1.36 on win-1: {ON_WINDOWS}\n"
        "  fix: set resources of each container instead of spec.resources, or upgrade the kubelet\n"
        "\n"
        "warning  pod/downgrade  4 places\n"
        "  pods to recreate before the downgrade: they set spec.resources\n"
        "  · dev/ide-gate-off-1: one pod: kubelet 1.31 ignores pod-level resources of pods that "
        "replace it\n"
        "  · dev/ide-new-1: one pod: kubelet 1.31 ignores pod-level resources of pods that "
        "replace it\n"
        "  · dev/ide-old-1: one pod: kubelet 1.31 ignores pod-level resources of pods that "
        "replace it\n"
        "  · … and 1 more\n"
        "  fix: replace spec.resources by resources of the containers, and drain the nodes before "
        "their\n"
        "  kubelets are downgraded\n"
        "\n"
        "6 warnings\n"
    )
    same = memqos("audit", MIXED, str(file), "--downgrade", "1.35", "--rule", "pod/downgrade")
    assert "pod/downgrade" not in same.out


def test_the_remedy_for_memory_at_pod_level_is_one_that_helps(tmp_path: Path) -> None:
    resources = {"cpu": "2", "memory": "4Gi"}
    both = {"requests": resources, "limits": resources}
    pooled = {"resources": both, "containers": [{"name": "a", "image": "i"}]}
    alone = {"containers": [{"name": "a", "image": "i", "resources": both}]}

    def blocks(spec: dict[str, Any], *options: str) -> dict[str, Any]:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
        file = tmp_path / "pod.json"
        file.write_text(json.dumps(pod))
        done = memqos(
            *("numa", "admit", str(file), "--machine", "examples/numa/machine.yaml"),
            *("--kubelet", "examples/numa/kubelet.yaml", "-o", "json", *options),
        )
        (verdict,) = done.data["pods"]
        found: dict[str, Any] = verdict["containers"]
        return found

    gate, scope = ("--gate", "PodLevelResourceManagers=true"), ("--scope", "container")
    assert blocks(pooled, *scope) == {}
    assert blocks(pooled, *scope, *gate) == {}, "the gate alone does not help"
    assert blocks(pooled, *gate, "--scope", "pod", "--topology-policy", "none") == {}
    assert blocks(pooled, *gate, "--scope", "pod").keys() == {"a"}
    assert blocks(alone, *scope).keys() == {"a"}
    assert blocks({**alone, "resources": both}, *scope, *gate).keys() == {"a"}
