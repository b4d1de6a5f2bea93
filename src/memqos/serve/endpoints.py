"""What an agent answers over HTTP: /metrics, /healthz, /readyz, and /state on its socket."""

import re
from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

import msgspec

from memqos.errors import InputError, quote_excerpt
from memqos.serve.exposition import CONTENT_TYPE, Family, exposition

_ADDRESS: Final = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.]*\]|[^:\[\]]*):(?P<port>[0-9]{1,5})", re.ASCII
)
_HIGHEST_PORT: Final = 65535


class ListenAddress(NamedTuple):
    """A host, as an IP address or localhost, and a port; 0 is any that is free."""

    host: str
    port: int


def parse_listen_address(text: str) -> ListenAddress:
    """Parse an address; to listen beyond loopback, it has to be given explicitly."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > _HIGHEST_PORT:
        raise InputError(
            f"{quote_excerpt(text)} is not ADDRESS:PORT",
            hint="write it like 127.0.0.1:9177 or [::1]:9177",
        )
    host, port = found["host"], found["port"]
    if not host:
        raise InputError(
            f"{quote_excerpt(text)} names no address",
            hint=f"write 127.0.0.1:{port}, or 0.0.0.0:{port} to be reached from elsewhere",
        )
    if host != "localhost":
        _check_ip(host)
    return ListenAddress(host.strip("[]"), int(port))


def _check_ip(host: str) -> None:
    try:
        version = ip_address(host.strip("[]")).version
    except ValueError:
        version = None
    if version != (6 if host.startswith("[") else 4):
        raise InputError(
            f"{quote_excerpt(host)} is not an IP address",
            hint="only localhost may be given by name",
        )


PLAIN = "text/plain; charset=utf-8"
JSON = "application/json"

HealthCheck = Callable[[], str | None]
"""Why the check fails; None where it passes."""


class HttpReply(NamedTuple):
    """The answer to a request."""

    status: int
    type: str
    body: bytes
    fields: tuple[bytes, ...] = ()
    """More lines of the head."""


Routes = Mapping[str, Callable[[], HttpReply]]
"""Path → answer."""
PostRoutes = Mapping[str, Callable[[bytearray], HttpReply]]
"""Path → answer to a body."""


def monitoring_routes(
    families: Callable[[], Iterable[Family]], healthy: HealthCheck, ready: HealthCheck
) -> dict[str, Callable[[], HttpReply]]:
    """The routes for monitoring."""
    return {
        "/metrics": lambda: HttpReply(200, CONTENT_TYPE, exposition(families())),
        "/healthz": lambda: _check_reply(healthy()),
        "/readyz": lambda: _check_reply(ready()),
    }


def state_route(state: Callable[[], Any]) -> dict[str, Callable[[], HttpReply]]:
    """The route for a user on the node: plain data or structs as JSON."""
    return {"/state": lambda: HttpReply(200, JSON, msgspec.json.encode(state()) + b"\n")}


def _check_reply(reason: str | None) -> HttpReply:
    if reason is None:
        return HttpReply(200, PLAIN, b"ok\n")
    return HttpReply(503, PLAIN, f"{reason}\n".encode("utf-8", "replace"))
