"""What an agent answers over HTTP: /metrics, /healthz, /readyz, and /state on its socket."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from memqos.serve.exposition import CONTENT_TYPE, Family, exposition

PLAIN = "text/plain; charset=utf-8"
JSON = "application/json"

HealthCheck = Callable[[], str | None]
"""Why it is not so; None where all is well."""


class HttpReply(NamedTuple):
    """What a request is answered with."""

    status: int
    type: str
    body: bytes


Routes = Mapping[str, Callable[[], HttpReply]]
"""Path → answer."""
PostRoutes = Mapping[str, Callable[[bytearray], HttpReply]]
"""Path → answer to a body."""


def monitoring_routes(
    families: Callable[[], Iterable[Family]], healthy: HealthCheck, ready: HealthCheck
) -> dict[str, Callable[[], HttpReply]]:
    """What monitoring asks for."""
    return {
        "/metrics": lambda: HttpReply(200, CONTENT_TYPE, exposition(families())),
        "/healthz": lambda: _check_reply(healthy()),
        "/readyz": lambda: _check_reply(ready()),
    }


def state_route(state: Callable[[], Any]) -> dict[str, Callable[[], HttpReply]]:
    """What a person on the node asks for: plain data or structs, answered as JSON."""
    return {"/state": lambda: HttpReply(200, JSON, msgspec.json.encode(state()) + b"\n")}


def _check_reply(reason: str | None) -> HttpReply:
    if reason is None:
        return HttpReply(200, PLAIN, b"ok\n")
    return HttpReply(503, PLAIN, f"{reason}\n".encode("utf-8", "replace"))
