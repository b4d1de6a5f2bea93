"""A node as it should be, held against the node as it is."""

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

import msgspec

from memqos.api.in_force import in_force
from memqos.api.kubelet import STATIC, Driver, KubeletConfiguration, configured
from memqos.api.kubelet.reading import Kubelet, kubelet_from
from memqos.api.machine import Machine
from memqos.api.manifests.documents import read
from memqos.api.node import (
    Capacity,
    Node,
    allocatable,
    before_eviction,
    capacity_of,
    published_memory,
)
from memqos.api.resources import MEMORY
from memqos.draw.scale import short_size
from memqos.errors import InputError, MemqosError, UnsupportedRelease
from memqos.plan.changes import Comparison, compare, stored
from memqos.plan.effective import Claim, Protection, effective
from memqos.plan.names import CgroupNames, cgroup_names, outer
from memqos.plan.setting import Settings
from memqos.plan.terms import KNOWS_POLICY, PAGE_SIZE, Numa, Placement, Policy, Terms
from memqos.plan.tree import Tree, cgroup_uid, plan_node, pod_key
from memqos.release import DEFAULT_MINOR, Release

if TYPE_CHECKING:
    from memqos.converge.observing import Configuration, Observation
    from memqos.numa.machines import NumaMachine

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


class Wanted(msgspec.Struct, frozen=True):
    """What a person says about the plan; what is None follows from the node."""

    release: str | None = None
    gates: dict[str, bool] = {}
    policy: Policy | None = None
    factor: float | None = None
    numa: Numa = "off"
    placement: Placement = "containers"


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


class Ground(msgspec.Struct, frozen=True):
    """What every plan of a node rests on, whatever pods it runs."""

    terms: Terms
    config: KubeletConfiguration
    capacity: Capacity
    notes: tuple[str, ...]
    numa: "NumaMachine | None" = None
    """The machine's NUMA nodes, where they were asked for."""

    @property
    def names(self) -> CgroupNames:
        return cgroup_names(self.config.driver, self.config.cgroup_root)


def plan_of(observation: "Observation", wanted: Wanted) -> NodePlan:
    """Plan the node that was observed."""
    ground = ground_of(observation.machine, observation.configuration, observation.driver, wanted)
    terms = ground.terms
    notes = [*observation.notes, *ground.notes]
    tree = plan_node(observation.pods, terms, ground.config, ground.capacity)
    if wanted.numa != "off":
        from memqos.converge.assigning import assign

        assigned = assign(observation, tree, wanted.numa, ground.config, terms.release)
        tree = assigned.tree
        notes += assigned.notes
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
    )


def ground_of(
    machine: Machine,
    configuration: "Configuration | None",
    driver: Driver | None,
    wanted: Wanted,
    node: Node | None = None,
) -> Ground:
    """The terms of a machine whose cgroups are named by a driver; None where none are there yet.

    What its Node says of a kubelet, its release and what it leaves to pods, is what is in force:
    flags may have changed what a file says.
    """
    notes: list[str] = []
    if machine.layout is not None and machine.layout != "v2":
        raise InputError(
            "there is no cgroup v2 hierarchy here, and memqos plans nothing else",
            hint="boot with systemd.unified_cgroup_hierarchy=1",
        )
    if machine.memory is None:
        raise InputError("the node's memory is not known", field="meminfo")
    info = None if node is None else node.status.node_info
    stated = None if info is None else info.kubelet_version
    own = stated or machine.kubelet
    release = Release.of(wanted.release or own or DEFAULT_MINOR, wanted.gates)
    config, release = _configuration(configuration, release, own, notes)
    release = release.with_gates(wanted.gates)
    if driver is not None and driver != config.driver:
        notes.append(
            f"the cgroups are named by the {driver} driver, though the kubelet is "
            f"configured for {config.driver}: planned as they are named"
        )
        config = msgspec.structs.replace(config, cgroup_driver=driver)
    if wanted.policy is not None and not KNOWS_POLICY.at(release.minor):
        notes.append(
            f"policy {wanted.policy} is ignored: Kubernetes {release} always reserves requests – "
            "name a newer release to plan by its rules"
        )
    capacity, left = _memory(machine.memory, node, config, release, notes)
    terms = Terms(
        release=release,
        factor=config.memory_throttling_factor if wanted.factor is None else wanted.factor,
        policy=wanted.policy or config.policy,
        single_process_oom_kill=bool(config.single_process_oom_kill),
        memory_capacity=capacity.memory,
        memory_allocatable=left,
        page_size=machine.page_size or PAGE_SIZE,
        cpu_quota=config.cpu_cfs_quota,
        cpu_period=config.cpu_cfs_quota_period // 1000,
        placement=wanted.placement,
    )
    return Ground(terms, config, capacity, tuple(notes))


def _memory(
    memory: int,
    node: Node | None,
    config: KubeletConfiguration,
    release: Release,
    notes: list[str],
) -> tuple[Capacity, int]:
    """What there is, never more than the machine has, and what of it is left to pods."""
    capacity = Capacity(cpu=0, memory=memory)
    if node is not None and MEMORY in (node.status.capacity or {}):
        said = capacity_of(node)
        capacity = Capacity(cpu=0, memory=min(memory, said.memory), hugepages=said.hugepages)
    left = allocatable(capacity, config, release).enforced_memory
    published = None if node is None else published_memory(node)
    if published is None:
        return capacity, left
    stated = before_eviction(capacity, published, config)
    if stated != left:
        notes.append(
            f"the Node leaves {short_size(stated)} to pods, before eviction thresholds, where the "
            f"kubelet's configuration would leave {short_size(left)}: the Node's holds"
        )
    return capacity, stated


def _is_about(what: str, kubepods: str) -> bool:
    """Whether what could not be read is kubepods, or lies above or below it."""
    above = what == "/" or kubepods.startswith(f"{what}/")
    return above or f"{what}/".startswith(f"{kubepods}/")


def _configuration(
    found: "Configuration | None", release: Release, own: str | None, notes: list[str]
) -> tuple[KubeletConfiguration, Release]:
    """The kubelet's configuration, and the release with the gates it sets."""
    if found is None:
        notes.append("no kubelet configuration is known: the kubelet's defaults are assumed")
        return configured({}, release.minor), release
    for document in read(found.data, found.name):
        if isinstance(document, InputError):
            raise document
        try:
            kubelet = kubelet_from(document.data, release, file=found.name)
        except InputError as error:
            older = _read_by(own, document.data, release)
            if older is None:
                raise document.refused(error.what, error.field or (), error.hint) from None
            kubelet = older
            notes.append(
                f"{found.name}: read as the kubelet here does, {own}: {release} refuses it: "
                f"{error.what}"
            )
        notes += [f"{found.name}: {note}" for note in kubelet.notes]
        return kubelet.config, kubelet.release
    raise InputError("no document", file=found.name)


def _read_by(own: str | None, data: object, release: Release) -> Kubelet | None:
    """A configuration by the rules of the kubelet that runs with it, for another release's plan.

    Gates that the other does not have are left out. None where even that kubelet refuses it.
    """
    if own is None:
        return None
    try:
        kubelet = kubelet_from(data, Release.of(own))
    except MemqosError:
        return None
    for name, on in kubelet.config.feature_gates.items():
        with suppress(UnsupportedRelease):
            release = release.with_gates({name: on})
    return Kubelet(kubelet.config, release, kubelet.notes)


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
