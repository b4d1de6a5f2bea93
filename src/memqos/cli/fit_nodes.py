"""Nodes and the pods on them, out of files, as the scheduler counts them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from memqos.cli.manifest_reader import LocatedPod, ManifestReader
from memqos.cli.snapshot_node import snapshot_node
from memqos.cluster.fit_demand import (
    NodeInfo,
    SchedulingDemand,
    node_info,
    occupies_node,
    scheduling_demands,
)
from memqos.cluster.node_admission import (
    LINUX,
    AdmittingNode,
    NodeAdmission,
    admitting_node,
    ignores_pod_level,
    kubelet_release,
    names_os,
    refuse_on_node,
)
from memqos.errors import InputError, UnsupportedRelease
from memqos.kube.defaulting import apply_defaults
from memqos.kube.node import WINDOWS
from memqos.kube.pod import Pod, ResourceList
from memqos.kube.resources import Amounts
from memqos.kube.shape import Shape, amounts_of, shape_of, with_shape
from memqos.release import Release
from memqos.units import pluralize

if TYPE_CHECKING:
    from memqos.manifests.objects import Item


class FitNode(msgspec.Struct, frozen=True):
    """A node as a file describes it; amounts in thousandths."""

    name: str
    allocatable: Amounts
    version: str | None
    os: str = LINUX
    supplemental_groups_policy: bool = False


class FitNodes(msgspec.Struct, frozen=True):
    """All nodes, and the pods in the same files."""

    nodes: tuple[FitNode, ...]
    pods: tuple[LocatedPod, ...]
    notes: tuple[str, ...] = ()

    @property
    def newest_kubelet(self) -> str | None:
        """The version of the newest kubelet, if any is known."""
        versions = [node.version for node in self.nodes if node.version is not None]
        return max(versions, key=lambda version: Release.of(version).minor, default=None)


def read_nodes(reader: ManifestReader, file: str) -> FitNodes:
    """Nodes, or snapshots of nodes, and the Pods among them; faults are counted by the reader."""
    nodes: list[FitNode] = []
    pods: list[LocatedPod] = []
    notes: list[str] = []
    for item in reader.objects([file], ("Node", "Pod", "Snapshot")):
        try:
            if item.kind == "Node":
                nodes.append(_read_node(item))
            elif item.kind == "Pod":
                pods.append((item, item.decode(Pod)))
            else:
                node, of_node = _read_snapshot(item, notes)
                nodes.append(node)
                pods += of_node
        except InputError as error:
            reader.refuse(item.with_position(error))
    if not nodes and not reader.faults:
        reader.refuse(InputError("there is no Node in it", file=file))
    return FitNodes(tuple(nodes), tuple(pods), tuple(notes))


def node_infos(
    reader: ManifestReader, nodes: FitNodes, other_pods: Iterable[LocatedPod], release: Release
) -> tuple[list[NodeInfo], list[str]]:
    """The nodes with the requests of the pods bound to them, and notes on pods not counted."""
    bound: dict[str, list[SchedulingDemand]] = {node.name: [] for node in nodes.nodes}
    occupying = [each for each in (*nodes.pods, *other_pods) if occupies_node(each[1])]
    demands = pod_demands(reader, occupying, release)
    pending = elsewhere = 0
    for (_, pod), demand in demands:
        if pod.spec.node_name is None:
            pending += 1
        elif pod.spec.node_name not in bound:
            elsewhere += 1
        else:
            bound[pod.spec.node_name].append(demand)
    notes = list(nodes.notes)
    if unread := len(occupying) - len(demands):
        notes.append(f"not counted: {pluralize(unread, 'pod')} that cannot be read")
    if pending:
        notes.append(f"not counted: {pluralize(pending, 'pod')} bound to no node")
    if elsewhere:
        notes.append(f"not counted: {pluralize(elsewhere, 'pod')} of nodes that are not given")
    return [node_info(node.name, node.allocatable, bound[node.name]) for node in nodes.nodes], notes


def pod_demands(
    reader: ManifestReader, pods: Sequence[LocatedPod], release: Release
) -> list[tuple[LocatedPod, SchedulingDemand]]:
    """What each pod requests; one that cannot be read is reported and skipped."""
    found: list[tuple[LocatedPod, SchedulingDemand]] = []
    unread = iter(pods)
    each: LocatedPod | None = None

    def remaining_pods() -> Iterator[Pod]:
        nonlocal each
        for each in unread:
            yield each[1]

    while True:
        try:
            for demand in scheduling_demands(remaining_pods(), release, shape_as_stored):
                assert each is not None
                found.append((each, demand))
            return found
        except InputError as error:
            assert each is not None
            reader.refuse(each[0].with_position(error))


def shape_as_stored(pod: Pod, release: Release) -> Shape:
    """A pod that has a status was defaulted when it was created; another one is now."""
    return apply_defaults(pod, release) if pod.status is None else shape_of(pod, release)


class Kubelets:
    """The kubelets of all nodes; what they refuse is computed once for those that are alike."""

    def __init__(self, nodes: Iterable[FitNode], server: Release) -> None:
        self._server = server
        self._alike: dict[tuple[str | None, str, bool], list[str]] = {}
        for node in nodes:
            kind = (node.version, node.os, node.supplemental_groups_policy)
            self._alike.setdefault(kind, []).append(node.name)

    def refusals(self, pod: Pod) -> dict[str, NodeAdmission]:
        """The nodes, by name, that refuse a pod once the API server has stored it."""
        stored = self._stored(pod)
        refused: dict[str, NodeAdmission] = {}
        for (version, os, groups_policy), names in self._alike.items():
            node = AdmittingNode(
                name="", os=os, allocatable={}, supplemental_groups_policy=groups_policy
            )
            verdict = refuse_on_node(stored, node, kubelet_release(version, self._server))
            if verdict is not None:
                refused |= dict.fromkeys(names, verdict)
        return refused

    def without_pod_level(self, pod: Pod) -> list[str]:
        """The nodes that run a pod by its containers alone: their kubelets do not know the rest."""
        stored = self._stored(pod)
        return [
            name
            for (version, _, _), names in self._alike.items()
            if ignores_pod_level(stored, kubelet_release(version, self._server))
            for name in names
        ]

    def windows_for_any_os(self, pod: Pod) -> list[str]:
        """The Windows nodes of a cluster with other nodes too, for a pod that names no OS."""
        if names_os(pod) or len({os for _, os, _ in self._alike}) == 1:
            return []
        return [
            name for (_, os, _), names in self._alike.items() if os == WINDOWS for name in names
        ]

    def _stored(self, pod: Pod) -> Pod:
        return with_shape(pod, shape_as_stored(pod, self._server))


def _read_node(item: "Item") -> FitNode:
    from memqos.kube.node import Node

    node = item.decode(Node)
    # The API server sets allocatable to capacity in a Node that does not state it.
    side = "capacity" if node.status.allocatable is None else "allocatable"
    amounts: ResourceList | None = getattr(node.status, side)
    if not amounts:
        raise InputError(
            "the Node has no status.allocatable",
            field="status.allocatable",
            hint="take it from a cluster: kubectl get nodes -o yaml",
        )
    if not node.metadata.name:
        raise InputError("required, but missing", field="metadata.name")
    info, admitting = node.status.node_info, admitting_node(node)
    version = None if info is None else info.kubelet_version
    if version is not None:
        try:
            Release.of(version)
        except UnsupportedRelease as error:
            field = "status.nodeInfo.kubeletVersion"
            raise InputError(error.what, field=field, hint=error.hint) from None
    return FitNode(
        node.metadata.name,
        amounts_of(amounts, f"status.{side}"),
        version,
        admitting.os,
        admitting.supplemental_groups_policy,
    )


def _read_snapshot(item: "Item", notes: list[str]) -> tuple[FitNode, list[LocatedPod]]:
    from memqos.manifests.snapshot import Snapshot, check_form
    from memqos.settings.facts import facts_of_snapshot
    from memqos.settings.resolver import resolve
    from memqos.settings.settings import SettingsOptions

    file = item.document.file
    snapshot = check_form(item.decode(Snapshot), file)
    # The note on the release is about that of the whole command.
    facts = msgspec.structs.replace(facts_of_snapshot(snapshot, file), version_source=None)
    node_settings = resolve(facts, SettingsOptions())
    node = snapshot_node(snapshot, file, node_settings)
    name = node.name
    notes.append(f"{name} comes from a snapshot: only cpu, memory and the number of pods are known")
    notes += [f"{name}: {note}" for note in node_settings.notes]
    pods: list[LocatedPod] = [
        (item, msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=name)))
        for pod in snapshot.running
    ]
    return FitNode(name, node.published, snapshot.kubelet or None), pods
