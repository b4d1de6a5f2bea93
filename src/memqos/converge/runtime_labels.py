"""Which cgroups the pods of manifests have, by the labels that the kubelet gives containers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from memqos.converge.pod_sources import PodSource
from memqos.errors import InputError
from memqos.kube.pod import ContainerStatus, Pod, PodStatus
from memqos.plan.names import RuntimeName
from memqos.plan.tree import CONFIG_HASH, container_ids

if TYPE_CHECKING:
    from memqos.host.cri import ListedContainer

_NAMESPACE: Final = "io.kubernetes.pod.namespace"
_POD: Final = "io.kubernetes.pod.name"
_UID: Final = "io.kubernetes.pod.uid"
_CONTAINER: Final = "io.kubernetes.container.name"

ContainersByRuntime = Mapping[RuntimeName, Iterable["ListedContainer"]]
"""What the runtimes of a node say."""


class LabelledPods(PodSource):
    """The pods of another source; where that does not say, the runtime says where they are."""

    def __init__(
        self, source: PodSource, containers: Callable[[], ContainersByRuntime], node: str
    ) -> None:
        self._source = source
        self._containers = containers
        self._node = node
        self._known: dict[int, tuple[Pod, Pod]] = {}
        """A pod of the source → what became of it, as long as that is the same."""

    def pods(self) -> list[Pod]:
        pods = self._source.pods()
        if all(container_ids(pod) for pod in pods):
            return pods
        found = add_container_ids(pods, self._containers(), self._node)
        known = {
            id(pod): (pod, self._reuse(pod, now)) for pod, now in zip(pods, found, strict=True)
        }
        self._known = known
        return [now for _, now in known.values()]

    @property
    def faults(self) -> Sequence[InputError]:
        return self._source.faults

    def describe(self) -> str:
        return self._source.describe()

    def _reuse(self, pod: Pod, now: Pod) -> Pod:
        before = self._known.get(id(pod))
        return before[1] if before is not None and before[1] == now else now


def add_container_ids(pods: Iterable[Pod], containers: ContainersByRuntime, node: str) -> list[Pod]:
    """The pods, with the container IDs of the runtimes' labels where they have none."""
    by_pod: dict[tuple[str, str], list[tuple[RuntimeName, ListedContainer]]] = {}
    for runtime, listed in containers.items():
        for each in listed:
            key = each.labels.get(_NAMESPACE, ""), each.labels.get(_POD, "")
            by_pod.setdefault(key, []).append((runtime, each))
    return [pod if container_ids(pod) else _with_container_ids(pod, by_pod, node) for pod in pods]


def _with_container_ids(
    pod: Pod,
    by_pod: Mapping[tuple[str, str], list[tuple[RuntimeName, "ListedContainer"]]],
    node: str,
) -> Pod:
    namespace, name = pod.metadata.namespace or "default", pod.metadata.name or ""
    # The kubelet appends the node's name to that of a static pod (config/common.go,
    # generatePodName).
    static = f"{name}-{pod.spec.node_name or node}"
    found = by_pod.get((namespace, name)) or by_pod.get((namespace, static)) or []
    if not found:
        return pod
    # Two pods of one name: a static pod whose manifest changed gets a new UID, and the old one is
    # being stopped. The newest container shows which is meant.
    uid = max(found, key=lambda each: each[1].created_at)[1].labels.get(_UID)
    latest: dict[str, tuple[RuntimeName, ListedContainer]] = {}
    for runtime, each in sorted(found, key=lambda each: each[1].created_at):
        if each.labels.get(_UID) == uid:
            latest[each.labels.get(_CONTAINER, "")] = runtime, each
    if uid is None:
        return pod
    # metadata.uid would mark the pod as stored by an API server, and so as defaulted already; the
    # annotation that static pods carry does not.
    metadata = msgspec.structs.replace(
        pod.metadata, uid=None, annotations={**(pod.metadata.annotations or {}), CONFIG_HASH: uid}
    )
    statuses = tuple(
        ContainerStatus(name=container, container_id=f"{runtime}://{each.id}")
        for container, (runtime, each) in sorted(latest.items())
    )
    return msgspec.structs.replace(
        pod, metadata=metadata, status=PodStatus(container_statuses=statuses)
    )
