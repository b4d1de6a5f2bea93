"""Standard output and error: what is written there is shown, and obeyed by no terminal."""

import sys
from collections.abc import Iterable
from typing import Any, Final, TextIO, cast

from memqos.draw.terminal import visible, visible_lines

_RAW: Final = ("buffer", "detach")
"""What of a stream takes bytes, past `write`. A stream need not have them."""


class VisibleStream:
    """A stream whose terminal obeys nothing of what is written: names may be anybody's."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(visible_lines(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        if name in _RAW:
            raise AttributeError(f"{type(self).__name__} has no {name!r}: write text")
        return getattr(self.stream, name)


def guard_streams() -> None:
    """Have all that this process writes to standard output and error be visible."""
    sys.stdout = cast(TextIO, VisibleStream(sys.stdout))
    if sys.stderr is not None:
        sys.stderr = cast(TextIO, VisibleStream(sys.stderr))


def raw_stream(stream: TextIO) -> TextIO:
    """A stream for what its terminal should obey, which is memqos's own words alone."""
    return stream.stream if isinstance(stream, VisibleStream) else stream


def show_status(text: str) -> None:
    """Have one line of a terminal say something else; nothing takes it away."""
    terminal = raw_stream(sys.stderr)
    terminal.write(f"\r\033[K{visible(text)[:120]}")
    terminal.flush()
