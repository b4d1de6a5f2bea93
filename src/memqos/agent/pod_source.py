"""Where an agent has its pods from."""

import socket
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from memqos.agent.configuration import PodSourceConfig
from memqos.converge.pod_sources import (
    CachedFilePods,
    ContainersByRuntime,
    KubeletPods,
    LabelledPods,
    PodSource,
)
from memqos.converge.running_kubelet import Submit, run_at_once
from memqos.errors import MemqosError, Unreachable
from memqos.host.kubelet import KubeletCredentials, KubeletEndpoint
from memqos.host.owner_discovery import discover_owners
from memqos.kube.pod import Pod
from memqos.plan.names import RuntimeName

if TYPE_CHECKING:
    from memqos.host.cri import ListedContainer

_TIMEOUT: Final = 2.0
"""Seconds a runtime may take to answer."""


class PodsPending(MemqosError):
    """A source was asked for its pods, and there is no new answer yet."""


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


def agent_pod_source(
    source: PodSourceConfig,
    list_running: Callable[[], ContainersByRuntime] = dict,
    on_change: Callable[[], None] | None = None,
    submit: Submit = run_at_once,
) -> PodSource:
    """Where the pods come from; `list_running` lists the running containers, for bare manifests.

    A cluster is watched from now on until the source is stopped; `on_change` is called from other
    threads. Requests to a kubelet go through `submit`.
    """
    if source.cluster:
        return _watch_cluster(source, on_change)
    if source.kubelet is None:
        node = socket.gethostname().lower()
        return LabelledPods(CachedFilePods(source.files), list_running, node)
    credentials = {name: getattr(source, name) for name in KubeletCredentials.__struct_fields__}
    return AsyncKubeletPods(
        KubeletEndpoint(source.kubelet, KubeletCredentials(**credentials)), submit
    )


def _watch_cluster(source: PodSourceConfig, on_change: Callable[[], None] | None) -> PodSource:
    from memqos.converge.cluster_node import WatchedNode
    from memqos.host.apiserver.client import ApiClient
    from memqos.host.apiserver.kubeconfig import cluster_access

    node = source.node_name or socket.gethostname().lower()
    watched = WatchedNode(ApiClient(cluster_access()), node, on_change=on_change)
    watched.start()
    return watched


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
