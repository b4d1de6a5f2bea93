"""A node with NUMA nodes and Guaranteed pods on it, planned as it stands."""

import json
from collections.abc import Mapping
from typing import Final

import msgspec
import pytest
from tests.builders import GI, Json, box

from memqos.converge.node_plan import NodePlan, PlanOptions, plan_observation
from memqos.converge.observation import ObservedNode
from memqos.kernel.machine import Machine, NumaTexts
from memqos.kube.pod import Pod
from memqos.numa.masks import SearchEffort
from memqos.settings.facts import RawKubeletConfig
from memqos.settings.settings import Numa

MEMS: Final = "cpuset.mems"
POOLS: Final = {"PodLevelResourceManagers": True}


def count_steps(monkeypatch: pytest.MonkeyPatch) -> list[SearchEffort]:
    """Have searches tell whom they took a step for: one item a step, whatever time it takes."""
    taken: list[SearchEffort] = []
    spent = SearchEffort.runs_out

    def step(effort: SearchEffort) -> bool:
        taken.append(effort)
        return spent(effort)

    monkeypatch.setattr(SearchEffort, "runs_out", step)
    return taken


def changes(plan: NodePlan) -> dict[str, str]:
    """Path → the nodes a container is to be bound to."""
    return {change.path: change.new for change in plan.comparison.changes if change.file == MEMS}


class Site:
    """A small node: NUMA nodes of 10 Gi, 1 Gi in all kept back, and Guaranteed pods."""

    def __init__(self, nodes: int = 2, **config: object) -> None:
        self.config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "evictionHard": {"memory.available": "24Mi"},
            "kubeReserved": {"memory": "1000Mi"},
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
            "topologyManagerPolicy": "restricted",
            **config,
        }
        self.nodes = nodes
        self.pods: list[Pod] = []
        self.cgroups: dict[str, dict[str, str]] = {"/kubepods": {MEMS: ""}}
        self.state: str | None = None

    def runs(
        self,
        name: str,
        *containers: Json,
        mems: Mapping[str, str] | None = None,
        init: tuple[Json, ...] = (),
        resources: Json | None = None,
    ) -> None:
        """A pod whose containers c0, c1 … have started; `mems` says what they are bound to."""
        named = [{"name": f"c{i}", "image": "i", **each} for i, each in enumerate(containers)]
        first = [{"name": f"i{i}", "image": "i", **each} for i, each in enumerate(init)]
        ids = [{"name": c["name"], "containerID": f"containerd://{name}{c['name']}"} for c in named]
        data = {
            "metadata": {"name": name, "uid": name, "creationTimestamp": f"{len(self.pods):04}"},
            "spec": {"containers": named, "initContainers": first, "resources": resources},
            "status": {"phase": "Running", "containerStatuses": ids},
        }
        self.pods.append(msgspec.convert(data, Pod))
        self.cgroups[f"/kubepods/pod{name}"] = {MEMS: ""}
        for c in named:
            held = (mems or {}).get(c["name"], "")
            self.cgroups[f"/kubepods/pod{name}/{name}{c['name']}"] = {MEMS: held}

    def plan(self, numa: Numa = "allocate", gates: dict[str, bool] | None = None) -> NodePlan:
        kib = 10 * GI >> 10
        texts = {
            f"node{i}": NumaTexts(
                f"Node {i} MemTotal: {kib} kB\n",
                " ".join("10" if i == j else "20" for j in range(self.nodes)),
            )
            for i in range(self.nodes)
        }
        observation = ObservedNode(
            origin="node",
            machine=Machine(meminfo=f"MemTotal: {kib * self.nodes} kB\n", numa=texts),
            pods=tuple(self.pods),
            cgroups=self.cgroups,
            driver="cgroupfs",
            configuration=RawKubeletConfig("kubelet", json.dumps(self.config).encode()),
            memory_manager_state=self.state,
        )
        return plan_observation(
            observation, PlanOptions(release="1.38", gates=gates or {}, numa=numa)
        )

    def bound(self, plan: NodePlan) -> dict[str, str]:
        """Container → what it is bound to once the plan is written."""
        now = {path: files[MEMS] for path, files in self.cgroups.items()} | changes(plan)
        return {path.rpartition("/")[2]: nodes for path, nodes in now.items() if nodes}

    def write(self, plan: NodePlan) -> None:
        for path, nodes in changes(plan).items():
            self.cgroups[path][MEMS] = nodes


def full(size: str) -> Json:
    return box(size, size, cpu=("1", "1"))
