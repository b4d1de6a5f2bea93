"""Lists of objects, page by page, all of one moment."""

from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from memqos.errors import InputError
from memqos.host.apiserver.connection import ApiServer
from memqos.host.apiserver.refusals import GONE, Refused
from memqos.host.apiserver.resources import (
    EVERYTHING,
    Request,
    Resource,
    Selection,
    to_get,
    to_list,
)

T = TypeVar("T")
PAGE: Final = 500


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    more: str = msgspec.field(default="", name="continue")
    remaining: int | None = msgspec.field(default=None, name="remainingItemCount")
    """Objects after this page, where the server counts them."""


class _Head(msgspec.Struct, frozen=True):
    metadata: _ListMeta = _ListMeta()


class _Page(_Head, Generic[T], frozen=True):
    items: list[T] | None = None


class RawPage(_Head, frozen=True):
    """A page whose items are left as they came, an array."""

    items: msgspec.Raw = msgspec.Raw(b"[]")


class _HasHead(Protocol):
    @property
    def metadata(self) -> _ListMeta: ...


_P = TypeVar("_P", bound=_HasHead)


class _Bytes(msgspec.Struct, frozen=True):
    metadata: _ListMeta
    data: bytes


class Listed(msgspec.Struct, Generic[T], frozen=True):
    """Objects, and the version of the cluster they are of."""

    items: list[T]
    version: str


def listed(
    server: ApiServer,
    resource: Resource[T],
    selection: Selection = EVERYTHING,
    *,
    not_older_than: str = "",
    page: int = PAGE,
) -> Listed[T]:
    """All objects selected.

    Without a version they are as of now; with one they may come from the server's memory, which
    spares its database and is what many nodes asking at once should do: "0" takes what is there.
    """
    decoder = msgspec.json.Decoder(_page_of(resource))
    pages = _pages(server, resource, selection, not_older_than, page, decoder.decode)
    return Listed(
        [item for each in pages for item in each.items or ()], pages[0].metadata.resource_version
    )


def listed_bytes(
    server: ApiServer, resource: Resource[T], selection: Selection = EVERYTHING
) -> list[bytes]:
    """The same as the server sent it: a list object a page."""
    decoder = msgspec.json.Decoder(_Head)

    def kept(data: bytes) -> _Bytes:
        return _Bytes(decoder.decode(data).metadata, data)

    return [each.data for each in _pages(server, resource, selection, "", PAGE, kept)]


def pages(server: ApiServer, resource: Resource[T], selection: Selection) -> Iterator[RawPage]:
    """The same one by one, nothing kept; Refused as GONE where the moment they are of is over."""
    decoder = msgspec.json.Decoder(RawPage)
    query = {"limit": str(PAGE)}
    while True:
        request = to_list(resource, selection, **query)
        page = _decoded(server, request, server.get(request), decoder.decode)
        yield page
        if not page.metadata.more:
            return
        query["continue"] = page.metadata.more


def found(
    server: ApiServer, resource: Resource[T], name: str, namespace: str | None = None
) -> T | None:
    """One object; None where there is none of that name."""
    request = to_get(resource, name, namespace)
    try:
        data = server.get(request)
    except Refused as error:
        if error.status == 404:
            return None
        raise
    return _decoded(server, request, data, msgspec.json.Decoder(resource.type).decode)


def _pages(
    server: ApiServer,
    resource: Resource[T],
    selection: Selection,
    not_older_than: str,
    page: int,
    decode: Callable[[bytes], _P],
) -> list[_P]:
    query = {"limit": str(page)}
    if not_older_than:
        query |= {"resourceVersion": not_older_than, "resourceVersionMatch": "NotOlderThan"}
    pages: list[_P] = []
    try:
        while True:
            request = to_list(resource, selection, **query)
            pages.append(_decoded(server, request, server.get(request), decode))
            more = pages[-1].metadata.more
            if not more:
                return pages
            query = {"limit": str(page), "continue": more}
    except Refused as error:
        if error.status != GONE or not pages:
            raise
    # It took so long that the server has forgotten the moment the pages are of, and pages of
    # two moments are no list. In one piece it cannot happen again.
    request = to_list(resource, selection)
    return [_decoded(server, request, server.get(request), decode)]


def _page_of(resource: Resource[T]) -> type[_Page[T]]:
    item: Any = resource.type
    return _Page[item]


def _decoded(server: ApiServer, request: Request, data: bytes, decode: Callable[[bytes], T]) -> T:
    try:
        return decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"the answer is not what was asked for ({error})",
            file=f"{server.where}{request.path}",
            hint="is this the address of an API server?",
        ) from None
