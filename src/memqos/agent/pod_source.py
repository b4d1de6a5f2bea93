"""Where an agent has its pods from."""

import socket
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from memqos.agent.configuration import PodSourceConfig
from memqos.agent.pods_api_watch import WatchedPodsApi
from memqos.converge.pod_sources import (
    PODS_API_SOCKET,
    CachedFilePods,
    KubeletPods,
    PodSource,
)
from memqos.converge.running_kubelet import Submit, run_at_once
from memqos.converge.runtime_labels import ContainersByRuntime, LabelledPods
from memqos.errors import InputError, MemqosError, Unreachable
from memqos.host.kubelet import KubeletCredentials, KubeletEndpoint
from memqos.host.owner_discovery import discover_owners
from memqos.kube.pod import Pod
from memqos.plan.names import RuntimeName

if TYPE_CHECKING:
    from memqos.converge.cluster_node import WatchedNode
    from memqos.host.apiserver.events import EventPoster
    from memqos.host.cri import ListedContainer
    from memqos.kube.node import Node

_TIMEOUT: Final = 2.0
"""Seconds a runtime may take to answer."""


class PodsPending(MemqosError):
    """The pods of a source were requested, and there is no new answer yet."""


class AsyncKubeletPods(KubeletPods):
    """The pods a kubelet says it has, without waiting for it; requests go through `submit`."""

    lacks_pods: bool = True

    def __init__(self, endpoint: KubeletEndpoint, submit: Submit) -> None:
        super().__init__(endpoint)
        self._submit = submit
        self._answer: Future[list[Pod]] | None = None
        self._is_outdated = False
        """Whether there was reason to ask again since."""

    @property
    def has_answer(self) -> bool:
        return self._answer is not None and self._answer.done()

    def pods(self) -> list[Pod]:
        """Those of an answer that has arrived, once; otherwise the kubelet is asked."""
        if self._answer is None:
            self._submit_request()
        elif not self.has_answer:
            self._is_outdated = True
        answer = self._answer
        if answer is None or not answer.done():
            raise PodsPending(f"{self.endpoint.url}: no answer yet")
        self._answer = None
        if self._is_outdated:
            self._submit_request()
        self.lacks_pods = True
        pods = answer.result()
        self.lacks_pods = False
        return pods

    def stop(self) -> None:
        self.endpoint.cancel()

    def _submit_request(self) -> None:
        self._is_outdated = False
        self._answer = self._submit(super().pods)


class AutomaticPods(PodSource):
    """The kubelet's PodsAPI while it is served, else a kubelet's endpoint or the API server.

    The PodsAPI knows pods alone: the Node, and where to post events, come from the other source.
    """

    def __init__(
        self,
        api: WatchedPodsApi,
        other: PodSource | InputError,
        *,
        prepare_other: Callable[[], bool] = lambda: True,
        release_other: Callable[[], None] = lambda: None,
    ) -> None:
        """`other` is an error where there is neither a kubelet's address nor a cluster.

        `prepare_other` says whether its pods can be had without waiting; `release_other` is called
        when they are not needed any more.
        """
        self._api = api
        self._fault = other if isinstance(other, InputError) else None
        self._other = None if isinstance(other, InputError) else other
        self._prepare_other = prepare_other
        self._release_other = release_other
        self._chosen: PodSource | None = None

    def pods(self) -> list[Pod]:
        self._api.wait()
        if self._other is not None and not self._api.is_served and self._can_leave_api():
            self._chosen = self._other
            return self._other.pods()
        if self._chosen is not self._api:
            self._chosen = self._api
            self._release_other()
        try:
            return self._api.pods()
        except Unreachable as error:
            if self._fault is None:
                raise
            what = f"{error.what}, and there is no API server to use instead: {self._fault.what}"
            raise Unreachable(what, hint=error.hint) from None

    def describe(self) -> str:
        if self._chosen is not None:
            return self._chosen.describe()
        other = "" if self._other is None else f", else {self._other.describe()}"
        return f"{self._api.describe()}{other}"

    def node(self) -> "Node | None":
        return None if self._other is None else self._other.node()

    def kubelet_endpoint(self, node: "Node | None") -> KubeletEndpoint | None:
        return None if self._other is None else self._other.kubelet_endpoint(node)

    def event_poster(self) -> "EventPoster | None":
        return None if self._other is None else self._other.event_poster()

    @property
    def has_answer(self) -> bool:
        return self._chosen is not None and self._chosen.has_answer

    @property
    def lacks_pods(self) -> bool:
        return self._chosen is None or self._chosen.lacks_pods

    @property
    def stale_reason(self) -> str | None:
        return None if self._chosen is None else self._chosen.stale_reason

    def stop(self) -> None:
        self._api.stop()
        if self._other is not None:
            self._other.stop()

    def _can_leave_api(self) -> bool:
        """Whether the other source is in use, or knows its pods, or no source knows any.

        Otherwise the kubelet's last pods are better than a pass that waits for the API server.
        """
        return self._chosen is self._other or self._prepare_other() or not self._api.has_pods


def agent_pod_source(
    source: PodSourceConfig,
    list_running: Callable[[], ContainersByRuntime] = dict,
    on_change: Callable[[], None] | None = None,
    submit: Submit = run_at_once,
) -> PodSource:
    """Where the pods come from; `list_running` lists the running containers, for bare manifests.

    A cluster or the PodsAPI is watched from now on until the source is stopped; `on_change` is
    called from other threads. Requests to a kubelet go through `submit`.
    """
    origin = source.origin
    if origin == "cluster":
        watched = _cluster_node(source, on_change)
        watched.start()
        return watched
    if origin == "kubelet":
        return _kubelet_pods(source, submit)
    if origin == "files":
        node = socket.gethostname().lower()
        return LabelledPods(CachedFilePods(source.files), list_running, node)
    api = WatchedPodsApi(source.socket or PODS_API_SOCKET, on_change=on_change)
    api.start()
    return api if origin == "podsapi" else _automatic_pods(source, api, on_change, submit)


def _automatic_pods(
    source: PodSourceConfig,
    api: WatchedPodsApi,
    on_change: Callable[[], None] | None,
    submit: Submit,
) -> PodSource:
    if source.kubelet is not None:
        return AutomaticPods(api, _kubelet_pods(source, submit))
    try:
        watched = _cluster_node(source, on_change)
    except InputError as error:
        return AutomaticPods(api, error)
    watched.start_node()
    return AutomaticPods(
        api, watched, prepare_other=watched.prepare_pods, release_other=watched.unfollow_pods
    )


def _kubelet_pods(source: PodSourceConfig, submit: Submit) -> AsyncKubeletPods:
    assert source.kubelet is not None
    credentials = {name: getattr(source, name) for name in KubeletCredentials.__struct_fields__}
    return AsyncKubeletPods(
        KubeletEndpoint(source.kubelet, KubeletCredentials(**credentials)), submit
    )


def _cluster_node(source: PodSourceConfig, on_change: Callable[[], None] | None) -> "WatchedNode":
    from memqos.converge.cluster_node import WatchedNode
    from memqos.host.apiserver.client import ApiClient
    from memqos.host.apiserver.kubeconfig import cluster_access

    node = source.node_name or socket.gethostname().lower()
    return WatchedNode(ApiClient(cluster_access()), node, on_change=on_change)


def list_containers(root: str, cri_socket: str | None = None) -> ContainersByRuntime:
    """The containers of all runtimes that answer, where the cgroups are a kernel's."""
    found: dict[RuntimeName, list[ListedContainer]] = {}
    try:
        sockets = discover_owners(root, cri_socket).sockets
    except Unreachable:
        return {}
    for runtime, address in sockets.items():
        from memqos.host import cri

        client = cri.CriClient(address, _TIMEOUT)
        try:
            found[runtime] = client.containers()
        except MemqosError:
            continue  # the pods of this runtime stay unresolved, and are reported so
        finally:
            client.close()
    return found
