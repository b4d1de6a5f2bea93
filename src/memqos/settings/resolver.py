"""The one place where facts and options become the settings of a node (decision 17)."""

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from memqos.errors import InputError, MemqosError, UnsupportedRelease
from memqos.kernel.machine import old_kernel_risk
from memqos.kube.kubelet import KubeletConfiguration, with_defaults
from memqos.kube.kubelet.decoding import KUBELET_KIND
from memqos.kube.node import (
    Capacity,
    after_eviction,
    allocatable,
    before_eviction,
    eviction_reserve,
)
from memqos.kube.quantity import Quantity
from memqos.manifests.documents import Document, find_document
from memqos.release import DEFAULT_MINOR, Release
from memqos.settings.doubt import doubt_of
from memqos.settings.enablement import MEMORY_QOS, Enablement, enablement_of, is_assumed_on
from memqos.settings.facts import NodeFacts, RawKubeletConfig
from memqos.settings.settings import (
    KNOWS_POLICY,
    PAGE_SIZE,
    Policy,
    RunningKubelet,
    Settings,
    SettingsOptions,
)
from memqos.units import format_bytes, pluralize

if TYPE_CHECKING:
    from memqos.kube.kubelet.reading import KubeletSettings


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a node, whatever pods it runs."""

    settings: Settings
    config: KubeletConfiguration
    enablement: Enablement
    known_capacity: Capacity | None = None
    published_memory: int | None = None
    """Allocatable memory as the Node publishes it; None where its memory is not known."""
    notes: tuple[str, ...] = ()
    is_configured: bool = False
    """Whether `config` is the kubelet's; else it is that of a kubelet without a configuration."""
    kubelet: RunningKubelet | None = None
    """None where no kubelet is known to run here."""
    facts: NodeFacts = NodeFacts()
    """What they follow from."""
    doubt: str | None = None
    """Why nothing may be written by these: they follow from a guess."""
    high_withheld: str | None = None
    """Why memory.high is neither written nor reset here; None where it is."""

    @property
    def capacity(self) -> Capacity:
        """What the node has; a node whose memory is not known cannot be planned."""
        if self.known_capacity is None:
            raise InputError("the node's memory is unknown", field="meminfo")
        return self.known_capacity

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


def resolve(facts: NodeFacts, options: SettingsOptions) -> NodeSettings:
    """The settings of a node: what is stated comes first, then what is observed, then defaults."""
    notes: list[str] = []
    release, config, document = _read_configuration(facts, options, notes)
    enablement = enablement_of(facts, options, release, None if document is None else config)
    config = _with_driver(config, facts, notes)
    policy = _policy(options, config, release, notes)
    memory = _memory(facts, options, config, release, notes)
    notes += _doubtful_memory(memory)
    kubelet = _kubelet_with(document, facts.version or _stated_version(facts, options))
    if kubelet is not None and kubelet.withholds_protection and policy != "None":
        notes.append(
            "the kubelet's memoryReservationPolicy None keeps the protection of kubepods at 0, "
            "so reservations below it have no effect: set TieredReservation in the kubelet's "
            "configuration, or turn its MemoryQoS gate off"
        )
    return NodeSettings(
        settings=Settings(
            release=release,
            factor=config.memory_throttling_factor if options.factor is None else options.factor,
            policy=policy,
            single_process_oom_kill=bool(config.single_process_oom_kill),
            memory_capacity=memory.total,
            memory_allocatable=memory.unreserved,
            page_size=options.page_size or facts.page_size or PAGE_SIZE,
            cpu_quota=config.cpu_cfs_quota,
            cpu_period=config.cpu_cfs_quota_period // 1000,
            placement=options.placement,
            swap_behavior=config.memory_swap.swap_behavior,
            swap_capacity=facts.swap,
            driver=config.driver,
        ),
        config=config,
        enablement=enablement,
        known_capacity=memory.capacity,
        published_memory=memory.published,
        notes=tuple(notes),
        is_configured=document is not None,
        kubelet=kubelet,
        facts=facts,
        doubt=doubt_of(facts, options, kubelet),
        high_withheld=None if options.allow_old_kernel else old_kernel_risk(facts.kernel),
    )


def with_gate_off(node_settings: NodeSettings) -> NodeSettings:
    """The same with MemoryQoS off, to be shown beside what is shown as if it were on."""
    release = node_settings.settings.release
    return msgspec.structs.replace(
        node_settings,
        settings=msgspec.structs.replace(
            node_settings.settings, release=release.with_gates({MEMORY_QOS: False})
        ),
        enablement=msgspec.structs.replace(node_settings.enablement, state="off"),
    )


def release_of(facts: NodeFacts, options: SettingsOptions) -> tuple[Release, list[str]]:
    """The release and the stated gates alone, where no kubelet's configuration matters."""
    notes: list[str] = []
    return Release.of(_version(facts, options, notes).minor_or_text, options.gates), notes


def configuration_document(configuration: RawKubeletConfig) -> Document:
    """The document that a kubelet reads; flags that were merged into one name no kind."""
    return find_document(configuration.data, configuration.name, KUBELET_KIND, "")


def kubelet_with(configuration: RawKubeletConfig, version: str) -> RunningKubelet | None:
    """A kubelet of a version with a configuration; None where it could not run with that."""
    return _kubelet_with(configuration_document(configuration), version)


class _Version(NamedTuple):
    minor_or_text: int | str
    guessed_from: str | None = None
    """Whose version it is, where that of the node is not known."""


def _version(facts: NodeFacts, options: SettingsOptions, notes: list[str]) -> _Version:
    if options.release is not None:
        return _Version(options.release)
    if facts.version is not None:
        if facts.version_source is not None:
            notes.append(f"the release is that of {facts.version_source}, {facts.version}")
        return _Version(facts.version)
    if facts.server_version is not None:
        notes.append(f"the release is that of the API server, {facts.server_version}")
        return _Version(facts.server_version)
    if not facts.is_observed:
        return _Version(DEFAULT_MINOR)
    with suppress(UnsupportedRelease):
        if facts.version_on_path is not None:
            minor = Release.of(facts.version_on_path).minor
            return _Version(minor, "that of the kubelet on PATH")
    return _Version(DEFAULT_MINOR, "memqos's default")


class _Configuration(NamedTuple):
    release: Release
    """With the gates of the configuration, and those stated."""
    config: KubeletConfiguration
    document: Document | None
    """Where the configuration stands; None where the defaults are assumed."""


def _read_configuration(
    facts: NodeFacts, options: SettingsOptions, notes: list[str]
) -> _Configuration:
    version = _version(facts, options, notes)
    gates = {MEMORY_QOS: True} | options.gates if is_assumed_on(facts, options) else options.gates
    release = Release.of(version.minor_or_text, gates)
    if version.guessed_from is not None:
        notes.append(
            f"the version of the kubelet is unknown: planned as {release}, {version.guessed_from}"
        )
    assumed = _Configuration(release, with_defaults({}, release.minor), None)
    if facts.configuration is None:
        if facts.why_configuration_unknown is not None:
            notes.append(facts.why_configuration_unknown)
        elif facts.is_observed:
            notes.append("no kubelet configuration is known: the kubelet's defaults are assumed")
        return assumed
    try:
        document = configuration_document(facts.configuration)
        kubelet = _read_kubelet(document, release, facts.version, notes)
    except MemqosError as error:
        # A guessed release may be a wrong one for the configuration, too.
        if version.guessed_from is None:
            raise
        notes.append(f"the kubelet's defaults are assumed: {release} does not accept {error}")
        return assumed
    return _Configuration(kubelet.release.with_gates(options.gates), kubelet.config, document)


def _read_kubelet(
    document: Document, release: Release, running: str | None, notes: list[str]
) -> "KubeletSettings":
    """The configuration as a kubelet of a release reads it, else as the running kubelet does."""
    # Imported here: `explain` of a manifest alone reads no configuration.
    from memqos.kube.kubelet.reading import kubelet_from

    try:
        kubelet = kubelet_from(document.data, release, file=document.file)
    except InputError as error:
        known = _read_as_running(document, release, running)
        if known is None:
            raise document.error(error.what, error.field or (), error.hint) from None
        kubelet = known
        notes.append(
            f"{document.file}: read as the kubelet here does, {running}: {release} refuses it: "
            f"{error.what}"
        )
    notes += [f"{document.file}: {note}" for note in kubelet.notes]
    return kubelet


def _read_as_running(
    document: Document, release: Release, running: str | None
) -> "KubeletSettings | None":
    """A configuration by the rules of the kubelet that runs with it, for another release's plan.

    Gates that the other release does not have are skipped. None where that kubelet refuses it, too.
    """
    if running is None:
        return None
    from memqos.kube.kubelet.reading import kubelet_from

    try:
        kubelet = kubelet_from(document.data, Release.of(running))
    except MemqosError:
        return None
    for name, on in kubelet.config.feature_gates.items():
        with suppress(UnsupportedRelease):
            release = release.with_gates({name: on})
    return msgspec.structs.replace(kubelet, release=release)


_SMALLEST_NODE: Final = 16 << 20
"""Bytes; no Linux node that runs a kubelet has less."""


class _Memory(NamedTuple):
    """What a node has, and what of its memory pods may use; None where it is not known."""

    capacity: Capacity | None
    unreserved: int | None
    """Not reserved for the system, by which memory.high is computed."""
    published: int | None = None
    """What the scheduler may assign: less the eviction threshold and hugepages, too."""

    @property
    def total(self) -> int | None:
        return None if self.capacity is None else self.capacity.memory


def _doubtful_memory(memory: _Memory) -> Iterator[str]:
    """What a person should look at again; nothing of it is impossible to compute."""
    capacity, unreserved = memory.total, memory.unreserved
    if capacity is not None and capacity < _SMALLEST_NODE:
        unit = f": for gibibytes write {capacity}Gi" if capacity < 1 << 10 else ""
        yield f"the capacity is {pluralize(capacity, 'byte')}, less than any node has{unit}"
    if capacity is not None and unreserved is not None and unreserved > capacity:
        yield (
            f"allocatable of {format_bytes(unreserved)} is more than the capacity of "
            f"{format_bytes(capacity)}: correct one of them"
        )


def _stated_version(facts: NodeFacts, options: SettingsOptions) -> str | None:
    """The release that a person states, where a kubelet runs that does not report its version."""
    is_running = facts.configuration is not None and facts.configuration.is_in_use
    return options.release if is_running else None


def _kubelet_with(document: Document | None, version: str | None) -> RunningKubelet | None:
    """A kubelet of a version with a configuration; None where it could not run with that."""
    if document is None or version is None:
        return None
    from memqos.kube.kubelet.reading import IGNORED, kubelet_from

    try:
        kubelet = kubelet_from(document.data, Release.of(version))
    except MemqosError:
        return None
    return RunningKubelet(
        release=kubelet.release,
        policy=kubelet.config.policy,
        factor=kubelet.config.memory_throttling_factor,
        is_newer=any(IGNORED in str(note) for note in kubelet.notes),
    )


def _with_driver(
    config: KubeletConfiguration, facts: NodeFacts, notes: list[str]
) -> KubeletConfiguration:
    if facts.driver is None or facts.driver == config.driver:
        return config
    notes.append(
        f"the cgroups are those of the {facts.driver} driver, but the kubelet is configured for "
        f"{config.driver}: planned with the existing cgroups"
    )
    return msgspec.structs.replace(config, cgroup_driver=facts.driver)


def _policy(
    options: SettingsOptions, config: KubeletConfiguration, release: Release, notes: list[str]
) -> Policy:
    policy = options.policy or config.policy
    if policy == "Disabled":
        notes.append("policy Disabled is read as None")
        policy = "None"
    is_given = options.policy is not None or policy != "None"
    if is_given and not KNOWS_POLICY.at(release.minor):
        notes.append(
            f"policy {policy} is ignored: Kubernetes {release} always reserves requests – give a "
            f"newer release to use a policy"
        )
    return policy


def _capacity(facts: NodeFacts, options: SettingsOptions) -> Capacity | None:
    """What there is: of what a Node says, never more memory than the machine has."""
    if options.capacity is not None:
        return Capacity(cpu=0, memory=options.capacity)
    if facts.memory is None:
        return facts.capacity
    if facts.capacity is None:
        return Capacity(cpu=0, memory=facts.memory)
    memory = min(facts.memory, facts.capacity.memory)
    return Capacity(cpu=0, memory=memory, hugepages=facts.capacity.hugepages)


def _memory(
    facts: NodeFacts,
    options: SettingsOptions,
    config: KubeletConfiguration,
    release: Release,
    notes: list[str],
) -> _Memory:
    capacity = _capacity(facts, options)
    if capacity is None:
        return _Memory(None, options.allocatable)
    if options.allocatable is not None:
        published = after_eviction(capacity, options.allocatable, config)
        return _Memory(capacity, options.allocatable, published)
    computed = allocatable(capacity, config, release)
    if facts.published is None or facts.is_trial:
        return _Memory(capacity, computed.enforced_memory, computed.published_memory)
    unreserved = before_eviction(capacity, facts.published, config)
    if not facts.is_observed:
        threshold = Quantity.of(eviction_reserve(capacity, config).value, "BinarySI")
        notes.append(
            f"allocatable is the Node's plus an eviction threshold of {threshold}, the default: "
            "--kubelet makes it exact"
        )
    elif unreserved != computed.enforced_memory:
        notes.append(
            f"the Node leaves {format_bytes(unreserved)} to pods, before eviction thresholds, but "
            f"the kubelet's configuration would leave {format_bytes(computed.enforced_memory)}: "
            f"the Node's value is used"
        )
    return _Memory(capacity, unreserved, min(facts.published, capacity.memory))
