"""Where a node's pods come from: files and folders, a snapshot, or the kubelet itself."""

import os
import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

from memqos.errors import InputError, os_reason
from memqos.host.file_version import FileVersion, file_version
from memqos.host.kubelet import NO_CREDENTIALS, KubeletCredentials, KubeletEndpoint
from memqos.host.manifest_files import load_files, manifest_paths
from memqos.kube.pod import Pod
from memqos.manifests.documents import Document, read_documents
from memqos.manifests.objects import NoPods, pods
from memqos.manifests.snapshot import pods_in
from memqos.plan.semantics import is_stored
from memqos.units import name_some

if TYPE_CHECKING:
    from memqos.host.apiserver.events import EventPoster
    from memqos.kube.node import Node


class PodSource(Protocol):
    """The pods of a node, and what their origin knows of the node besides.

    A source names this class as its base, and defines `pods`, `describe` and whatever else it can
    do. What is defined here is right for one that answers at once and knows pods alone.
    """

    @abstractmethod
    def pods(self) -> list[Pod]:
        """All of them; what cannot be read raises, as a skipped pod would be planned away.

        Of a folder one file does not block the others: see `faults`.
        """

    @abstractmethod
    def describe(self) -> str:
        """What a person would call it."""

    @property
    def faults(self) -> Sequence[InputError]:
        """What could not be read of folders when the pods were last requested."""
        return ()

    def node(self) -> "Node | None":
        """The Node object; None where the source has none, or not yet."""
        return None

    def kubelet_endpoint(self, node: "Node | None") -> KubeletEndpoint | None:
        """Whom to ask for the version and configuration of the kubelet of `node`, as given above.

        None where there is no API server.
        """
        return None

    def event_poster(self) -> "EventPoster | None":
        """Sends events to the cluster that the pods come from; None where they come from none."""
        return None

    # For a source that an agent keeps: its answers may come later, or from a watch.

    @property
    def has_answer(self) -> bool:
        """Whether `pods` was requested, and has since been answered."""
        return False

    @property
    def lacks_pods(self) -> bool:
        """Whether the last request for pods has failed, or none was answered yet."""
        return False

    @property
    def stale_reason(self) -> str | None:
        """Why the pods are as of long ago; None where they are current."""
        return None

    def stop(self) -> None:
        """End threads, watches and requests under way."""
        return


class FilePods(PodSource):
    """Pods out of files and folders: manifests, lists of pods, snapshots.

    A folder holds whatever an application needs, so objects without pods are skipped there.
    """

    faults: Sequence[InputError] = ()

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def pods(self) -> list[Pod]:
        found: list[Pod] = []
        faults: list[InputError] = []
        for path in self._paths:
            from_folder = os.path.isdir(path)
            for name, data in load_files([path]):
                here = _pods_in(name, data, from_folder=from_folder)
                found += here.pods
                faults += here.faults
        self.faults = faults
        if faults and not found:
            raise faults[0]
        return pods_of_one_node(found, self.describe())

    def describe(self) -> str:
        return ", ".join(self._paths)


class KubeletPods(PodSource):
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

    def kubelet_endpoint(self, node: "Node | None") -> KubeletEndpoint:
        return self.endpoint


class _Answer(msgspec.Struct, frozen=True):
    kind: str = ""
    items: tuple[Pod, ...] | None = None


PODS_API_SOCKET: Final = "/var/lib/kubelet/pods-api/pods-api.sock"
"""Where a kubelet with the default --root-dir serves it."""
PODS_API: Final = "podsapi"
"""What commands and the configuration call it."""


def pods_api_socket(text: str) -> str | None:
    """The socket that `podsapi` or `podsapi:PATH` names; None for any other text."""
    name, _, path = text.partition(":")
    return (path or PODS_API_SOCKET) if name == PODS_API else None


class PodsApiPods(PodSource):
    """The pods a kubelet lists on its PodsAPI, listed at each call."""

    def __init__(self, socket: str = PODS_API_SOCKET) -> None:
        self._socket = socket

    def pods(self) -> list[Pod]:
        from memqos.host.pods_api import PodsApiClient

        return PodsApiClient(self._socket).list_pods()

    def describe(self) -> str:
        return describe_pods_api(self._socket)


def describe_pods_api(socket: str) -> str:
    """What a person would call the kubelet behind a socket."""
    return f"the kubelet's PodsAPI at {socket}"


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
            f"these are pods of {len(nodes)} nodes: {name_some(nodes)}",
            file=origin,
            hint="take those of one: kubectl get pods -A -o json "
            "--field-selector spec.nodeName=NODE",
        )
    return [pod for pod in pods if pod.spec.node_name or not is_stored(pod)]


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


_TICK: Final = 50_000_000
"""Nanoseconds in which a file may be written twice with nothing to show for it."""


class CachedFilePods(PodSource):
    """The pods of files and folders; a folder may be empty.

    A file in a folder that can no longer be read stands for the pods it had before: half of a
    manifest, as while it is being written, does not plan them away.
    """

    faults: Sequence[InputError] = ()

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._last_read: dict[str, tuple[FileVersion | None, list[Pod]]] = {}
        """What each file had when it could last be read as a whole."""

    def pods(self) -> list[Pod]:
        read: dict[str, tuple[FileVersion | None, list[Pod]]] = {}
        faults: list[InputError] = []
        found: list[Pod] = []
        for file, from_folder in self._files():
            version = _stable_version(file)
            before = self._last_read.get(file)
            if before is None or version is None or before[0] != version:
                now = pods_in_file(file, from_folder=from_folder)
                faults += now.faults
                if not now.faults:
                    before = version, now.pods
                elif before is None:
                    found += now.pods
                else:
                    before = None, before[1]
            if before is not None:
                read[file] = before
                found += before[1]
        self._last_read, self.faults = read, faults
        if faults and not found:
            raise faults[0]
        return pods_of_one_node(found, self.describe())

    def describe(self) -> str:
        return ", ".join(self._paths)

    def _files(self) -> Iterator[tuple[str, bool]]:
        for path in self._paths:
            if not os.path.isdir(path):
                yield path, False
                continue
            for found in manifest_paths(path):
                if isinstance(found, OSError):
                    raise InputError(os_reason(found), file=found.filename)
                yield found, True


def _stable_version(file: str) -> FileVersion | None:
    """The version of a file; None where another write may still give the same one."""
    try:
        version = file_version(file)
    except OSError as error:
        raise InputError(os_reason(error), file=file) from None
    return None if time.time_ns() - version.modified < _TICK else version
