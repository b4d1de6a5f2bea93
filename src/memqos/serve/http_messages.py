"""HTTP/1.1 requests and answers as bytes: GET, HEAD, and POST where bodies are allowed."""

import zlib
from http import HTTPStatus
from typing import Final

import msgspec

from memqos.serve.endpoints import PLAIN, HttpReply, PostRoutes, Routes

HEAD_LIMIT: Final = 16 << 10
"""Bytes of a request up to the empty line that ends it."""
_GZIP_FROM: Final = 1 << 10
_GZIP_LEVEL: Final = 1
_GZIP_WINDOW: Final = 31  # 16 + the largest window: with a gzip header (zlib.compressobj)
_HTTP_1_1: Final = b"HTTP/1.1"
_VERSIONS: Final = (b"HTTP/1.0", _HTTP_1_1)
_READING: Final = (b"GET", b"HEAD")
_POST: Final = b"POST"
_ALLOWED: Final = {True: b"GET, HEAD, POST", False: b"GET, HEAD"}


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request's head: what is requested, and how to answer."""

    path: str
    is_head: bool
    takes_gzip: bool
    keep_alive: bool
    is_post: bool = False
    length: int = 0
    """Bytes of the body that follows."""
    expects_continue: bool = False
    """Whether the client waits for 100 Continue before it sends the body."""
    query: str = ""
    """What follows the path, without its question mark."""
    host: str = ""
    """The header of that name: where the client believes to be."""
    authorization: str = ""
    """The header of that name: a secret, which no log and no answer shows."""

    def __repr__(self) -> str:
        return f"HttpRequest({self.path!r})"


class BadRequest(Exception):
    """A request that cannot be answered; its connection is closed."""

    def __init__(self, status: HTTPStatus, why: str, *, allow: bytes = b"") -> None:
        super().__init__(why)
        self.status = status
        self.why = why
        self.allow = allow


def parse_request(head: bytes, body_limit: int = 0) -> HttpRequest:
    """Parse the head of a request, without the empty line that ends it.

    With a `body_limit`, a POST is allowed too.
    """
    line, *fields = head.lstrip(b"\r\n").split(b"\r\n")
    parts = line.split(b" ")
    if len(parts) != 3 or not parts[2].startswith(b"HTTP/"):
        raise BadRequest(HTTPStatus.BAD_REQUEST, "this is not an HTTP request")
    method, target, version = parts
    if version not in _VERSIONS:
        raise BadRequest(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "only HTTP/1.1 is supported")
    is_post = method == _POST and body_limit > 0
    if method not in _READING and not is_post:
        allow = _ALLOWED[body_limit > 0]
        raise BadRequest(
            HTTPStatus.METHOD_NOT_ALLOWED, f"answered are {allow.decode()}", allow=allow
        )
    headers = _headers(fields)
    path, _, query = _relative(target).partition(b"?")
    return HttpRequest(
        path=path.decode("ascii", "replace"),
        query=query.decode("ascii", "replace"),
        host=headers.get(b"host", b"").decode("latin-1"),
        authorization=headers.get(b"authorization", b"").decode("latin-1"),
        is_head=method == b"HEAD",
        takes_gzip=_takes_gzip(headers.get(b"accept-encoding", b"")),
        keep_alive=version == _HTTP_1_1 and b"close" not in _words(headers.get(b"connection", b"")),
        is_post=is_post,
        length=_length(headers, body_limit if is_post else 0, needed=is_post),
        expects_continue=headers.get(b"expect", b"").lower() == b"100-continue",
    )


def route_request(
    request: HttpRequest, body: bytearray, routes: Routes, posts: PostRoutes
) -> HttpReply:
    """The answer of the requested route."""
    if request.path in (routes if request.is_post else posts):
        return HttpReply(405, PLAIN, b"not by this method\n")
    if request.is_post and request.path in posts:
        return posts[request.path](body)
    if not request.is_post and request.path in routes:
        return routes[request.path]()
    known = "\n".join(sorted([*routes, *posts]))
    return HttpReply(404, PLAIN, f"not found; paths are\n{known}\n".encode())


def encode_reply(answer: HttpReply, request: HttpRequest) -> bytes:
    """An answer as bytes."""
    body = answer.body
    fields = [b"Content-Type: " + answer.type.encode("latin-1", "replace"), *answer.fields]
    if len(body) >= _GZIP_FROM:
        fields.append(b"Vary: Accept-Encoding")
        if request.takes_gzip:
            fields.append(b"Content-Encoding: gzip")
            body = _gzip(body)
    if not request.keep_alive:
        fields.append(b"Connection: close")
    return _message(answer.status, fields, body, with_body=not request.is_head)


def encode_refusal(error: BadRequest) -> bytes:
    """The answer to a request that cannot be answered."""
    fields = [b"Content-Type: " + PLAIN.encode(), b"Connection: close"]
    if error.allow:
        fields.append(b"Allow: " + error.allow)
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
            raise BadRequest(HTTPStatus.BAD_REQUEST, "a header cannot be read")
        name = name.lower()
        found[name] = found[name] + b"," + value.strip() if name in found else value.strip()
    return found


def _length(headers: dict[bytes, bytes], limit: int, *, needed: bool) -> int:
    given = headers.get(b"content-length")
    if b"transfer-encoding" in headers or (given is None and needed):
        if limit:
            raise BadRequest(HTTPStatus.LENGTH_REQUIRED, "set Content-Length")
        raise BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "a request may not have a body here")
    if given is None:
        return 0
    if not given.isdigit():
        raise BadRequest(HTTPStatus.BAD_REQUEST, "the length of the body cannot be read")
    if len(given) > 18 or int(given) > limit:
        why = (
            f"a body has at most {limit} bytes here"
            if limit
            else "a request may not have a body here"
        )
        raise BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why)
    return int(given)


def _relative(target: bytes) -> bytes:
    """Path and query of what is requested."""
    if target.startswith(b"/"):
        return target
    # A request to a proxy names the whole address (RFC 9112, 3.2.2).
    _, scheme, rest = target.partition(b"://")
    return b"/" + rest.partition(b"/")[2] if scheme else target


def _takes_gzip(value: bytes) -> bool:
    for part in value.lower().split(b","):
        name, _, parameter = part.partition(b";")
        if name.strip() in (b"gzip", b"*"):
            weight = parameter.replace(b" ", b"").removeprefix(b"q=")
            return not parameter or weight.strip(b"0.") != b""
    return False


def _words(value: bytes) -> set[bytes]:
    return {word.strip() for word in value.lower().split(b",")}


def _gzip(body: bytes) -> bytes:
    compressor = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
    return compressor.compress(body) + compressor.flush()
