"""A page and its data for one person: static files for anybody, data for who has the token.

The token comes with the page's address, after the #, which browsers never send. The page shows
it in a header, so no address that a log or a history might keep has it.
"""

import asyncio
import hmac
from collections.abc import Callable, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from memqos.errors import InputError, MemqosError
from memqos.serve.endpoints import JSON, PLAIN, HttpReply
from memqos.serve.http_messages import HttpRequest

UrlQuery = Mapping[str, str]
DataRoutes = Mapping[str, Callable[[UrlQuery], Any]]
"""Path → data for a query, made in a thread: it may take its time."""

_CONTENT_SECURITY_POLICY: Final = (
    b"Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
    b"img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    b"frame-ancestors 'none'"
)
_SECURITY_FIELDS: Final = (
    _CONTENT_SECURITY_POLICY,
    b"Referrer-Policy: no-referrer",
    b"Cross-Origin-Opener-Policy: same-origin",
    b"Cross-Origin-Resource-Policy: same-origin",
)
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_WORKERS: Final = 2
_LONGEST_QUERY: Final = 2000


class WebPage:
    """Answers the requests of one page."""

    # `hosts` are the names that the server goes by; they may grow until the first request.
    def __init__(
        self, files: Mapping[str, bytes], data: DataRoutes, token: str, hosts: Set[str]
    ) -> None:
        self._files = files
        self._data = data
        self._token = token.encode()
        self._hosts = hosts
        self._workers = ThreadPoolExecutor(_WORKERS, "memqos-web")

    async def answer(self, request: HttpRequest) -> HttpReply:
        """The reply to a request, with the headers that bound what a browser does with it."""
        reply = await self._reply(request)
        return reply._replace(fields=(*reply.fields, *_SECURITY_FIELDS))

    def close(self) -> None:
        """Answer no more."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    async def _reply(self, request: HttpRequest) -> HttpReply:
        # Another site's name may resolve to this address: its page would be of the same origin.
        if request.host.lower() not in self._hosts:
            return HttpReply(
                421, PLAIN, b"this server does not go by that name: give it with --host\n"
            )
        path = "/index.html" if request.path == "/" else request.path
        if path in self._files:
            return HttpReply(200, _TYPES[path.rpartition(".")[2]], self._files[path])
        if path not in self._data:
            return HttpReply(404, PLAIN, b"not here\n")
        if not self._is_authorized(request.authorization):
            return HttpReply(
                401,
                PLAIN,
                b"open the address that memqos web has printed\n",
                (b"WWW-Authenticate: Bearer",),
            )
        if len(request.query) > _LONGEST_QUERY:
            return HttpReply(414, PLAIN, b"the query is too long\n")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._workers, self._data_reply, path, request.query)

    def _data_reply(self, path: str, query: str) -> HttpReply:
        try:
            found = self._data[path](dict(parse_qsl(query, keep_blank_values=True)))
        except InputError as error:
            return HttpReply(400, PLAIN, f"{error}\n".encode())
        except (MemqosError, OSError) as error:
            return HttpReply(502, PLAIN, f"{error}\n".encode())
        return HttpReply(200, JSON, msgspec.json.encode(found))

    def _is_authorized(self, authorization: str) -> bool:
        scheme, _, token = authorization.partition(" ")
        # Compared as bytes: text that is not ASCII is refused by compare_digest with an error.
        is_token = hmac.compare_digest(token.encode("utf-8", "replace"), self._token)
        return scheme.lower() == "bearer" and is_token
