"""Objects out of a live cluster, for commands: by name, or all that are selected.

The client is imported at the first request: commands that read files do without it.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from memqos.cli.help_sections import help_section
from memqos.cli.output import complain
from memqos.errors import InputError, MemqosError

if TYPE_CHECKING:
    from memqos.host.apiserver.client import ApiClient
    from memqos.host.apiserver.resources import ApiResource, Selection
    from memqos.host.manifest_files import LoadedFile
    from memqos.kube.node import Node
    from memqos.settings.facts import RawKubeletConfig

_F = TypeVar("_F", bound=Callable[..., Any])

CLUSTER: Final = "cluster"
"""Given as a file, it means the objects of the cluster."""
LIVE_PODS: Final = "pods of the cluster"
RUNNING_PODS: Final = "running pods of the cluster"
LIVE_NODES: Final = "nodes of the cluster"
LIVE_METRICS: Final = "pod metrics of the cluster"
LIVE_LIMITS: Final = "limit ranges of the cluster"
LIVE_QUOTAS: Final = "quotas of the cluster"
LIVE_AUTOSCALERS: Final = "horizontal autoscalers of the cluster"

_KINDS: Final = {
    "pod": ("", "pods", ("po", "pods")),
    "deployment": ("apps", "deployments", ("deploy", "deployments")),
    "statefulset": ("apps", "statefulsets", ("sts", "statefulsets")),
    "daemonset": ("apps", "daemonsets", ("ds", "daemonsets")),
    "replicaset": ("apps", "replicasets", ("rs", "replicasets")),
    "job": ("batch", "jobs", ("jobs",)),
    "cronjob": ("batch", "cronjobs", ("cj", "cronjobs")),
}
_BY_ALIAS: Final = {
    alias: kind for kind, (_, _, aliases) in _KINDS.items() for alias in (kind, *aliases)
}
KINDS_BY_ALIAS: Final = {alias: _KINDS[kind][:2] for alias, kind in _BY_ALIAS.items()}
"""The API group and the plural that each name of a kind stands for."""
_NODE: Final = "node/"
_KUBELET_SECONDS: Final = 10.0
"""How long a kubelet may take to answer through the API server."""

_KUBECONFIG: Final = "memqos.kubeconfig"


def _choose_kubeconfig(
    context: click.Context, _option: click.Parameter, value: str | None
) -> str | None:
    if value is not None:
        context.meta[_KUBECONFIG] = value
    return value


def chosen_kubeconfig() -> str | None:
    """The file that --kubeconfig names."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(_KUBECONFIG)


_KUBECONFIG_OPTION: Final = click.option(
    "--kubeconfig",
    metavar="FILE",
    expose_value=False,
    is_eager=True,
    callback=_choose_kubeconfig,
    help="The kubeconfig.  [default: KUBECONFIG, else ~/.kube/config]",
)
_OPTIONS: Final = {
    "context": click.option(
        "--context", metavar="NAME", help="Use the cluster of this context of the kubeconfig."
    ),
    "namespace": click.option(
        "-n", "--namespace", metavar="NAME", help="A namespace.  [default: the context's]"
    ),
    "selector": click.option(
        "-l", "--selector", metavar="LABELS", help="Label selector: app=web,tier!=test"
    ),
    "node_name": click.option(
        "--node-name", metavar="NAME", help="The name of a Node in the cluster."
    ),
}


def cluster_options(*names: str) -> Callable[[_F], _F]:
    """Those of --context, --namespace, --selector and --node-name that a command takes.

    --kubeconfig comes with --context.
    """

    @help_section("Cluster")
    def add_options(command: _F) -> _F:
        if "context" in names:
            command = _KUBECONFIG_OPTION(command)
        for name in reversed(names):
            command = _OPTIONS[name](command)
        return command

    return add_options


class UnknownConfiguration(NamedTuple):
    """Why it is not known what a node's kubelet runs with."""

    node: str
    why: str
    is_forbidden: bool = False

    def __str__(self) -> str:
        return (
            f"the configuration of the kubelet of node {self.node} is unknown, {self.why}: "
            "defaults are assumed – give it with --kubelet"
        )


class LiveCluster:
    """The cluster that options name; connected to at the first request."""

    def __init__(
        self,
        context: str | None = None,
        namespace: str | None = None,
        selector: str | None = None,
        node_name: str | None = None,
    ) -> None:
        self._context = context
        self._kubeconfig = chosen_kubeconfig()
        self._namespace = namespace
        self._selector = selector
        self.node_name = node_name
        self._objects: dict[str, bytes] = {}
        self._configurations: dict[str, RawKubeletConfig | UnknownConfiguration] = {}

    def on_node(self, name: str) -> "LiveCluster":
        """The same cluster, of which only one node is looked at."""
        return LiveCluster(self._context, node_name=name)

    @property
    def is_chosen(self) -> bool:
        """Whether any option names a cluster."""
        named = (self._context, self._kubeconfig, self._namespace, self._selector)
        return any((*named, self.node_name))

    @cached_property
    def server(self) -> "ApiClient":
        from memqos.host.apiserver.client import ApiClient
        from memqos.host.apiserver.kubeconfig import cluster_access

        return ApiClient(cluster_access(self._context, self._kubeconfig))

    @property
    def namespace(self) -> str:
        """The namespace of objects that name none."""
        return self._namespace or self.server.access.namespace

    @property
    def own_namespace(self) -> str:
        """The same where the cluster cannot be reached."""
        return self._namespace or "default"

    @property
    def selection_text(self) -> str:
        """What the options select, in words."""
        labels = f" with {self._selector}" if self._selector else ""
        return f"pods in namespace {self.namespace}{labels}"

    @property
    def pod_selection(self) -> "Selection":
        """The pods that options select: of every namespace unless they name one."""
        from memqos.host.apiserver.resources import Selection

        return Selection(self._namespace, labels=self._selector)

    def server_version(self) -> str:
        """The release of the API server."""
        import msgspec

        from memqos.host.apiserver.resources import ApiRequest

        data = self.server.get(ApiRequest(verb="get", path="/version"))
        try:
            version = msgspec.json.decode(data, type=dict[str, Any])["gitVersion"]
        except (msgspec.DecodeError, KeyError):
            version = None
        if not isinstance(version, str):
            raise InputError(
                "the answer names no version",
                file=f"{self.server.where}/version",
                hint="give --release",
            )
        return version

    def paths_to_read(self, given: tuple[str, ...]) -> tuple[str, ...]:
        """The files that were given, else the pods that options select."""
        if given and self._selector:
            raise click.UsageError("-l selects pods of the cluster: remove FILE")
        if given:
            return given
        return (LIVE_PODS,)

    def require_use(self, *paths: str | None) -> None:
        """Refuse options about a cluster where nothing that is read comes from one."""
        if self.is_chosen and not any(
            path is not None and self.is_object_path(path) for path in paths
        ):
            raise click.UsageError(
                "--context, --kubeconfig and -n need a live cluster, but only files are given"
            )

    def is_object_path(self, path: str) -> bool:
        """Whether a path names something in the cluster, and no file."""
        if path in _LISTS:
            return True
        kind, _, name = path.partition("/")
        known = kind in _BY_ALIAS or path.startswith(_NODE)
        return known and bool(name) and "/" not in name and not os.path.exists(path)

    def kind_of(self, path: str) -> str | None:
        """The kind that KIND/NAME names: pod, deployment …; None for any other text."""
        alias, slash, name = path.partition("/")
        return _BY_ALIAS.get(alias) if slash and name and "/" not in name else None

    def load(self, path: str) -> "Iterator[LoadedFile]":
        """The objects of a path, as the server sends them."""
        if path in _LISTS:
            yield from _LISTS[path](self)
        else:
            yield path, self.get(path)

    def get(self, path: str) -> bytes:
        """One object, by its kind and name; requested once."""
        if path not in self._objects:
            self._objects[path] = self._get(path)
        return self._objects[path]

    def _get(self, path: str) -> bytes:
        from memqos.host.apiserver.resources import NODE_RESOURCE, ApiResource, get_request

        alias, _, name = path.partition("/")
        if path.startswith(_NODE):
            return self.server.get(get_request(NODE_RESOURCE, name))
        group, plural, _ = _KINDS[_BY_ALIAS[alias]]
        return self.server.get(
            get_request(ApiResource(group, "v1", plural, dict), name, self.namespace)
        )

    def node_path_of(self, paths: Sequence[str]) -> str | None:
        """The one node that all of these run on, as a path; None where they are not all pods of it.

        Where pods may be read and Nodes may not, that is noted, and there is no node.
        """
        if not paths or not all(self.is_object_path(path) and _is_pod(path) for path in paths):
            return None
        try:
            names = {_node_name(self.get(path)) for path in paths}
        except MemqosError:
            return None  # reading the pods reports it
        if len(names) != 1 or "" in names:
            return None
        path = f"{_NODE}{names.pop()}"
        try:
            self.get(path)
        except MemqosError as error:
            complain(f"note: the node is unknown: {error}")
            return None
        return path

    def kubelet_configuration(self, node: str) -> "RawKubeletConfig | UnknownConfiguration":
        """What a node's kubelet runs with, requested once; else why it is not known."""
        if node not in self._configurations:
            self._configurations[node] = self._get_configuration(node)
        return self._configurations[node]

    def _get_configuration(self, node: str) -> "RawKubeletConfig | UnknownConfiguration":
        from memqos.converge.cluster_node import get_kubelet_configuration
        from memqos.host.apiserver.api_errors import FORBIDDEN, ApiError

        try:
            return get_kubelet_configuration(self.kubelet_proxy, node)
        except ApiError as error:
            # The rule that grants it is not proposed: nodes/proxy lets run commands in pods.
            if error.status == FORBIDDEN:
                why = "the user may not get nodes/proxy (403)"
                return UnknownConfiguration(node, why, is_forbidden=True)
            return UnknownConfiguration(node, f"the API server answers {error.status} for it")
        except MemqosError as error:
            return UnknownConfiguration(node, error.what)

    @cached_property
    def kubelet_proxy(self) -> "ApiClient":
        """The same server, for requests that it passes on to kubelets, which may be down."""
        from memqos.host.apiserver.client import ApiClient

        return ApiClient(
            self.server.access, read_timeout=_KUBELET_SECONDS, longest=_KUBELET_SECONDS
        )

    def list_in_namespace(self, plural: str, namespace: str) -> "Iterator[LoadedFile]":
        """All limit ranges or quotas of a namespace."""
        from memqos.host.apiserver.resources import ApiResource, Selection

        resource = ApiResource("", "v1", plural, dict)
        return self._list_pages(f"{plural} of {namespace}", resource, Selection(namespace))

    def get_node(self) -> "Node":
        """The node that was named; one the cluster does not know is refused."""
        from memqos.converge.cluster_node import get_node

        assert self.node_name is not None
        return get_node(self.server, self.node_name)

    def list_pods(self) -> "Iterator[LoadedFile]":
        from memqos.host.apiserver.resources import POD_RESOURCE, Selection, on_node

        if self.node_name is not None:
            return self._list_pages(LIVE_PODS, POD_RESOURCE, on_node(self.node_name))
        return self._list_pages(
            LIVE_PODS, POD_RESOURCE, Selection(self.namespace, labels=self._selector)
        )

    def list_running_pods(self) -> "Iterator[LoadedFile]":
        from memqos.host.apiserver.resources import POD_RESOURCE, Selection

        running = Selection(fields="status.phase!=Succeeded,status.phase!=Failed")
        return self._list_pages(RUNNING_PODS, POD_RESOURCE, running)

    def list_nodes(self) -> "Iterator[LoadedFile]":
        from memqos.host.apiserver.resources import NODE_RESOURCE, Selection

        return self._list_pages(LIVE_NODES, NODE_RESOURCE, Selection())

    def list_metrics(self) -> "Iterator[LoadedFile]":
        from memqos.host.apiserver.api_errors import ApiError
        from memqos.host.apiserver.resources import ApiResource, Selection

        resource = ApiResource("metrics.k8s.io", "v1beta1", "pods", dict)
        try:
            yield from self._list_pages(LIVE_METRICS, resource, Selection())
        except ApiError as error:
            if error.status not in (404, 503):
                raise
            raise InputError(
                "the cluster has no metrics API",
                file=self.server.where,
                hint="give --usage, or install metrics-server",
            ) from None

    def _list_pages(
        self, name: str, resource: "ApiResource[Any]", selection: "Selection"
    ) -> "Iterator[LoadedFile]":
        from memqos.host.apiserver.pager import list_raw_pages

        for page in list_raw_pages(self.server, resource, selection):
            yield name, page


def _is_pod(path: str) -> bool:
    return _BY_ALIAS.get(path.partition("/")[0]) == "pod"


def _node_name(pod: bytes) -> str:
    """The node that a pod was bound to; empty where it was not, or is not a pod."""
    import msgspec

    from memqos.kube.pod import Pod

    try:
        return msgspec.json.decode(pod, type=Pod).spec.node_name or ""
    except (msgspec.DecodeError, InputError):
        return ""


_LISTS: Final[Mapping[str, Callable[[LiveCluster], "Iterator[LoadedFile]"]]] = {
    LIVE_PODS: LiveCluster.list_pods,
    RUNNING_PODS: LiveCluster.list_running_pods,
    LIVE_NODES: LiveCluster.list_nodes,
    LIVE_METRICS: LiveCluster.list_metrics,
}
