"""Where a node's pods come from: files and folders, a snapshot, or the kubelet itself."""

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec

from memqos.errors import InputError
from memqos.host.kubelet import NO_CREDENTIALS, KubeletCredentials, KubeletEndpoint
from memqos.host.manifests import load_files
from memqos.kube.pod import Pod
from memqos.manifests.documents import Document, read_documents
from memqos.manifests.snapshot import pods_in
from memqos.manifests.workloads import NoPods, pods


class PodSource(Protocol):
    """Something that knows the pods of a node."""

    def pods(self) -> list[Pod]:
        """All of them; what cannot be read raises, as a pod left out would be planned away.

        Of a folder one file does not hold up the others: see `faults_of`.
        """
        ...

    def describe(self) -> str:
        """What a person would call it."""
        ...


class FilePods:
    """Pods out of files and folders: manifests, lists of pods, snapshots.

    A folder holds whatever an application needs, so objects without pods are passed over there.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self.faults: list[InputError] = []

    def pods(self) -> list[Pod]:
        found, self.faults = [], []
        for path in self._paths:
            from_folder = os.path.isdir(path)
            for name, data in load_files([path]):
                here = _pods_in(name, data, from_folder=from_folder)
                found += here.pods
                self.faults += here.faults
        if self.faults and not found:
            raise self.faults[0]
        return pods_of_one_node(found, self.describe())

    def describe(self) -> str:
        return ", ".join(self._paths)


class KubeletPods:
    """The pods a kubelet says it has."""

    def __init__(self, endpoint: KubeletEndpoint) -> None:
        self.endpoint = endpoint

    def pods(self) -> list[Pod]:
        data, name = self.endpoint.get("/pods"), f"{self.endpoint.url}/pods"
        try:
            answer = msgspec.json.decode(data, type=_Answer)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(
                f"the answer is not a list of pods ({error})",
                file=name,
                hint="is this the address of a kubelet?",
            ) from None
        if answer.kind != "PodList":
            raise InputError(
                "the answer is not a PodList", file=name, hint="is this the address of a kubelet?"
            )
        return list(answer.items or ())

    def describe(self) -> str:
        return f"the kubelet at {self.endpoint.url}"


class _Answer(msgspec.Struct, frozen=True):
    kind: str = ""
    items: tuple[Pod, ...] | None = None


def faults_of(source: PodSource | None) -> Sequence[InputError]:
    """What a source could not read of its folders when it was last asked for its pods."""
    found: Sequence[InputError] = getattr(source, "faults", ())
    return found


def parse_pod_source(text: str, credentials: KubeletCredentials = NO_CREDENTIALS) -> PodSource:
    """The source a person means: a kubelet's URL, else a file or folder."""
    return KubeletPods(KubeletEndpoint(text, credentials)) if is_url(text) else FilePods([text])


def is_url(text: str) -> bool:
    """Whether a source is an address rather than a file."""
    return "://" in text


def pods_of_one_node(pods: Sequence[Pod], origin: str) -> list[Pod]:
    """The pods of a node; those no scheduler has placed yet are on none.

    Pods of several nodes would be planned as if they shared one, so they are refused.
    """
    nodes = sorted({pod.spec.node_name for pod in pods if pod.spec.node_name})
    if len(nodes) > 1:
        raise InputError(
            f"these are pods of {len(nodes)} nodes: {', '.join(nodes[:3])}"
            + (" …" if len(nodes) > 3 else ""),
            file=origin,
            hint="take those of one: kubectl get pods -A -o json "
            "--field-selector spec.nodeName=NODE",
        )
    return [pod for pod in pods if pod.spec.node_name or not _is_stored(pod)]


def _is_stored(pod: Pod) -> bool:
    return pod.metadata.uid is not None and pod.status is not None


class PodsOfFile(NamedTuple):
    """The pods one file holds, and what of it cannot be read: of a file that was named, nothing."""

    pods: list[Pod]
    faults: list[InputError]


def pods_in_file(path: str, *, from_folder: bool) -> PodsOfFile:
    """The pods one file holds; what cannot be read of a file that was named raises."""
    ((name, data),) = load_files([path])
    return _pods_in(name, data, from_folder=from_folder)


def _pods_in(name: str, data: bytes | InputError, *, from_folder: bool) -> PodsOfFile:
    found = PodsOfFile([], [])
    for document in [data] if isinstance(data, InputError) else read_documents(data, name):
        for pod in [document] if isinstance(document, InputError) else _pods_of(document):
            if isinstance(pod, Pod):
                found.pods.append(pod)
            elif not from_folder:
                raise pod.fault if isinstance(pod, NoPods) else pod
            elif isinstance(pod, InputError):
                found.faults.append(pod)
    return found


def _pods_of(document: Document) -> Iterator[Pod | NoPods | InputError]:
    for found in pods(pods_in(document)):
        if isinstance(found, NoPods | InputError):
            yield found
            continue
        try:
            yield found.decode(Pod)
        except InputError as error:
            yield error
