"""Tables for terminals of any width.

A table that is too wide is fitted in this order: remarks fold at words; columns are dropped as
the table lists them; names fold at words; numbers continue below, after the first columns again;
words that are still too long are broken. Numbers never fold, so they stay aligned.
"""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final

from memqos.draw.text.lines import Screen, Table, display_width, paint, wrap_words
from memqos.draw.text.terminal import visible

_GAP: Final = "  "
_LEAST: Final = 24
"""Columns that a text keeps when it folds."""


def table_lines(table: Table, screen: Screen, hidden: dict[str, None]) -> Iterator[str]:
    """The lines of a table; `hidden` collects the columns that were dropped."""
    if not table.rows:
        return
    widths = [
        max([display_width(visible(cell)) for cell in column])
        for column in zip(*table.rows, strict=True)
    ]
    columns = list(range(len(widths)))
    if screen.width is None or screen.wide:
        yield from _block(table, columns, widths, screen)
        return
    width = screen.width - len(table.indent)
    remarks = columns[-1:] if table.has_remarks or table.left >= len(columns) else []
    least = _least_widths(table, columns[: table.left] + remarks, widths)
    only_remarks = [least[each] if each in remarks else widths[each] for each in columns]
    drops = iter(table.drop.items())
    while _total(columns, only_remarks) > width:
        name, column = next(drops, (None, None))
        if name is None or column is None:
            break
        columns.remove(column)
        hidden[name] = None
    for start, block in enumerate(_blocks(table, columns, least, width)):
        if start:
            yield ""
        yield from _block(table, block, _shrunk(block, widths, least, width), screen)


def _least_widths(table: Table, folding: Sequence[int], widths: Sequence[int]) -> list[int]:
    """Of each column, the columns that it needs: all but texts need what they have."""
    least = list(widths)
    for column in folding:
        words = [word for row in table.rows for word in visible(row[column]).split(" ")]
        longest = max(map(display_width, words))
        least[column] = min(widths[column], max(longest, min(_LEAST, widths[column])))
    return least


def _blocks(
    table: Table, columns: Sequence[int], least: Sequence[int], width: int
) -> Iterator[list[int]]:
    """The columns of each part of a table that continues below."""
    first = [each for each in columns if each < table.left]
    block = list(first)
    for column in columns[len(first) :]:
        if len(block) > len(first) and _total([*block, column], least) > width:
            yield block
            block = list(first)
        block.append(column)
    yield block


def _shrunk(
    block: Sequence[int], widths: Sequence[int], least: Sequence[int], width: int
) -> list[int]:
    """Widths that fit: the widest text gives way first, and words break where none is left."""
    found = list(widths)
    for enough in (least, [min(_LEAST, each) for each in least]):
        for _ in range(len(block)):
            excess = _total(block, found) - width
            giving = [each for each in block if found[each] > enough[each]]
            if excess <= 0 or not giving:
                break
            widest = max(giving, key=lambda each: found[each])
            found[widest] = max(enough[widest], found[widest] - excess)
    return found


def _total(columns: Sequence[int], widths: Sequence[int]) -> int:
    return sum([widths[each] for each in columns]) + len(_GAP) * (len(columns) - 1)


def _block(
    table: Table, columns: Sequence[int], widths: Sequence[int], screen: Screen
) -> Iterator[str]:
    last = len(widths) - 1
    for row in table.rows:
        cells = [_folded(visible(row[each]), widths[each]) for each in columns]
        for parts in zip_longest(*cells, fillvalue=""):
            line = []
            for column, part in zip(columns, parts, strict=True):
                space = " " * (widths[column] - display_width(part))
                shown = paint(part, row[column], screen)
                is_left = column < table.left or (table.has_remarks and column == last)
                line.append(shown + space if is_left else space + shown)
            yield (table.indent + _GAP.join(line)).rstrip()


def _folded(cell: str, width: int) -> list[str]:
    """A cell in as many lines as its column needs."""
    if display_width(cell) <= width:
        return [cell]
    return [part for line in wrap_words(cell, width) for part in _broken(line, width)]


def _broken(line: str, width: int) -> Iterator[str]:
    while display_width(line) > width:
        end = len(line)
        while display_width(line[:end]) > width:
            end -= 1
        yield line[:end]
        line = line[end:]
    yield line
