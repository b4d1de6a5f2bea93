"""Where an agent has its pods from."""

import socket
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, cast

from memqos.agent.configuration import PodSourceConfig
from memqos.converge.pod_sources import (
    CachedFilePods,
    ContainersByRuntime,
    KubeletPods,
    LabelledPods,
    PodSource,
)
from memqos.converge.running_kubelet import Submit, ask_at_once
from memqos.errors import MemqosError, Unreachable
from memqos.host.kubelet import KubeletCredentials, KubeletEndpoint
from memqos.host.owner_discovery import discover_owners
from memqos.kube.node import Node
from memqos.kube.pod import Pod
from memqos.plan.names import RuntimeName

if TYPE_CHECKING:
    from memqos.converge.cluster_node import WatchedNode
    from memqos.host.cri import ListedContainer

_TIMEOUT: Final = 2.0
"""Seconds a runtime may take to answer."""
_SILENT: Final = 60.0
"""Seconds without a word after which a cluster counts as away: its last state stays in force."""


class PodsPending(MemqosError):
    """A source was asked for its pods, and there is no new answer yet."""


class AsyncKubeletPods(KubeletPods):
    """The pods a kubelet says it has, without waiting for it; it is asked through `submit`."""

    def __init__(self, endpoint: KubeletEndpoint, submit: Submit) -> None:
        super().__init__(endpoint)
        self._submit = submit
        self._answer: Future[list[Pod]] | None = None
        self._is_outdated = False
        """Whether there was reason to ask again since."""
        self.lacks_pods = True
        """Whether the last answer told no pods, or there was none yet."""

    @property
    def has_answer(self) -> bool:
        """Whether there is one that `pods` has not given yet."""
        return self._answer is not None and self._answer.done()

    def pods(self) -> list[Pod]:
        """Those of an answer that is there, once, or else have the kubelet asked."""
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
        """Break off the question under way."""
        self.endpoint.cancel()

    def _submit_request(self) -> None:
        self._is_outdated = False
        self._answer = self._submit(super().pods)


def agent_pod_source(
    source: PodSourceConfig,
    list_running: Callable[[], ContainersByRuntime] = dict,
    on_change: Callable[[], None] | None = None,
    submit: Submit = ask_at_once,
) -> PodSource:
    """Where the pods come from; `listed` tells what containers run, for bare manifests.

    A cluster is followed from now on until the source is stopped; `on_change` is called from other
    threads. A kubelet is asked through `submit`.
    """
    if source.cluster:
        return _follow_cluster(source, on_change)
    if source.kubelet is None:
        node = socket.gethostname().lower()
        return LabelledPods(CachedFilePods(source.files), list_running, node)
    credentials = {name: getattr(source, name) for name in KubeletCredentials.__struct_fields__}
    return AsyncKubeletPods(
        KubeletEndpoint(source.kubelet, KubeletCredentials(**credentials)), submit
    )


def has_answer(source: PodSource) -> bool:
    """Whether a source that was asked for its pods has an answer that nobody has taken in."""
    return isinstance(source, AsyncKubeletPods) and source.has_answer


def lacks_pods(source: PodSource) -> bool:
    """Whether a source that is asked for its pods has not told them when it was last."""
    return isinstance(source, AsyncKubeletPods) and source.lacks_pods


def cluster_source(source: PodSource) -> "WatchedNode | None":
    """The source, if it follows a node of a cluster."""
    # Imported here: agents without a cluster do not load the HTTP client.
    return cast("WatchedNode", source) if hasattr(source, "silent_for") else None


def stale_source_reason(source: PodSource) -> str | None:
    """Why a source that follows its pods goes by what it heard long ago; None where it does not."""
    followed = cluster_source(source)
    if followed is None or followed.fault is None or followed.silent_for < _SILENT:
        return None
    return str(followed.fault)


def node_of(source: PodSource) -> Node | None:
    """The Node, as a source that follows it last heard; None where there is none, or not yet."""
    followed = cluster_source(source)
    return None if followed is None else followed.node()


def source_kubelet_endpoint(source: PodSource) -> KubeletEndpoint | None:
    """Whom to ask for a kubelet's version and configuration; None where nobody can be."""
    if isinstance(source, KubeletPods):
        return source.endpoint
    followed, node = cluster_source(source), node_of(source)
    if followed is None or node is None:
        return None
    from memqos.converge.cluster_node import node_kubelet_endpoint

    return node_kubelet_endpoint(node, followed.server.access)


def stop_source(source: PodSource) -> None:
    """Let go of a source that follows its pods, or is being asked."""
    end = getattr(source, "stop", None)
    if end is not None:
        end()


def _follow_cluster(source: PodSourceConfig, on_change: Callable[[], None] | None) -> PodSource:
    from memqos.converge.cluster_node import WatchedNode
    from memqos.host.apiserver.client import ApiClient
    from memqos.host.apiserver.kubeconfig import cluster_access

    node = source.node_name or socket.gethostname().lower()
    followed = WatchedNode(ApiClient(cluster_access()), node, on_change=on_change)
    followed.start()
    return followed


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
