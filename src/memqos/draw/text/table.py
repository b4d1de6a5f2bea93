"""Plain tables for terminals."""

from collections.abc import Sequence
from typing import Final

from memqos.draw.text.terminal import visible

_OUR_SIGNS: Final = str.maketrans("", "", "├└–≠…·×−≤µ")


def display_width(text: str) -> int:
    """Columns a text takes in a terminal."""
    if text.isascii() or text.translate(_OUR_SIGNS).isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(
        0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text
    )


def table(rows: Sequence[Sequence[str]], *, left: int = 1, gap: str = "  ") -> list[str]:
    """Lines of a table; the first `left` columns align left, numbers after them right."""
    rows = [[visible(cell) for cell in row] for row in rows]
    widths = [max(map(display_width, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for index, (cell, wide) in enumerate(zip(row, widths, strict=True)):
            space = " " * (wide - display_width(cell))
            cells.append(cell + space if index < left else space + cell)
        lines.append(gap.join(cells).rstrip())
    return lines
