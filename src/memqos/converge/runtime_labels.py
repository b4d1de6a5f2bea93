"""Pods of manifests found on a node by the labels that a kubelet has its runtime keep.

A manifest alone says neither the pod's UID nor its containers' IDs, and so not where the cgroups
are. The runtime knows both, by the namespace and the name of the pod.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from memqos.converge.sources import PodSource, faults_of
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


class LabelledPods:
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
        return faults_of(self._source)

    def describe(self) -> str:
        return self._source.describe()

    def _reuse(self, pod: Pod, now: Pod) -> Pod:
        before = self._known.get(id(pod))
        return before[1] if before is not None and before[1] == now else now


def add_container_ids(pods: Iterable[Pod], containers: ContainersByRuntime, node: str) -> list[Pod]:
    """The pods, those without a word about their containers told by the runtimes' labels."""
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
    # A pod that the kubelet has from a file goes by its node's name as well.
    static = f"{name}-{pod.spec.node_name or node}"
    found = by_pod.get((namespace, name)) or by_pod.get((namespace, static)) or []
    if not found:
        return pod
    # Of two pods of one name the one made last is meant: the other is about to end.
    uid = max(found, key=lambda each: each[1].created_at)[1].labels.get(_UID)
    latest: dict[str, tuple[RuntimeName, ListedContainer]] = {}
    for runtime, each in sorted(found, key=lambda each: each[1].created_at):
        if each.labels.get(_UID) == uid:
            latest[each.labels.get(_CONTAINER, "")] = runtime, each
    if uid is None:
        return pod
    # As an annotation, the UID does not make a stored pod of what still has to be defaulted.
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
