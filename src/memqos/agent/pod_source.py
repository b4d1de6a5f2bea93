"""Where an agent has its pods from."""

import socket
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, cast

from memqos.agent.configuration import Source
from memqos.converge.file_pods import KeptFilePods
from memqos.converge.running import Submit, ask_at_once
from memqos.converge.runtime_labels import Containers, LabelledPods
from memqos.converge.sources import KubeletPods, PodSource
from memqos.errors import MemqosError, Unreachable
from memqos.host.kubelet import Credentials, KubeletEndpoint
from memqos.host.owner_discovery import reach
from memqos.kube.node import Node
from memqos.kube.pod import Pod
from memqos.plan.names import Runtime

if TYPE_CHECKING:
    from memqos.converge.cluster import FollowedNode
    from memqos.host.cri import Listed

_TIMEOUT: Final = 2.0
"""Seconds a runtime may take to answer."""
_SILENT: Final = 60.0
"""Seconds without a word after which a cluster counts as away: its last state stays in force."""


class StillAsking(MemqosError):
    """A source was asked for its pods, and there is no new answer yet."""


class AskedPods(KubeletPods):
    """The pods a kubelet says it has, without waiting for it; it is asked through `submit`."""

    def __init__(self, endpoint: KubeletEndpoint, submit: Submit) -> None:
        super().__init__(endpoint)
        self._submit = submit
        self._answer: Future[list[Pod]] | None = None
        self._is_outdated = False
        """Whether there was reason to ask again since."""
        self.is_missed = True
        """Whether the last answer told no pods, or there was none yet."""

    @property
    def has_answer(self) -> bool:
        """Whether there is one that `pods` has not given yet."""
        return self._answer is not None and self._answer.done()

    def pods(self) -> list[Pod]:
        """Those of an answer that is there, once, or else have the kubelet asked."""
        if self._answer is None:
            self._ask()
        elif not self.has_answer:
            self._is_outdated = True
        answer = self._answer
        if answer is None or not answer.done():
            raise StillAsking(f"{self.endpoint.url}: no answer yet")
        self._answer = None
        if self._is_outdated:
            self._ask()
        self.is_missed = True
        pods = answer.result()
        self.is_missed = False
        return pods

    def stop(self) -> None:
        """Break off the question under way."""
        self.endpoint.break_off()

    def _ask(self) -> None:
        self._is_outdated = False
        self._answer = self._submit(super().pods)


def source_of(
    given: Source,
    listed: Callable[[], Containers] = dict,
    on_change: Callable[[], None] | None = None,
    submit: Submit = ask_at_once,
) -> PodSource:
    """Where the pods come from; `listed` tells what containers run, for bare manifests.

    A cluster is followed from now on until the source is stopped; `on_change` is called from other
    threads. A kubelet is asked through `submit`.
    """
    if given.cluster:
        return _followed(given, on_change)
    if given.kubelet is None:
        node = socket.gethostname().lower()
        return LabelledPods(KeptFilePods(given.files), listed, node)
    credentials = {name: getattr(given, name) for name in Credentials.__struct_fields__}
    return AskedPods(KubeletEndpoint(given.kubelet, Credentials(**credentials)), submit)


def has_answer(source: PodSource) -> bool:
    """Whether a source that was asked for its pods has an answer that nobody has taken in."""
    return isinstance(source, AskedPods) and source.has_answer


def is_missed(source: PodSource) -> bool:
    """Whether a source that is asked for its pods has not told them when it was last."""
    return isinstance(source, AskedPods) and source.is_missed


def followed_by(source: PodSource) -> "FollowedNode | None":
    """The source, if it follows a node of a cluster."""
    # What asks a cluster is not loaded where none is asked.
    return cast("FollowedNode", source) if hasattr(source, "silent_for") else None


def silence_of(source: PodSource) -> str | None:
    """Why a source that follows its pods goes by what it heard long ago; None where it does not."""
    followed = followed_by(source)
    if followed is None or followed.fault is None or followed.silent_for < _SILENT:
        return None
    return str(followed.fault)


def node_of(source: PodSource) -> Node | None:
    """The Node, as a source that follows it last heard; None where there is none, or not yet."""
    followed = followed_by(source)
    return None if followed is None else followed.node()


def kubelet_asked(source: PodSource) -> KubeletEndpoint | None:
    """Whom to ask for a kubelet's version and configuration; None where nobody can be."""
    if isinstance(source, KubeletPods):
        return source.endpoint
    followed, node = followed_by(source), node_of(source)
    if followed is None or node is None:
        return None
    from memqos.converge.cluster import kubelet_of

    return kubelet_of(node, followed.server.access)


def stop(source: PodSource) -> None:
    """Let go of a source that follows its pods, or is being asked."""
    end = getattr(source, "stop", None)
    if end is not None:
        end()


def _followed(given: Source, on_change: Callable[[], None] | None) -> PodSource:
    from memqos.converge.cluster import FollowedNode
    from memqos.host.apiserver.access import access
    from memqos.host.apiserver.connection import ApiServer

    node = given.node_name or socket.gethostname().lower()
    followed = FollowedNode(ApiServer(access()), node, on_change=on_change)
    followed.start()
    return followed


def listed_below(root: str, cri_socket: str | None = None) -> Containers:
    """The containers of all runtimes that answer, where the cgroups are a kernel's."""
    found: dict[Runtime, list[Listed]] = {}
    try:
        sockets = reach(root, cri_socket).sockets
    except Unreachable:
        return {}
    for runtime, address in sockets.items():
        from memqos.host import cri

        client = cri.Runtime(address, _TIMEOUT)
        try:
            found[runtime] = client.containers()
        except MemqosError:
            continue  # its pods stay unresolved, and are told of as such
        finally:
            client.close()
    return found
