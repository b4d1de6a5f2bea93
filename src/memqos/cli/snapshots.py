"""What commands take from a snapshot besides its pods and cgroups."""

from typing import TYPE_CHECKING

from memqos.cli.kubelets import find_document, kubelet_in_document
from memqos.manifests.documents import Document
from memqos.manifests.snapshot import Snapshot
from memqos.plan.names import CgroupNames, cgroup_names
from memqos.release import DEFAULT_MINOR, Release

if TYPE_CHECKING:
    from memqos.kube.kubelet.reading import KubeletSettings


def snapshot_configuration(snapshot: Snapshot, file: str) -> Document | None:
    """The kubelet's configuration as it stands, unread; None where there is none."""
    if not snapshot.kubelet_configuration:
        return None
    text, name = snapshot.kubelet_configuration.encode(), f"{file} (kubelet_configuration)"
    return find_document(text, name, "KubeletConfiguration")


def snapshot_kubelet(
    snapshot: Snapshot, file: str, release: Release | None = None
) -> "KubeletSettings | None":
    """The kubelet that is configured so, by default of its own release."""
    document = snapshot_configuration(snapshot, file)
    if document is None:
        return None
    return kubelet_in_document(document, release or Release.of(snapshot.kubelet or DEFAULT_MINOR))


def snapshot_cgroup_names(snapshot: Snapshot, file: str) -> CgroupNames:
    """How the node names its cgroups; without a configuration, as most nodes do."""
    kubelet = snapshot_kubelet(snapshot, file)
    if kubelet is None:
        return cgroup_names(snapshot.driver)
    return cgroup_names(snapshot.driver, kubelet.config.cgroup_root)
