"""HTTP/1.1 requests and answers as bytes: GET and HEAD, and nothing that has a body."""

import zlib
from http import HTTPStatus
from typing import Final, NamedTuple

from memqos.serve.endpoints import PLAIN, Answer, Routes

HEAD_LIMIT: Final = 16 << 10
"""Bytes of a request up to the empty line that ends it."""
_GZIP_FROM: Final = 1 << 10
_GZIP_LEVEL: Final = 1
_GZIP_WINDOW: Final = 31  # zlib's way to ask for a gzip header
_VERSIONS: Final = {b"HTTP/1.0": False, b"HTTP/1.1": True}
"""Version → whether the connection is kept unless somebody says otherwise."""
_METHODS: Final = (b"GET", b"HEAD")


class Request(NamedTuple):
    """What is asked, and how it wants to be told."""

    path: str
    is_head: bool
    takes_gzip: bool
    keeps: bool


class Refused(Exception):
    """A request that cannot be answered; the connection ends with it."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


def request_of(head: bytes) -> Request:
    """Read the head of a request, without the empty line that ends it."""
    line, *fields = head.lstrip(b"\r\n").split(b"\r\n")
    parts = line.split(b" ")
    if len(parts) != 3 or not parts[2].startswith(b"HTTP/"):
        raise Refused(HTTPStatus.BAD_REQUEST, "this is not an HTTP request")
    method, target, version = parts
    if version not in _VERSIONS:
        raise Refused(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "HTTP/1.1 is spoken here")
    if method not in _METHODS:
        raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are answered")
    headers = _headers(fields)
    if b"content-length" in headers and headers[b"content-length"] != b"0":
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "a request has no body here")
    if b"transfer-encoding" in headers:
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "a request has no body here")
    return Request(
        _path(target),
        method == b"HEAD",
        _takes_gzip(headers.get(b"accept-encoding", b"")),
        _keeps(headers.get(b"connection", b""), _VERSIONS[version]),
    )


def answer_to(request: Request, routes: Routes) -> Answer:
    """The answer of the route that was asked for."""
    route = routes.get(request.path)
    if route is None:
        known = "\n".join(sorted(routes))
        return Answer(404, PLAIN, f"not here; there is\n{known}\n".encode())
    return route()


def answered(answer: Answer, request: Request) -> bytes:
    """An answer as it goes out."""
    body = answer.body
    fields = [b"Content-Type: " + answer.type.encode("latin-1", "replace")]
    if len(body) >= _GZIP_FROM:
        fields.append(b"Vary: Accept-Encoding")
        if request.takes_gzip:
            fields.append(b"Content-Encoding: gzip")
            body = _compressed(body)
    if not request.keeps:
        fields.append(b"Connection: close")
    return _message(answer.status, fields, body, with_body=not request.is_head)


def refusal(error: Refused) -> bytes:
    """The answer to what was no request."""
    fields = [b"Content-Type: " + PLAIN.encode(), b"Connection: close"]
    if error.status == HTTPStatus.METHOD_NOT_ALLOWED:
        fields.append(b"Allow: GET, HEAD")
    return _message(error.status, fields, f"{error.why}\n".encode(), with_body=True)


def _message(status: int, fields: list[bytes], body: bytes, *, with_body: bool) -> bytes:
    phrase = HTTPStatus(status).phrase.encode()
    head = [
        b"HTTP/1.1 %d %b" % (status, phrase),
        *fields,
        b"X-Content-Type-Options: nosniff",
        b"Cache-Control: no-store",
        b"Content-Length: %d" % len(body),
        b"\r\n",
    ]
    return b"\r\n".join(head) + (body if with_body else b"")


def _headers(fields: list[bytes]) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for field in fields:
        name, colon, value = field.partition(b":")
        if not colon or not name or name != name.strip():
            raise Refused(HTTPStatus.BAD_REQUEST, "a header cannot be read")
        name = name.lower()
        found[name] = found[name] + b"," + value.strip() if name in found else value.strip()
    return found


def _path(target: bytes) -> str:
    if not target.startswith(b"/"):
        # A proxy is asked by the whole address.
        _, scheme, rest = target.partition(b"://")
        target = b"/" + rest.partition(b"/")[2] if scheme else target
    return target.partition(b"?")[0].decode("ascii", "replace")


def _takes_gzip(value: bytes) -> bool:
    for part in value.lower().split(b","):
        name, _, parameter = part.partition(b";")
        if name.strip() in (b"gzip", b"*"):
            weight = parameter.replace(b" ", b"").removeprefix(b"q=")
            return not parameter or weight.strip(b"0.") != b""
    return False


def _keeps(value: bytes, unless_said: bool) -> bool:
    words = {word.strip() for word in value.lower().split(b",")}
    return b"close" not in words and (unless_said or b"keep-alive" in words)


def _compressed(body: bytes) -> bytes:
    compressor = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
    return compressor.compress(body) + compressor.flush()
