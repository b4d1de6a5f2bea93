"""The agent's read endpoint: records and state, over TLS, for callers that the cluster lets read.

A caller shows a bearer token. Who that is says a TokenReview; what they may read says a
SubjectAccessReview: `get` on the very pod for its records, `list` on the pods of all namespaces for
what concerns the whole node. Tokens are neither logged nor stored.
"""

import asyncio
import re
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

from memqos.agent.configuration import AgentConfiguration
from memqos.agent.events import EventLog
from memqos.agent.state import AgentView, agent_state
from memqos.errors import MemqosError
from memqos.host.apiserver.access_reviews import (
    AccessReviewer,
    Caller,
    ReadAccess,
    TooManyReviews,
)
from memqos.host.apiserver.client import ApiClient
from memqos.host.apiserver.kubeconfig import cluster_access
from memqos.host.cgroups import CgroupFs
from memqos.host.credential_files import is_token
from memqos.host.record_files import read_recordings
from memqos.kernel.memory_usage import READING_FILES
from memqos.plan.names import inner
from memqos.record.format import Subject
from memqos.record.recordings import Recording
from memqos.record.transfer import (
    LARGEST_TRANSFER,
    SentRecords,
    encode_transfer,
    pressure_around,
)
from memqos.serve.certificates import Certificate
from memqos.serve.connections import ClientLimits
from memqos.serve.endpoints import JSON, PLAIN, HttpReply, parse_listen_address
from memqos.serve.http import Listener, listen
from memqos.serve.http_messages import HttpRequest

if TYPE_CHECKING:
    from ssl import SSLContext

ENDPOINT_LIMITS: Final = ClientLimits(connections=16, handshakes=16)
REVIEW_SECONDS: Final = 5.0
"""How long the API server may take over a review."""
_WORKERS: Final = 4
_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_POD_RECORDS: Final = re.compile(
    rf"/v1/pods/(?P<namespace>{_LABEL})/(?P<name>{_LABEL}(?:\.{_LABEL})*)/records", re.ASCII
)
_LONGEST_NAMESPACE: Final = 63
_LONGEST_NAME: Final = 253
_LONGEST_PATH: Final = 400
_STATE: Final = "/v1/state"
_RECORDS: Final = "/v1/records"
_SINCE: Final = re.compile(r"since=(?P<at>[0-9]{1,15})", re.ASCII)
_HOUR: Final = 3_600_000
_NODE_ACCESS: Final = ReadAccess(verb="list")
_BEARER: Final = "bearer"
_KNOWN: Final = b"there is /v1/pods/NAMESPACE/NAME/records, /v1/records?since=MS and /v1/state\n"


class Reviewer(Protocol):
    """Decides about callers."""

    def authenticate(self, token: str) -> Caller | None: ...

    def allows(self, caller: Caller, access: ReadAccess) -> bool: ...


class _Read(NamedTuple):
    """What a request asks for."""

    access: ReadAccess
    answer: Callable[[], bytes | None]


class ReadEndpoint:
    """Answers requests from threads of its own: reviews and files may take their time."""

    def __init__(
        self,
        reviewer: Reviewer,
        view: Callable[[], AgentView],
        fs: CgroupFs,
        *,
        node: str,
        log: EventLog,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reviewer = reviewer
        self._view = view
        self._fs = fs
        self._node = node
        self._log = log
        self._clock = clock
        self._fault = ""
        self._workers = ThreadPoolExecutor(_WORKERS, "memqos-endpoint")

    async def answer(self, request: HttpRequest) -> HttpReply:
        """The reply to a request."""
        return await asyncio.get_running_loop().run_in_executor(self._workers, self._reply, request)

    def close(self) -> None:
        """Answer no more."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _reply(self, request: HttpRequest) -> HttpReply:
        read = self._parse(request)
        if read is None:
            return HttpReply(404, PLAIN, _KNOWN)
        token = _bearer_token(request.authorization)
        if token is None:
            return _unauthorized("send a bearer token")
        try:
            caller = self._reviewer.authenticate(token)
            is_allowed = caller is not None and self._reviewer.allows(caller, read.access)
        except TooManyReviews:
            return HttpReply(429, PLAIN, b"too many callers: try again\n", (b"Retry-After: 1",))
        except MemqosError as error:
            self._report_fault(str(error).replace(token, "…"))
            return HttpReply(503, PLAIN, b"the agent cannot check who asks; its log says why\n")
        self._report_fault("")
        if caller is None:
            return _unauthorized("the token is not valid, or has expired")
        if not is_allowed:
            return HttpReply(403, PLAIN, f"this takes {_describe_access(read.access)}\n".encode())
        body = read.answer()
        if body is None:
            return HttpReply(404, PLAIN, b"nothing is recorded of this pod here\n")
        return HttpReply(200, JSON, body)

    def _parse(self, request: HttpRequest) -> _Read | None:
        """What is requested; None where it does not exist."""
        if len(request.path) > _LONGEST_PATH:
            return None
        found = _POD_RECORDS.fullmatch(request.path)
        if found is not None and not request.query:
            namespace, name = found["namespace"], found["name"]
            if len(namespace) > _LONGEST_NAMESPACE or len(name) > _LONGEST_NAME:
                return None
            access = ReadAccess(verb="get", namespace=namespace, name=name)
            return _Read(access, lambda: self._pod_records(namespace, name))
        if request.path == _STATE and not request.query:
            return _Read(_NODE_ACCESS, self._state)
        since = _SINCE.fullmatch(request.query)
        if request.path == _RECORDS and (since is not None or not request.query):
            at = int(time.time() * 1000) - _HOUR if since is None else int(since["at"])
            return _Read(_NODE_ACCESS, lambda: self._node_records(at))
        return None

    def _state(self) -> bytes:
        return msgspec.json.encode(agent_state(self._view(), self._clock()))

    def _pod_records(self, namespace: str, name: str) -> bytes | None:
        def is_meant(who: Subject) -> bool:
            return who.is_node or (who.namespace, who.pod) == (namespace, name)

        node, recordings = self._read_recordings(is_meant)
        files = self._read_files({f"{namespace}/{name}"})
        if not recordings and not files:
            return None
        return self._encode(node, recordings, files)

    def _node_records(self, since: int) -> bytes:
        node, recordings = self._read_recordings(lambda who: True)
        recent = []
        for each in recordings:
            records = tuple(record for record in each.records if record.at >= since)
            if records:
                recent.append(msgspec.structs.replace(each, records=records))
        return self._encode(node, recent, self._read_files(None))

    def _read_recordings(
        self, selects: Callable[[Subject], bool]
    ) -> tuple[Recording | None, list[Recording]]:
        recorder = self._view().node.configuration.recorder
        found = [] if recorder.off else list(read_recordings(recorder.folder, selects))
        node = next((each for each in found if each.who.is_node), None)
        return node, [each for each in found if not each.who.is_node]

    def _read_files(self, pods: set[str] | None) -> dict[str, dict[str, dict[str, str]]]:
        """The files of the containers that run: of these pods, or of all."""
        view, found = self._view().node, dict[str, dict[str, dict[str, str]]]()
        for cgroup in view.observed_cgroups():
            if not cgroup.container or cgroup.pod is None:
                continue
            if pods is None or cgroup.pod in pods:
                within = inner(cgroup.path)
                place = within if within in view.files else cgroup.path
                files = self._fs.read_all(place, READING_FILES)
                if files:
                    found.setdefault(cgroup.pod, {})[cgroup.container] = files
        return found

    def _encode(
        self,
        node: Recording | None,
        recordings: Iterable[Recording],
        files: Mapping[str, Mapping[str, Mapping[str, str]]],
    ) -> bytes:
        chosen, size, truncated = [], 0, False
        for each in recordings:
            size += len(msgspec.json.encode(each))
            if size > LARGEST_TRANSFER:
                truncated = True
                break
            chosen.append(each)
        return encode_transfer(
            SentRecords(
                node=self._node,
                version=self._view().status.version,
                recordings=tuple(chosen),
                pressure=pressure_around(node, chosen),
                files=files,
                truncated=truncated,
            )
        )

    def _report_fault(self, fault: str) -> None:
        """Log a new reason why callers cannot be checked, once."""
        before, self._fault = self._fault, fault
        if fault and fault != before:
            self._log.log("error", f"callers of the read endpoint cannot be checked: {fault}")


async def listen_for_readers(
    configuration: AgentConfiguration,
    view: Callable[[], AgentView],
    fs: CgroupFs,
    log: EventLog,
    stack: AsyncExitStack,
) -> Listener:
    """Open the endpoint of a configuration until `stack` is left."""
    settings = configuration.endpoint
    assert settings.listen is not None
    assert settings.tls_cert is not None
    assert settings.tls_key is not None
    server = ApiClient(cluster_access(), read_timeout=REVIEW_SECONDS, longest=REVIEW_SECONDS)
    stack.callback(server.close)
    node = configuration.pods.node_name or socket.gethostname().lower()
    endpoint = ReadEndpoint(AccessReviewer(server), view, fs, node=node, log=log)
    stack.callback(endpoint.close)
    address = parse_listen_address(settings.listen)
    listener = await listen(
        {},
        address.host,
        address.port,
        bounds=ENDPOINT_LIMITS,
        tls=_current_context(Certificate(settings.tls_cert, settings.tls_key), log),
        answer=endpoint.answer,
    )
    stack.push_async_callback(listener.close)
    return listener


def _current_context(certificate: Certificate, log: EventLog) -> Callable[[], "SSLContext"]:
    """The TLS context of a new connection: of the certificate as its files are now."""
    fault = ""

    def context() -> "SSLContext":
        nonlocal fault
        try:
            if certificate.refresh():
                fault = ""
                log.log("info", "the certificate of the read endpoint was read again")
        except MemqosError as error:
            if str(error) != fault:
                fault = str(error)
                log.log("error", f"the previous certificate stays in use: {error}")
        return certificate.context

    return context


def _bearer_token(authorization: str) -> str | None:
    scheme, _, token = authorization.partition(" ")
    return token if scheme.lower() == _BEARER and is_token(token) else None


def _unauthorized(why: str) -> HttpReply:
    return HttpReply(401, PLAIN, f"{why}\n".encode(), (b"WWW-Authenticate: Bearer",))


def _describe_access(access: ReadAccess) -> str:
    if access.name:
        return f"the right to get pod {access.name} in namespace {access.namespace}"
    return "the right to list pods in all namespaces"
