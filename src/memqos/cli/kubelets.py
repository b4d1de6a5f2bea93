"""A kubelet's configuration, or another single object, out of a file."""

from typing import TYPE_CHECKING

from memqos.errors import InputError
from memqos.host.manifests import load_one
from memqos.manifests.documents import Document, read
from memqos.release import Release

if TYPE_CHECKING:
    from memqos.kube.kubelet.reading import Kubelet


def only_document(file: str, kind: str) -> Document:
    """The first document of a kind; a file without one is refused."""
    name, data = load_one(file)
    return document_of(data, name, kind)


def document_of(data: bytes, name: str, kind: str) -> Document:
    """The same of a file that was read; `name` is what errors call it."""
    documents: list[Document] = []
    for found in read(data, name):
        if isinstance(found, InputError):
            raise found
        documents.append(found)
    for document in documents:
        if document.kind == kind:
            return document
    raise documents[0].refused(
        f"the file holds a {documents[0].kind or 'nameless kind'}, not a {kind}",
        ("kind",),
        f"give a file with a {kind}",
    )


def kubelet_in(document: Document, release: Release) -> "Kubelet":
    """The configuration a document holds, with the place of what is wrong with it."""
    from memqos.kube.kubelet.reading import kubelet_from

    try:
        return kubelet_from(document.data, release, file=document.file)
    except InputError as error:
        raise document.refused(error.what, error.field or (), error.hint) from None
