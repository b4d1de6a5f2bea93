"""Load the snapshot of a node, and the kubelet configuration in it."""

from typing import TYPE_CHECKING

from memqos.errors import InputError
from memqos.host.manifest_files import load_file
from memqos.manifests.documents import Document, read_documents
from memqos.manifests.snapshot import Snapshot, read_snapshot
from memqos.plan.names import CgroupNames, cgroup_names
from memqos.release import DEFAULT_MINOR, Release

if TYPE_CHECKING:
    from memqos.kube.kubelet.reading import KubeletSettings


def load_snapshot(file: str) -> Snapshot:
    """The snapshot in a file; an unknown format is refused."""
    name, data = load_file(file)
    return read_snapshot(data, name)


def read_document(file: str, kind: str) -> Document:
    """The first document of a kind; a file without one is refused."""
    name, data = load_file(file)
    return find_document(data, name, kind)


def find_document(data: bytes, name: str, kind: str) -> Document:
    """The first document of a kind in a file's content; `name` is the file's in errors."""
    documents: list[Document] = []
    for found in read_documents(data, name):
        if isinstance(found, InputError):
            raise found
        documents.append(found)
    for document in documents:
        if document.kind == kind:
            return document
    raise documents[0].error(
        f"the file holds a {documents[0].kind or 'nameless kind'}, not a {kind}",
        ("kind",),
        f"give a file with a {kind}",
    )


def kubelet_in_document(document: Document, release: Release) -> "KubeletSettings":
    """The configuration in a document; an error names the line."""
    from memqos.kube.kubelet.reading import kubelet_from

    try:
        return kubelet_from(document.data, release, file=document.file)
    except InputError as error:
        raise document.error(error.what, error.field or (), error.hint) from None


def snapshot_configuration(snapshot: Snapshot, file: str) -> Document | None:
    """The kubelet's configuration in a snapshot, not yet decoded; None where there is none."""
    if not snapshot.kubelet_configuration:
        return None
    text, name = snapshot.kubelet_configuration.encode(), f"{file} (kubelet_configuration)"
    return find_document(text, name, "KubeletConfiguration")


def snapshot_kubelet(
    snapshot: Snapshot, file: str, release: Release | None = None
) -> "KubeletSettings | None":
    """The kubelet's settings in a snapshot, by default for its own release."""
    document = snapshot_configuration(snapshot, file)
    if document is None:
        return None
    return kubelet_in_document(document, release or Release.of(snapshot.kubelet or DEFAULT_MINOR))


def snapshot_cgroup_names(snapshot: Snapshot, file: str) -> CgroupNames:
    """How the node names its cgroups; without a configuration, by the default cgroup root."""
    kubelet = snapshot_kubelet(snapshot, file)
    if kubelet is None:
        return cgroup_names(snapshot.driver)
    return cgroup_names(snapshot.driver, kubelet.config.cgroup_root)
