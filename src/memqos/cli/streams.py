"""The streams that a command prints to: what they can show, how wide, and in which colours."""

import codecs
import os
import re
import sys
from collections.abc import Iterable
from typing import Any, Final, TextIO, cast

import click

from memqos.cli.help_sections import help_section
from memqos.draw.text.lines import Screen, Style
from memqos.draw.text.terminal import visible, visible_lines

_LEAST_WIDTH: Final = 40
"""Columns; on anything narrower lines run on."""
_UNKNOWN_WIDTH: Final = 80
"""Columns of a terminal that does not know its size, such as a serial line."""
_WIDE: Final = "memqos.wide"
_COLORS: Final[dict[Style, str]] = {
    "error": "31",
    "warning": "33",
    "info": "36",
    "added": "32",
    "changed": "33",
    "removed": "31",
    "title": "1",
}

_STAND_INS: Final = {
    "–": "-",
    "−": "-",
    "─": "-",
    "·": "-",
    "×": "x",
    "→": ">",
    "▶": ">",
    "≠": "!",
    "├": "|",
    "└": "`",
    "≤": "<=",
    "≥": ">=",
    "±": "+-",
    "µ": "u",
    "μ": "u",
    "Σ": "sum",
    "³": "^3",
    "ⁿ": "^n",
    "⁶": "^6",
    "░": ".",
} | dict.fromkeys("█▉▊▋▌▍▎▏", "#")
"""In ASCII; the signs of tables have one character, so that columns stay aligned."""
_ERRORS: Final = "memqos.stand-ins"


def _replace_unencodable(error: UnicodeError) -> tuple[str, int]:
    """ASCII for what an encoding lacks: a stand-in for a sign of ours, else an escape."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object
    found = [
        _ellipsis(text[at + 1 : at + 2])
        if text[at] == "…"
        else _STAND_INS.get(text[at]) or text[at].encode("ascii", "backslashreplace").decode()
        for at in range(error.start, error.end)
    ]
    return "".join(found), error.end


def _ellipsis(following: str) -> str:
    """One character where it begins a name that was cut, as in a column."""
    return "~" if re.match(r"\w", following) else "..."


_RAW: Final = ("buffer", "detach")
"""Attributes of a stream that take bytes and so bypass `write`."""


class VisibleStream:
    """A stream that makes control characters visible: names in manifests are untrusted."""

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
    """Make control characters visible in all that this process prints, and all of it encodable."""
    codecs.register_error(_ERRORS, _replace_unencodable)
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors=_ERRORS)
    sys.stdout = cast(TextIO, VisibleStream(sys.stdout))
    if sys.stderr is not None:
        sys.stderr = cast(TextIO, VisibleStream(sys.stderr))


def raw_stream(stream: TextIO) -> TextIO:
    """The stream below, for terminal control sequences of memqos's own."""
    return stream.stream if isinstance(stream, VisibleStream) else stream


def is_utf8(stream: TextIO) -> bool:
    """Whether a stream takes any text; one without encoding, in memory, does."""
    encoding = getattr(stream, "encoding", None)
    return encoding is None or codecs.lookup(encoding).name == "utf-8"


def screen_of(stream: TextIO) -> Screen:
    """What lines on a stream are rendered for."""
    context = click.get_current_context(silent=True)
    return Screen(
        width=_width(stream),
        wide=context is not None and bool(context.meta.get(_WIDE)),
        paint=_paint if _has_colors(stream, None if context is None else context.color) else None,
    )


def show_all_columns(context: click.Context) -> None:
    """Print whole tables from here on, however narrow the terminal."""
    context.meta[_WIDE] = True


def _width(stream: TextIO) -> int | None:
    """Columns: COLUMNS if it is set, else those of a terminal; None where there is none."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isascii() and columns.isdigit() and int(columns):
        return max(int(columns), _LEAST_WIDTH)
    if not stream.isatty():
        return None
    try:
        found = os.get_terminal_size(stream.fileno()).columns
    except OSError:
        found = 0
    return max(found or _UNKNOWN_WIDTH, _LEAST_WIDTH)


def _has_colors(stream: TextIO, choice: bool | None) -> bool:
    if choice is not None:
        return choice
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _choose_colors(context: click.Context, _option: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.color = {"always": True, "never": False}.get(value)


color_option: Final = help_section("Output")(
    click.option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        expose_value=False,
        callback=_choose_colors,
        help="Colours.  [default: auto: on a terminal, unless NO_COLOR is set]",
    )
)


def _paint(text: str, style: Style) -> str:
    return f"\033[{_COLORS[style]}m{text}\033[0m"


def show_status(text: str) -> None:
    """Replace the last line of the terminal; an empty text clears it."""
    terminal = raw_stream(sys.stderr)
    terminal.write(f"\r\033[K{visible(text)[: (_width(sys.stderr) or _UNKNOWN_WIDTH) - 1]}")
    terminal.flush()
