"""The API server of one cluster, over urllib3: requests, retries, and errors in words."""

import random
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Final, NamedTuple, TypedDict

import msgspec
import urllib3
from urllib3.connection import HTTPConnection
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    ProxyError,
    ReadTimeoutError,
    SSLError,
)

from memqos.errors import InputError, MemqosError, Unreachable
from memqos.host.apiserver.api_errors import BUSY, ApiError, ApiStatus, api_error, status_of
from memqos.host.apiserver.credentials import ApiCredentials, TlsFingerprint
from memqos.host.apiserver.kubeconfig import ClusterAccess
from memqos.host.apiserver.proxies import proxy_of
from memqos.host.apiserver.resources import ApiRequest
from memqos.host.apiserver.responses import (
    LARGEST_ANSWER,
    Deadline,
    ResponseStream,
    enforce_deadlines,
    read_body,
    send_request,
    short_error,
    tls_context,
)
from memqos.host.backoff import backoff_delay

CONNECT_SECONDS: Final = 10.0
READ_SECONDS: Final = 60.0
"""How long an answer may pause."""
_ANSWER_SECONDS: Final = 300.0
"""How long it may take in all. A page of 500 pods is 5 MiB."""
TRIES: Final = 5
_LONGEST_WAIT: Final = 15.0
_LONGEST_REFUSAL: Final = 1 << 16
_SLOW: Final = "check the API server and the network"

# A peer that vanishes without closing is noticed by the kernel within a minute, even on a watch
# without events: 30 s + 3 × 10 s (tcp(7)).
_KEEPALIVE: Final = [
    *HTTPConnection.default_socket_options,
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
]


class _Outgoing(NamedTuple):
    """What is sent: a request, and the body that goes with it."""

    method: str
    request: ApiRequest
    body: bytes | None = None
    content_type: str | None = None


class _PoolOptions(TypedDict, total=False):
    """The options of urllib3's connection pools that memqos sets."""

    maxsize: int
    socket_options: list[tuple[int, int, int | bytes]]
    ssl_context: ssl.SSLContext
    cert_reqs: str
    server_hostname: str
    assert_hostname: str
    proxy_ssl_context: ssl.SSLContext


class ApiClient:
    """The API server of one cluster; threads may share it."""

    def __init__(
        self,
        access: ClusterAccess,
        *,
        read_timeout: float = READ_SECONDS,
        longest: float = _ANSWER_SECONDS,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self.access = access
        self._read_timeout = read_timeout
        self._longest = longest
        self._sleep = sleep or time.sleep
        self._credentials = ApiCredentials(access)
        self._lock = Lock()
        self._pool: tuple[TlsFingerprint, urllib3.PoolManager] | None = None
        self._base = access.cluster.server.rstrip("/")
        if not self._base.startswith(("https://", "http://")):
            raise InputError(
                f"{self._base.rpartition('@')[2]!r} is not the address of a server",
                file=access.origin,
                field="server",
                hint="it starts with https://",
            )

    @property
    def where(self) -> str:
        """The server's address and where it comes from, as errors show it."""
        return self._credentials.secrets.redact(f"{self._base} ({self.access.origin})")

    @property
    def credentials(self) -> ApiCredentials:
        """Those of the user, for connections that are not requests."""
        return self._credentials

    def get(self, request: ApiRequest, largest: int = LARGEST_ANSWER, tries: int = TRIES) -> bytes:
        """The answer, if it is no larger; a request to a busy server is retried a few times."""
        with self.redact_errors():
            return self._get_with_retry(request, largest, tries)

    def error_of(
        self, request: ApiRequest, code: int, status: ApiStatus, retry_after: str | None = None
    ) -> ApiError:
        """The error for an answer that is no success."""
        if status.message is not None:
            # Redact before cutting: a part of a secret would not be recognised.
            message = self._credentials.secrets.redact(status.message)
            status = msgspec.structs.replace(status, message=message)
        return api_error(self.where, request, code, status, retry_after)

    @contextmanager
    def redact_errors(self) -> Iterator[None]:
        """Remove credentials from every error that leaves this client."""
        try:
            yield
        except MemqosError as error:
            self._credentials.secrets.redact_error(error)
            raise

    def send(self, method: str, request: ApiRequest, body: bytes, content_type: str) -> bytes:
        """Send a body, without retries; the answer."""
        outgoing = _Outgoing(method, request, body, content_type)
        with self.redact_errors(), self._open_response(outgoing, self._read_timeout) as (answer, _):
            return read_body(answer, LARGEST_ANSWER)

    @contextmanager
    def stream(
        self,
        request: ApiRequest,
        read_timeout: float,
        longest: float | None = None,
        line_seconds: float = READ_SECONDS,
    ) -> Iterator[ResponseStream]:
        """A streamed answer: it ends when nothing has arrived for `read_timeout` seconds.

        It must end within `longest`, and a line that has begun must end within `line_seconds`.
        """
        with (
            self.redact_errors(),
            self._open_response(_Outgoing("GET", request), read_timeout, longest) as (
                answer,
                deadline,
            ),
        ):
            try:
                yield ResponseStream(answer, deadline, line_seconds)
            finally:
                answer.close()

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            if self._pool is not None:
                self._pool[1].clear()
                self._pool = None

    def _get_with_retry(self, request: ApiRequest, largest: int, tries: int) -> bytes:
        outgoing = _Outgoing("GET", request)
        for attempt in range(tries):
            try:
                with self._open_response(outgoing, self._read_timeout) as (answer, _):
                    return read_body(answer, largest)
            except ApiError as error:
                wait = backoff_delay(attempt, error.retry_after, random.random())
                may_retry = (
                    error.status in BUSY and not error.is_version_ahead and wait < _LONGEST_WAIT
                )
                if not may_retry or attempt == tries - 1:
                    raise
                self._sleep(wait)
        raise AssertionError

    @contextmanager
    def _open_response(
        self, outgoing: _Outgoing, read_timeout: float, longest: float | None = None
    ) -> Iterator[tuple[urllib3.BaseHTTPResponse, Deadline]]:
        if longest is None:
            longest = self._longest
        answer, deadline = self._send_once(outgoing, read_timeout, longest)
        if answer.status == 401 and self._credentials.is_renewable:
            # Closed, not drained: the server may never end the body.
            answer.close()
            self._credentials.invalidate()
            answer, deadline = self._send_once(outgoing, read_timeout, longest)
        done = False
        try:
            if not 200 <= answer.status < 300:
                body = b""
                with suppress(HTTPError, OSError):  # the status counts, even if the body breaks off
                    body = answer.read(_LONGEST_REFUSAL + 1)
                if len(body) > _LONGEST_REFUSAL:
                    body = b""  # a cut in the middle of a secret would defeat redaction
                after = answer.headers.get("Retry-After")
                raise self.error_of(outgoing.request, answer.status, status_of(body), after)
            with self._translate_errors(read_timeout, deadline):
                yield answer, deadline
            done = True
        finally:
            # A connection with an unread answer cannot be reused.
            if done:
                answer.release_conn()
            else:
                answer.close()

    def _send_once(
        self, outgoing: _Outgoing, read_timeout: float, longest: float
    ) -> tuple[urllib3.BaseHTTPResponse, Deadline]:
        headers = urllib3.HTTPHeaderDict(
            {"Accept": "application/json", "User-Agent": "memqos", **self._credentials.headers()}
        )
        for group in self._credentials.groups:
            headers.add("Impersonate-Group", group)
        method, request, body, content_type = outgoing
        if request.verb == "list" and not self.access.cluster.disable_compression:
            headers["Accept-Encoding"] = "gzip"
        if content_type is not None:
            headers["Content-Type"] = content_type
        try:
            pool = self._current_pool()
            # Counted from here: an exec plugin may have waited for a password before.
            deadline = Deadline(longest)
            with self._translate_errors(read_timeout, deadline):
                answer = send_request(
                    pool,
                    deadline,
                    method,
                    self._base + request.target,
                    headers=headers,
                    body=body,
                    timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=read_timeout),
                )
                return answer, deadline
        except ValueError as error:
            # http.client quotes the value of a bad header, which may be a token.
            what = f"the request cannot be sent ({type(error).__name__})"
            raise Unreachable(f"{self.where}: {what}", hint="check the kubeconfig") from None

    def _current_pool(self) -> urllib3.PoolManager:
        """The connection pool; replaced when the certificates change."""
        fingerprint = self._credentials.tls_fingerprint()
        with self._lock:
            if self._pool is None or self._pool[0] != fingerprint:
                self._pool = fingerprint, self._make_pool()
            return self._pool[1]

    def _make_pool(self) -> urllib3.PoolManager:
        proxy = proxy_of(self.access)
        name = self.access.cluster.tls_server_name
        options: _PoolOptions = {"maxsize": 4, "socket_options": _KEEPALIVE}
        if self._base.startswith("https://"):
            options["ssl_context"] = self._credentials.tls_context()
            if self.access.cluster.insecure_skip_tls_verify:
                options["cert_reqs"] = "CERT_NONE"
                # Configured in the kubeconfig: no warning with every request.
                urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
            if name:
                options["server_hostname"] = options["assert_hostname"] = name
        if proxy is None:
            return enforce_deadlines(urllib3.PoolManager(**options))
        parts = urllib3.util.parse_url(proxy)
        headers = None
        if parts.auth:
            headers = urllib3.util.make_headers(proxy_basic_auth=parts.auth)
            user, _, password = parts.auth.partition(":")
            self._credentials.secrets.add_pair(user, password)
        if parts.scheme == "https":
            options["proxy_ssl_context"] = tls_context()
        return enforce_deadlines(
            urllib3.ProxyManager(parts._replace(auth=None).url, proxy_headers=headers, **options)
        )

    @contextmanager
    def _translate_errors(self, read_timeout: float, deadline: Deadline) -> Iterator[None]:
        """Turn urllib3's errors into memqos's own."""
        try:
            yield
        except HTTPError as error:
            if isinstance(error, ReadTimeoutError) and deadline.has_part_passed:
                what = f"an event of a watch is not whole within {deadline.part_seconds:g} s"
                raise InputError(what, file=self.where, hint=_SLOW) from None
            what, hint = _describe_error(error, read_timeout, deadline)
            raise Unreachable(f"{self.where}: {what}", hint=hint) from None
        except OSError as error:
            what = f"the connection failed ({error.strerror or error})"
            raise Unreachable(f"{self.where}: {what}", hint="try again") from None


def _describe_error(error: HTTPError, read_timeout: float, deadline: Deadline) -> tuple[str, str]:
    if isinstance(error, ProxyError):
        cause = error.original_error
        return f"the proxy refuses the connection ({cause})", "check proxy-url or HTTPS_PROXY"
    if isinstance(error, SSLError):
        return f"no secure connection ({error})", (
            "is certificate-authority of the kubeconfig that of this cluster?"
        )
    if isinstance(error, NameResolutionError):
        return "the name of the host is unknown", "check the server's address, and the VPN"
    if isinstance(error, ReadTimeoutError):
        if deadline.has_passed:
            return f"the answer does not end within {deadline.seconds:g} s", _SLOW
        return f"no answer within {read_timeout:g} s", _SLOW
    if isinstance(error, NewConnectionError):
        reason = str(error).rpartition("] ")[2]
        what = "nothing listens there" if "refused" in reason else f"no connection ({reason})"
        return what, "is the cluster running? Is it the right --context?"
    if isinstance(error, ConnectTimeoutError):
        return f"no connection within {CONNECT_SECONDS:g} s", (
            "check the server's address, the VPN and the firewall"
        )
    return f"the response was cut off ({short_error(error)})", "try again"
