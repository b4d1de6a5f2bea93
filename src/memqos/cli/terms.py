"""The options that say under which terms a pod is looked at, and what they come to."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, get_args

import click
import msgspec

from memqos.cli.amounts import Bytes
from memqos.cli.kubelets import document_of, kubelet_in, only_document
from memqos.cli.releases import gates_of, release_options
from memqos.errors import InputError
from memqos.kube.kubelet import KubeletConfiguration, configured
from memqos.kube.quantity import Quantity
from memqos.manifests.refusals import refusal
from memqos.plan.terms import KNOWS_POLICY, PAGE_SIZE, Placement, Policy, Terms
from memqos.release import DEFAULT_MINOR, Release, default, stage

if TYPE_CHECKING:
    from memqos.cli.clusters import Live
    from memqos.kube.node import Capacity
    from memqos.manifests.documents import Document

F = TypeVar("F", bound=Callable[..., Any])

POLICIES: Final[tuple[str, ...]] = (*get_args(Policy), "Disabled")
_LARGEST_PAGE: Final = 1 << 30


class Asked(msgspec.Struct, frozen=True, kw_only=True):
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


class InForce(msgspec.Struct, frozen=True):
    """The terms, the kubelet's configuration behind them, and what a person should know."""

    terms: Terms
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


def placement_option(command: F) -> F:
    """Which cgroups claim protection."""
    return click.option(
        "--placement",
        type=click.Choice(get_args(Placement)),
        help="Who claims protection: containers, as the kubelet; pods; or containers with a "
        "margin below their limit.  [default: containers]",
    )(command)


def terms_options(command: F) -> F:
    """The options shared by every command that asks what a release would do."""
    for option in (
        click.option(
            "--page-size",
            type=Bytes(),
            metavar="BYTES",
            help="Page size of the node.  [default: the snapshot's, else 4096]",
        ),
        placement_option,
        click.option(
            "--policy",
            type=click.Choice(POLICIES),
            help="memoryReservationPolicy.  [default: the kubelet's, else None]",
        ),
        click.option(
            "--factor",
            type=FactorType(),
            help="memoryThrottlingFactor.  [default: the kubelet's, else the release's]",
        ),
        click.option(
            "--allocatable",
            type=Bytes(),
            help="Memory not reserved for the system, before eviction thresholds.",
        ),
        click.option("--capacity", type=Bytes(), help="Memory of the node."),
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


def asked(**options: Any) -> Asked:
    """The options of `terms_options`, checked on their own."""
    page = options["page_size"]
    if page is not None and (page & (page - 1) or not 0 < page <= _LARGEST_PAGE):
        raise click.BadParameter("a page size is a power of two", param_hint="--page-size")
    if options["node"] is not None and options.get("snapshot") is not None:
        raise click.UsageError("--node and --snapshot exclude each other")
    return Asked(**{**options, "gates": gates_of(options["gates"])})


def wanted_in(live: "Live", asked: Asked, files: Sequence[str] = ()) -> Asked:
    """The same, on the node that live pods run on, or else under the release of their cluster.

    What was given comes first.
    """
    if asked.node is None and asked.snapshot is None and asked.capacity is None:
        asked = msgspec.structs.replace(asked, node=live.node_of(files))
    if asked.release is not None or asked.node is not None:
        return asked
    return msgspec.structs.replace(asked, server=live.version())


def in_force(asked: Asked, release: str | None = None, live: "Live | None" = None) -> InForce:
    """What the options come to under a release, by default the one they name.

    MemoryQoS is looked at as if it were on, unless somebody turned it off by name.
    """
    notes: list[str] = []
    node = _given(asked, live)
    named = release or asked.release
    version = named or _version_of(node, notes) or _version_of_server(asked, notes)
    requested = Release.of(version, asked.gates)
    explained = requested.with_gates({"MemoryQoS": True, **asked.gates})
    config, explained = _kubelet(asked, node, explained, notes)
    if explained.enabled("MemoryQoS") and not default("MemoryQoS", requested.minor):
        notes.append(
            f"MemoryQoS is {stage('MemoryQoS', requested.minor)} and off by default in "
            f"{requested}: shown as if it were on"
        )
    capacity, unreserved = _memory(asked, node, config, explained, notes)
    return InForce(
        Terms(
            release=explained,
            factor=config.memory_throttling_factor if asked.factor is None else asked.factor,
            policy=_policy(asked.policy or config.policy, explained, notes),
            single_process_oom_kill=bool(config.single_process_oom_kill),
            memory_capacity=capacity,
            memory_allocatable=unreserved,
            page_size=asked.page_size or (node and node.page_size) or PAGE_SIZE,
            cpu_quota=config.cpu_cfs_quota,
            cpu_period=config.cpu_cfs_quota_period // 1000,
            placement=asked.placement or "containers",
        ),
        config,
        tuple(notes),
        asked.kubelet is not None,
    )


def _policy(policy: str, release: Release, notes: list[str]) -> Policy:
    if policy == "Disabled":
        notes.append("policy Disabled is read as None")
        return "None"
    if policy != "None" and not KNOWS_POLICY.at(release.minor):
        notes.append(f"policy {policy} is ignored: Kubernetes {release} always reserves requests")
    assert policy in get_args(Policy)
    known: Policy = policy  # type: ignore[assignment]
    return known


def _kubelet(
    asked: Asked, node: "_Given | None", release: Release, notes: list[str]
) -> tuple[KubeletConfiguration, Release]:
    """The kubelet's configuration, and the release with the gates it sets."""
    document = None if node is None else node.kubelet
    if asked.kubelet is not None:
        document = only_document(asked.kubelet, "KubeletConfiguration")
    if document is None:
        return configured({}, release.minor), release
    kubelet = kubelet_in(document, release)
    notes += [f"{document.file}: {note}" for note in kubelet.notes]
    return kubelet.config, kubelet.release.with_gates(asked.gates)


class _Given(NamedTuple):
    """What a Node, or a snapshot of one, says of itself."""

    capacity: "Capacity"
    published: int | None
    version: str | None
    kubelet: "Document | None" = None
    page_size: int | None = None


def _given(asked: Asked, live: "Live | None") -> _Given | None:
    if asked.snapshot is not None:
        return _snapshot(asked.snapshot)
    return None if asked.node is None else _node(asked.node, live)


def _snapshot(file: str) -> _Given:
    from memqos.cli.snapshots import configuration_of
    from memqos.host.snapshots import load_snapshot
    from memqos.kube.node import Capacity

    snapshot = load_snapshot(file)
    return _Given(
        Capacity(cpu=0, memory=snapshot.memory),
        None,
        snapshot.kubelet or None,
        configuration_of(snapshot, file),
        snapshot.page_size,
    )


def _node(file: str, live: "Live | None") -> _Given:
    from memqos.kube.node import Node, capacity_of, published_memory

    if live is not None and live.knows(file):
        document = document_of(live.get(file), file, "Node")
    else:
        document = only_document(file, "Node")
    try:
        node = msgspec.convert(document.data, Node)
        info = node.status.node_info
        return _Given(
            capacity_of(node),
            published_memory(node),
            None if info is None else info.kubelet_version,
        )
    except msgspec.ValidationError as error:
        raise refusal(error, document.data, document) from None
    except InputError as error:
        raise document.refused(error.what, error.field or (), error.hint) from None


def _version_of(node: _Given | None, notes: list[str]) -> str | None:
    if node is None or node.version is None:
        return None
    notes.append(f"the release is that of the Node's kubelet, {node.version}")
    return node.version


def _version_of_server(asked: Asked, notes: list[str]) -> str | int:
    if asked.server is None:
        return DEFAULT_MINOR
    notes.append(f"the release is that of the API server, {asked.server}")
    return asked.server


def _memory(
    asked: Asked,
    node: _Given | None,
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
        return capacity.memory, _before_eviction(capacity, node.published, config, notes)
    return capacity.memory, allocatable(capacity, config, release).enforced_memory


def _before_eviction(
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


def options_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a command's options that `terms_options` added."""
    return {field: values[field] for field in Asked.__struct_fields__ if field in values}


def terms_data(under: InForce) -> dict[str, Any]:
    """The terms as plain data."""
    return {
        **msgspec.to_builtins(under.terms),
        "release": str(under.terms.release),
        "gates": dict(under.terms.release.gates),
        "notes": list(under.notes),
    }
