"""What is known of a node before any option is read: versions, kubelet configuration, memory."""

from typing import TYPE_CHECKING, Final

import msgspec

from memqos.errors import InputError
from memqos.kube.kubelet import CgroupDriver
from memqos.kube.kubelet.drivers import kubepods_in
from memqos.kube.node import Capacity, Node, capacity_of, node_os, published_memory, swap_of
from memqos.kube.resources import MEMORY

if TYPE_CHECKING:
    from memqos.kernel.machine import Machine
    from memqos.manifests.snapshot import Snapshot

CONFIGZ_PATH: Final = "/configz"
"""How the name of a configuration ends that the kubelet itself has answered with."""


class RawKubeletConfig(msgspec.Struct, frozen=True):
    """A KubeletConfiguration as bytes, still to be decoded, and what errors call it."""

    name: str
    data: bytes
    is_in_use: bool = False
    """Whether a kubelet runs with it, by its own answer or the flags of its process."""
    flag_gates: tuple[str, ...] = ()
    """Feature gates that a flag sets, and no file."""

    @property
    def is_from_kubelet(self) -> bool:
        """Whether the running kubelet has answered with it."""
        return self.name.endswith(CONFIGZ_PATH)


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A node as it shows itself; what is not known is None."""

    version: str | None = None
    """That of the running kubelet."""
    version_source: str | None = None
    """Whose version that is, for a note; None where the source was reported with the facts."""
    why_version_unknown: str | None = None
    version_on_path: str | None = None
    """That of a `kubelet` on PATH, which need not be the one that runs: only ever a guess."""
    server_version: str | None = None
    """That of the API server."""
    configuration: RawKubeletConfig | None = None
    why_configuration_unknown: str | None = None
    """Why the running kubelet did not tell its configuration, where it was asked."""
    driver: CgroupDriver | None = None
    """As the names of the cgroups show it; None where no kubelet has created any."""
    memory: int | None = None
    """Bytes of RAM, by the kernel."""
    capacity: Capacity | None = None
    """What the Node says it has."""
    published: int | None = None
    """Memory that the Node says is allocatable."""
    swap: int | None = None
    """Bytes of swap space."""
    page_size: int | None = None
    os: str | None = None
    """Of the kubelet: linux or windows."""
    kernel: str | None = None
    """The kernel's release, such as 6.1.0-54-cloud-amd64."""
    is_observed: bool = False
    """Whether this is a machine as it runs, live or in a snapshot: what is not known of it is worth
    a note, and what its Node says counts."""

    @property
    def is_trial(self) -> bool:
        """Whether a person tries a configuration out, so that allocatable follows from it.

        That is so beside a Node in a file. On a machine the Node's figure counts, whatever a file
        says.
        """
        return self.configuration is not None and not self.is_observed


def facts_of_machine(
    machine: "Machine",
    configuration: RawKubeletConfig | None,
    driver: CgroupDriver | None,
    node: Node | None = None,
) -> NodeFacts:
    """The facts of a machine that is to be planned; one without cgroup v2 is refused.

    Flags may have changed what a configuration file says, so the version, capacity and allocatable
    memory of its Node come first.
    """
    if machine.layout is not None and machine.layout != "v2":
        raise InputError(
            "there is no cgroup v2 hierarchy here, and memqos supports only cgroup v2",
            hint="boot with systemd.unified_cgroup_hierarchy=1",
        )
    if machine.memory is None:
        raise InputError("the node's memory is unknown", field="meminfo")
    info = None if node is None else node.status.node_info
    has_memory = node is not None and MEMORY in (node.status.capacity or {})
    return NodeFacts(
        version=(None if info is None else info.kubelet_version) or machine.kubelet,
        why_version_unknown=machine.missing.get("kubelet"),
        version_on_path=machine.kubelet_on_path,
        configuration=configuration,
        driver=driver,
        memory=machine.memory,
        capacity=capacity_of(node) if node is not None and has_memory else None,
        published=None if node is None else published_memory(node),
        swap=machine.swap,
        page_size=machine.page_size,
        kernel=machine.kernel,
        is_observed=True,
    )


def facts_of_snapshot(snapshot: "Snapshot", file: str) -> NodeFacts:
    """The facts of a node in a snapshot."""
    kubepods = kubepods_in(snapshot.cgroups)
    machine = snapshot.machine
    return NodeFacts(
        version=machine.kubelet,
        version_source="the node's kubelet",
        configuration=snapshot_configuration(snapshot, file),
        driver=kubepods[0].driver if kubepods else None,
        memory=machine.memory,
        swap=machine.swap,
        page_size=machine.page_size,
        kernel=machine.kernel,
        is_observed=True,
    )


def snapshot_configuration(snapshot: "Snapshot", file: str) -> RawKubeletConfig | None:
    """The kubelet's configuration in a snapshot; None where there is none."""
    text = snapshot.kubelet_configuration
    return RawKubeletConfig(f"{file} (kubelet_configuration)", text.encode()) if text else None


def facts_of_node(node: Node) -> NodeFacts:
    """The facts of a Node object alone; one that does not say its memory is refused."""
    info = node.status.node_info
    return NodeFacts(
        version=None if info is None else info.kubelet_version,
        version_source="the Node's kubelet",
        os=node_os(node),
        kernel=None if info is None else info.kernel_version,
        capacity=capacity_of(node),
        published=published_memory(node),
        swap=swap_of(node),
    )
