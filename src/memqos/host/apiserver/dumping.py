"""An API server's lists as dumps are read: a part at a time, so that memory stays bounded."""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from memqos.errors import InputError
from memqos.host.apiserver.connection import SILENCE_SECONDS, ApiServer
from memqos.host.apiserver.listing import PAGE, pages
from memqos.host.apiserver.refusals import FORBIDDEN, GONE, Refused
from memqos.host.apiserver.resources import Resource, Selection, to_list
from memqos.host.dumps import Anew, Block, Part, streamed
from memqos.manifests.dumps.text import Layout

_TRIES: Final = 3
_ARRAY: Final = ord("[")


class Paged(NamedTuple):
    """A list read page by page, all of one moment."""

    server: ApiServer
    resource: Resource[Any]
    selection: Selection
    kind: str
    name: str
    """What a person calls it."""
    expect: Callable[[int], None]
    """Told how many objects there are, where the server says so."""
    is_vital: bool = True
    """Whether there is no point in going on without it."""

    def blocks(self) -> Iterator[Part]:
        """A block a page. Where the server has forgotten the moment they are of, all anew."""
        for left in reversed(range(_TRIES)):
            try:
                yield from self._pages()
                return
            except Refused as error:
                if error.status == FORBIDDEN and not self.is_vital:
                    yield InputError(error.what, hint=error.hint, snippet=error.snippet)
                    return
                if error.status != GONE or not left:
                    raise
            yield Anew()

    def _pages(self) -> Iterator[Block]:
        layout = Layout("items", 0, None, kind=self.kind)
        is_first = True
        for page in pages(self.server, self.resource, self.selection):
            if is_first and page.metadata.remaining is not None:
                self.expect(PAGE + page.metadata.remaining)
            is_first = False
            items = memoryview(page.items)
            if items[0] == _ARRAY:
                # A block ends between two items.
                text = b"".join((items[1:-1], b","))
                yield Block(self.name, layout, 0, len(text), False, text, is_text=True)


class Whole(NamedTuple):
    """A list that comes in one piece, as those of the metrics API do."""

    server: ApiServer
    resource: Resource[Any]
    selection: Selection
    name: str

    def blocks(self) -> Iterator[Part]:
        """The answer as it comes in."""
        request = to_list(self.resource, self.selection)
        with self.server.stream(request, SILENCE_SECONDS) as answer:
            yield from streamed(self.name, answer)
