"""A snapshot holds all that memqos needs of a node to plan it elsewhere, and no secret."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from tests.fakes.kubelet import fake_kubelet
from tests.fakes.machine import MEMINFO, PROC, SYS, roots

from memqos.converge.node_plan import PlanOptions, plan_observation
from memqos.converge.observation import (
    LIVE_ORIGIN,
    ObservedNode,
    observe_live,
    observe_snapshot,
)
from memqos.converge.pod_sources import FilePods, parse_pod_source
from memqos.converge.snapshots import encode_snapshot, observe_snapshot_file, take_snapshot
from memqos.errors import InputError, Unreachable
from memqos.host.machine import Roots
from memqos.host.snapshots import load_snapshot
from memqos.kube.kubelet.reading import kubelet_from
from memqos.kube.node import Capacity
from memqos.kube.pod import Pod
from memqos.plan.tree import Tree, plan_node
from memqos.release import Release
from memqos.settings.facts import RawKubeletConfig
from memqos.settings.settings import Settings

NODES = Path(__file__).parents[1] / "nodes"
NAMES = ("cgroupfs", "systemd", "numa")
SECRET = "hunter2"


def recorded(name: str) -> dict[str, Any]:
    node: dict[str, Any] = json.loads((NODES / f"{name}.json").read_text())
    return node


def machine_of(node: dict[str, Any], folder: Path) -> Roots:
    """The recorded node in files, as a kernel and a kubelet would show it."""
    files = {"config.yaml": node["kubelet_configuration"]}
    if node["memory_manager_state"]:
        files["memory_manager_state"] = node["memory_manager_state"]
    return roots(
        folder,
        proc={**PROC, "meminfo": node["meminfo"]},
        sys={**SYS, "devices": {"system": {"node": node["numa"]}}},
        cgroups=node["cgroups"],
        kubelet=files,
    )


def planned(pods: tuple[Pod, ...], configuration: RawKubeletConfig | None) -> Tree:
    assert configuration is not None
    kubelet = kubelet_from(yaml.safe_load(configuration.data), Release.of("1.38"))
    node_settings = Settings(
        kubelet.release,
        kubelet.config.memory_throttling_factor,
        kubelet.config.policy,
        memory_capacity=3 << 30,
        memory_allocatable=2 << 30,
    )
    return plan_node(pods, node_settings, kubelet.config, Capacity(cpu=2000, memory=3 << 30))


class TestObservation:
    @pytest.mark.parametrize("name", NAMES)
    def test_live_and_recorded_look_the_same(self, name: str, tmp_path: Path) -> None:
        node = recorded(name)
        then = observe_snapshot_file(str(NODES / f"{name}.json"))
        files = sorted({file for cgroup in node["cgroups"].values() for file in cgroup})
        source = FilePods([str(NODES / f"{name}.json")])
        now = observe_live(source, files, roots=machine_of(node, tmp_path))
        assert now.cgroups == then.cgroups
        assert now.pods == then.pods
        assert now.driver == then.driver == node["driver"]
        assert now.memory_manager_state == (node["memory_manager_state"] or None)
        assert now.configuration is not None
        assert then.configuration is not None
        assert now.configuration.data == then.configuration.data
        assert now.machine.memory == then.machine.memory
        assert now.machine.numa_nodes == then.machine.numa_nodes
        assert now.machine.layout == then.machine.layout == "v2"
        assert now.identities.keys() == now.cgroups.keys()
        assert now.origin == LIVE_ORIGIN != then.origin

    def test_a_machine_with_cgroup_v1_has_none_and_says_so(self, tmp_path: Path) -> None:
        mounts = "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n"
        found = roots(tmp_path, proc={**PROC, "mounts": mounts})
        seen = observe_live(
            None, ["memory.min"], roots=msgspec.structs.replace(found, cgroup="/sys/fs/cgroup")
        )
        assert seen.machine.layout == "v1"
        assert seen.cgroups == {}
        assert "no cgroups: cgroup v1 at /sys/fs/cgroup, not cgroup v2" in seen.notes

    def test_pods_of_two_drivers_are_noted(self, tmp_path: Path) -> None:
        cgroups: dict[str, dict[str, str]] = {"/": {}, "/kubepods": {}, "/kubepods.slice": {}}
        seen = observe_live(None, [], roots=roots(tmp_path, cgroups=cgroups))
        assert "pods are in more than one cgroup: /kubepods, /kubepods.slice" in seen.notes


class TestTaking:
    @pytest.mark.parametrize("name", NAMES)
    def test_a_node_can_be_planned_from_its_snapshot_as_from_itself(
        self, name: str, tmp_path: Path
    ) -> None:
        node = recorded(name)
        metrics = "\n".join(
            ['kubernetes_build_info{major="1",git_version="v1.38.0-alpha"} 1', *node["metrics"]]
        )
        with fake_kubelet({"/pods": node["pods"], "/metrics": metrics.encode()}) as kubelet:
            snapshot = take_snapshot(
                parse_pod_source(kubelet.url), roots=machine_of(node, tmp_path)
            )
        file = tmp_path / "node.json"
        file.write_bytes(encode_snapshot(snapshot))
        then, now = (
            observe_snapshot_file(str(NODES / f"{name}.json")),
            observe_snapshot_file(str(file)),
        )
        assert planned(now.pods, now.configuration) == planned(then.pods, then.configuration)
        assert plan_observation(now, PlanOptions(release="1.38", gates={})).comparison.changes == ()
        assert now.cgroups == then.cgroups
        assert now.machine.memory == then.machine.memory
        assert now.machine.numa_nodes == then.machine.numa_nodes
        assert now.memory_manager_state == then.memory_manager_state
        data = json.loads(file.read_bytes())
        assert node.keys() <= data.keys()
        for key in ("driver", "kernel", "kubelet", "meminfo", "numa", "metrics"):
            assert data[key] == node[key], key
        assert data["version"] == 1
        assert data["boot_id"] == "b-1"
        assert data["taken_at"].endswith("+00:00")

    def test_what_a_cgroup_uses_and_suffers_is_in_it(self, tmp_path: Path) -> None:
        stat = "anon 4096\nfile 8192\nkernel_stack 1\npgfault 5"
        cgroup = {
            "memory.current": "12288",
            "memory.stat": stat,
            "memory.events": "low 0\nhigh 3",
            "memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0",
            "hugetlb.2MB.max": "max",
            "memory.reclaim": "never read",
        }
        found = roots(tmp_path, cgroups={"/": {}, "/kubepods": cgroup})
        snapshot = take_snapshot(FilePods([str(NODES / "numa.json")]), roots=found)
        assert snapshot.cgroups["/kubepods"] == {
            **{name: text for name, text in cgroup.items() if name != "memory.reclaim"},
            "memory.stat": "anon 4096\nfile 8192",
        }

    def test_processes_are_listed_by_cgroup(self, tmp_path: Path) -> None:
        stat = "7 (web (1)) S 1 7 7 0 -1 4194560" + " 0" * 30
        process = {
            "stat": stat,
            "status": "Name:\tweb\nVmRSS:\t     100 kB\nVmPTE:\t 8 kB\n",
            "oom_score_adj": "985\n",
            "cgroup": "0::/kubepods/pod1\n",
        }
        found = roots(tmp_path, proc={**PROC, "7": process})
        snapshot = take_snapshot(FilePods([str(NODES / "numa.json")]), roots=found)
        (process_seen,) = snapshot.processes["/kubepods/pod1"]
        assert msgspec.to_builtins(process_seen) == {
            "comm": "web (1)",
            "oom_score_adj": 985,
            "pid": 7,
            "rss": 102400,
            "page_tables": 8192,
        }

    def test_a_machine_without_a_kubelet_has_a_snapshot_too(self, tmp_path: Path) -> None:
        empty = Roots(*[f"{tmp_path}/{name}" for name in "abcd"])
        snapshot = take_snapshot(
            parse_pod_source("http://127.0.0.1:1"), may_be_unreachable=True, roots=empty
        )
        assert (snapshot.running, snapshot.cgroups, snapshot.processes) == ((), {}, {})
        text = "\n".join(snapshot.notes)
        for what in ("no pods:", "no cgroups:", "no meminfo:", "no numa:", "no processes:",
                     "no kubelet_configuration:", "driver:"):  # fmt: skip
            assert what in text
        file = tmp_path / "node.json"
        file.write_bytes(encode_snapshot(snapshot))
        seen = observe_snapshot_file(str(file))
        assert seen.machine.memory is None
        assert seen.driver is None
        assert seen.configuration is None
        assert seen.notes == snapshot.notes

    def test_a_source_that_was_asked_for_must_answer(self, tmp_path: Path) -> None:
        with pytest.raises(Unreachable):
            take_snapshot(parse_pod_source("http://127.0.0.1:1"), roots=roots(tmp_path))


def pod_with_secrets() -> dict[str, Any]:
    container = {
        "name": "c",
        "image": "registry.example/private/app:1",
        "command": [SECRET],
        "args": [SECRET],
        "workingDir": SECRET,
        "env": [{"name": "PASSWORD", "value": SECRET}],
        "envFrom": [{"secretRef": {"name": SECRET}}],
        "lifecycle": {"preStop": {"exec": {"command": [SECRET]}}},
        "livenessProbe": {"exec": {"command": [SECRET]}},
        "volumeMounts": [{"name": SECRET, "mountPath": SECRET}],
        "securityContext": {"seLinuxOptions": {"user": SECRET}},
        "resources": {"requests": {"memory": "1Gi"}, "claims": [{"name": SECRET}]},
    }
    status = {
        "name": "c",
        "image": "registry.example/private/app:1",
        "imageID": "registry.example/private/app@sha256:1",
        "containerID": "containerd://abc",
        "state": {"running": {"startedAt": SECRET}, "terminated": {"message": SECRET}},
        "lastState": {"terminated": {"message": SECRET}},
        "resources": {"requests": {"memory": "1Gi"}, "claims": [{"name": SECRET}]},
    }
    return {
        "metadata": {
            "name": "p",
            "namespace": "n",
            "uid": "u-1",
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": SECRET,
                "vault/token": SECRET,
                "kubernetes.io/config.hash": "h-1",
                "kubernetes.io/config.source": "file",
            },
            "managedFields": [{"manager": SECRET}],
            "ownerReferences": [{"name": SECRET}],
        },
        "spec": {
            "nodeName": "node1",
            "containers": [container],
            "initContainers": [{**container, "name": "i"}],
            "ephemeralContainers": [{**container, "name": "e"}],
            "resourceClaims": [{"name": SECRET, "resourceClaimName": SECRET}],
            "volumes": [{"name": SECRET, "hostPath": {"path": SECRET}}],
            "imagePullSecrets": [{"name": SECRET}],
            "hostAliases": [{"hostnames": [SECRET]}],
            "serviceAccountName": SECRET,
            "nodeSelector": {SECRET: SECRET},
        },
        "status": {
            "phase": "Running",
            "message": SECRET,
            "podIP": SECRET,
            "conditions": [{"type": "Ready", "status": "True", "message": SECRET}],
            "containerStatuses": [status],
            "initContainerStatuses": [{**status, "name": "i"}],
            "ephemeralContainerStatuses": [{**status, "name": "e"}],
        },
    }


CONFIGURATION = f"""
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: systemd
staticPodURL: https://{SECRET}@example.org
staticPodURLHeader: {{Authorization: [Bearer {SECRET}]}}
featureGates: {{MemoryQoS: true}}
kubeReserved: {{memory: 1Gi}}
{SECRET}: true
"""


class TestSecrets:
    def taken(self, folder: Path, configuration: str, *, images: bool = True) -> str:
        found = roots(folder, kubelet={"config.yaml": configuration})
        answer = {"kind": "PodList", "items": [pod_with_secrets()]}
        with fake_kubelet({"/pods": answer}) as kubelet:
            return encode_snapshot(
                take_snapshot(parse_pod_source(kubelet.url), roots=found, images=images)
            ).decode()

    def test_stay_on_the_node(self, tmp_path: Path) -> None:
        text = self.taken(tmp_path, CONFIGURATION.replace(f"{SECRET}: true", ""))
        assert SECRET not in text

    def test_what_names_cgroups_and_decides_about_memory_is_kept(self, tmp_path: Path) -> None:
        data = json.loads(self.taken(tmp_path, CONFIGURATION))
        (pod,) = data["pods"]["items"]
        assert pod["metadata"]["annotations"] == {
            "kubernetes.io/config.hash": "h-1",
            "kubernetes.io/config.source": "file",
        }
        assert pod["spec"]["containers"] == [
            {
                "name": "c",
                "image": "registry.example/private/app:1",
                "resources": {"requests": {"memory": "1Gi"}},
            }
        ]
        assert pod["status"]["containerStatuses"][0]["containerID"] == "containerd://abc"
        assert yaml.safe_load(data["kubelet_configuration"]) == {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "cgroupDriver": "systemd",
            "featureGates": {"MemoryQoS": True},
            "kubeReserved": {"memory": "1Gi"},
        }

    def test_images_stay_if_asked_for(self, tmp_path: Path) -> None:
        assert "registry.example" not in self.taken(tmp_path, CONFIGURATION, images=False)

    def test_a_configuration_that_cannot_be_read_is_not_quoted(self, tmp_path: Path) -> None:
        text = self.taken(tmp_path, f"kind: KubeletConfiguration\npassword: {SECRET}: x\n")
        assert SECRET not in text
        data = json.loads(text)
        assert data["kubelet_configuration"] == ""
        assert any("config.yaml: line 2" in note for note in data["notes"])

    def test_one_that_was_given_must_be_readable(self, tmp_path: Path) -> None:
        with pytest.raises(InputError):
            take_snapshot(
                FilePods([str(NODES / "numa.json")]),
                roots=roots(tmp_path),
                configuration=RawKubeletConfig("given.yaml", b"kind: Pod\n"),
            )


class TestKubeletsWord:
    """What a kubelet says of itself counts more than files and programs."""

    def test_its_configuration(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # Only its secure port tells, so let the plain one pass for it.
        monkeypatch.setattr("memqos.host.kubelet.KubeletEndpoint.is_secure", True)
        monkeypatch.setattr(
            "memqos.host.kubelet.KubeletEndpoint._connect",
            lambda endpoint: endpoint._socket(),
        )
        running = {"kubeletconfig": {"cgroupDriver": "systemd", "staticPodURLHeader": {"a": ["b"]}}}
        found = roots(tmp_path, kubelet={"config.yaml": "cgroupDriver: cgroupfs\n"})
        answers = {"/pods": {"kind": "PodList"}, "/configz": running}
        with fake_kubelet(answers) as kubelet:
            snapshot = take_snapshot(parse_pod_source(kubelet.url), roots=found)
        assert "cgroupDriver: systemd" in snapshot.kubelet_configuration
        assert any(f"{kubelet.url}: it has no /metrics (404)" in note for note in snapshot.notes)

    def test_its_plain_port_is_not_asked_for_it(self, tmp_path: Path) -> None:
        with fake_kubelet({"/pods": {"kind": "PodList"}, "/metrics": b""}) as kubelet:
            take_snapshot(parse_pod_source(kubelet.url), roots=roots(tmp_path))
            assert [path for path, _ in kubelet.request_log] == ["/pods", "/metrics"]


class TestLoading:
    def test_a_form_that_is_newer_is_refused(self, tmp_path: Path) -> None:
        file = tmp_path / "node.json"
        file.write_text(json.dumps({**recorded("numa"), "version": 2, "memqos": "9.1"}))
        with pytest.raises(InputError) as caught:
            load_snapshot(str(file))
        assert "read it with memqos 9.1" in str(caught.value)

    @pytest.mark.parametrize("text", ["", "{}", '{"kind": "Pod"}', "[1]"])
    def test_what_is_no_snapshot_is_refused(self, tmp_path: Path, text: str) -> None:
        file = tmp_path / "node.json"
        file.write_text(text)
        with pytest.raises(InputError):
            observe_snapshot_file(str(file))

    def test_a_recorded_node_says_what_it_does_not_know(self) -> None:
        seen: ObservedNode = observe_snapshot(load_snapshot(str(NODES / "numa.json")), "numa.json")
        assert seen.origin == "numa.json"
        assert seen.machine.page_size is None
        assert seen.identities == {}
        assert MEMINFO not in (seen.machine.meminfo or "")
