"""A kubelet's configuration, or another single object, out of a file."""

from typing import TYPE_CHECKING

from memqos.errors import InputError
from memqos.host.manifests import load_file
from memqos.manifests.documents import Document, read_documents
from memqos.release import Release

if TYPE_CHECKING:
    from memqos.kube.kubelet.reading import KubeletSettings


def read_document(file: str, kind: str) -> Document:
    """The first document of a kind; a file without one is refused."""
    name, data = load_file(file)
    return find_document(data, name, kind)


def find_document(data: bytes, name: str, kind: str) -> Document:
    """The same of a file that was read; `name` is what errors call it."""
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
    """The configuration a document holds, with the place of what is wrong with it."""
    from memqos.kube.kubelet.reading import kubelet_from

    try:
        return kubelet_from(document.data, release, file=document.file)
    except InputError as error:
        raise document.error(error.what, error.field or (), error.hint) from None
