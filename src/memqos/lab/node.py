"""A node in miniature: a cgroup as large as its memory, and in it what the planner plans."""

import json
import resource
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from memqos.agent.configuration import AgentConfiguration
from memqos.agent.core.pod_intent import AgentSettings, IntentPlanner, PodIntent
from memqos.agent.core.reservations import (
    NO_RESERVATIONS,
    PodReservations,
    level_cgroups,
    pods_without_reservation,
    without_reservation,
)
from memqos.kube.pod import Pod
from memqos.lab.cgroup import CGROUP_ROOT, ScratchCgroup
from memqos.lab.scenario import Planned, Workbench
from memqos.plan.effective import Claim, effective
from memqos.plan.setting import FileValue
from memqos.plan.tree import Cgroup, plan_node
from memqos.settings.facts import NodeFacts, RawKubeletConfig
from memqos.settings.resolver import NodeSettings, resolve
from memqos.settings.settings import Placement, SettingsOptions

RELEASE: Final = "1.38"
RESERVED_CGROUP: Final = "/system"
"""What the kubelet and the system itself run in, as kubeReservedCgroup names it."""
_CONFIGURATION: Final = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "cgroupDriver": "cgroupfs",
    "featureGates": {"MemoryQoS": True, "NodeSwap": True},
    "evictionHard": {"memory.available": "0%"},
}
_WRITTEN: Final = ("memory.", "cpuset.")


def lab_pod(
    name: str,
    containers: Mapping[str, Mapping[str, Any]],
    *,
    resources: Mapping[str, Any] | None = None,
    priority: int = 0,
) -> Pod:
    """A running pod: its containers by name with their resources, and perhaps its own."""
    data = {
        "metadata": {"name": name, "namespace": "lab", "uid": name},
        "spec": {
            "priority": priority,
            "resources": resources,
            "containers": [
                {"name": each, "image": "lab", "resources": own} for each, own in containers.items()
            ],
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [
                {"name": each, "containerID": f"containerd://{name}{each}"} for each in containers
            ],
        },
    }
    return msgspec.convert(data, Pod)


def memory_resources(request: int = 0, limit: int = 0, *, cpu: bool = False) -> dict[str, Any]:
    """A resources stanza; with `cpu` a container may be Guaranteed."""
    amounts = {"requests": request, "limits": limit}
    found: dict[str, dict[str, str]] = {
        side: {"memory": str(amount)} for side, amount in amounts.items() if amount
    }
    if cpu:
        for side in amounts:
            found.setdefault(side, {})["cpu"] = "100m"
    return found


class PlannedNode:
    """Cgroups of pods, with the values that memqos plans for them."""

    def __init__(
        self,
        bench: Workbench,
        pods: Sequence[Pod],
        *,
        capacity: int,
        kubelet: Mapping[str, Any],
        placement: Placement = "containers",
        swap: int = 0,
        budget: float | None = None,
    ) -> None:
        self.cgroup = bench.cgroup.child("node", memory_max=capacity, memory_swap_max=swap)
        self.capacity = capacity
        self.pods = {pod.metadata.name or "": pod for pod in pods}
        self.settings = _settings(capacity, kubelet, placement, swap)
        known = self.settings
        tree = plan_node(pods, known.settings, known.config, known.capacity)
        assert not tree.unresolved, tree.unresolved
        self.planned: dict[str, Cgroup] = dict(tree.cgroups)
        """By path, as seen from the node."""
        if budget is not None:
            for path, within in _within_budget(known, pods, budget).items():
                settings = self.planned[path].settings | within.settings
                self.planned[path] = msgspec.structs.replace(within, settings=settings)
        self._cgroups: dict[str, ScratchCgroup] = {}
        for path in sorted(self.planned):
            bench.planned.extend(self._write(path))

    def pod(self, name: str) -> ScratchCgroup:
        """The cgroup of a pod."""
        return next(each for path, each in self._cgroups.items() if path.endswith(f"/pod{name}"))

    def container(self, pod: str, name: str = "app") -> ScratchCgroup:
        """The cgroup of a container."""
        return self._cgroups[self.container_path(pod, name)]

    def container_path(self, pod: str, name: str = "app") -> str:
        """Its path, as the plan has it."""
        return next(path for path in self.planned if path.endswith(f"/{pod}{name}"))

    @property
    def reserved(self) -> ScratchCgroup:
        """Where the kubelet and the system run."""
        if RESERVED_CGROUP not in self._cgroups:
            self._cgroups[RESERVED_CGROUP] = self.cgroup.child(RESERVED_CGROUP[1:])
        return self._cgroups[RESERVED_CGROUP]

    def value(self, path: str, name: str) -> FileValue:
        """What is planned for a file of a cgroup, or for its processes."""
        return self.planned[path].settings[name].value

    def oom_score_adj(self, pod: str, name: str = "app") -> int:
        """What a container's processes get."""
        return int(str(self.value(self.container_path(pod, name), "oom_score_adj")))

    def effective_min(self, path: str, target: str = "/") -> int:
        """Bytes of a cgroup that the kernel holds off, by memqos's prediction."""
        claims = {
            f"/{each.relative_to(self.cgroup.path)}": Claim(
                int((each / "memory.min").read_text()),
                int((each / "memory.low").read_text()),
                int((each / "memory.current").read_text()),
            )
            for each in sorted(self.cgroup.path.rglob("*"))
            if each.is_dir()
        }
        found = effective(
            claims,
            recursive=protection_is_recursive(),
            page_size=resource.getpagesize(),
            target=target,
        )
        return found[path].min.effective

    def _write(self, path: str) -> Iterator[Planned]:
        above, _, name = path.rpartition("/")
        parent = self._cgroups.get(above, self.cgroup)
        made = self._cgroups[path] = parent.child(name)
        for file, setting in self.planned[path].settings.items():
            value = setting.value
            if file.startswith(_WRITTEN) and value is not None and (made.path / file).exists():
                (made.path / file).write_text(str(value))
                yield Planned(path, file, str(value), setting.rule.id)


def protection_is_recursive() -> bool:
    """Whether the cgroups of this machine are mounted with memory_recursiveprot."""
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    options = next(
        mount[3] for mount in mounts if mount[2] == "cgroup2" and mount[1] == str(CGROUP_ROOT)
    )
    return "memory_recursiveprot" in options.split(",")


def _settings(
    capacity: int, kubelet: Mapping[str, Any], placement: Placement, swap: int
) -> NodeSettings:
    document = json.dumps({**_CONFIGURATION, **kubelet}).encode()
    facts = NodeFacts(configuration=RawKubeletConfig("lab", document), swap=swap)
    options = SettingsOptions(
        release=RELEASE,
        capacity=capacity,
        placement=placement,
        page_size=resource.getpagesize(),
    )
    return resolve(facts, options)


def _within_budget(known: NodeSettings, pods: Sequence[Pod], share: float) -> Mapping[str, Cgroup]:
    """What an agent plans whose sum of memory.min stays within a share of the node."""
    fields = {name: getattr(known, name) for name in known.__struct_fields__}
    planner = IntentPlanner(AgentConfiguration(mode="enforce"), AgentSettings(**fields))
    intents = [intent for pod in pods if (intent := planner.intent_of(pod)) is not None]
    limit = int(known.capacity.memory * share)
    refused = pods_without_reservation(intents, 0, limit)
    found: dict[str, Cgroup] = {}
    for intent in intents:
        for each in intent.cgroups:
            within = (
                without_reservation(each, intent.reservation[0], limit)
                if intent.path in refused
                else each
            )
            found[each.path] = within
    claims = {str(intent.path): _claim(intent, refused) for intent in intents}
    found |= {each.path: each for each in level_cgroups(claims, planner.names)}
    return found


def _claim(intent: PodIntent, refused: frozenset[str]) -> PodReservations:
    minimum, low = intent.reservation
    if intent.path in refused:
        return NO_RESERVATIONS._replace(low=low)
    return PodReservations(minimum, low)
