"""The kubelet's own endpoint on its node: pods, configuration and metrics, over HTTP or HTTPS.

Never through the API server: the right to its nodes/proxy includes running commands in any pod.
"""

import os
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import msgspec

from memqos.errors import InputError, Unreachable
from memqos.host.credential_files import (
    client_context,
    describe_tls_error,
    load_certificate,
    read_token,
)
from memqos.units import format_bytes

if TYPE_CHECKING:
    import http.client
    import socket
    import ssl

READ_ONLY_URL: Final = "http://127.0.0.1:10255"
SECURE_URL: Final = "https://127.0.0.1:10250"
ANSWER_SIZE_LIMIT: Final = 256 << 20

_PORTS: Final = {"http": 10255, "https": 10250}
_CHUNK: Final = 1 << 20
_LOOPBACK: Final = re.compile(r"127\.\d+\.\d+\.\d+|::1|localhost")
_NAME_MISMATCH: Final = frozenset({62, 63, 64})
"""OpenSSL's codes for a valid certificate of another name, mail or address: X509_V_ERR_*_MISMATCH
(X509_STORE_CTX_get_error(3))."""
_RIGHTS: Final = {
    "/pods": "nodes/pods (from 1.33 on) or nodes/proxy",
    "/configz": "nodes/configz (from 1.33 on) or nodes/proxy",
    "/metrics": "nodes/metrics",
}


class KubeletCredentials(msgspec.Struct, frozen=True):
    """The client's credentials and the CA to trust, as files; and the name in the certificate."""

    token_file: str | None = None
    ca_file: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    server_name: str | None = None


NO_CREDENTIALS: Final = KubeletCredentials()


class _Address(NamedTuple):
    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


class KubeletRefusal(Unreachable):
    """A kubelet that answers, and denies the request."""


class KubeletEndpoint:
    """A kubelet at an address; `timeout` bounds a whole answer, in seconds."""

    def __init__(
        self, url: str, credentials: KubeletCredentials = NO_CREDENTIALS, timeout: float = 10.0
    ) -> None:
        self._address = _address(url)
        self._credentials = credentials
        self._timeout = timeout
        self._open: socket.socket | None = None
        self._is_cancelled = False
        if credentials.token_file is not None and not self.is_secure:
            raise InputError(
                f"the token would be sent to {self._address} without TLS",
                hint=f"give an https address such as {SECURE_URL}, or remove the token",
            )

    @property
    def url(self) -> str:
        """The address, without a path."""
        return str(self._address)

    @property
    def is_secure(self) -> bool:
        return self._address.scheme == "https"

    def get(self, path: str) -> bytes:
        """The kubelet's answer; Unreachable where it is not a success."""
        import http.client

        deadline = time.monotonic() + self._timeout
        headers = {"Accept": "application/json, text/plain", "User-Agent": "memqos"}
        if self._credentials.token_file is not None:
            # Read for each request: the kubelet replaces a pod's projected token before it expires,
            # by default after an hour (kubelet token/token_manager.go).
            headers["Authorization"] = f"Bearer {read_token(self._credentials.token_file)}"
        connection = http.client.HTTPConnection(self._address.host, self._address.port)
        try:
            with self._connect() as connected:
                connection.sock = connected
                connection.request("GET", path, headers=headers)
                with connection.getresponse() as answer:
                    data = self._read(answer, connected, deadline)
        except http.client.IncompleteRead:
            raise self._truncation_error() from None
        except http.client.HTTPException as error:
            raise self._unreachable(
                f"the answer is not HTTP ({type(error).__name__})",
                "is this the address of a kubelet?",
            ) from None
        except OSError as error:
            self._raise_unreachable(error)
        if answer.status != http.client.OK:
            what, hint = _status_error(answer.status, path, data)
            # Other answers may be temporary: the kubelet has its API server check a token
            # (TokenReview) and its rights (SubjectAccessReview), and answers 401 or 500 where that
            # fails (kubelet server/server.go, InstallAuthFilter).
            is_final = answer.status in (http.client.FORBIDDEN, http.client.NOT_FOUND)
            kind = KubeletRefusal if is_final else Unreachable
            raise kind(f"{self.url}: {what}", hint=hint)
        return data

    def cancel(self) -> None:
        """End the current request, from another thread; no other is sent."""
        import socket

        self._is_cancelled = True
        if self._open is not None:
            with suppress(OSError):
                # Not SSLSocket.shutdown(), which drops the TLS state that the reading thread uses
                # (Lib/ssl.py).
                socket.socket.shutdown(self._open, socket.SHUT_RDWR)

    def _connect(self) -> "socket.socket":
        if not self.is_secure:
            return self._track(self._socket())
        context = self._tls_context()
        *others, last = self._names()
        import ssl

        for name in others:
            try:
                return self._connect_tls(context, name)
            except ssl.SSLCertVerificationError as error:
                if error.verify_code not in _NAME_MISMATCH:
                    raise
        return self._connect_tls(context, last)

    def _connect_tls(self, context: "ssl.SSLContext", name: str) -> "socket.socket":
        connected = context.wrap_socket(
            self._socket(), server_hostname=name, do_handshake_on_connect=False
        )
        try:
            self._track(connected)
            # The kernel completes connections for a kubelet that hangs (listen(2), backlog): only
            # the handshake shows it.
            connected.do_handshake()
        except BaseException:
            connected.close()
            raise
        return connected

    def _socket(self) -> "socket.socket":
        import socket

        if self._is_cancelled:
            raise ConnectionAbortedError("broken off")
        address = self._address.host, self._address.port
        return socket.create_connection(address, timeout=self._timeout)

    def _track(self, connected: "socket.socket") -> "socket.socket":
        """The same socket, which `cancel` shuts down from now on."""
        self._open = connected
        if self._is_cancelled:
            connected.close()
            raise ConnectionAbortedError("broken off")
        return connected

    def _names(self) -> list[str]:
        """The names its certificate may have; by default that of the node."""
        if self._credentials.server_name is not None:
            return [self._credentials.server_name]
        # A self-signed certificate has the host name, in lower case (app/server.go,
        # GenerateSelfSignedCertKey; nodeutil.GetHostname).
        if _LOOPBACK.fullmatch(self._address.host):
            return [self._address.host, os.uname().nodename.lower()]
        return [self._address.host]

    def _tls_context(self) -> "ssl.SSLContext":
        credentials = self._credentials
        try:
            context = client_context(credentials.ca_file)
        except OSError as error:
            raise InputError(
                f"no certificates could be read ({describe_tls_error(error)})",
                file=credentials.ca_file,
                hint="give a file of certificates in PEM",
            ) from None
        if credentials.client_cert is not None:
            try:
                load_certificate(context, credentials.client_cert, credentials.client_key)
            except (OSError, ValueError) as error:
                raise InputError(
                    f"no certificate with its key could be read ({describe_tls_error(error)})",
                    file=credentials.client_cert,
                    hint="give --client-cert and --client-key in PEM, the key without passphrase",
                ) from None
        return context

    def _read(
        self, answer: "http.client.HTTPResponse", connected: "socket.socket", deadline: float
    ) -> bytes:
        chunks, size = [], 0
        while chunk := answer.read1(_CHUNK):
            chunks.append(chunk)
            size += len(chunk)
            if size > ANSWER_SIZE_LIMIT:
                raise self._unreachable(
                    f"the answer is larger than {format_bytes(ANSWER_SIZE_LIMIT)}",
                    "is this the address of a kubelet?",
                )
            if answer.isclosed():
                break  # the socket, too: with the last byte since Python 3.11.8 (cpython#113199)
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError
            connected.settimeout(remaining)
        if answer.length:
            raise self._truncation_error()
        return b"".join(chunks)

    def _raise_unreachable(self, error: OSError) -> NoReturn:
        import socket
        import ssl

        if isinstance(error, ssl.SSLCertVerificationError):
            what, hint = self._certificate_error(error)
            raise KubeletRefusal(f"{self.url}: {what}", hint=hint) from None
        if isinstance(error, ssl.SSLError):
            what, hint = (
                f"no secure connection ({describe_tls_error(error)})",
                "is it an http address?",
            )
        elif isinstance(error, ConnectionRefusedError):
            what = "nothing listens there"
            hint = "is the kubelet running? Its read-only port is off by default; " + (
                f"{SECURE_URL} takes a token or a client certificate"
            )
        elif isinstance(error, TimeoutError):
            what, hint = f"no answer within {self._timeout:g} s", "check the kubelet's log"
        elif isinstance(error, socket.gaierror):
            what, hint = "the name of the host is unknown", "check the address"
        else:
            what, hint = f"the connection failed ({describe_tls_error(error)})", "check the address"
        raise self._unreachable(what, hint) from None

    def _certificate_error(self, error: "ssl.SSLCertVerificationError") -> tuple[str, str]:
        if error.verify_code in _NAME_MISMATCH:
            names = " or ".join(self._names())
            return (
                f"its certificate is not for {names}",
                "give the node's name, as its certificate has it, with --server-name",
            )
        return (
            f"its certificate is not trusted ({error.verify_message})",
            "give its CA with --ca-file; a self-signed one of the kubelet is "
            "/var/lib/kubelet/pki/kubelet.crt",
        )

    def _truncation_error(self) -> Unreachable:
        return self._unreachable("the response was cut off", "try again")

    def _unreachable(self, what: str, hint: str) -> Unreachable:
        return Unreachable(f"{self.url}: {what}", hint=hint)


def _address(url: str) -> _Address:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError:
        raise _no_address("it is not a URL") from None
    if scheme not in _PORTS or not host:
        raise _no_address("it does not start with http:// or https:// and a host")
    if parts.username is not None or parts.password is not None:
        raise _no_address("it contains a user or a password, which others could read")
    if parts.path not in ("", "/", "/pods", "/pods/") or parts.query or parts.fragment:
        raise _no_address("it has a path other than /pods")
    return _Address(scheme, host, port or _PORTS[scheme])


def _no_address(why: str) -> InputError:
    return InputError(
        f"this is not the address of a kubelet: {why}",
        hint=f"give one such as {SECURE_URL}; the API server's proxy is not used",
    )


def _status_error(status: int, path: str, data: bytes) -> tuple[str, str]:
    if status == 401:
        return (
            "it rejects the credentials (401)",
            "give --token-file, or --client-cert and --client-key",
        )
    if status == 403:
        return (
            f"the user may not read {path} (403)",
            f"grant the verb get on {_RIGHTS.get(path, 'nodes/proxy')} in a ClusterRole",
        )
    # Go's net/http (server.go) answers plain HTTP on a TLS port with 400 and this text.
    if status == 400 and b"HTTPS server" in data:
        return "it speaks HTTPS", "write https://"
    if status == 404:
        return f"it has no {path} (404)", "is this the address of a kubelet?"
    return f"it answered {status} to {path}", "check the kubelet's log"
