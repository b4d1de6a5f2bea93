"""An audit with history: the pods and nodes of dumps against what was used."""

from collections.abc import Sequence

import msgspec

from memqos.cli.cluster_access import CLUSTER, LIVE_NODES, RUNNING_PODS, LiveCluster
from memqos.cli.history_options import HistoryOptions, history_sources, read_table
from memqos.cli.manifest_reader import ManifestReader
from memqos.cluster.fit_demand import NodeInfo, node_info, occupies_node
from memqos.errors import InputError
from memqos.kube.node import Node
from memqos.kube.pod import Pod
from memqos.kube.shape import amounts_of, shape_of
from memqos.manifests.objects import Item
from memqos.release import Release
from memqos.size.recommendation import SizeOptions
from memqos.size.savings import ClusterSavings, cluster_savings

_KINDS = ("Node", "Pod", "LimitRange", "ResourceQuota", "Namespace")
_STAYING = ("DaemonSet", "Node")
"""Owners of pods that go with their node; a Node owns what a kubelet runs from its files."""


class _Owner(msgspec.Struct, frozen=True):
    kind: str = ""


class _OwnedMetadata(msgspec.Struct, frozen=True, rename="camel"):
    owner_references: tuple[_Owner, ...] | None = None


class _Owned(msgspec.Struct, frozen=True):
    """By what a pod was created."""

    metadata: _OwnedMetadata = _OwnedMetadata()


def audit_history(
    files: Sequence[str], live: LiveCluster, options: HistoryOptions, release: Release
) -> ClusterSavings:
    """What the pods of dumps, or of the cluster, request beyond their need."""
    table = read_table(history_sources(options, None), options.until, lambda _name: True)
    reader = ManifestReader(live, is_silent=True)  # The audit has reported what cannot be read.
    paths = [
        path
        for file in files
        for path in ((LIVE_NODES, RUNNING_PODS) if file == CLUSTER else (file,))
    ]
    pods: list[Pod] = []
    staying: list[Pod] = []
    nodes: list[NodeInfo] = []
    for item in reader.objects(paths, _KINDS):
        try:
            _count(item, pods, staying, nodes, release)
        except InputError as error:
            reader.refuse(item.with_position(error))
    return cluster_savings(pods, nodes, table, SizeOptions(), release, staying)


def _count(
    item: Item, pods: list[Pod], staying: list[Pod], nodes: list[NodeInfo], release: Release
) -> None:
    if item.kind == "Pod":
        pod = item.decode(Pod)
        if not occupies_node(pod):
            return
        shape_of(pod, release)  # before it counts, so that a wrong quantity ends no report
        pods.append(pod)
        if any(
            each.kind in _STAYING for each in item.decode(_Owned).metadata.owner_references or ()
        ):
            staying.append(pod)
    elif item.kind == "Node":
        node = item.decode(Node)
        amounts = node.status.allocatable or node.status.capacity or {}
        allocatable = amounts_of(amounts, "status.allocatable")
        nodes.append(node_info(node.metadata.name or "", allocatable, ()))
