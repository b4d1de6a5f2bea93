"""A node as it should be, held against the node as it is."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import msgspec

from memqos.converge.settings import PROTECTION, File, Ground, Wanted, ground_of
from memqos.kube.kubelet import STATIC, KubeletConfiguration
from memqos.kube.resources_in_use import in_force
from memqos.plan.changes import Comparison, compare, stored
from memqos.plan.effective import Claim, Protection, effective
from memqos.plan.names import outer
from memqos.plan.setting import Settings
from memqos.plan.terms import Numa, Terms
from memqos.plan.tree import Tree, cgroup_uid, plan_node, pod_key
from memqos.release import Release

if TYPE_CHECKING:
    from memqos.converge.observing import Observation

FILES = (
    "memory.min",
    "memory.low",
    "memory.high",
    "memory.max",
    "memory.oom.group",
    "memory.current",
    "cpu.weight",
    "cpu.max",
    "cpuset.mems",
)
"""What is read of every cgroup to plan it."""


class NodePlan(msgspec.Struct, frozen=True):
    """A node's plan and how far the node is from it."""

    terms: Terms
    config: KubeletConfiguration
    tree: Tree
    comparison: Comparison
    protections: dict[str, Protection]
    """What the kernel will honour once the plan is applied; empty where usage is not known."""
    notes: tuple[str, ...]
    unaligned: tuple[str, ...] = ()
    """Pods whose pod-level resources the Memory Manager ignores."""
    unread: tuple[str, ...] = ()
    """What could not be read of the cgroups that are planned: they may differ all the same."""
    kubelet_keeps: frozenset[File] = frozenset()
    """Files in which the running kubelet puts the planned value itself, once a minute."""
    doubt: str | None = None
    """Why it must not be written: see `Ground.doubt`."""
    managed: frozenset[str] = frozenset()
    """The cgroups that are planned as the agent on the node plans them."""
    faults: tuple[str, ...] = ()
    """Files of pods that could not be read: those pods are not planned."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing from it that should be there."""
        return not self.unread and not self.faults


def plan_of(observation: "Observation", wanted: Wanted) -> NodePlan:
    """Plan the node that was observed."""
    ground = ground_of(
        observation.machine,
        observation.configuration,
        observation.driver,
        wanted,
        observation.node,
    )
    terms = ground.terms
    notes = [*observation.notes, *ground.notes]
    tree = plan_node(observation.pods, terms, ground.config, ground.capacity)
    if wanted.numa != "off":
        from memqos.converge.assigning import assign

        assigned = assign(observation, tree, wanted.numa, ground.config, terms.release)
        tree = assigned.tree
        notes += assigned.notes
    managed: frozenset[str] = frozenset()
    if wanted.agent and observation.agent is not None:
        from memqos.converge.node_agent import with_agent_plan

        managed = observation.agent.managed_paths
        tree = with_agent_plan(tree, observation.agent)
    comparison = compare(tree, observation.cgroups, ground.names, terms.page_size)
    return NodePlan(
        terms,
        ground.config,
        tree,
        comparison,
        _protections(observation, tree, terms.page_size),
        tuple(notes),
        _unaligned(observation, tree, wanted.numa, ground.config, terms.release),
        tuple(what for what in observation.refused if _is_about(what, ground.names.kubepods)),
        kubelet_keeps=_kubelet_keeps(ground, tree),
        managed=managed,
        doubt=ground.doubt,
        faults=observation.faults,
    )


def _kubelet_keeps(ground: Ground, tree: Tree) -> frozenset[File]:
    """Under other options than the kubelet's own, it does not keep what is planned."""
    kubelet, terms, names = ground.kubelet, ground.terms, ground.names
    if kubelet is None or not kubelet.keeps_levels:
        return frozenset()
    is_same = kubelet.release.minor == terms.release.minor and kubelet.policy == terms.policy
    if not is_same or not terms.release.enabled("MemoryQoS"):
        return frozenset()
    return frozenset(
        (path, file)
        for path in (names.kubepods, names.burstable)
        if path in tree.cgroups
        for file, setting in tree.cgroups[path].settings.items()
        if file in PROTECTION and setting.value is not None
    )


def _is_about(what: str, kubepods: str) -> bool:
    """Whether what could not be read is kubepods, or lies above or below it."""
    above = what == "/" or kubepods.startswith(f"{what}/")
    return above or f"{what}/".startswith(f"{kubepods}/")


def _unaligned(
    observation: "Observation",
    tree: Tree,
    numa: Numa,
    config: KubeletConfiguration,
    release: Release,
) -> tuple[str, ...]:
    if numa != "allocate" and config.memory_manager_policy != STATIC:
        return ()
    from memqos.numa.arriving import arriving
    from memqos.numa.unaligned import unaligned

    planned = {cgroup.uid for cgroup in tree.cgroups.values()}
    running = [
        arriving(in_force(pod), release) for pod in observation.pods if cgroup_uid(pod) in planned
    ]
    return tuple(pod_key(pod) for pod in unaligned(running, release))


def _protections(observation: "Observation", tree: Tree, page_size: int) -> dict[str, Protection]:
    """Effective protection of the tree as planned, by what is in use now."""
    claims: dict[str, Claim] = {}
    for path, files in observation.cgroups.items():
        usage = files.get("memory.current")
        if path == "/":
            continue
        if usage is None:
            return {}
        planned = tree.cgroups.get(outer(path))
        claims[path] = Claim(
            min=_claimed(planned.settings if planned else {}, "memory.min", files, page_size),
            low=_claimed(planned.settings if planned else {}, "memory.low", files, page_size),
            usage=int(usage),
        )
    recursive = bool(observation.machine.recursive_protection)
    return effective(claims, recursive=recursive, page_size=page_size) if claims else {}


def _claimed(
    settings: Settings, file: str, files: Mapping[str, str], page_size: int
) -> int | Literal["max"]:
    value = stored(file, settings[file].value, page_size) if file in settings else files.get(file)
    if value == "max":
        return "max"
    return int(value) if value and value.isdigit() else 0
