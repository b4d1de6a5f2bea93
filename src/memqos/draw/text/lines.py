"""What commands print, before the width and the colours of the terminal are known."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

Style = Literal["error", "warning", "info", "added", "changed", "removed", "title"]

_OUR_SIGNS: Final = str.maketrans("", "", "├└–≠…·×−≤µ█→")


class Styled(str):
    """A line or a cell that has a colour: all of it, or as many of its first characters."""

    __slots__ = ("length", "style")
    style: Style
    length: int

    def __new__(cls, text: str, style: Style, length: int | None = None) -> "Styled":
        styled = super().__new__(cls, text)
        styled.style = style
        styled.length = len(text) if length is None else length
        return styled


class Paragraph(NamedTuple):
    """A text that is always wrapped, each line after its indent."""

    text: str
    first: str = "  "
    rest: str = "  "
    style: Style | None = None
    """Of the first indent."""


class Table(NamedTuple):
    """Rows of cells. The first `left` columns align left, numbers after them right."""

    rows: Sequence[Sequence[str]]
    left: int = 1
    has_remarks: bool = False
    """Whether the last column is text, and aligns left."""
    drop: Mapping[str, int] = {}
    """The columns to drop where the terminal is too narrow: the first one first."""
    indent: str = ""


Line = str | Paragraph | Table


class Screen(NamedTuple):
    """What lines are rendered for."""

    width: int | None = None
    """Columns; None where there is no end to a line, such as in a file."""
    wide: bool = False
    """Whether tables have all their columns, however narrow the terminal."""
    paint: Callable[[str, Style], str] | None = None


UNLIMITED: Final = Screen()


def display_width(text: str) -> int:
    """Columns a text takes in a terminal."""
    if text.isascii() or text.translate(_OUR_SIGNS).isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(
        0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text
    )


def wrap_words(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """The lines of a text, each after its indent; a word a person may copy stays in one piece."""
    lines: list[str] = []
    line, is_empty = first, True
    for word in text.split(" "):
        if is_empty and lines and not word:
            continue
        longer = line + word if is_empty else f"{line} {word}"
        if not is_empty and display_width(longer) > width:
            lines.append(line.rstrip())
            if not word:
                line, is_empty = rest, True
                continue
            longer = rest + word
        line, is_empty = longer, False
    return lines if is_empty and lines else [*lines, line.rstrip()]


def paint(text: str, source: str, screen: Screen) -> str:
    """A text in the colour of the line or cell that it comes from."""
    if screen.paint is None or not isinstance(source, Styled) or not text:
        return text
    return screen.paint(text[: source.length], source.style) + text[source.length :]
