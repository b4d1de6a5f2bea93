"""Options that several commands share, the types of their values, and what they come to."""

import os
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, TypeVar

import click
import msgspec

from memqos.cli.cluster_access import CLUSTER, LiveCluster, cluster_options
from memqos.cli.help_sections import help_section
from memqos.errors import InputError
from memqos.kube.quantity import MAX_INT64, Quantity
from memqos.release import DEFAULT_MINOR, Release
from memqos.settings.facts import NodeFacts
from memqos.settings.resolver import release_of
from memqos.settings.settings import SettingsOptions

if TYPE_CHECKING:
    from memqos.converge.pod_sources import PodSource
    from memqos.converge.router import Route, Router, WriteVia
    from memqos.plan.changes import Change


class BytesType(click.ParamType[int]):
    """A quantity above nothing, in bytes."""

    name = "QUANTITY"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            amount = Quantity.parse(value).value
        except InputError as error:
            self.fail(str(error), param, ctx)
        if not 0 < amount <= MAX_INT64:
            what = "a positive amount" if amount <= 0 else "an amount that a machine can have"
            self.fail(f"{value!r} is not {what}", param, ctx)
        return amount


class SecondsType(click.FloatRange):
    """A time to wait; unlike a plain range, it is always a number."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        seconds: float = super().convert(value, param, ctx)
        if seconds != seconds:
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return seconds


_F = TypeVar("_F", bound=Callable[..., Any])


DEFAULT_RELEASE: Final = f"1.{DEFAULT_MINOR}"


@help_section("Settings")
def release_options(
    command: _F, default: str = f"the node's if known, else {DEFAULT_RELEASE}"
) -> _F:
    """--release and --gate; `default` says what holds without the former."""
    for option in (
        click.option(
            "--gate",
            "gates",
            multiple=True,
            metavar="NAME=BOOL",
            help="Set a feature gate; may be repeated.",
        ),
        click.option(
            "--release",
            metavar="VERSION",
            help=f"Kubernetes release.  [default: {default}]",
        ),
    ):
        command = option(command)
    return command


def manifest_arguments(
    name: str = "files", metavar: str = "FILE…", *, required: bool = False
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """FILE…, and -f and -R as kubectl has them: -f is one more FILE, and may be repeated.

    A folder given with -f is read without those below it unless -R is given; as an argument it is
    always read whole.
    """

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        @wraps(command)
        def run(*collected: Any, filenames: tuple[str, ...], recursive: bool, **values: Any) -> int:
            named = filenames if recursive else tuple(map(_flat_if_folder, filenames))
            values[name] = (*values[name], *named)
            if required and not values[name]:
                raise click.UsageError(f"Missing argument '{metavar}'.")
            return command(*collected, **values)

        for option in (
            click.option(
                "-R",
                "--recursive",
                is_flag=True,
                help="Read the folders of -f recursively.",
            ),
            click.option(
                "-f",
                "--filename",
                "filenames",
                multiple=True,
                metavar="FILE",
                help="A file or folder, as in kubectl; - is standard input. May be repeated.",
            ),
            click.argument(name, nargs=-1, metavar=metavar),
        ):
            run = option(run)
        return run

    return decorate


def _flat_if_folder(path: str) -> str:
    from memqos.host.manifest_files import FlatFolder

    return FlatFolder(path) if os.path.isdir(path) else path


def strict_option(command: _F) -> _F:
    """--strict: whether objects without pods are refused."""
    return click.option(
        "--strict",
        is_flag=True,
        help="Fail on objects without pods, such as a Service, instead of skipping them.",
    )(command)


def parse_gates(texts: Iterable[str]) -> dict[str, bool]:
    """The gates set with --gate."""
    return dict(map(_parse_gate, texts))


def resolve_release(
    release: str | None, gates: Iterable[str], node_version: str | None = None
) -> tuple[Release, list[str]]:
    """The release alone, with the stated gates: the stated one, else that of a node."""
    facts = NodeFacts(version=node_version, version_source="the node's kubelet")
    return release_of(facts, SettingsOptions(release=release, gates=parse_gates(gates)))


def resolve_server_release(version: str, gates: Iterable[str]) -> tuple[Release, list[str]]:
    """The release of a live cluster's API server, with the stated gates."""
    facts = NodeFacts(server_version=version)
    return release_of(facts, SettingsOptions(gates=parse_gates(gates)))


def _parse_gate(text: str) -> tuple[str, bool]:
    name, _, value = text.partition("=")
    if value.lower() not in ("true", "false"):
        raise click.BadParameter(f"{text!r} is not NAME=true or NAME=false", param_hint="--gate")
    return name, value.lower() == "true"


@help_section("Node")
def cgroup_root_option(command: _F) -> _F:
    """--cgroup-root, as an absolute path: saved plans and journals are compared with it."""
    from memqos.host.cgroups import SYSTEM_ROOT

    return click.option(
        "--cgroup-root",
        default=SYSTEM_ROOT,
        metavar="DIR",
        callback=lambda _context, _option, value: os.path.abspath(value),
        help=f"The cgroup mount.  [default: {SYSTEM_ROOT}]",
    )(command)


_ROUTE_WORDS: Final[dict["WriteVia", str]] = {
    "systemd": "through systemd",
    "runtime": "through the runtime",
    "nri": "through the runtime, as its NRI plugin",
    "direct": "directly",
}


@help_section("Writing")
def owner_options(command: _F) -> _F:
    """Who writes: systemd, the runtime, or memqos itself."""
    for option in (
        click.option(
            "--direct",
            is_flag=True,
            help="Write cgroup files directly, bypassing systemd and the runtime.",
        ),
        click.option(
            "--cri-socket",
            metavar="SOCKET",
            help="The container runtime's socket.  [default: containerd's or CRI-O's]",
        ),
    ):
        command = option(command)
    return command


def route_lines(changes: "Iterable[Change]", router: "Router") -> Iterator[str]:
    """How many values are written by whom, and why; nothing of a tree that is a copy."""
    from memqos.converge.router import count_routes

    if router.owners.is_copy:
        return
    for route, count in count_routes(map(router.route, changes)):
        values = "1 value" if count == 1 else f"{count} values"
        yield f"{_ROUTE_WORDS[route.through]}: {values} – {route.because}"


def with_route(data: dict[str, Any], route: "Route") -> dict[str, Any]:
    """A change as plain data, and who would write it."""
    return {**data, "through": route.through, "through_because": route.because}


@help_section("Node")
def pod_source_options(command: _F) -> _F:
    """--pods, and the credentials that a kubelet takes."""
    from memqos.host.kubelet import SECURE_URL

    for option in (
        _kubelet_endpoint_options,
        click.option(
            "--pods",
            metavar="SOURCE",
            help=f"A file, a folder, a kubelet's address such as {SECURE_URL}, "
            "podsapi[:SOCKET] for the kubelet's PodsAPI, or 'cluster' for the pods of this node "
            "from the API server.",
        ),
        cluster_options("context", "node_name"),
    ):
        command = option(command)
    return command


@help_section("Kubelet endpoint")
def _kubelet_endpoint_options(command: _F) -> _F:
    for option in (
        click.option(
            "--server-name", metavar="NAME", help="The server name in the kubelet's certificate."
        ),
        click.option("--client-key", metavar="FILE", help="The key of --client-cert."),
        click.option("--client-cert", metavar="FILE", help="A client certificate for the kubelet."),
        click.option("--ca-file", metavar="FILE", help="The CA of the kubelet's certificate."),
        click.option("--token-file", metavar="FILE", help="A bearer token for the kubelet."),
    ):
        command = option(command)
    return command


class PodSourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `pod_source_options`, as they were given."""

    pods: str | None
    context: str | None
    node_name: str | None
    token_file: str | None
    ca_file: str | None
    client_cert: str | None
    client_key: str | None
    server_name: str | None

    def require_no_source(self, file: str) -> None:
        """Refuse pods of this machine or of a cluster beside a file that has its own."""
        if (self.pods, self.context, self.node_name) != (None, None, None):
            raise click.UsageError(
                f"{file} has its own pods: remove --pods, --context and --node-name"
            )


def pod_source_from(options: PodSourceOptions) -> "PodSource | None":
    """The source that these options name; None where none is named."""
    from memqos.converge.pod_sources import (
        PodsApiPods,
        is_url,
        parse_pod_source,
        pods_api_socket,
    )
    from memqos.host.kubelet import KubeletCredentials

    text, live = options.pods, LiveCluster(options.context, node_name=options.node_name)
    if text is None and live.is_chosen:
        text = CLUSTER
    if text != CLUSTER and live.is_chosen:
        raise click.UsageError("--context and --node-name need --pods cluster")
    given = {field: getattr(options, field) for field in KubeletCredentials.__struct_fields__}
    named = [f"--{field.replace('_', '-')}" for field, value in given.items() if value is not None]
    if named and (text is None or not is_url(text)):
        raise click.UsageError(f"{named[0]} needs a kubelet in --pods")
    if given["client_key"] and not given["client_cert"]:
        raise click.UsageError("--client-key without --client-cert")
    if text == CLUSTER:
        from memqos.converge.cluster_node import ClusterPods

        return ClusterPods(live.server, live.node_name or os.uname().nodename.lower())
    if text is None:
        return None
    socket = pods_api_socket(text)
    if socket is not None:
        return PodsApiPods(socket)
    return parse_pod_source(text, KubeletCredentials(**given))


_S = TypeVar("_S", bound=msgspec.Struct)


def collect_options(
    kind: type[_S], build: Callable[..., _S] | None = None
) -> Callable[[Callable[Concatenate[_S, ...], int]], Callable[..., int]]:
    """Pass a command those of its options that `kind` has fields for as one `kind`, typed.

    `build` makes it where the fields are not the options as click parsed them. This decorator
    stands next to the command: what declares options knows nothing of it. Of two, the lower one's
    comes first.
    """

    def decorate(command: Callable[Concatenate[_S, ...], int]) -> Callable[..., int]:
        @wraps(command)
        def run(*collected: msgspec.Struct, **values: Any) -> int:
            fields = {name: values.pop(name) for name in kind.__struct_fields__ if name in values}
            return command((build or kind)(**fields), *collected, **values)

        return run

    return decorate
