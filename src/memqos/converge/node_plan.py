"""Plan an observed node, and compare the node with the plan."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal

import msgspec

from memqos.kube.kubelet import STATIC, KubeletConfiguration
from memqos.kube.resources_in_use import with_resources_in_use
from memqos.plan.changes import Comparison, as_stored, compare, withhold_high
from memqos.plan.effective import Claim, Protection, effective
from memqos.plan.levels import PROTECTION_FILES, CgroupFilePath
from memqos.plan.names import names_of, outer
from memqos.plan.tree import Cgroup, Tree, cgroup_uid, plan_node, pod_key
from memqos.release import Release
from memqos.settings.enablement import Enablement
from memqos.settings.resolver import NodeSettings, resolve
from memqos.settings.settings import Numa, Settings, SettingsOptions

if TYPE_CHECKING:
    from memqos.converge.observation import ObservedNode

PLAN_FILES = (
    "memory.min",
    "memory.low",
    "memory.high",
    "memory.max",
    "memory.swap.max",
    "memory.oom.group",
    "memory.current",
    "cpu.weight",
    "cpu.max",
    "cpuset.mems",
)
"""The files that are read of every cgroup to plan it."""


class PlanOptions(SettingsOptions, frozen=True, kw_only=True):
    """What a person states about the plan of a node."""

    numa: Numa = "off"
    agent: bool = False
    """Whether the cgroups that an agent on the node manages are planned as it plans them."""


class NodePlan(msgspec.Struct, frozen=True, kw_only=True):
    """A node's plan, and what differs from it on the node."""

    settings: Settings
    enablement: Enablement
    config: KubeletConfiguration
    tree: Tree
    comparison: Comparison
    protections: dict[str, Protection]
    """What the kernel will honour once the plan is applied; empty where usage is not known."""
    notes: tuple[str, ...]
    unaligned: tuple[str, ...] = ()
    """Pods whose pod-level resources the Memory Manager ignores."""
    unread: tuple[str, ...] = ()
    """What could not be read of the planned cgroups, which may differ from the plan."""
    kubelet_managed: frozenset[CgroupFilePath] = frozenset()
    """Files to which the running kubelet writes the planned value itself, once a minute (kubelet
    cm/qos_container_manager_linux.go, periodicQOSCgroupUpdateInterval)."""
    doubt: str | None = None
    """Why the plan must not be written: see `NodeSettings.doubt`."""
    high_withheld: str | None = None
    """Why memory.high is not written: see `NodeSettings.high_withheld`."""
    managed: frozenset[str] = frozenset()
    """The cgroups whose plan is that of the agent on the node."""
    faults: tuple[str, ...] = ()
    """Files of pods that could not be read: those pods are not planned."""

    @property
    def is_complete(self) -> bool:
        """Whether everything that it depends on could be read."""
        return not self.unread and not self.faults


def plan_observation(observation: "ObservedNode", options: PlanOptions) -> NodePlan:
    """Plan the node that was observed."""
    node_settings = resolve(observation.facts, options)
    settings, names = node_settings.settings, names_of(node_settings.config)
    notes = [
        *observation.notes,
        *node_settings.notes,
        *_refusal_notes(observation, node_settings),
    ]
    tree = plan_node(observation.pods, settings, node_settings.config, node_settings.capacity)
    if options.numa != "off":
        from memqos.converge.numa_assignment import assign_numa_nodes

        assigned = assign_numa_nodes(
            observation, tree, options.numa, node_settings.config, settings.release
        )
        tree = assigned.tree
        notes += assigned.notes
    managed: frozenset[str] = frozenset()
    if options.agent and observation.agent is not None:
        from memqos.converge.observation import with_agent_plan

        managed = observation.agent.managed_paths
        tree = with_agent_plan(tree, observation.agent)
    comparison = compare(tree, observation.cgroups, names, settings.page_size)
    if node_settings.high_withheld is not None:
        comparison = withhold_high(comparison)
    return NodePlan(
        settings=settings,
        enablement=node_settings.enablement,
        config=node_settings.config,
        tree=tree,
        comparison=comparison,
        protections=_protections(observation, tree, settings.page_size),
        notes=tuple(notes),
        unaligned=_pods_without_alignment(
            observation, tree, options.numa, node_settings.config, settings.release
        ),
        unread=tuple(what for what in observation.unreadable if _is_about(what, names.kubepods)),
        kubelet_managed=_kubelet_managed(node_settings, tree),
        managed=managed,
        doubt=node_settings.doubt,
        high_withheld=node_settings.high_withheld,
        faults=observation.faults,
    )


def _refusal_notes(observation: "ObservedNode", node_settings: NodeSettings) -> Iterator[str]:
    """Pods that run here, but that this kubelet would refuse if they were created again."""
    version, running = node_settings.facts.version, node_settings.kubelet
    judged = [pod for pod in observation.pods if pod.spec.os or pod.spec.resources]
    if not judged or (version is None and running is None):
        return
    from memqos.cluster.node_admission import LINUX, AdmittingNode, kubelet_release, refuse_on_node

    kubelet = (
        kubelet_release(version, node_settings.settings.release)
        if running is None
        else running.release
    )
    node = AdmittingNode(name="", os=node_settings.facts.os or LINUX, allocatable={})
    for pod in judged:
        refused = refuse_on_node(pod, node, kubelet)
        if refused is not None:
            yield (
                f"{pod_key(pod)}: the kubelet here, {kubelet}, would refuse it if it were "
                f"created again: {refused.words}"
            )


def _kubelet_managed(node_settings: NodeSettings, tree: Tree) -> frozenset[CgroupFilePath]:
    """Under other options than the kubelet's own, it does not keep what is planned."""
    kubelet, settings = node_settings.kubelet, node_settings.settings
    if kubelet is None or not kubelet.writes_levels:
        return frozenset()
    is_same = kubelet.release.minor == settings.release.minor and kubelet.policy == settings.policy
    if not is_same or not settings.release.is_enabled("MemoryQoS"):
        return frozenset()
    names = names_of(node_settings.config)
    return frozenset(
        (path, file)
        for path in (names.kubepods, names.burstable)
        if path in tree.cgroups
        for file, setting in tree.cgroups[path].settings.items()
        if file in PROTECTION_FILES and setting.value is not None
    )


def _is_about(what: str, kubepods: str) -> bool:
    """Whether an unreadable path is kubepods, or above or below it."""
    above = what == "/" or kubepods.startswith(f"{what}/")
    return above or f"{what}/".startswith(f"{kubepods}/")


def _pods_without_alignment(
    observation: "ObservedNode",
    tree: Tree,
    numa: Numa,
    config: KubeletConfiguration,
    release: Release,
) -> tuple[str, ...]:
    if numa != "allocate" and config.memory_manager_policy != STATIC:
        return ()
    from memqos.numa.requests import pod_for_kubelet, pods_without_alignment

    planned = {cgroup.uid for cgroup in tree.cgroups.values()}
    running = [
        pod_for_kubelet(with_resources_in_use(pod), release)
        for pod in observation.pods
        if cgroup_uid(pod) in planned
    ]
    found = pods_without_alignment(
        running, release, config.topology_manager_policy, config.topology_manager_scope
    )
    return tuple(map(pod_key, found))


def _protections(observation: "ObservedNode", tree: Tree, page_size: int) -> dict[str, Protection]:
    """Effective protection of the planned tree, by the memory in use now."""
    claims: dict[str, Claim] = {}
    for path, files in observation.cgroups.items():
        usage = files.get("memory.current", "").strip()
        if path == "/":
            continue
        if not usage.isdecimal():
            return {}
        planned = tree.cgroups.get(outer(path))
        minimum, low = (_claim_value(planned, file, files, page_size) for file in PROTECTION_FILES)
        claims[path] = Claim(min=minimum, low=low, usage=int(usage))
    recursive = bool(observation.machine.recursive_protection)
    return effective(claims, recursive=recursive, page_size=page_size) if claims else {}


def _claim_value(
    planned: Cgroup | None, file: str, files: Mapping[str, str], page_size: int
) -> int | Literal["max"]:
    if planned is None:
        value = files.get(file)
    else:
        # What a plan does not name is reset, as `compare` has it.
        setting = planned.settings.get(file)
        value = as_stored(file, None if setting is None else setting.value, page_size)
    if value == "max":
        return "max"
    return int(value) if value and value.isdigit() else 0
