"""What commands take from a snapshot besides its pods and cgroups."""

from typing import TYPE_CHECKING

from memqos.cli.kubelets import document_of, kubelet_in
from memqos.manifests.documents import Document
from memqos.manifests.snapshot import Snapshot
from memqos.plan.names import CgroupNames, cgroup_names
from memqos.release import DEFAULT_MINOR, Release

if TYPE_CHECKING:
    from memqos.kube.kubelet.reading import Kubelet


def configuration_of(snapshot: Snapshot, file: str) -> Document | None:
    """The kubelet's configuration as it stands, unread; None where there is none."""
    if not snapshot.kubelet_configuration:
        return None
    text, name = snapshot.kubelet_configuration.encode(), f"{file} (kubelet_configuration)"
    return document_of(text, name, "KubeletConfiguration")


def kubelet_of(snapshot: Snapshot, file: str, release: Release | None = None) -> "Kubelet | None":
    """The kubelet that is configured so, by default of its own release."""
    document = configuration_of(snapshot, file)
    if document is None:
        return None
    return kubelet_in(document, release or Release.of(snapshot.kubelet or DEFAULT_MINOR))


def names_in(snapshot: Snapshot, file: str) -> CgroupNames:
    """How the node names its cgroups; without a configuration, as most nodes do."""
    kubelet = kubelet_of(snapshot, file)
    if kubelet is None:
        return cgroup_names(snapshot.driver)
    return cgroup_names(snapshot.driver, kubelet.config.cgroup_root)
