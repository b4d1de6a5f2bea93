"""The options that say under which terms a pod is looked at, and what they come to."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, get_args

import click
import msgspec

from memqos.cli.options import BytesType, parse_gates, release_options
from memqos.errors import InputError
from memqos.host.snapshots import find_document, kubelet_in_document, read_document
from memqos.kube.kubelet import KubeletConfiguration, with_defaults
from memqos.kube.quantity import Quantity
from memqos.manifests.documents import decoding_error
from memqos.release import DEFAULT_MINOR, Release, default, stage
from memqos.settings.settings import KNOWS_POLICY, PAGE_SIZE, Placement, Policy, Settings

if TYPE_CHECKING:
    from memqos.cli.cluster_access import LiveCluster
    from memqos.kube.node import Capacity
    from memqos.manifests.documents import Document

_F = TypeVar("_F", bound=Callable[..., Any])

POLICY_CHOICES: Final[tuple[str, ...]] = (*get_args(Policy), "Disabled")
_LARGEST_PAGE: Final = 1 << 30


class SettingsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the options say, as they were given."""

    release: str | None
    gates: dict[str, bool]
    kubelet: str | None
    node: str | None
    snapshot: str | None = None
    capacity: int | None
    allocatable: int | None
    factor: float | None
    policy: str | None
    page_size: int | None
    placement: Placement | None = None
    server: str | None = None
    """The version of the API server that was asked."""


class ResolvedSettings(msgspec.Struct, frozen=True):
    """The terms, the kubelet's configuration behind them, and what a person should know."""

    settings: Settings
    config: KubeletConfiguration
    notes: tuple[str, ...]
    is_configured: bool = False
    """Whether a configuration was given, and none had to be assumed."""


class FactorType(click.ParamType[float]):
    """A throttling factor."""

    name = "FACTOR"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            factor = float(value)
        except ValueError:
            factor = 0.0
        if not 0 < factor <= 1:
            self.fail(f"{value!r} is not a factor above 0 and up to 1", param, ctx)
        return factor


def placement_option(command: _F) -> _F:
    """Which cgroups claim protection."""
    return click.option(
        "--placement",
        type=click.Choice(get_args(Placement)),
        help="Who claims protection: containers, as the kubelet; pods; or containers with a "
        "margin below their limit.  [default: containers]",
    )(command)


def settings_options(command: _F) -> _F:
    """The options shared by every command that asks what a release would do."""
    for option in (
        click.option(
            "--page-size",
            type=BytesType(),
            metavar="BYTES",
            help="Page size of the node.  [default: the snapshot's, else 4096]",
        ),
        placement_option,
        click.option(
            "--policy",
            type=click.Choice(POLICY_CHOICES),
            help="memoryReservationPolicy.  [default: the kubelet's, else None]",
        ),
        click.option(
            "--factor",
            type=FactorType(),
            help="memoryThrottlingFactor.  [default: the kubelet's, else the release's]",
        ),
        click.option(
            "--allocatable",
            type=BytesType(),
            help="Memory not reserved for the system, before eviction thresholds.",
        ),
        click.option("--capacity", type=BytesType(), help="Memory of the node."),
        click.option(
            "--snapshot",
            metavar="FILE",
            help="A snapshot of a node, for its memory, configuration and release.",
        ),
        click.option("--node", metavar="FILE", help="A Node object, for its memory."),
        click.option("--kubelet", metavar="FILE", help="A KubeletConfiguration."),
    ):
        command = option(command)
    return release_options(command)


def check_settings_options(**options: Any) -> SettingsOptions:
    """The options of `terms_options`, checked on their own."""
    page = options["page_size"]
    if page is not None and (page & (page - 1) or not 0 < page <= _LARGEST_PAGE):
        raise click.BadParameter("a page size is a power of two", param_hint="--page-size")
    if options["node"] is not None and options.get("snapshot") is not None:
        raise click.UsageError("--node and --snapshot exclude each other")
    return SettingsOptions(**{**options, "gates": parse_gates(options["gates"])})


def with_cluster_defaults(
    live: "LiveCluster", options: SettingsOptions, files: Sequence[str] = ()
) -> SettingsOptions:
    """The same, on the node that live pods run on, or else under the release of their cluster.

    What was given comes first.
    """
    if options.node is None and options.snapshot is None and options.capacity is None:
        options = msgspec.structs.replace(options, node=live.node_path_of(files))
    if options.release is not None or options.node is not None:
        return options
    return msgspec.structs.replace(options, server=live.server_version())


def resolve_settings(
    options: SettingsOptions, release: str | None = None, live: "LiveCluster | None" = None
) -> ResolvedSettings:
    """What the options come to under a release, by default the one they name.

    MemoryQoS is looked at as if it were on, unless somebody turned it off by name.
    """
    notes: list[str] = []
    node = _read_node_facts(options, live)
    named = release or options.release
    version = named or _version_of_node(node, notes) or _version_of_server(options, notes)
    requested = Release.of(version, options.gates)
    explained = requested.with_gates({"MemoryQoS": True, **options.gates})
    config, explained = _resolve_kubelet(options, node, explained, notes)
    if explained.is_enabled("MemoryQoS") and not default("MemoryQoS", requested.minor):
        notes.append(
            f"MemoryQoS is {stage('MemoryQoS', requested.minor)} and off by default in "
            f"{requested}: shown as if it were on"
        )
    capacity, unreserved = _resolve_memory(options, node, config, explained, notes)
    return ResolvedSettings(
        Settings(
            release=explained,
            factor=config.memory_throttling_factor if options.factor is None else options.factor,
            policy=_resolve_policy(options.policy or config.policy, explained, notes),
            single_process_oom_kill=bool(config.single_process_oom_kill),
            memory_capacity=capacity,
            memory_allocatable=unreserved,
            page_size=options.page_size or (node and node.page_size) or PAGE_SIZE,
            cpu_quota=config.cpu_cfs_quota,
            cpu_period=config.cpu_cfs_quota_period // 1000,
            placement=options.placement or "containers",
        ),
        config,
        tuple(notes),
        options.kubelet is not None,
    )


def _resolve_policy(policy: str, release: Release, notes: list[str]) -> Policy:
    # KEP-2570 calls the policy Disabled in places; no kubelet takes that name.
    if policy == "Disabled":
        notes.append("policy Disabled is read as None")
        return "None"
    if policy != "None" and not KNOWS_POLICY.at(release.minor):
        notes.append(f"policy {policy} is ignored: Kubernetes {release} always reserves requests")
    assert policy in get_args(Policy)
    known: Policy = policy  # type: ignore[assignment]
    return known


def _resolve_kubelet(
    asked: SettingsOptions, node: "_NodeFacts | None", release: Release, notes: list[str]
) -> tuple[KubeletConfiguration, Release]:
    """The kubelet's configuration, and the release with the gates it sets."""
    document = None if node is None else node.kubelet
    if asked.kubelet is not None:
        document = read_document(asked.kubelet, "KubeletConfiguration")
    if document is None:
        return with_defaults({}, release.minor), release
    kubelet = kubelet_in_document(document, release)
    notes += [f"{document.file}: {note}" for note in kubelet.notes]
    return kubelet.config, kubelet.release.with_gates(asked.gates)


class _NodeFacts(NamedTuple):
    """What a Node, or a snapshot of one, says of itself."""

    capacity: "Capacity"
    published: int | None
    version: str | None
    kubelet: "Document | None" = None
    page_size: int | None = None


def _read_node_facts(asked: SettingsOptions, live: "LiveCluster | None") -> _NodeFacts | None:
    if asked.snapshot is not None:
        return _facts_of_snapshot(asked.snapshot)
    return None if asked.node is None else _facts_of_node(asked.node, live)


def _facts_of_snapshot(file: str) -> _NodeFacts:
    from memqos.host.snapshots import load_snapshot, snapshot_configuration
    from memqos.kube.node import Capacity

    snapshot = load_snapshot(file)
    return _NodeFacts(
        Capacity(cpu=0, memory=snapshot.memory),
        None,
        snapshot.kubelet or None,
        snapshot_configuration(snapshot, file),
        snapshot.page_size,
    )


def _facts_of_node(file: str, live: "LiveCluster | None") -> _NodeFacts:
    from memqos.kube.node import Node, capacity_of, published_memory

    if live is not None and live.is_object_path(file):
        document = find_document(live.get(file), file, "Node")
    else:
        document = read_document(file, "Node")
    try:
        node = msgspec.convert(document.data, Node)
        info = node.status.node_info
        return _NodeFacts(
            capacity_of(node),
            published_memory(node),
            None if info is None else info.kubelet_version,
        )
    except msgspec.ValidationError as error:
        raise decoding_error(error, document.data, document) from None
    except InputError as error:
        raise document.error(error.what, error.field or (), error.hint) from None


def _version_of_node(node: _NodeFacts | None, notes: list[str]) -> str | None:
    if node is None or node.version is None:
        return None
    notes.append(f"the release is that of the Node's kubelet, {node.version}")
    return node.version


def _version_of_server(asked: SettingsOptions, notes: list[str]) -> str | int:
    if asked.server is None:
        return DEFAULT_MINOR
    notes.append(f"the release is that of the API server, {asked.server}")
    return asked.server


def _resolve_memory(
    asked: SettingsOptions,
    node: _NodeFacts | None,
    config: KubeletConfiguration,
    release: Release,
    notes: list[str],
) -> tuple[int | None, int | None]:
    """The node's memory, and what of it is not reserved."""
    if node is None and asked.capacity is None:
        return None, asked.allocatable
    from memqos.kube.node import Capacity, allocatable

    capacity = None if node is None else node.capacity
    if asked.capacity is not None:
        capacity = Capacity(cpu=0, memory=asked.capacity)
    assert capacity is not None
    if asked.allocatable is not None:
        return capacity.memory, asked.allocatable
    if asked.kubelet is None and node is not None and node.published is not None:
        return capacity.memory, _memory_before_eviction(capacity, node.published, config, notes)
    return capacity.memory, allocatable(capacity, config, release).enforced_memory


def _memory_before_eviction(
    capacity: "Capacity", published: int, config: KubeletConfiguration, notes: list[str]
) -> int:
    """A Node publishes what is left after the eviction threshold and hugepages, too."""
    from memqos.kube.node import before_eviction, eviction_reserve

    threshold = eviction_reserve(capacity, config).value
    notes.append(
        "allocatable is the Node's plus an eviction threshold of "
        f"{Quantity.of(threshold, 'BinarySI')}, the default: --kubelet makes it exact"
    )
    return before_eviction(capacity, published, config)


def settings_data(under: ResolvedSettings) -> dict[str, Any]:
    """The terms as plain data."""
    return {
        **msgspec.to_builtins(under.settings),
        "release": str(under.settings.release),
        "gates": dict(under.settings.release.gates),
        "notes": list(under.notes),
    }
