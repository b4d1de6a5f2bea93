"""Answers of an API server as they come in: none is larger than memory allows for.

urllib3 unpacks no more of a compressed answer than is asked for, so a small one that would unpack
to a huge one is noticed at the same bound.
"""

from collections.abc import Iterator
from typing import Final

import urllib3

from memqos.errors import InputError
from memqos.host.apiserver.deadlines import Deadline

LARGEST_ANSWER: Final = 256 << 20
"""Bytes, unpacked. A page of 500 pods is 5 MiB; etcd stores no object above 1.5 MiB by default."""
_CHUNK: Final = 1 << 16
_BLOCK: Final = 1 << 20
_LONGEST_LINE: Final = 8 << 20
_LONGEST_QUOTE: Final = 500


def brief(error: Exception) -> str:
    """What a decoder says is wrong. It may quote all of an answer: then only its name is told."""
    text = str(error)
    return text if len(text) <= _LONGEST_QUOTE else type(error).__name__


class ResponseStream:
    """An answer that goes on; another thread may end it."""

    def __init__(
        self, answer: urllib3.BaseHTTPResponse, deadline: Deadline, line_seconds: float
    ) -> None:
        self._answer = answer
        self._deadline = deadline
        self._line_seconds = line_seconds
        self._left = LARGEST_ANSWER

    def lines(self) -> Iterator[bytes]:
        """Every line that has come in full; one that broke off was never said."""
        rest: list[bytes] = []
        size = 0
        while chunk := self._answer.read1(_CHUNK):
            *lines, tail = chunk.split(b"\n")
            if lines:
                lines[0] = b"".join(rest) + lines[0]
                rest, size = [], 0
                yield from filter(None, lines)
            self._time_line(is_new=not size, has_begun=bool(size or tail))
            rest.append(tail)
            size += len(tail)
            if size > _LONGEST_LINE:
                raise _too_large(_LONGEST_LINE, "an event of a watch")

    def _time_line(self, *, is_new: bool, has_begun: bool) -> None:
        if not has_begun:
            self._deadline.end_part()
        elif is_new:
            self._deadline.begin_part(self._line_seconds)

    def read(self, count: int) -> bytes:
        """So many bytes, fewer only at the end."""
        data = self._answer.read(count)
        self._left -= len(data)
        if self._left < 0:
            raise _too_large(LARGEST_ANSWER)
        return data

    def stop(self) -> None:
        """End it, whoever is reading."""
        try:
            self._answer.shutdown()
        except (OSError, RuntimeError, ValueError):
            self._answer.close()


def read_body(answer: urllib3.BaseHTTPResponse, largest: int) -> bytes:
    """All of an answer, unpacked no further than it may be large."""
    chunks, size = [], 0
    while chunk := answer.read(_BLOCK):
        chunks.append(chunk)
        size += len(chunk)
        if size > largest:
            raise _too_large(largest)
    return b"".join(chunks)


def _too_large(largest: int, what: str = "the API server's answer") -> InputError:
    return InputError(
        f"{what} is larger than {largest >> 20} MiB",
        hint="is this the address of an API server?",
    )
