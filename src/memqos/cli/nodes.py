"""Nodes and the pods on them, out of files, as the scheduler counts them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from memqos.cli.reading import Reader
from memqos.cluster.fit_demand import PODS, Demand, Room, demands_of, occupies_node, room_of
from memqos.draw.amounts import counted
from memqos.errors import InputError
from memqos.kube.defaulting import defaulted
from memqos.kube.pod import Pod, ResourceList
from memqos.kube.resources import Amounts
from memqos.kube.shape import Shape, amounts_of, shape_of
from memqos.manifests.workloads import Template
from memqos.release import DEFAULT_MINOR, Release

if TYPE_CHECKING:
    from memqos.manifests.objects import Item
    from memqos.manifests.snapshot import Snapshot

Found = tuple[Template, Pod]
"""A pod and where it comes from."""

_DEFAULT_MAX_PODS: Final = 110


class Given(msgspec.Struct, frozen=True):
    """A node as a file describes it; amounts in thousandths."""

    name: str
    allocatable: Amounts
    version: str | None


class Nodes(msgspec.Struct, frozen=True):
    """All nodes, and the pods that files hold beside them."""

    nodes: tuple[Given, ...]
    pods: tuple[Found, ...]
    notes: tuple[str, ...] = ()

    @property
    def newest_kubelet(self) -> str | None:
        """The version of the newest kubelet, if any is known."""
        versions = [node.version for node in self.nodes if node.version is not None]
        return max(versions, key=lambda version: Release.of(version).minor, default=None)


def read_nodes(reader: Reader, file: str) -> Nodes:
    """Nodes, or snapshots of nodes, and the Pods among them; faults are counted by the reader."""
    nodes: list[Given] = []
    pods: list[Found] = []
    notes: list[str] = []
    for item in reader.objects([file], ("Node", "Pod", "Snapshot")):
        try:
            if item.kind == "Node":
                nodes.append(_node(item))
            elif item.kind == "Pod":
                pods.append((item, item.decode(Pod)))
            else:
                node, of_node = _of_snapshot(item, notes)
                nodes.append(node)
                pods += of_node
        except InputError as error:
            reader.refuse(item.located(error))
    if not nodes and not reader.faults:
        reader.refuse(InputError("there is no Node in it", file=file))
    return Nodes(tuple(nodes), tuple(pods), tuple(notes))


def rooms(
    reader: Reader, nodes: Nodes, more: Iterable[Found], release: Release
) -> tuple[list[Room], list[str]]:
    """The nodes with what the pods bound to them hold, and what a person should know."""
    bound: dict[str, list[Demand]] = {node.name: [] for node in nodes.nodes}
    there = [each for each in (*nodes.pods, *more) if occupies_node(each[1])]
    known = demands(reader, there, release)
    pending = elsewhere = 0
    for (_, pod), demand in known:
        if pod.spec.node_name is None:
            pending += 1
        elif pod.spec.node_name not in bound:
            elsewhere += 1
        else:
            bound[pod.spec.node_name].append(demand)
    notes = list(nodes.notes)
    if unread := len(there) - len(known):
        notes.append(f"not counted: {counted(unread, 'pod')} that cannot be read")
    if pending:
        notes.append(f"not counted: {counted(pending, 'pod')} bound to no node")
    if elsewhere:
        notes.append(f"not counted: {counted(elsewhere, 'pod')} of nodes that are not given")
    return [room_of(node.name, node.allocatable, bound[node.name]) for node in nodes.nodes], notes


def demands(reader: Reader, pods: Sequence[Found], release: Release) -> list[tuple[Found, Demand]]:
    """What each pod asks for; one that cannot be read is told of, and left out."""
    found: list[tuple[Found, Demand]] = []
    left = iter(pods)
    each: Found | None = None

    def of_those_left() -> Iterator[Pod]:
        nonlocal each
        for each in left:
            yield each[1]

    while True:
        try:
            for demand in demands_of(of_those_left(), release, shape):
                assert each is not None
                found.append((each, demand))
            return found
        except InputError as error:
            assert each is not None
            reader.refuse(each[0].located(error))


def shape(pod: Pod, release: Release) -> Shape:
    """A pod that has a status was defaulted when it was created; another one is now."""
    return defaulted(pod, release) if pod.status is None else shape_of(pod, release)


def _node(item: "Item") -> Given:
    from memqos.kube.node import Node

    node = item.decode(Node)
    # The API server gives a Node that says nothing of allocatable all of its capacity.
    side = "capacity" if node.status.allocatable is None else "allocatable"
    amounts: ResourceList | None = getattr(node.status, side)
    if not amounts:
        raise InputError(
            "the Node does not say what it has",
            field="status.allocatable",
            hint="take it from a cluster: kubectl get nodes -o yaml",
        )
    if not node.metadata.name:
        raise InputError("required, but missing", field="metadata.name")
    info = node.status.node_info
    return Given(
        node.metadata.name,
        amounts_of(amounts, f"status.{side}"),
        None if info is None else info.kubelet_version,
    )


def _of_snapshot(item: "Item", notes: list[str]) -> tuple[Given, list[Found]]:
    from memqos.manifests.snapshot import Snapshot, of_known_form

    snapshot = of_known_form(item.decode(Snapshot), item.document.file)
    names = [pod.spec.node_name for pod in snapshot.running if pod.spec.node_name]
    name = names[0] if names else item.document.file
    notes.append(f"{name} is made of a snapshot: only cpu, memory and places for pods are known")
    pods: list[Found] = [
        (item, msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=name)))
        for pod in snapshot.running
    ]
    allocatable = _allocatable(snapshot, item.document.file)
    return Given(name, allocatable, snapshot.kubelet or None), pods


def _allocatable(snapshot: "Snapshot", file: str) -> Amounts:
    from memqos.cli.kubelets import kubelet_in
    from memqos.cli.snapshots import configuration_of, names_in
    from memqos.kube.kubelet import configured
    from memqos.kube.node import Capacity, allocatable

    release = Release.of(snapshot.kubelet or DEFAULT_MINOR)
    config, places = configured({}, release.minor), _DEFAULT_MAX_PODS
    document = configuration_of(snapshot, file)
    if document is not None:
        kubelet = kubelet_in(document, release)
        config, release = kubelet.config, kubelet.release
        places = document.data.get("maxPods") or places
    kubepods = names_in(snapshot, file).kubepods
    cpus = _count(snapshot.cgroups.get(kubepods, {}).get("cpuset.cpus", ""))
    if not cpus:
        raise InputError(
            "the snapshot does not say which cpus pods may use",
            field="cgroups",
            hint=f"{kubepods} has no cpuset.cpus: give the Node instead",
        )
    capacity = Capacity(cpu=cpus * 1000, memory=snapshot.memory)
    published = allocatable(capacity, config, release).published
    return {name: amount.milli for name, amount in published.items()} | {PODS: places * 1000}


def _count(cpus: str) -> int:
    """How many cpus a list such as 0-3,8 names."""
    count = 0
    for part in filter(None, cpus.strip().split(",")):
        first, _, last = part.partition("-")
        count += int(last or first) - int(first) + 1
    return count
