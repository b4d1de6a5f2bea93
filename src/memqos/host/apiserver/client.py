"""Answers of an API server as they come in: none is larger than memory allows for.

urllib3 unpacks no more of a compressed answer than is asked for, so a small one that would unpack
to a huge one is noticed at the same bound.
"""

import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Final

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
from memqos.host.apiserver.deadlines import Deadline, time_connections, timed_context
from memqos.host.apiserver.deadlines import request as send_request
from memqos.host.apiserver.kubeconfig import ClusterAccess
from memqos.host.apiserver.proxies import proxy_of
from memqos.host.apiserver.resources import ApiRequest
from memqos.host.backoff import backoff_delay

LARGEST_ANSWER: Final = 256 << 20
"""Bytes, unpacked. A page of 500 pods is 5 MiB; etcd stores no object above 1.5 MiB by default."""
_CHUNK: Final = 1 << 16
_BLOCK: Final = 1 << 20
_LONGEST_LINE: Final = 8 << 20
_LONGEST_QUOTE: Final = 500


def brief(error: Exception) -> str:
    """What a decoder says is wrong. It may quote all of an answer: then only its name is told."""
    text = str(error)
    return text if len(text) <= _LONGEST_QUOTE else type(error).__name__


class ResponseStream:
    """An answer that goes on; another thread may end it."""

    def __init__(
        self, answer: urllib3.BaseHTTPResponse, deadline: Deadline, line_seconds: float
    ) -> None:
        self._answer = answer
        self._deadline = deadline
        self._line_seconds = line_seconds
        self._left = LARGEST_ANSWER

    def lines(self) -> Iterator[bytes]:
        """Every line that has come in full; one that broke off was never said."""
        rest: list[bytes] = []
        size = 0
        while chunk := self._answer.read1(_CHUNK):
            *lines, tail = chunk.split(b"\n")
            if lines:
                lines[0] = b"".join(rest) + lines[0]
                rest, size = [], 0
                yield from filter(None, lines)
            self._time_line(is_new=not size, has_begun=bool(size or tail))
            rest.append(tail)
            size += len(tail)
            if size > _LONGEST_LINE:
                raise _too_large(_LONGEST_LINE, "an event of a watch")

    def _time_line(self, *, is_new: bool, has_begun: bool) -> None:
        if not has_begun:
            self._deadline.end_part()
        elif is_new:
            self._deadline.begin_part(self._line_seconds)

    def read(self, count: int) -> bytes:
        """So many bytes, fewer only at the end."""
        data = self._answer.read(count)
        self._left -= len(data)
        if self._left < 0:
            raise _too_large(LARGEST_ANSWER)
        return data

    def stop(self) -> None:
        """End it, whoever is reading."""
        try:
            self._answer.shutdown()
        except (OSError, RuntimeError, ValueError):
            self._answer.close()


def read_body(answer: urllib3.BaseHTTPResponse, largest: int) -> bytes:
    """All of an answer, unpacked no further than it may be large."""
    chunks, size = [], 0
    while chunk := answer.read(_BLOCK):
        chunks.append(chunk)
        size += len(chunk)
        if size > largest:
            raise _too_large(largest)
    return b"".join(chunks)


def _too_large(largest: int, what: str = "the API server's answer") -> InputError:
    return InputError(
        f"{what} is larger than {largest >> 20} MiB",
        hint="is this the address of an API server?",
    )


CONNECT_SECONDS: Final = 10.0
SILENCE_SECONDS: Final = 60.0
"""How long an answer may pause."""
ANSWER_SECONDS: Final = 300.0
"""How long it may take in all. A page of 500 pods is 5 MiB."""
TRIES: Final = 5
_LONGEST_WAIT: Final = 15.0
_LONGEST_REFUSAL: Final = 1 << 16
_SLOW: Final = "is the API server well, and the network?"

# A peer that vanishes without closing is noticed by the kernel within a minute, even on a watch
# without events: 30 s + 3 × 10 s (tcp(7)).
_KEEPALIVE: Final = [
    *HTTPConnection.default_socket_options,
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
]


class ApiClient:
    """The API server of one cluster; threads may share it."""

    def __init__(
        self,
        access: ClusterAccess,
        *,
        silence: float = SILENCE_SECONDS,
        longest: float = ANSWER_SECONDS,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self.access = access
        self._silence = silence
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
        """What errors call it."""
        return self._credentials.secrets.redact(f"{self._base} ({self.access.origin})")

    def get(self, request: ApiRequest, largest: int = LARGEST_ANSWER) -> bytes:
        """The answer, if it is no larger; a server that is busy is asked again, for a while."""
        with self.redacted_errors():
            return self._get_with_retry("GET", request, largest)

    def error_of(
        self, request: ApiRequest, status: int, said: ApiStatus, retry_after: str | None = None
    ) -> ApiError:
        """The error for an answer that is no success."""
        if said.message is not None:
            # Redact before cutting: a part of a secret would not be recognised.
            message = self._credentials.secrets.redact(said.message)
            said = msgspec.structs.replace(said, message=message)
        return api_error(self.where, request, status, said, retry_after)

    @contextmanager
    def redacted_errors(self) -> Iterator[None]:
        """The way out of every error of this client: none leaves with a credential in it."""
        try:
            yield
        except MemqosError as error:
            self._credentials.secrets.redact_error(error)
            raise

    def send(self, method: str, request: ApiRequest, body: bytes, kind: str) -> bytes:
        """The answer to something sent, asked once."""
        with (
            self.redacted_errors(),
            self._open_response(method, request, self._silence, body=body, kind=kind) as (
                answer,
                _,
            ),
        ):
            return read_body(answer, LARGEST_ANSWER)

    @contextmanager
    def stream(
        self,
        request: ApiRequest,
        silence: float,
        longest: float | None = None,
        line_seconds: float = SILENCE_SECONDS,
    ) -> Iterator[ResponseStream]:
        """An answer that goes on, until nothing has come for so many seconds.

        It has to end within `longest`, and every line once begun within `line_seconds`.
        """
        with (
            self.redacted_errors(),
            self._open_response("GET", request, silence, longest) as (answer, deadline),
        ):
            try:
                yield ResponseStream(answer, deadline, line_seconds)
            finally:
                answer.close()

    def close(self) -> None:
        """Let go of all connections."""
        with self._lock:
            if self._pool is not None:
                self._pool[1].clear()
                self._pool = None

    def _get_with_retry(self, method: str, request: ApiRequest, largest: int) -> bytes:
        for attempt in range(TRIES):
            try:
                with self._open_response(method, request, self._silence) as (answer, _):
                    return read_body(answer, largest)
            except ApiError as error:
                wait = backoff_delay(attempt, error.retry_after, random.random())
                is_worth_it = (
                    error.status in BUSY and not error.is_version_ahead and wait < _LONGEST_WAIT
                )
                if not is_worth_it or attempt == TRIES - 1:
                    raise
                self._sleep(wait)
        raise AssertionError

    @contextmanager
    def _open_response(
        self,
        method: str,
        request: ApiRequest,
        silence: float,
        longest: float | None = None,
        body: bytes | None = None,
        kind: str | None = None,
    ) -> Iterator[tuple[urllib3.BaseHTTPResponse, Deadline]]:
        if longest is None:
            longest = self._longest
        answer, deadline = self._send_once(method, request, silence, longest, body, kind)
        if answer.status == 401 and self._credentials.is_renewable:
            # Closed, not drained: the server may never end the body.
            answer.close()
            self._credentials.invalidate()
            answer, deadline = self._send_once(method, request, silence, longest, body, kind)
        done = False
        try:
            if not 200 <= answer.status < 300:
                said = b""
                with suppress(HTTPError, OSError):  # the status counts, even if the body breaks off
                    said = answer.read(_LONGEST_REFUSAL + 1)
                if len(said) > _LONGEST_REFUSAL:
                    said = b""  # a cut in the middle of a secret would defeat redaction
                after = answer.headers.get("Retry-After")
                raise self.error_of(request, answer.status, status_of(said), after)
            with self._translate_errors(silence, deadline):
                yield answer, deadline
            done = True
        finally:
            # A connection with an unread answer cannot be reused.
            if done:
                answer.release_conn()
            else:
                answer.close()

    def _send_once(
        self,
        method: str,
        request: ApiRequest,
        silence: float,
        longest: float,
        body: bytes | None,
        kind: str | None,
    ) -> tuple[urllib3.BaseHTTPResponse, Deadline]:
        headers = urllib3.HTTPHeaderDict(
            {"Accept": "application/json", "User-Agent": "memqos", **self._credentials.headers()}
        )
        for group in self._credentials.groups:
            headers.add("Impersonate-Group", group)
        if request.verb == "list" and not self.access.cluster.disable_compression:
            headers["Accept-Encoding"] = "gzip"
        if kind is not None:
            headers["Content-Type"] = kind
        try:
            pooled = self._current_pool()
            # Counted from here: an exec plugin may have waited for a password before.
            deadline = Deadline(longest)
            with self._translate_errors(silence, deadline):
                answer = send_request(
                    pooled,
                    deadline,
                    method,
                    self._base + request.target,
                    body=body,
                    headers=headers,
                    preload_content=False,
                    redirect=False,
                    retries=False,
                    timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=silence),
                )
                return answer, deadline
        except ValueError as error:
            # http.client quotes the value of a bad header, which may be a token.
            what = f"the request cannot be sent ({type(error).__name__})"
            raise Unreachable(f"{self.where}: {what}", hint="look at the kubeconfig") from None

    def _current_pool(self) -> urllib3.PoolManager:
        """Connections under the certificates in force: when those change, new ones are made."""
        stamp = self._credentials.tls_fingerprint()
        with self._lock:
            if self._pool is None or self._pool[0] != stamp:
                self._pool = stamp, self._make_pool()
            return self._pool[1]

    def _make_pool(self) -> urllib3.PoolManager:
        proxy = proxy_of(self.access)
        name = self.access.cluster.tls_server_name
        options: dict[str, object] = {"maxsize": 4, "socket_options": _KEEPALIVE}
        if self._base.startswith("https://"):
            options["ssl_context"] = self._credentials.tls_context()
            if self.access.cluster.insecure_skip_tls_verify:
                options["cert_reqs"] = "CERT_NONE"
                # The kubeconfig asks for it: no warning with every request.
                urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
            if name:
                options |= {"server_hostname": name, "assert_hostname": name}
        if proxy is None:
            manager = urllib3.PoolManager(**options)  # type: ignore[arg-type]
            time_connections(manager)
            return manager
        parts = urllib3.util.parse_url(proxy)
        headers = None
        if parts.auth:
            headers = urllib3.util.make_headers(proxy_basic_auth=parts.auth)
            user, _, password = parts.auth.partition(":")
            self._credentials.secrets.add_pair(user, password)
        if parts.scheme == "https":
            options["proxy_ssl_context"] = timed_context()
        manager = urllib3.ProxyManager(
            parts._replace(auth=None).url,
            proxy_headers=headers,
            **options,  # type: ignore[arg-type]
        )
        time_connections(manager)
        return manager

    @contextmanager
    def _translate_errors(self, silence: float, deadline: Deadline) -> Iterator[None]:
        """Errors of the connection, in words."""
        try:
            yield
        except HTTPError as error:
            if isinstance(error, ReadTimeoutError) and deadline.has_part_passed:
                what = f"an event of a watch is not whole within {deadline.part_seconds:g} s"
                raise InputError(what, file=self.where, hint=_SLOW) from None
            what, hint = _describe_error(error, silence, deadline)
            raise Unreachable(f"{self.where}: {what}", hint=hint) from None
        except OSError as error:
            what = f"the connection failed ({error.strerror or error})"
            raise Unreachable(f"{self.where}: {what}", hint="try again") from None


def _describe_error(error: HTTPError, silence: float, deadline: Deadline) -> tuple[str, str]:
    if isinstance(error, ProxyError):
        cause = error.original_error
        return f"the proxy does not let through ({cause})", "look at proxy-url or HTTPS_PROXY"
    if isinstance(error, SSLError):
        return f"no secure connection ({error})", (
            "is certificate-authority of the kubeconfig that of this cluster?"
        )
    if isinstance(error, NameResolutionError):
        return "the name of the host is not known", "check the server's address, and the VPN"
    if isinstance(error, ReadTimeoutError):
        if deadline.has_passed:
            return f"the answer does not end within {deadline.seconds:g} s", _SLOW
        return f"no answer within {silence:g} s", _SLOW
    if isinstance(error, NewConnectionError):
        reason = str(error).rpartition("] ")[2]
        what = "nothing listens there" if "refused" in reason else f"no connection ({reason})"
        return what, "is the cluster running? Is it the right --context?"
    if isinstance(error, ConnectTimeoutError):
        return f"no connection within {CONNECT_SECONDS:g} s", (
            "check the server's address, the VPN and the firewall"
        )
    return f"the answer broke off ({brief(error)})", "try again"
