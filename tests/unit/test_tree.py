"""The desired tree of a node, compared with nodes of a real kubelet."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from memqos.errors import InputError
from memqos.kube.kubelet import with_defaults
from memqos.kube.kubelet.reading import kubelet_from
from memqos.kube.node import Capacity, allocatable
from memqos.kube.pod import Container, ObjectMeta, Pod, PodSpec
from memqos.plan.cpuset import Assignment, with_mems
from memqos.plan.tree import Tree, plan_node
from memqos.release import Release
from memqos.settings.settings import Settings

NODES = Path(__file__).parents[1] / "nodes"
PAGE = 4096


def recorded(name: str) -> dict[str, Any]:
    node: dict[str, Any] = json.loads((NODES / f"{name}.json").read_text())
    return node


def tree_of(node: dict[str, Any]) -> Tree:
    kubelet = kubelet_from(yaml.safe_load(node["kubelet_configuration"]), Release.of("1.38"))
    memory = int(str(node["meminfo"]).split("MemTotal:")[1].split()[0]) * 1024
    capacity = Capacity(cpu=2000, memory=memory)
    node_settings = Settings(
        kubelet.release,
        kubelet.config.memory_throttling_factor,
        kubelet.config.policy,
        memory_capacity=memory,
        memory_allocatable=allocatable(capacity, kubelet.config, kubelet.release).enforced_memory,
    )
    pods = msgspec.convert(node["pods"]["items"], tuple[Pod, ...])
    return plan_node(pods, node_settings, kubelet.config, capacity)


@pytest.mark.parametrize("name", ["cgroupfs", "systemd", "numa"])
def test_a_node_kept_by_a_real_kubelet_holds_the_planned_memory_and_cpu_values(name: str) -> None:
    node = recorded(name)
    compared = 0
    for path, cgroup in tree_of(node).cgroups.items():
        live = node["cgroups"].get(path, {})
        for file, setting in cgroup.settings.items():
            # The runtime of these nodes leaves hugetlb of containers alone.
            if setting.value is None or file not in live or file.startswith("hugetlb."):
                continue
            value = setting.value
            if isinstance(value, int) and file in ("memory.min", "memory.low", "memory.high"):
                value = value // PAGE * PAGE
            if isinstance(value, int) and file == "memory.max":
                value = value // PAGE * PAGE
            assert live[file].strip() == str(value), (path, file, setting.because)
            compared += 1
    assert compared > 90


@pytest.mark.parametrize("name", ["cgroupfs", "systemd", "numa"])
def test_every_running_container_of_a_recorded_node_is_placed(name: str) -> None:
    node = recorded(name)
    tree = tree_of(node)
    assert tree.unresolved == ()
    for pod in node["pods"]["items"]:
        for status in pod["status"]["containerStatuses"]:
            container_id = status["containerID"].removeprefix("containerd://")
            (path,) = (path for path in tree.cgroups if container_id in path)
            assert path in node["cgroups"]


def test_parents_come_before_children() -> None:
    seen: set[str] = set()
    for path in tree_of(recorded("systemd")).cgroups:
        parent = path.rpartition("/")[0]
        assert not parent or parent in seen
        seen.add(path)


def small_node(**status: Any) -> Tree:
    pod = {
        "metadata": {"name": "p", "namespace": "n", "uid": "u-1"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running", "qosClass": "BestEffort", **status},
    }
    release = Release.of("1.38")
    return plan_node(
        [msgspec.convert(pod, Pod)],
        Settings(release, None, memory_capacity=1 << 34, memory_allocatable=1 << 34),
        with_defaults({}, 38),
        Capacity(cpu=1000, memory=1 << 34),
    )


def test_a_container_without_an_id_is_unresolved() -> None:
    (unresolved,) = small_node().unresolved
    assert (unresolved.pod, unresolved.container) == ("n/p", "c")
    assert "no container ID" in unresolved.why


def test_an_unknown_runtime_is_unresolved() -> None:
    statuses = [{"name": "c", "containerID": "docker://abc"}]
    (unresolved,) = small_node(containerStatuses=statuses).unresolved
    assert "docker" in unresolved.why


def test_a_pod_that_has_ended_owns_nothing() -> None:
    tree = small_node(phase="Succeeded")
    assert not tree.unresolved
    assert all(cgroup.pod is None for cgroup in tree.cgroups.values())


@pytest.mark.parametrize(
    "metadata",
    [
        ObjectMeta(name="p", uid="../../x"),
        ObjectMeta(name="p", uid="u", annotations={"kubernetes.io/config.hash": "../../x"}),
    ],
)
def test_a_pod_whose_uid_would_leave_the_tree_is_unresolved(metadata: ObjectMeta) -> None:
    tree = plan_node(
        [Pod(metadata, PodSpec(containers=(Container(name="c", image="i"),)))],
        Settings(Release.of("1.38"), None),
        with_defaults({}, 38),
        Capacity(cpu=1000, memory=1 << 34),
    )
    assert [each.why for each in tree.unresolved] == ["pod UID '../../x' cannot name a cgroup"]
    assert not any(".." in path for path in tree.cgroups)


def test_a_container_whose_id_would_leave_the_tree_is_unresolved() -> None:
    tree = small_node(containerStatuses=[{"name": "c", "containerID": "containerd://../../x"}])
    assert "container ID '../../x' cannot name a cgroup" in {each.why for each in tree.unresolved}
    assert not any(".." in path for path in tree.cgroups)


def test_without_cgroups_per_qos_there_is_nothing_to_plan() -> None:
    with pytest.raises(InputError, match="cgroupsPerQOS"):
        plan_node(
            [],
            Settings(Release.of("1.38"), None),
            with_defaults({"cgroups_per_qos": False}, 38),
            Capacity(cpu=1000, memory=1 << 34),
        )


def test_given_numa_nodes_are_planned() -> None:
    statuses = [{"name": "c", "containerID": "containerd://abc"}]
    pod = {
        "metadata": {"name": "p", "uid": "u-1"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running", "containerStatuses": statuses},
    }
    tree = plan_node(
        [msgspec.convert(pod, Pod)],
        Settings(Release.of("1.38"), None),
        with_defaults({}, 38),
        Capacity(cpu=1000, memory=1 << 34),
    )
    given = Assignment((0, 1), (("memory", 3 << 30),), "memqos")
    bound = with_mems(tree, {("u-1", "c"): given}).cgroups["/kubepods/besteffort/podu-1/abc"]
    setting = bound.settings["cpuset.mems"]
    assert setting.value == "0-1"
    assert setting.because.rule == "numa/memqos"
    assert setting.because.steps == ("memory 3Gi of nodes 0-1",)
    assert with_mems(tree, {}) == tree


def test_a_reserved_cgroup_is_protected_whatever_the_policy() -> None:
    config = with_defaults(
        {
            "enforce_node_allocatable": ("pods", "kube-reserved"),
            "kube_reserved": {"memory": "1Gi"},
            "kube_reserved_cgroup": "/podruntime",
        },
        38,
    )
    tree = plan_node([], Settings(Release.of("1.38"), None), config, Capacity(1000, 1 << 34))
    assert tree.cgroups["/podruntime"].settings["memory.min"].value == 1 << 30
    assert tree.cgroups["/kubepods"].settings["memory.max"].value == (1 << 34) - (1 << 30)


def test_a_pending_resize_is_not_planned() -> None:
    pod = {
        "metadata": {"name": "p", "uid": "u-1"},
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"limits": {"memory": "2Gi"}}}]
        },
        "status": {
            "phase": "Running",
            "qosClass": "Burstable",
            "containerStatuses": [
                {
                    "name": "c",
                    "containerID": "containerd://abc",
                    "resources": {"limits": {"memory": "1Gi"}},
                }
            ],
        },
    }
    tree = plan_node(
        [msgspec.convert(pod, Pod)],
        Settings(Release.of("1.38"), None),
        with_defaults({}, 38),
        Capacity(cpu=1000, memory=1 << 34),
    )
    assert tree.cgroups["/kubepods/burstable/podu-1/abc"].settings["memory.max"].value == 1 << 30


@pytest.mark.parametrize(
    ("driver", "limit", "of_pod"),
    [
        ("systemd", "97m", "10000 100000"),
        ("systemd", "1234m", "124000 100000"),
        ("systemd", "1", "100000 100000"),
        ("cgroupfs", "97m", "9700 100000"),
    ],
)
def test_a_pods_slice_has_cpu_time_in_whole_percents(driver: str, limit: str, of_pod: str) -> None:
    """systemd takes CPUQuotaPerSecUSec in steps of 10 ms; containers are exact."""
    resources = {"limits": {"cpu": limit, "memory": "64Mi"}}
    pod = msgspec.convert(
        {
            "metadata": {"name": "p", "uid": "u-1"},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]},
            "status": {"containerStatuses": [{"name": "c", "containerID": "containerd://c1"}]},
        },
        Pod,
    )
    config = with_defaults({"cgroup_driver": driver}, 38)
    capacity = Capacity(cpu=2000, memory=4 << 30)
    tree = plan_node([pod], Settings(Release.of("1.38"), 0.9), config, capacity)
    by_level = {cgroup.level: cgroup for cgroup in tree.cgroups.values()}
    assert by_level["pod"].settings["cpu.max"].value == of_pod
    milli = int(limit.removesuffix("m")) if limit.endswith("m") else int(limit) * 1000
    assert by_level["container"].settings["cpu.max"].value == f"{milli * 100} 100000"
