"""Lines, paragraphs and tables as they are printed on a screen of some width."""

from collections.abc import Iterable, Iterator
from typing import Final

from memqos.draw.text.lines import (
    UNLIMITED,
    Line,
    Paragraph,
    Screen,
    Styled,
    Table,
    display_width,
    paint,
    wrap_words,
)
from memqos.draw.text.table import table_lines
from memqos.draw.text.terminal import visible

_TEXT_WIDTH: Final = 100
"""Columns of a paragraph, where there are as many."""


def render(
    lines: Iterable[Line], screen: Screen = UNLIMITED, hidden: dict[str, None] | None = None
) -> Iterator[str]:
    """The lines as they are printed; `hidden` collects the columns that were dropped.

    Whatever names hold is visible; the escapes of colours are the only ones.
    """
    for line in lines:
        if isinstance(line, Table):
            yield from table_lines(line, screen, {} if hidden is None else hidden)
        elif isinstance(line, Paragraph):
            yield from _paragraph_lines(line, screen)
        else:
            yield from _wrapped(line, screen)


def _paragraph_lines(paragraph: Paragraph, screen: Screen) -> Iterator[str]:
    width = _TEXT_WIDTH if screen.width is None else min(_TEXT_WIDTH, screen.width)
    text = visible(paragraph.text)
    lines = wrap_words(text, width, paragraph.first, paragraph.rest)
    if screen.paint is not None and paragraph.style is not None:
        first = paragraph.first.rstrip()
        lines[0] = screen.paint(first, paragraph.style) + lines[0][len(first) :]
    yield from lines


def _wrapped(line: str, screen: Screen) -> Iterator[str]:
    text = visible(line)
    if screen.width is None or display_width(text) <= screen.width:
        yield paint(text, line, screen)
        return
    body = text.lstrip(" ")
    indent = text[: len(text) - len(body)]
    first, *others = wrap_words(body, screen.width, indent, f"{indent}  ")
    yield paint(first, line, screen)
    is_whole = isinstance(line, Styled) and line.length >= len(line)
    yield from [paint(each, line, screen) if is_whole else each for each in others]
