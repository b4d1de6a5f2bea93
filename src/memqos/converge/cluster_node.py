"""A node as its cluster sees it: its pods, itself, and its kubelet's configuration."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from memqos.converge.kubelet_endpoint import configuration_in
from memqos.converge.pod_sources import PodSource
from memqos.errors import InputError, MemqosError
from memqos.host.apiserver.client import ApiClient
from memqos.host.apiserver.kubeconfig import ClusterAccess
from memqos.host.apiserver.pager import get_object, list_objects
from memqos.host.apiserver.reflector import DEFAULT_TIMINGS, Reflector, WatchTimings
from memqos.host.apiserver.resources import (
    NODE_RESOURCE,
    POD_RESOURCE,
    ApiRequest,
    Selection,
    on_node,
)
from memqos.host.kubelet import KubeletCredentials, KubeletEndpoint
from memqos.kube.node import Node
from memqos.kube.pod import Pod
from memqos.settings.facts import CONFIGZ_PATH, RawKubeletConfig

if TYPE_CHECKING:
    from memqos.host.apiserver.events import EventPoster

FIRST_LIST_SECONDS: Final = 30.0
_STALE: Final = 60.0
"""Seconds without a response after which a cluster counts as unreachable."""
_KUBELET_SECONDS: Final = 3.0
"""How long a kubelet may take to answer: commands wait for it, and an agent writes nothing before
its first answer."""

_LARGEST_CONFIGURATION: Final = 1 << 20


class ClusterPods(PodSource):
    """The pods the API server has bound to a node, read each time."""

    def __init__(self, server: ApiClient, node: str) -> None:
        self.server = server
        self._name = node

    def pods(self) -> list[Pod]:
        # The list of pods of a node that does not exist is empty, and every value would be reset.
        self.node()
        return list_objects(self.server, POD_RESOURCE, on_node(self._name)).items

    def node(self) -> Node:
        """The Node; one that the cluster does not know is refused."""
        return get_node(self.server, self._name)

    def kubelet_endpoint(self, node: Node | None) -> KubeletEndpoint | None:
        return None if node is None else node_kubelet_endpoint(node, self.server.access)

    def describe(self) -> str:
        return f"node {self._name} at {self.server.where}"


class WatchedNode(PodSource):
    """A node and its pods, kept as the cluster has them by two threads; see `Reflector`.

    `on_change` is called from those threads: an asyncio loop passes
    `partial(loop.call_soon_threadsafe, event.set)`. While the API server is away the last state
    stays, and `fault` says why; `stale_for` says how old it may be.
    """

    def __init__(
        self,
        server: ApiClient,
        node: str,
        *,
        on_change: Callable[[], None] | None = None,
        timings: WatchTimings = DEFAULT_TIMINGS,
    ) -> None:
        self.server = server
        self.name = node
        self._on_change = on_change
        self._timings = timings
        only = Selection(fields=f"metadata.name={node}")
        self._pods = self._new_pods()
        self._follows_pods = False
        self._self = Reflector(server, NODE_RESOURCE, only, on_change=on_change, timings=timings)

    def start(self) -> None:
        """Follow both."""
        self.follow_pods()
        self.start_node()

    def start_node(self) -> None:
        """Follow the Node alone, until pods are requested."""
        self._self.start()

    def follow_pods(self) -> None:
        if not self._follows_pods:
            self._follows_pods = True
            self._pods.start()

    def prepare_pods(self) -> bool:
        """Follow the pods; whether they are known, so that `pods` does not wait."""
        self.follow_pods()
        return self._pods.is_synced and self._self.is_synced

    def unfollow_pods(self) -> None:
        """End the watch of the pods, and free the copy."""
        if self._follows_pods:
            self._follows_pods = False
            self._pods.stop()
            self._pods = self._new_pods()

    def stop(self) -> None:
        self._pods.stop()
        self._self.stop()
        self.server.close()

    def wait(self, seconds: float = FIRST_LIST_SECONDS) -> None:
        """Until both are known; raises what keeps them from being."""
        self._self.wait(seconds)
        self._pods.wait(seconds)

    def pods(self) -> list[Pod]:
        """All of them, as of the last word of the API server. Waits for the first."""
        self.follow_pods()
        self.wait()
        if self.node() is None:
            raise _unknown_node(self.server, self.name)
        return self._pods.objects()

    def node(self) -> Node | None:
        """The Node, with its allocatable; None where the cluster does not know it."""
        return next(iter(self._self.objects()), None)

    def kubelet_endpoint(self, node: Node | None) -> KubeletEndpoint | None:
        return None if node is None else node_kubelet_endpoint(node, self.server.access)

    def event_poster(self) -> "EventPoster":
        from memqos.host.apiserver.events import EventPoster

        return EventPoster(self.server, self.name)

    def describe(self) -> str:
        return f"node {self.name} at {self.server.where}"

    @property
    def version(self) -> str:
        """The version of the cluster the pods are of."""
        return self._pods.version

    @property
    def fault(self) -> MemqosError | None:
        """What keeps the state from being followed now."""
        return self._pods.fault or self._self.fault

    @property
    def stale_for(self) -> float:
        """Seconds since the API server last spoke of the pods."""
        return self._pods.stale_for

    @property
    def stale_reason(self) -> str | None:
        fault = self.fault
        return None if fault is None or self.stale_for < _STALE else str(fault)

    def _new_pods(self) -> Reflector[Pod]:
        return Reflector(
            self.server,
            POD_RESOURCE,
            on_node(self.name),
            on_change=self._on_change,
            timings=self._timings,
        )


def get_node(server: ApiClient, name: str) -> Node:
    """A node of the cluster; one it does not know is refused."""
    node = get_object(server, NODE_RESOURCE, name)
    if node is None:
        raise _unknown_node(server, name)
    return node


def get_kubelet_configuration(server: ApiClient, node: str) -> RawKubeletConfig:
    """What a node's kubelet runs with, through the API server: `get nodes/proxy` of RBAC.

    Sent once: the API server answers 5xx for a kubelet that it does not reach.
    """
    request = ApiRequest(
        verb="get",
        path=f"{NODE_RESOURCE.path(name=node)}/proxy{CONFIGZ_PATH}",
        resource="nodes/proxy",
        name=node,
    )
    answer = server.get(request, _LARGEST_CONFIGURATION, tries=1)
    return configuration_in(answer, f"node/{node}{CONFIGZ_PATH}")


def node_kubelet_endpoint(node: Node, access: ClusterAccess) -> KubeletEndpoint | None:
    """A Node's kubelet, asked as its API server is; None where that is not known, or not safe.

    It has to show a certificate of the cluster's own authority before it gets credentials. The API
    server leads to it by nodes/proxy alone, which lets run commands in pods.
    """
    endpoints = node.status.daemon_endpoints
    port = None if endpoints is None else endpoints.kubelet_endpoint
    by_type = {each.type: each.address for each in reversed(node.status.addresses or ())}
    host = by_type.get("InternalIP")
    trusted, user = access.cluster.certificate_authority, access.user
    is_known = user.token_file or (user.client_certificate and user.client_key)
    if not host or port is None or not port.port or trusted is None or not is_known:
        return None
    credentials = KubeletCredentials(
        token_file=user.token_file,
        ca_file=trusted,
        client_cert=user.client_certificate,
        client_key=user.client_key,
    )
    address = f"[{host}]" if ":" in host else host
    return KubeletEndpoint(f"https://{address}:{port.port}", credentials, _KUBELET_SECONDS)


def _unknown_node(server: ApiClient, name: str) -> InputError:
    return InputError(
        f"there is no node {name}",
        file=server.where,
        hint="give the Node's name with --node-name: kubectl get nodes",
    )
