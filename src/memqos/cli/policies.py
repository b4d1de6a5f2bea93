"""A policy for new pods, out of a file."""

from memqos.errors import InputError
from memqos.findings.policy import Policy
from memqos.findings.policy_reading import policy_from
from memqos.host.manifests import load
from memqos.manifests.documents import Document, read


def policy_in(file: str) -> Policy:
    """The one policy that a file holds."""
    found = list(read(content_of(file), file))
    for document in found:
        if isinstance(document, InputError):
            raise document
    documents = [document for document in found if isinstance(document, Document)]
    if len(documents) != 1:
        raise InputError(f"{len(documents)} documents, where one policy is expected", file=file)
    return policy_from(documents[0])


def content_of(file: str) -> bytes:
    """What a file holds; one that cannot be read is refused."""
    ((_, data),) = load([file])
    if isinstance(data, InputError):
        raise data
    return data
