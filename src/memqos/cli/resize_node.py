"""The node that pods are resized on: out of a file, a snapshot or a live cluster."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from memqos.cli.cluster_access import LIVE_PODS, LiveCluster
from memqos.cli.manifest_reader import ManifestReader
from memqos.cli.output import complain
from memqos.cli.settings import SettingsArguments
from memqos.cli.snapshot_node import snapshot_node
from memqos.cluster.fit_demand import occupies_node
from memqos.cluster.node_admission import AdmittingNode, admitting_node
from memqos.cluster.resize_verdict import ResizingNode
from memqos.errors import InputError, MemqosError
from memqos.kube.defaulting import apply_defaults
from memqos.kube.node import OS_LABEL, Node, allocatable
from memqos.kube.pod import Pod
from memqos.kube.resources import MEMORY, Amounts
from memqos.kube.shape import shape_of, with_shape
from memqos.kube.swap import SwapNode
from memqos.plan.semantics import is_stored
from memqos.settings.resolver import NodeSettings


class NodeAndPods(NamedTuple):
    """A node, and the pods that run on it."""

    node: ResizingNode
    others: list[Pod]
    note: str | None = None
    """What the answer of its kubelet does not consider."""


def read_resize_node(
    reader: ManifestReader,
    live: LiveCluster,
    options: SettingsArguments,
    others: str | None,
    resolved: NodeSettings,
) -> NodeAndPods | None:
    """The node that options name, with its pods; None where none is named, or too little known."""
    if options.snapshot is not None:
        return _node_of_snapshot(reader, options.snapshot, others, resolved)
    if options.node is None:
        return None
    node = next((each.decode(Node) for each in reader.objects([options.node], ("Node",))), Node())
    admission, unreserved = _with_settings(admitting_node(node), resolved)
    pods: Iterable[Pod] | None = ()
    if others is not None:
        pods = (pod for _, pod in reader.pods([others]))
    elif live.is_object_path(options.node):
        pods = _read_live_pods(live, admission.name)
    return None if pods is None else _node_and_pods(admission, unreserved, pods, resolved)


def _with_settings(
    admission: AdmittingNode, resolved: NodeSettings
) -> tuple[AdmittingNode, Amounts | None]:
    """A Node with the memory that its settings leave to pods, and that before evictions.

    A configuration that is tried out decides about its other resources, too; else they are those
    that the Node publishes, of which no eviction threshold is subtracted.
    """
    published, unreserved = dict(admission.allocatable), dict(admission.allocatable)
    settings, capacity = resolved.settings, resolved.facts.capacity
    if resolved.facts.is_trial and capacity is not None:
        found = allocatable(capacity, resolved.config, settings.release)
        published |= {name: amount.milli for name, amount in found.published.items()}
        unreserved |= {name: amount.milli for name, amount in found.enforced.items()}
    if resolved.published_memory is None or settings.memory_allocatable is None:
        return admission, None
    published[MEMORY] = resolved.published_memory * 1000
    unreserved[MEMORY] = settings.memory_allocatable * 1000
    return msgspec.structs.replace(admission, allocatable=published), unreserved


def _node_of_snapshot(
    reader: ManifestReader, file: str, others: str | None, resolved: NodeSettings
) -> NodeAndPods | None:
    from memqos.host.snapshots import load_snapshot

    snapshot = load_snapshot(file)
    try:
        node = snapshot_node(snapshot, file, resolved)
    except InputError as error:
        complain(f"note: the kubelet's decision is unknown: {error}")
        return None
    admission = AdmittingNode(
        name=node.name, allocatable=node.published, labels={OS_LABEL: "linux"}
    )
    pods = snapshot.running if others is None else (pod for _, pod in reader.pods([others]))
    found = _node_and_pods(admission, node.unreserved, pods, resolved)
    return found._replace(
        note="the kubelet's decision is computed from a snapshot: labels and taints of the Node "
        "are unknown"
    )


def _read_live_pods(live: LiveCluster, node: str) -> list[Pod] | None:
    """The pods that are bound to a node; None where they may not be read."""
    reader = ManifestReader(live.on_node(node))
    try:
        return [pod for _, pod in reader.pods([LIVE_PODS])]
    except MemqosError as error:
        complain(f"note: the kubelet's decision is unknown without the pods of {node}: {error}")
        return None


def _node_and_pods(
    admission: AdmittingNode,
    unreserved: Amounts | None,
    pods: Iterable[Pod],
    resolved: NodeSettings,
) -> NodeAndPods:
    settings, config = resolved.settings, resolved.config
    return NodeAndPods(
        ResizingNode(
            admission=admission,
            swap=SwapNode(
                behavior=settings.swap_behavior,
                memory_capacity=settings.memory_capacity,
                swap_capacity=settings.swap_capacity,
            ),
            cpu_manager_policy=config.cpu_manager_policy,
            memory_manager_policy=config.memory_manager_policy,
            unreserved=unreserved,
        ),
        [
            with_shape(
                pod,
                shape_of(pod, settings.release)
                if is_stored(pod)
                else apply_defaults(pod, settings.release),
            )
            for pod in pods
            if pod.spec.node_name in (None, admission.name) and occupies_node(pod)
        ],
    )
