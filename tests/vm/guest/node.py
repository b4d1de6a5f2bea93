"""A node whose pods have the cgroups that a kubelet and a runtime would make for them."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.vm.guest.support import ROOT, Cgroup

from memqos.converge.node_plan import PLAN_FILES, NodePlan, PlanOptions, plan_observation
from memqos.converge.observation import ObservedNode, observe_live
from memqos.converge.pod_sources import FilePods
from memqos.plan.changes import MANAGED
from memqos.plan.setting import FileValue
from memqos.settings.facts import RawKubeletConfig

RELEASE: Final = "1.38"
CONFIGURATION: Final = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "cgroupDriver": "cgroupfs",
    "featureGates": {"MemoryQoS": True},
    "memoryThrottlingFactor": 0.9,
    "memoryReservationPolicy": "TieredReservation",
}
Json = dict[str, Any]


def a_pod(
    uid: str,
    containers: Mapping[str, Json],
    *,
    ephemeral: Sequence[str] = (),
    resources: Json | None = None,
) -> Json:
    """A pod that runs: its containers by name with their resources, and perhaps its own."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": uid, "namespace": "default", "uid": uid},
        "spec": {
            "nodeName": "node",
            "resources": resources,
            "containers": [
                {"name": name, "image": "image", "resources": own}
                for name, own in containers.items()
            ],
            "ephemeralContainers": [{"name": name, "image": "image"} for name in ephemeral],
        },
        "status": {
            "phase": "Running",
            "containerStatuses": _statuses(uid, containers),
            "ephemeralContainerStatuses": _statuses(uid, ephemeral),
        },
    }


class Node:
    """The pods of this machine, and where memqos finds them."""

    def __init__(self, folder: Path, kubepods: Cgroup, pods: Sequence[Json]) -> None:
        self.pods = folder / "pods.json"
        self.pods.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
        self.kubelet = folder / "kubelet.json"
        self.kubelet.write_text(json.dumps(CONFIGURATION))
        self.cgroups = {kubepods.name: kubepods}
        """By path."""
        for path, planned in self.plan().tree.cgroups.items():
            above, _, name = path.rpartition("/")
            if above in self.cgroups:
                self.cgroups[path] = self.cgroups[above].child(name)
            for file, setting in planned.settings.items():
                self._set(path, file, setting.value)

    def observe(self) -> ObservedNode:
        configuration = RawKubeletConfig("kubelet", self.kubelet.read_bytes())
        return observe_live(FilePods([str(self.pods)]), PLAN_FILES, configuration=configuration)

    def plan(self) -> NodePlan:
        return plan_observation(self.observe(), PlanOptions(release=RELEASE))

    def planned(self, cgroup: Cgroup, name: str) -> FileValue:
        """A value that memqos plans: a file of a cgroup, or what its processes are given."""
        return self.plan().tree.cgroups[cgroup.name].settings[name].value

    def pod(self, uid: str) -> Cgroup:
        return next(c for path, c in self.cgroups.items() if path.endswith(f"/pod{uid}"))

    def container(self, uid: str, name: str) -> Cgroup:
        return self.cgroups[f"{self.pod(uid).name}/{uid}{name}"]

    def _set(self, path: str, file: str, value: FileValue) -> None:
        """What memqos does not write, the kubelet and the runtime have written before."""
        if file not in MANAGED and value is not None and os.path.exists(f"{ROOT}{path}/{file}"):
            Path(f"{ROOT}{path}/{file}").write_text(str(value))


def _statuses(uid: str, names: Mapping[str, Json] | Sequence[str]) -> list[Json]:
    return [{"name": name, "containerID": f"containerd://{uid}{name}"} for name in names]
