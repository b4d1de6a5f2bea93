"""The options that state settings, and the files that facts of a node are read from."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

import click
import msgspec

from memqos.cli.help_sections import help_section
from memqos.cli.options import BytesType, parse_gates, release_options
from memqos.errors import InputError, MemqosError
from memqos.host.manifest_files import load_file
from memqos.manifests.documents import decoding_error, find_document
from memqos.release import Release
from memqos.settings.facts import NodeFacts, RawKubeletConfig, facts_of_node, facts_of_snapshot
from memqos.settings.resolver import NodeSettings, resolve
from memqos.settings.settings import Placement, Policy, PolicyName, SettingsOptions

if TYPE_CHECKING:
    from memqos.cli.cluster_access import LiveCluster

_F = TypeVar("_F", bound=Callable[..., Any])

POLICY_CHOICES: Final[tuple[str, ...]] = (*get_args(Policy), "Disabled")
_LARGEST_PAGE: Final = 1 << 30


class SettingsArguments(SettingsOptions, frozen=True, kw_only=True):
    """The options as given on the command line, with the files that describe a node."""

    assume_gate_on: bool = True
    kubelet: str | None = None
    node: str | None = None
    snapshot: str | None = None
    server: str | None = None
    """The version of the API server that the pods come from."""


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


@help_section("Settings")
def placement_option(command: _F) -> _F:
    """Which cgroups claim protection."""
    return click.option(
        "--placement",
        type=click.Choice(get_args(Placement)),
        help="The cgroups that get protection: containers, as with the kubelet; pods; or "
        "containers with a margin below their limit.  [default: containers]",
    )(command)


@help_section("Settings")
def settings_options(command: _F) -> _F:
    """The options shared by every command about what a release would do."""
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
            help="Allocatable memory before eviction thresholds are subtracted.",
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


def check_settings_options(
    *,
    release: str | None,
    gates: Sequence[str],
    kubelet: str | None,
    node: str | None = None,
    snapshot: str | None = None,
    capacity: int | None = None,
    allocatable: int | None = None,
    factor: float | None,
    policy: PolicyName | None,
    placement: Placement | None = None,
    page_size: int | None = None,
) -> SettingsArguments:
    """The options of `settings_options`, checked on their own."""
    if page_size is not None and (
        page_size & (page_size - 1) or not 0 < page_size <= _LARGEST_PAGE
    ):
        raise click.BadParameter("a page size is a power of two", param_hint="--page-size")
    if node is not None and snapshot is not None:
        raise click.UsageError("--node and --snapshot exclude each other")
    return SettingsArguments(
        release=release,
        gates=parse_gates(gates),
        kubelet=kubelet,
        node=node,
        snapshot=snapshot,
        capacity=capacity,
        allocatable=allocatable,
        factor=factor,
        policy=policy,
        placement=placement or "containers",
        page_size=page_size,
    )


def parse_compare(compare: str, options: SettingsArguments) -> SettingsArguments:
    """The settings with what `release=1.37,policy=None,factor=0.8` changes."""
    changes: dict[str, Any] = {}
    for part in compare.split(","):
        name, _, value = part.partition("=")
        if name == "factor":
            changes[name] = FactorType().convert(value, click.Option(["--compare"]), None)
        elif name == "policy" and value in POLICY_CHOICES:
            changes[name] = value
        elif name == "release" and value:
            Release.of(value)
            changes[name] = value
        else:
            raise click.BadParameter(
                f"{part!r}: write release=1.37, policy={'|'.join(POLICY_CHOICES)} or factor=0.8",
                param_hint="--compare",
            )
    return msgspec.structs.replace(options, **changes)


def with_cluster_defaults(
    live: "LiveCluster", arguments: SettingsArguments, files: Sequence[str] = ()
) -> SettingsArguments:
    """The same on the node that live pods run on, else by the release of their cluster.

    What was given comes first.
    """
    if arguments.node is None and arguments.snapshot is None and arguments.capacity is None:
        arguments = msgspec.structs.replace(arguments, node=live.node_path_of(files))
    if arguments.release is not None:
        return arguments
    try:
        return msgspec.structs.replace(arguments, server=live.server_version())
    except MemqosError:
        if arguments.node is None:
            raise
        return arguments  # of a node's pods only the skew depends on it


def resolve_settings(
    arguments: SettingsArguments, release: str | None = None, live: "LiveCluster | None" = None
) -> NodeSettings:
    """What the options come to, by default for the release that they name."""
    if release is not None:
        arguments = msgspec.structs.replace(arguments, release=release)
    return resolve(_read_facts(arguments, live), arguments)


def resolve_for_objects(
    arguments: SettingsArguments, paths: Sequence[str], live: "LiveCluster | None"
) -> NodeSettings:
    """The same for objects that may be of a cluster: of its release, or on the node they run on."""
    if live is not None and any(map(live.is_object_path, paths)):
        arguments = with_cluster_defaults(live, arguments, paths)
    return resolve_settings(arguments, live=live)


def _read_facts(arguments: SettingsArguments, live: "LiveCluster | None") -> NodeFacts:
    if arguments.snapshot is not None:
        from memqos.host.snapshots import load_snapshot

        facts = facts_of_snapshot(load_snapshot(arguments.snapshot), arguments.snapshot)
    elif arguments.node is not None:
        facts = _read_node(arguments.node, live)
        facts = msgspec.structs.replace(facts, server_version=arguments.server)
        if live is not None and live.is_object_path(arguments.node) and arguments.kubelet is None:
            facts = _with_running_configuration(facts, live, arguments.node)
    else:
        facts = NodeFacts(server_version=arguments.server)
    return with_kubelet_file(facts, arguments.kubelet)


def _with_running_configuration(facts: NodeFacts, live: "LiveCluster", node: str) -> NodeFacts:
    """The facts with what the node's kubelet runs with, or why that is not known."""
    answer = live.kubelet_configuration(node.partition("/")[2])
    if isinstance(answer, RawKubeletConfig):
        return msgspec.structs.replace(facts, configuration=answer, is_observed=True)
    return msgspec.structs.replace(facts, why_configuration_unknown=str(answer))


def with_kubelet_file(facts: NodeFacts, file: str | None) -> NodeFacts:
    """The facts with the configuration in a file instead, if one is named."""
    if file is None:
        return facts
    return msgspec.structs.replace(facts, configuration=RawKubeletConfig(*load_file(file)))


def _read_node(file: str, live: "LiveCluster | None") -> NodeFacts:
    from memqos.host.snapshots import read_document
    from memqos.kube.node import Node

    if live is not None and live.is_object_path(file):
        document = find_document(live.get(file), file, "Node")
    else:
        document = read_document(file, "Node")
    try:
        return facts_of_node(msgspec.convert(document.data, Node))
    except msgspec.ValidationError as error:
        raise decoding_error(error, document.data, document) from None
    except InputError as error:
        raise document.error(error.what, error.field or (), error.hint) from None


def settings_data(node_settings: NodeSettings) -> dict[str, Any]:
    """The settings as plain data."""
    settings = node_settings.settings
    return {
        **msgspec.to_builtins(settings),
        "release": str(settings.release),
        "gates": dict(settings.release.gates),
        "notes": list(node_settings.notes),
    }
