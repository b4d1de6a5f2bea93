"""An API server's lists as sources of dump blocks, a page at a time: memory stays bounded."""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from memqos.errors import InputError
from memqos.host.apiserver.api_errors import FORBIDDEN, GONE, ApiError
from memqos.host.apiserver.client import READ_SECONDS, ApiClient
from memqos.host.apiserver.pager import LIST_PAGE_SIZE, raw_pages
from memqos.host.apiserver.resources import ApiResource, Selection, list_request
from memqos.host.dumps import DumpBlock, DumpPart, Restart, stream_blocks
from memqos.manifests.dumps.text import DumpLayout

_TRIES: Final = 3
_ARRAY: Final = ord("[")


class PagedList(msgspec.Struct, frozen=True, kw_only=True):
    """A list read page by page, all pages of one resourceVersion."""

    server: ApiClient
    resource: ApiResource[Any]
    selection: Selection
    kind: str
    name: str
    """What messages call the list."""
    expect: Callable[[int], None]
    """Called with the number of objects, where the server counts them."""
    is_required: bool = True
    """Whether it is an error where the client may not read it."""

    def blocks(self) -> Iterator[DumpPart]:
        """A block a page. Where the resourceVersion expires meanwhile, the list starts again."""
        for tries_left in reversed(range(_TRIES)):
            try:
                yield from self._pages()
                return
            except ApiError as error:
                if error.status == FORBIDDEN and not self.is_required:
                    yield InputError(error.what, hint=error.hint, snippet=error.snippet)
                    return
                if error.status != GONE or not tries_left:
                    raise
            yield Restart()

    def _pages(self) -> Iterator[DumpBlock]:
        layout = DumpLayout(form="items", start=0, opening=None, kind=self.kind)
        is_first = True
        for page in raw_pages(self.server, self.resource, self.selection):
            if is_first and page.metadata.remaining is not None:
                self.expect(LIST_PAGE_SIZE + page.metadata.remaining)
            is_first = False
            items = memoryview(page.items)
            if items[0] == _ARRAY:
                # A block ends between two items.
                text = b"".join((items[1:-1], b","))
                yield DumpBlock(
                    file=self.name, layout=layout, end=len(text), text=text, is_text=True
                )


class WholeList(NamedTuple):
    """A list that the server sends as a whole, as the metrics API does."""

    server: ApiClient
    resource: ApiResource[Any]
    selection: Selection
    name: str

    def blocks(self) -> Iterator[DumpPart]:
        """The answer as it arrives."""
        request = list_request(self.resource, self.selection)
        with self.server.stream(request, READ_SECONDS) as answer:
            yield from stream_blocks(self.name, answer)
