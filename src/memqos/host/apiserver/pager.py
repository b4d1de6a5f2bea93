"""Lists of objects, page by page, all pages of one resourceVersion."""

import time
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from memqos.errors import InputError
from memqos.host.apiserver.api_errors import GONE, ApiError
from memqos.host.apiserver.client import ApiClient
from memqos.host.apiserver.resources import (
    EVERYTHING,
    ApiRequest,
    ApiResource,
    Query,
    Selection,
    get_request,
    list_request,
)
from memqos.host.apiserver.responses import LARGEST_ANSWER, decoded_size, short_error
from memqos.units import format_bytes

_T = TypeVar("_T")
LIST_PAGE_SIZE: Final = 500
MOST_PAGES: Final = 10_000
LIST_SECONDS: Final = 3600.0
"""How long all pages of a list may take together."""
LARGEST_LIST: Final = 4 << 30
"""Bytes of all pages together, where they are kept: several times the largest known cluster."""


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    more: str = msgspec.field(default="", name="continue")
    remaining: int | None = msgspec.field(default=None, name="remainingItemCount")
    """Objects after this page, where the server counts them."""


class _Head(msgspec.Struct, frozen=True):
    metadata: _ListMeta = _ListMeta()


class _Page(_Head, Generic[_T], frozen=True):
    items: list[_T] | None = None


class RawPage(_Head, frozen=True):
    """A page whose items are not decoded: a JSON array."""

    items: msgspec.Raw = msgspec.Raw(b"[]")


class _HasMetadata(Protocol):
    @property
    def metadata(self) -> _ListMeta: ...


_P = TypeVar("_P", bound=_HasMetadata)


class _Bytes(msgspec.Struct, frozen=True):
    metadata: _ListMeta
    data: bytes


class ObjectList(msgspec.Struct, Generic[_T], frozen=True):
    """Objects, and the resourceVersion of the list."""

    items: list[_T]
    version: str


def list_objects(
    server: ApiClient,
    resource: ApiResource[_T],
    selection: Selection = EVERYTHING,
    *,
    not_older_than: str = "",
    page: int = LIST_PAGE_SIZE,
    largest: int = LARGEST_LIST,
    most_decoded: int | None = None,
) -> ObjectList[_T]:
    """All selected objects, if they are no larger than `largest` together.

    With `most_decoded` they are refused, too, where they could take more memory than that.

    Without a version they are the most recent; with one they may come from the server's watch
    cache, which saves a read of etcd, as many nodes at once should: "0" takes any version.
    """
    decoder = msgspec.json.Decoder(_page_of(resource))
    query = {"limit": str(page)}
    if not_older_than:
        query |= {"resourceVersion": not_older_than, "resourceVersionMatch": "NotOlderThan"}
    decoded = 0

    def decode(data: bytes) -> _Page[_T]:
        nonlocal decoded
        decoded += decoded_size(data)
        if most_decoded is not None and decoded > most_decoded:
            bound = f"{format_bytes(most_decoded)} of memory"
            raise InputError(
                f"{server.where}: the {resource.plural} would take more than {bound}",
                hint="is this the address of an API server?",
            )
        return decoder.decode(data)

    pages = _all_pages(server, resource, selection, query, decode, largest)
    items = [item for each in pages for item in each.items or ()]
    return ObjectList(items, pages[0].metadata.resource_version)


def list_raw_pages(
    server: ApiClient, resource: ApiResource[_T], selection: Selection = EVERYTHING
) -> list[bytes]:
    """All selected objects as the server sent them: a list object a page."""
    decoder = msgspec.json.Decoder(_Head)

    def keep_raw(data: bytes) -> _Bytes:
        return _Bytes(decoder.decode(data).metadata, data)

    query = {"limit": str(LIST_PAGE_SIZE)}
    pages = _all_pages(server, resource, selection, query, keep_raw, LARGEST_LIST)
    return [each.data for each in pages]


def raw_pages(
    server: ApiClient, resource: ApiResource[_T], selection: Selection
) -> Iterator[RawPage]:
    """Page after page, none of them kept; ApiError GONE where the continue token expired."""
    decode = msgspec.json.Decoder(RawPage).decode
    return (
        page
        for page, _ in _pages(server, resource, selection, {"limit": str(LIST_PAGE_SIZE)}, decode)
    )


def get_object(
    server: ApiClient, resource: ApiResource[_T], name: str, namespace: str | None = None
) -> _T | None:
    """One object; None where it does not exist."""
    request = get_request(resource, name, namespace)
    try:
        data = server.get(request)
    except ApiError as error:
        if error.status == 404:
            return None
        raise
    return _decode_answer(server, request, data, msgspec.json.Decoder(resource.type).decode)


def _pages(
    server: ApiClient,
    resource: ApiResource[_T],
    selection: Selection,
    query: Query,
    decode: Callable[[bytes], _P],
    largest: int = LARGEST_ANSWER,
) -> Iterator[tuple[_P, int]]:
    """Page after page, with its size; bounded, should a server always name another one."""
    deadline = time.monotonic() + LIST_SECONDS
    for _ in range(MOST_PAGES):
        request = list_request(resource, selection, **query)
        data = server.get(request, largest)
        page = _decode_answer(server, request, data, decode)
        yield page, len(data)
        if not page.metadata.more:
            return
        if time.monotonic() > deadline:
            raise _endless(server, request, f"{LIST_SECONDS:g} s")
        query = {"limit": query["limit"], "continue": page.metadata.more}
    raise _endless(server, request, f"{MOST_PAGES:,} pages")


def _all_pages(
    server: ApiClient,
    resource: ApiResource[_T],
    selection: Selection,
    query: Query,
    decode: Callable[[bytes], _P],
    largest: int,
) -> list[_P]:
    pages: list[_P] = []
    size = 0
    request = list_request(resource, selection)
    page_limit = min(largest, LARGEST_ANSWER)
    try:
        for page, page_size in _pages(server, resource, selection, query, decode, page_limit):
            pages.append(page)
            size += page_size
            if size > largest:
                raise _endless(server, request, format_bytes(largest))
        return pages
    except ApiError as error:
        if error.status != GONE or not pages:
            raise
    # A continue token expires when etcd compacts, by default after 5 minutes, and pages of two
    # versions are no list. As client-go's pager (tools/pager): once more without a limit.
    data = server.get(request, largest)
    return [_decode_answer(server, request, data, decode)]


def _endless(server: ApiClient, request: ApiRequest, bound: str) -> InputError:
    return InputError(
        f"the list of {request} does not end within {bound}",
        file=server.where,
        hint="is this the address of an API server?",
    )


def _page_of(resource: ApiResource[_T]) -> type[_Page[_T]]:
    item: Any = resource.type
    return _Page[item]


def _decode_answer(
    server: ApiClient, request: ApiRequest, data: bytes, decode: Callable[[bytes], _T]
) -> _T:
    with server.redact_errors():
        try:
            return decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(
                f"the response is not the requested list ({short_error(error)})",
                file=f"{server.where}{request.path}",
                hint="is this the address of an API server?",
            ) from None
