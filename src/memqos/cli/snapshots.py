"""Snapshots out of files, and what commands take from them."""

from typing import TYPE_CHECKING

from memqos.api.snapshot import Snapshot, read_snapshot
from memqos.cli.kubelets import document_of, kubelet_in
from memqos.errors import InputError
from memqos.host.manifests import load
from memqos.plan.names import CgroupNames, cgroup_names
from memqos.release import DEFAULT_MINOR, Release

if TYPE_CHECKING:
    from memqos.api.kubelet_reading import Kubelet


def snapshot_from(file: str) -> Snapshot:
    """The snapshot in a file."""
    for name, data in load([file]):
        if isinstance(data, InputError):
            raise data
        return read_snapshot(data, name)
    raise InputError("nothing to read", file=file)


def kubelet_of(snapshot: Snapshot, file: str, release: Release | None = None) -> "Kubelet":
    """The kubelet's configuration, by default under the kubelet's own release."""
    text = snapshot.kubelet_configuration.encode()
    document = document_of(text, f"{file}, kubelet_configuration", "KubeletConfiguration")
    return kubelet_in(document, release or Release.of(snapshot.kubelet or DEFAULT_MINOR))


def names_in(snapshot: Snapshot, file: str) -> CgroupNames:
    """How the node names its cgroups; without a configuration, as most nodes do."""
    if not snapshot.kubelet_configuration:
        return cgroup_names(snapshot.driver)
    return cgroup_names(snapshot.driver, kubelet_of(snapshot, file).config.cgroup_root)
