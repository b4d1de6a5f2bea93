"""A policy for new pods, out of a file."""

from memqos.errors import InputError
from memqos.findings.policy import AdmissionPolicy
from memqos.findings.policy_reading import policy_from_document
from memqos.host.manifests import load_files
from memqos.manifests.documents import Document, read_documents


def read_policy(file: str) -> AdmissionPolicy:
    """The one policy that a file holds."""
    found = list(read_documents(read_content(file), file))
    for document in found:
        if isinstance(document, InputError):
            raise document
    documents = [document for document in found if isinstance(document, Document)]
    if len(documents) != 1:
        raise InputError(f"{len(documents)} documents, where one policy is expected", file=file)
    return policy_from_document(documents[0])


def read_content(file: str) -> bytes:
    """What a file holds; one that cannot be read is refused."""
    ((_, data),) = load_files([file])
    if isinstance(data, InputError):
        raise data
    return data
