"""The desired cgroup tree of a node: every cgroup that Kubernetes keeps, and its values.

Paths are those of the unified hierarchy, parents before children. A container whose cgroup cannot
be named is listed as unresolved, never guessed.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final, Literal

import msgspec

from memqos.errors import InputError
from memqos.kube.kubelet import KubeletConfiguration
from memqos.kube.node import Capacity, NodeCgroup, node_cgroups
from memqos.kube.pod import Pod
from memqos.kube.pod_history import statuses_by_name
from memqos.kube.resources_in_use import is_terminal
from memqos.kube.shape import containers_of
from memqos.plan import cpu
from memqos.plan.levels import class_demand, plan_levels
from memqos.plan.memory import MEMORY_QOS_KEP
from memqos.plan.names import CgroupNames, RuntimeName, names_of
from memqos.plan.pod import PodPlan
from memqos.plan.semantics import Planner
from memqos.plan.setting import FileSettings, Rule, Setting
from memqos.settings.settings import Settings
from memqos.units import format_exact_bytes

Level = Literal["reserved", "kubepods", "qos", "pod", "container"]
ABOVE_PODS: Final = ("kubepods", "qos")
"""The levels whose protection a kubelet keeps, if any."""

CONFIG_HASH: Final = "kubernetes.io/config.hash"
_RUNTIMES: Final[dict[str, RuntimeName]] = {"containerd": "containerd", "cri-o": "cri-o"}

RESERVED_MIN: Final = Rule(
    "reserved/min",
    "memory reserved for the system is never reclaimed, whatever the policy",
    f"{MEMORY_QOS_KEP}, node",
    lambda amount: (f"reservation = {format_exact_bytes(amount)}",),
)
RESERVED_MAX: Final = Rule(
    "reserved/max",
    "the reservation is enforced as a limit",
    "kubelet, enforceNodeAllocatable",
    lambda amount: (f"reservation = {format_exact_bytes(amount)}",),
)
ALLOCATABLE_MAX: Final = Rule(
    "node/allocatable",
    "limit of all pods together: the memory not reserved for the system",
    "kubelet, enforceNodeAllocatable",
    lambda amount: (
        f"allocatable, eviction thresholds not subtracted = {format_exact_bytes(amount)}",
    ),
)


class Cgroup(msgspec.Struct, frozen=True):
    """One cgroup and the values it should have, by file; what is not written has the value None."""

    path: str
    level: Level
    settings: FileSettings
    pod: str | None = None
    """namespace/name."""
    container: str | None = None
    uid: str | None = None
    """The pod's, as the cgroup's name has it."""

    def __str__(self) -> str:
        written = [
            f"{file} {setting.value}"
            for file, setting in self.settings.items()
            if setting.value is not None
        ]
        return "\n  ".join([self.path, *written])


class Unresolved(msgspec.Struct, frozen=True):
    """A pod or container whose cgroup cannot be named."""

    pod: str
    container: str | None
    why: str


class Tree(msgspec.Struct, frozen=True):
    """All cgroups by path, parents before children, and what could not be placed."""

    cgroups: dict[str, Cgroup]
    unresolved: tuple[Unresolved, ...] = ()


def plan_node(
    pods: Iterable[Pod],
    settings: Settings,
    config: KubeletConfiguration,
    capacity: Capacity,
) -> Tree:
    """The tree of a node that runs these pods."""
    if not config.cgroups_per_qos:
        raise InputError(
            "without cgroupsPerQOS the kubelet creates no QoS cgroups",
            field="cgroupsPerQOS",
            hint="turn it on, which is the kubelet's default",
        )
    names = names_of(config)
    planner = Planner(msgspec.structs.replace(settings, driver=names.driver))
    unresolved: list[Unresolved] = []
    running: list[Pod] = []
    plans: list[PodPlan] = []
    for pod in pods:
        if is_terminal(pod):
            continue
        try:
            judged = planner.semantics(pod)
        except InputError as error:
            unresolved.append(Unresolved(pod_key(pod), None, str(error)))
            continue
        if judged.plan is None:
            unresolved.append(Unresolved(pod_key(pod), None, f"invalid: {judged.errors[0]}"))
        else:
            running.append(pod)
            plans.append(judged.plan)
    cgroups = {
        cgroup.path: cgroup for cgroup in _above_pods(names, plans, settings, config, capacity)
    }
    for pod, plan in zip(running, plans, strict=True):
        for found in pod_cgroups(pod, plan, names):
            if isinstance(found, Unresolved):
                unresolved.append(found)
            else:
                cgroups[found.path] = found
    return Tree(cgroups, tuple(unresolved))


def pod_key(pod: Pod) -> str:
    """namespace/name, as kubectl shows it."""
    return f"{pod.metadata.namespace or 'default'}/{pod.metadata.name or '?'}"


def cgroup_uid(pod: Pod) -> str | None:
    """The UID in the cgroup's name: that of the manifest for static and mirror pods."""
    # The API server gives a mirror pod another UID; the kubelet keeps that of the manifest in this
    # annotation (kubelet config/common.go, applyDefaults).
    annotations = pod.metadata.annotations or {}
    return annotations.get(CONFIG_HASH) or pod.metadata.uid


def _above_pods(
    names: CgroupNames,
    plans: list[PodPlan],
    settings: Settings,
    config: KubeletConfiguration,
    capacity: Capacity,
) -> Iterator[Cgroup]:
    levels = plan_levels(class_demand(plans), settings)
    for node in node_cgroups(capacity, config, settings.release).cgroups:
        if node.kind == "kubepods":
            values = _node_settings(node, ALLOCATABLE_MAX) | by_file(levels.kubepods)
            yield Cgroup(names.kubepods, "kubepods", values)
    yield from reserved_cgroups(names, settings, config, capacity)
    yield Cgroup(names.burstable, "qos", by_file(levels.burstable))
    yield Cgroup(names.besteffort, "qos", by_file(levels.besteffort))


def reserved_cgroups(
    names: CgroupNames, settings: Settings, config: KubeletConfiguration, capacity: Capacity
) -> Iterator[Cgroup]:
    """The cgroups of the system itself, where their reservations are enforced."""
    for node in node_cgroups(capacity, config, settings.release).cgroups:
        if node.kind != "kubepods" and node.name:
            yield Cgroup(
                names.reserved_cgroup(node.name), "reserved", _node_settings(node, RESERVED_MAX)
            )


def reserved_paths(names: CgroupNames, config: KubeletConfiguration) -> frozenset[str]:
    """The cgroups that a configuration names for the system, enforced or not."""
    paths: set[str] = set()
    for name in (config.kube_reserved_cgroup, config.system_reserved_cgroup):
        with suppress(InputError):  # the configuration names none, or no valid one
            paths.add(names.reserved_cgroup(name))
    return frozenset(paths)


def _node_settings(node: NodeCgroup, limit: Rule) -> FileSettings:
    settings: FileSettings = {}
    if node.memory_min is not None:
        settings["memory.min"] = Setting(node.memory_min, RESERVED_MIN, (node.memory_min,))
    if node.memory_max is not None:
        settings["memory.max"] = Setting(node.memory_max, limit, (node.memory_max,))
    if node.cpu:
        shares = cpu.shares_of(node.cpu)
        settings["cpu.weight"] = Setting(cpu.weight_of(shares), cpu.SHARES, (node.cpu, "cpu"))
    return settings


def pod_cgroups(pod: Pod, plan: PodPlan, names: CgroupNames) -> Iterator[Cgroup | Unresolved]:
    """The cgroups of one pod, its own first."""
    key, uid = pod_key(pod), cgroup_uid(pod)
    if uid is None:
        yield Unresolved(key, None, "the pod has no UID: it has not been created yet")
        return
    try:
        path = names.pod(uid, plan.qos)
    except InputError as error:
        yield Unresolved(key, None, error.what)
        return
    yield Cgroup(path, "pod", by_file(plan.settings), key, uid=uid)
    ids = container_ids(pod)
    for container, planned in zip(containers_of(pod), plan.containers, strict=True):
        runtime, _, container_id = ids.get(container.name, "").partition("://")
        if not container_id:
            yield Unresolved(key, container.name, "its status has no container ID")
        elif runtime not in _RUNTIMES:
            yield Unresolved(key, container.name, f"the runtime {runtime!r} is unknown")
        else:
            try:
                own_path = names.container(path, container_id, _RUNTIMES[runtime])
            except InputError as error:
                yield Unresolved(key, container.name, error.what)
                continue
            settings = by_file(planned.settings)
            yield Cgroup(own_path, "container", settings, key, container.name, uid)


def container_ids(pod: Pod) -> dict[str, str]:
    """Container name → `runtime://id`, of those the pod's status names."""
    statuses = statuses_by_name(pod.status)
    return {name: each.container_id for name, each in statuses.items() if each.container_id}


def by_file(settings: FileSettings) -> FileSettings:
    """Settings by the files of cgroup v2, where shares have become a weight."""
    files: FileSettings = {}
    for name, setting in settings.items():
        if name == "cpu.shares" and isinstance(setting.value, int):
            weight = cpu.weight_of(setting.value)
            files["cpu.weight"] = Setting(weight, setting.rule, setting.inputs)
        else:
            files[name] = setting
    return files
