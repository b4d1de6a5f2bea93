"""What an agent answers over HTTP: /metrics, /healthz, /readyz, and /state on its socket."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from memqos.serve.exposition import CONTENT_TYPE, Family, exposition

PLAIN = "text/plain; charset=utf-8"
JSON = "application/json"

Check = Callable[[], str | None]
"""Why it is not so; None where all is well."""


class Answer(NamedTuple):
    """What a request is answered with."""

    status: int
    type: str
    body: bytes


Routes = Mapping[str, Callable[[], Answer]]
"""Path → answer."""
Posts = Mapping[str, Callable[[bytearray], Answer]]
"""Path → answer to a body."""


def watched(
    families: Callable[[], Iterable[Family]], healthy: Check, ready: Check
) -> dict[str, Callable[[], Answer]]:
    """What monitoring asks for."""
    return {
        "/metrics": lambda: Answer(200, CONTENT_TYPE, exposition(families())),
        "/healthz": lambda: _checked(healthy()),
        "/readyz": lambda: _checked(ready()),
    }


def stated(state: Callable[[], Any]) -> dict[str, Callable[[], Answer]]:
    """What a person on the node asks for: plain data or structs, answered as JSON."""
    return {"/state": lambda: Answer(200, JSON, msgspec.json.encode(state()) + b"\n")}


def _checked(reason: str | None) -> Answer:
    if reason is None:
        return Answer(200, PLAIN, b"ok\n")
    return Answer(503, PLAIN, f"{reason}\n".encode("utf-8", "replace"))
