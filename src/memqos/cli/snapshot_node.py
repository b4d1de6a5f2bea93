"""A node as the scheduler and its own kubelet count it, out of a snapshot and its settings."""

from typing import TYPE_CHECKING, Final

import msgspec

from memqos.cluster.fit_demand import PODS_RESOURCE
from memqos.errors import InputError, quote_excerpt
from memqos.kube.resources import HUGEPAGES, MEMORY, Amounts

if TYPE_CHECKING:
    from memqos.kube.node import Capacity
    from memqos.manifests.snapshot import Snapshot
    from memqos.settings.resolver import NodeSettings

_DEFAULT_MAX_PODS: Final = 110
"""The kubelet's own default of maxPods (apis/config/v1beta1/defaults.go)."""


class CountedNode(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot says of its node; amounts in thousandths."""

    name: str
    published: Amounts
    """Allocatable, as its Node publishes it."""
    unreserved: Amounts
    """Allocatable before eviction thresholds."""


def snapshot_node(snapshot: "Snapshot", file: str, node_settings: "NodeSettings") -> CountedNode:
    """The node of a snapshot; one that does not say which cpus pods may use is refused."""
    from memqos.kube.node import after_eviction, allocatable

    names = [pod.spec.node_name for pod in snapshot.running if pod.spec.node_name]
    capacity = _capacity(snapshot, file, node_settings.capacity.memory)
    found = allocatable(capacity, node_settings.config, node_settings.settings.release)
    published = {name: each.milli for name, each in found.published.items()}
    unreserved = {name: each.milli for name, each in found.enforced.items()}
    memory = node_settings.settings.memory_allocatable
    if memory is not None:
        published[MEMORY] = after_eviction(capacity, memory, node_settings.config) * 1000
        unreserved[MEMORY] = memory * 1000
    places = {PODS_RESOURCE: _max_pods(node_settings) * 1000}
    return CountedNode(
        name=names[0] if names else file,
        published=published | places,
        unreserved=unreserved | places,
    )


def _max_pods(node_settings: "NodeSettings") -> int:
    """How many pods a node takes: maxPods has no part in memory, so settings do not hold it."""
    from memqos.settings.resolver import configuration_document

    configuration = node_settings.facts.configuration
    if configuration is None:
        return _DEFAULT_MAX_PODS
    return configuration_document(configuration).data.get("maxPods") or _DEFAULT_MAX_PODS


def _capacity(snapshot: "Snapshot", file: str, memory: int) -> "Capacity":
    from memqos.host.snapshots import snapshot_cgroup_names
    from memqos.kernel.file_formats import NODE_LIST, nodes_in
    from memqos.kube.node import Capacity
    from memqos.kube.quantity import Quantity

    kubepods = snapshot_cgroup_names(snapshot, file).kubepods
    listed = snapshot.cgroups.get(kubepods, {}).get("cpuset.cpus", "").strip()
    if not NODE_LIST.fullmatch(listed):
        raise InputError(
            f"{kubepods}: {quote_excerpt(listed)} is not a list of cpus", field="cgroups"
        )
    cpus = len(nodes_in(listed))
    if not cpus:
        raise InputError(
            "the cpus for pods are not in the snapshot",
            field="cgroups",
            hint=f"{kubepods} has no cpuset.cpus: give the Node instead",
        )
    return Capacity(
        cpu=cpus * 1000,
        memory=memory,
        hugepages={
            f"{HUGEPAGES}{Quantity.of(pages.size, 'BinarySI')}": pages.size * pages.total
            for pages in snapshot.machine.huge_pages
        },
    )
