"""What every plan of a node rests on: a release, a kubelet's configuration, a node's memory."""

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from memqos.errors import InputError, MemqosError, UnsupportedRelease
from memqos.host.cgroups import CgroupFs
from memqos.kernel.machine import Machine
from memqos.kube.kubelet import CgroupDriver, KubeletConfiguration, with_defaults
from memqos.kube.kubelet.reading import IGNORED, KubeletSettings, kubelet_from
from memqos.kube.node import (
    Capacity,
    Node,
    allocatable,
    before_eviction,
    capacity_of,
    published_memory,
)
from memqos.kube.resources import MEMORY
from memqos.manifests.documents import read_documents
from memqos.plan.levels import class_demand, plan_levels
from memqos.plan.names import CgroupNames, cgroup_names
from memqos.plan.pod import PodPlan
from memqos.plan.setting import Setting
from memqos.release import DEFAULT_MINOR, Release
from memqos.settings.doubt import doubt_of
from memqos.settings.settings import KNOWS_POLICY, PAGE_SIZE, Numa, Placement, Policy, Settings
from memqos.units import format_bytes

if TYPE_CHECKING:
    from memqos.converge.observation import RawKubeletConfig
    from memqos.numa.machines import NumaMachine

_DRIVERS: Final[tuple[CgroupDriver, ...]] = ("systemd", "cgroupfs")
PROTECTION_FILES: Final = ("memory.min", "memory.low")
CONFIGZ_PATH: Final = "/configz"
"""How the name of a configuration ends that the kubelet itself has told."""
CgroupFilePath = tuple[str, str]
"""The path of a cgroup, and the name of a file in it."""


class PlanOptions(msgspec.Struct, frozen=True):
    """What a person says about the plan; what is None follows from the node."""

    release: str | None = None
    gates: dict[str, bool] = {}
    policy: Policy | None = None
    factor: float | None = None
    numa: Numa = "off"
    placement: Placement = "containers"
    agent: bool = False
    """Whether the cgroups that an agent on the node manages are planned as it plans them."""


class RunningKubelet(msgspec.Struct, frozen=True, kw_only=True):
    """The kubelet at work on a node, under its own configuration and no option of memqos's."""

    release: Release
    """Its version, with the gates that it sets."""
    policy: Policy
    factor: float | None = None
    is_newer: bool = False
    """Whether its configuration has fields that its version does not know: one of them is old."""

    @property
    def writes_levels(self) -> bool:
        """Whether it writes protection to the cgroups above pods, once a minute."""
        return self.release.is_enabled("MemoryQoS")

    @property
    def withholds_protection(self) -> bool:
        """Whether what it writes there is always 0."""
        knows_policy = KNOWS_POLICY.at(self.release.minor)
        return self.writes_levels and knows_policy and self.policy == "None"


class NodeSettings(msgspec.Struct, frozen=True):
    """What every plan of a node rests on, whatever pods it runs."""

    settings: Settings
    config: KubeletConfiguration
    capacity: Capacity
    notes: tuple[str, ...]
    numa: "NumaMachine | None" = None
    """The machine's NUMA nodes, where they were asked for."""
    kubelet: RunningKubelet | None = None
    """None where no kubelet is known to run here."""
    doubt: str | None = None
    """Why nothing may be written by this: what it rests on is a guess."""

    @property
    def names(self) -> CgroupNames:
        return cgroup_names(self.config.driver, self.config.cgroup_root)

    @property
    def kubelet_settings(self) -> Settings | None:
        """What the running kubelet itself plans by; None where none is known to run."""
        if self.kubelet is None:
            return None
        return msgspec.structs.replace(
            self.settings,
            release=self.kubelet.release,
            policy=self.kubelet.policy,
            factor=self.kubelet.factor,
            placement="containers",
        )

    def kubelet_levels(self, plans: Iterable[PodPlan]) -> dict[CgroupFilePath, Setting]:
        """Protection above pods that the running kubelet writes itself, once a minute."""
        terms = self.kubelet_settings
        if self.kubelet is None or terms is None or not self.kubelet.writes_levels:
            return {}
        levels, names = plan_levels(class_demand(plans), terms), self.names
        return {
            (path, file): setting
            for path, settings in (
                (names.kubepods, levels.kubepods),
                (names.burstable, levels.burstable),
            )
            for file, setting in settings.items()
            if file in PROTECTION_FILES and setting.value is not None
        }


def driver_there(fs: CgroupFs, cgroup_root: str) -> CgroupDriver | None:
    """The driver that made the cgroups below a cgroupRoot; None where that is not clear."""
    found = [
        driver
        for driver in _DRIVERS
        if fs.identity(cgroup_names(driver, cgroup_root).kubepods) is not None
    ]
    return found[0] if len(found) == 1 else None


def resolve_node_settings(
    machine: Machine,
    configuration: "RawKubeletConfig | None",
    driver: CgroupDriver | None,
    options: PlanOptions,
    node: Node | None = None,
) -> NodeSettings:
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
    version = options.release or own
    if version is None:
        config, release = _guess(machine, configuration, options, notes)
    else:
        release = Release.of(version, options.gates)
        config, release = _configuration(configuration, release, own, notes)
    release = release.with_gates(options.gates)
    if driver is not None and driver != config.driver:
        notes.append(
            f"the cgroups are named by the {driver} driver, though the kubelet is "
            f"configured for {config.driver}: planned as they are named"
        )
        config = msgspec.structs.replace(config, cgroup_driver=driver)
    if options.policy is not None and not KNOWS_POLICY.at(release.minor):
        notes.append(
            f"policy {options.policy} is ignored: Kubernetes {release} always reserves requests – "
            "name a newer release to plan by its rules"
        )
    capacity, left = _memory(machine.memory, node, config, release, notes)
    settings = Settings(
        release=release,
        factor=config.memory_throttling_factor if options.factor is None else options.factor,
        policy=options.policy or config.policy,
        single_process_oom_kill=bool(config.single_process_oom_kill),
        memory_capacity=capacity.memory,
        memory_allocatable=left,
        page_size=machine.page_size or PAGE_SIZE,
        cpu_quota=config.cpu_cfs_quota,
        cpu_period=config.cpu_cfs_quota_period // 1000,
        placement=options.placement,
    )
    kubelet = _running_kubelet(configuration, own or _stated_version(configuration, options))
    if kubelet is not None and kubelet.withholds_protection and settings.policy != "None":
        notes.append(
            "the kubelet's memoryReservationPolicy None keeps the protection of kubepods at 0, so "
            "what is reserved below has no effect: set TieredReservation in the kubelet's "
            "configuration, or turn its MemoryQoS gate off"
        )
    doubt = doubt_of(
        options,
        own,
        kubelet,
        is_configured=configuration is not None,
        is_from_kubelet=configuration is not None and configuration.name.endswith(CONFIGZ_PATH),
        why=machine.missing.get("kubelet"),
    )
    return NodeSettings(settings, config, capacity, tuple(notes), kubelet=kubelet, doubt=doubt)


def _guess(
    machine: Machine,
    configuration: "RawKubeletConfig | None",
    options: PlanOptions,
    notes: list[str],
) -> tuple[KubeletConfiguration, Release]:
    """A release where nobody knows one. It may be a wrong one for the configuration, too."""
    minor, whose = DEFAULT_MINOR, "memqos's default"
    with suppress(UnsupportedRelease):
        if machine.kubelet_on_path is not None:
            minor, whose = Release.of(machine.kubelet_on_path).minor, "that of the kubelet on PATH"
    release = Release.of(minor, options.gates)
    notes.append(f"which kubelet runs here is not known: planned as {release}, {whose}")
    try:
        return _configuration(configuration, release, None, notes)
    except MemqosError as error:
        notes.append(f"the kubelet's defaults are assumed: {release} does not take {error}")
        return with_defaults({}, minor), release


def _stated_version(configuration: "RawKubeletConfig | None", options: PlanOptions) -> str | None:
    """The release that a person states, where a kubelet runs that does not tell its version."""
    is_running = configuration is not None and configuration.is_in_use
    return options.release if is_running else None


def _running_kubelet(
    configuration: "RawKubeletConfig | None", own: str | None
) -> RunningKubelet | None:
    """The kubelet of a version with its configuration; None where it could not run with that."""
    if configuration is None or own is None:
        return None
    try:
        notes: list[str] = []
        config, release = _configuration(configuration, Release.of(own), own, notes)
    except MemqosError:
        return None
    return RunningKubelet(
        release=release,
        policy=config.policy,
        factor=config.memory_throttling_factor,
        is_newer=any(IGNORED in note for note in notes),
    )


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
            f"the Node leaves {format_bytes(stated)} to pods, before eviction thresholds, "
            "where the "
            f"kubelet's configuration would leave {format_bytes(left)}: the Node's holds"
        )
    return capacity, stated


def _configuration(
    found: "RawKubeletConfig | None", release: Release, own: str | None, notes: list[str]
) -> tuple[KubeletConfiguration, Release]:
    """The kubelet's configuration, and the release with the gates it sets."""
    if found is None:
        notes.append("no kubelet configuration is known: the kubelet's defaults are assumed")
        return with_defaults({}, release.minor), release
    for document in read_documents(found.data, found.name):
        if isinstance(document, InputError):
            raise document
        try:
            kubelet = kubelet_from(document.data, release, file=found.name)
        except InputError as error:
            older = _read_as_running(own, document.data, release)
            if older is None:
                raise document.error(error.what, error.field or (), error.hint) from None
            kubelet = older
            notes.append(
                f"{found.name}: read as the kubelet here does, {own}: {release} refuses it: "
                f"{error.what}"
            )
        notes += [f"{found.name}: {note}" for note in kubelet.notes]
        return kubelet.config, kubelet.release
    raise InputError("no document", file=found.name)


def _read_as_running(own: str | None, data: object, release: Release) -> KubeletSettings | None:
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
    return KubeletSettings(kubelet.config, release, kubelet.notes)
