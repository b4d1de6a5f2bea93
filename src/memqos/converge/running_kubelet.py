"""The kubelet that runs on a node: its version and its configuration, and their sources.

Version: the Node, or the kubelet's /metrics, or its process. Configuration: its /configz, or
the flags of its process with the files these name, else the file where kubeadm puts it.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

import msgspec

from memqos.converge.kubelet_endpoint import EndpointFacts, query_kubelet
from memqos.converge.kubelet_process import process_configuration
from memqos.converge.observation import driver_in_tree, read_kubelet_config
from memqos.host.cgroups import CgroupFs
from memqos.host.local_kubelet import KubeletProcess, find_kubelet, is_running, process_version
from memqos.host.machine import SYSTEM, Roots
from memqos.kube.kubelet import KubeletConfiguration, with_defaults
from memqos.kube.kubelet.decoding import decode_kubelet
from memqos.plan.levels import CgroupFilePath, files_kept_by
from memqos.plan.names import CgroupNames, cgroup_names
from memqos.plan.tree import reserved_paths
from memqos.release import DEFAULT_MINOR
from memqos.settings.facts import RawKubeletConfig
from memqos.settings.resolver import configuration_document, kubelet_with

if TYPE_CHECKING:
    from concurrent.futures import Future

    from memqos.converge.pod_sources import PodSource
    from memqos.host.kubelet import KubeletEndpoint
    from memqos.kube.node import Node

_REFRESH_INTERVAL: Final = 300.0
"""Seconds between two requests to a kubelet that answers."""
_FIRST_RETRY: Final = 1.0
_LAST_RETRY: Final = 60.0
"""Seconds between two requests to one that does not, doubling from the first to the last; and
between two searches through all processes, which are thousands on a busy node."""

T = TypeVar("T")


class Submit(Protocol):
    """Runs a request, at once or in another thread."""

    def __call__(self, request: Callable[[], T], /) -> "Future[T]": ...


def run_at_once(request: Callable[[], T]) -> "Future[T]":
    """Run a request, and wait for its reply."""
    from concurrent.futures import Future

    reply: Future[T] = Future()
    reply.set_result(request())
    return reply


class _Request(NamedTuple):
    endpoint: "KubeletEndpoint"
    reply: "Future[EndpointFacts]"


class KubeletFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the kubelet that runs."""

    version: str | None = None
    version_source: str | None = None
    configuration: RawKubeletConfig | None = None
    is_fresh: bool = True
    """Whether the configuration is what the kubelet, or its files, said just now."""
    is_requested: bool = True
    """Whether the request was sent in this very call: a reply may be to an earlier one."""
    is_first_pending: bool = False
    """Whether a request is pending to an endpoint that has never answered, nor failed to."""
    complaints: tuple[str, ...] = ()
    """Why a source gives no answer."""
    why_unknown: str = ""
    """Why there is no version."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Which sources these are."""
        found = []
        if self.version is not None:
            found.append(f"the running kubelet is {self.version}, by {self.version_source}")
        if self.configuration is not None:
            found.append(f"the kubelet's configuration is from {self.configuration.name}")
        return tuple(found)


class KubeletSources:
    """Reads all sources, and remembers their answers while a kubelet is down or starts.

    Requests to the kubelet's endpoint go through `submit`, one at a time. Until the reply is
    there, the last one holds.
    """

    def __init__(
        self,
        roots: Roots = SYSTEM,
        clock: Callable[[], float] = time.monotonic,
        submit: Submit = run_at_once,
    ) -> None:
        self._roots = roots
        self._clock = clock
        self._submit = submit
        self._request: _Request | None = None
        self._is_outdated = False
        """Whether its reply will not do: what it is about may have changed since."""
        self._is_first = False
        """Whether this endpoint has neither answered nor failed to, so far."""
        self._address: str | None = None
        self.endpoint_facts = EndpointFacts()
        """The last reply of the kubelet's endpoint."""
        self._request_at = float("-inf")
        self._retry = _FIRST_RETRY
        self._process: KubeletProcess | None = None
        self._process_version: str | None = None
        self._flags: RawKubeletConfig | None = None
        self._look_at = float("-inf")
        self._look_after = _FIRST_RETRY
        self._why = ""

    def refresh(self) -> None:
        """Read every source at the next call."""
        self._request_at = self._look_at = float("-inf")
        self._retry = _FIRST_RETRY
        self._is_outdated = self._request is not None

    @property
    def is_request_pending(self) -> bool:
        """Whether a request was sent to the endpoint, and its reply has not been read."""
        return self._request is not None

    @property
    def has_reply(self) -> bool:
        """Whether there is a reply for the next call to read."""
        return self._request is not None and self._request.reply.done()

    def cancel_request(self) -> None:
        """Break off the pending request."""
        request, self._request, self._is_outdated = self._request, None, False
        if request is not None:
            request.endpoint.cancel()
            self._request_at = float("-inf")

    def read_facts(
        self,
        node: "Node | None" = None,
        endpoint: "KubeletEndpoint | None" = None,
        *,
        configuration: bool = True,
    ) -> KubeletFacts:
        """All that is known now; its configuration only where none is stated."""
        now = self._clock()
        info = None if node is None else node.status.node_info
        version = None if info is None else info.kubelet_version
        source: str | None = "its Node"
        is_answered, is_requested = self._read_endpoint(
            endpoint, now, version=version is None, configuration=configuration
        )
        complaints = list(self.endpoint_facts.notes)
        is_there = self.find_process(now)
        if version is None and self.endpoint_facts.version is not None and endpoint is not None:
            version, source = self.endpoint_facts.version, f"{endpoint.url}/metrics"
        if version is None and self._process is not None:
            version, source = self._process_version, f"its program {self._process.arguments[0]}"
        if not configuration:
            found, is_fresh = None, True
        else:
            found, is_fresh = self._configuration(is_answered, is_there, complaints)
            # The file may be newer than the running kubelet: not used while the kubelet may answer.
            is_fresh &= not self.is_request_pending
        return KubeletFacts(
            version=version,
            version_source=None if version is None else source,
            configuration=found,
            is_fresh=is_fresh,
            is_requested=is_requested,
            is_first_pending=self._is_first and self.is_request_pending,
            complaints=tuple(complaints),
            why_unknown=self._why,
        )

    def _configuration(
        self, is_answered: bool, is_there: bool, complaints: list[str]
    ) -> tuple[RawKubeletConfig | None, bool]:
        """The configuration, and whether it is that of now."""
        found, is_fresh = (
            self.endpoint_facts.configuration,
            is_answered and not self.endpoint_facts.is_unreachable,
        )
        if found is None and self._process is not None:
            if is_there and self._flags is None:
                # Once for each process: a kubelet reads its configuration only when it starts
                # (dynamic configuration was removed in 1.24).
                self._flags = process_configuration(self._process, complaints)
            found, is_fresh = self._flags, is_there
        elif found is None:
            file = f"{self._roots.kubelet}/config.yaml"
            found, is_fresh = (
                read_kubelet_config(file, complaints),
                not self.endpoint_facts.is_unreachable,
            )
        return found, is_fresh

    @property
    def retry_at(self) -> float:
        """When to send the next request to a kubelet that did not answer."""
        return (
            self._request_at
            if self.endpoint_facts.is_unreachable and not self.is_request_pending
            else float("inf")
        )

    def find_process(self, now: float) -> bool:
        """Whether the kubelet's process is there, the same one or one started since."""
        proc = self._roots.proc
        if self._process is not None and is_running(self._process, proc):
            if self._process_version is None and now >= self._look_at:
                self._look_at = now + self._look_after
                self._look_after = min(2 * self._look_after, _LAST_RETRY)
                self._process_version = process_version(self._process, proc)
            return True
        if now < self._look_at:
            return False
        found, self._why = find_kubelet(proc)
        if found is None:
            self._look_at = now + self._look_after
            self._look_after = min(2 * self._look_after, _LAST_RETRY)
            return False
        self._look_after = _FIRST_RETRY
        self._process, self._process_version, self._flags = (
            found,
            process_version(found, proc),
            None,
        )
        self._why = f"the program it was started from, {found.arguments[0]}, does not report it"
        return True

    @property
    def process(self) -> KubeletProcess | None:
        """The one that ran at the last search."""
        return self._process

    def _read_endpoint(
        self,
        endpoint: "KubeletEndpoint | None",
        now: float,
        *,
        version: bool,
        configuration: bool,
    ) -> tuple[bool, bool]:
        """Send a request when due: whether a reply came, and whether it is to one of this call."""
        if endpoint is None:
            return False, True
        if endpoint.url != self._address:
            self.cancel_request()
            self._address, self.endpoint_facts, self._request_at = (
                endpoint.url,
                EndpointFacts(),
                float("-inf"),
            )
            self._is_first = True
        is_answered = is_late = self._read_reply(now)
        is_requested = not is_late and not self.is_request_pending
        if now >= self._request_at and not self.is_request_pending:
            call = partial(query_kubelet, endpoint, version=version, configuration=configuration)
            self._request = _Request(endpoint, self._submit(call))
            is_answered, is_requested = self._read_reply(now), True
        return is_answered, is_requested

    def _read_reply(self, now: float) -> bool:
        """Read the reply, if there is one; whether there was."""
        request = self._request
        if request is None or not request.reply.done():
            return False
        self._request = None
        before, reply = self.endpoint_facts, request.reply.result()
        if reply.is_unreachable:
            # Where a kubelet refuses, other sources are read; of one that is silent it is not known
            # whether its configuration has changed.
            reply = msgspec.structs.replace(
                reply,
                version=reply.version or before.version,
                configuration=reply.configuration or before.configuration,
            )
            self._request_at = now + self._retry
            self._retry = min(2 * self._retry, _LAST_RETRY)
        else:
            self._request_at, self._retry = now + _REFRESH_INTERVAL, _FIRST_RETRY
        self.endpoint_facts = reply
        self._is_first = False
        if self._is_outdated:
            self.refresh()
        return True


def kubelet_of_source(source: "PodSource | None") -> "tuple[Node | None, KubeletEndpoint | None]":
    """What a source of pods leads to: the Node, and the endpoint of its kubelet."""
    if source is None:
        return None, None
    node = source.node()
    return node, source.kubelet_endpoint(node)


def reserved_by(configuration: RawKubeletConfig, fs: CgroupFs) -> frozenset[str]:
    """The cgroups that a configuration names as reserved, as a plan of this tree names them."""
    config = _naming_config(configuration)
    return reserved_paths(_names_in_tree(config, fs), config)


def files_kept_with(
    configuration: RawKubeletConfig, version: str, fs: CgroupFs
) -> frozenset[CgroupFilePath] | None:
    """The files above pods that a kubelet of a version keeps; None where one of the two is wrong.

    A kubelet that was just upgraded may tell fields that its former version does not know.
    """
    kubelet = kubelet_with(configuration, version)
    if kubelet is None or kubelet.is_newer:
        return None
    return files_kept_by(kubelet, _names_in_tree(_naming_config(configuration), fs))


def _naming_config(configuration: RawKubeletConfig) -> KubeletConfiguration:
    """A configuration for its names alone.

    Names and driver are the same fields in all releases; what else is wrong with it is no matter.
    """
    written = decode_kubelet(configuration_document(configuration).data, DEFAULT_MINOR).written
    return with_defaults(written, DEFAULT_MINOR)


def _names_in_tree(config: KubeletConfiguration, fs: CgroupFs) -> CgroupNames:
    driver = driver_in_tree(fs, config.cgroup_root) or config.driver
    return cgroup_names(driver, config.cgroup_root)
