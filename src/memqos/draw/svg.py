"""SVG as text: elements, escaping, and room for words without a font to ask."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

SVG_NAMESPACE: Final = "http://www.w3.org/2000/svg"

_ENTITIES: Final = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
)

# Advance widths in em of the widest fonts a viewer is likely to choose for sans-serif.
_NARROW: Final = frozenset(" .,:;'|!()[]-·/ijlftrI")
_BROAD: Final = frozenset("mwMW@%")


class Markup(str):
    """Finished SVG. Any other text that becomes part of an element is escaped."""

    __slots__ = ()


def el(tag: str, *children: str, **attributes: str | float) -> Markup:
    """One element. A name's `_` stands for `-`; a trailing one sets it apart from a keyword."""
    names = [(name.rstrip("_").replace("_", "-"), value) for name, value in attributes.items()]
    opening = tag + "".join([f' {name}="{_attribute(value)}"' for name, value in names])
    if not children:
        return Markup(f"<{opening}/>")
    inner = "".join(
        [child if isinstance(child, Markup) else escape_markup(child) for child in children]
    )
    return Markup(f"<{opening}>{inner}</{tag}>")


def escape_markup(text: str) -> str:
    """Text that is safe between tags and in attributes."""
    return printable(text).translate(_ENTITIES)


def printable(text: str) -> str:
    """Text in which white space is spaces and nothing is invisible, reordering or ill-formed."""
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() else " " if c.isspace() else "" for c in text])


def coordinate(value: float) -> str:
    """A coordinate, to a tenth of a pixel."""
    text = f"{value:.1f}"
    return text.removesuffix(".0")


def text_width(text: str, font_size: float) -> float:
    """About how many pixels a text takes, rather more than fewer."""
    return font_size * sum([_em(c) for c in text])


def ellipsize(text: str, font_size: float, room: float) -> str:
    """The text, or as much of its beginning as fits, with … for the rest."""
    text = printable(text)
    if text_width(text, font_size) <= room:
        return text
    room -= text_width("…", font_size)
    kept = 0
    for c in text:
        room -= font_size * _em(c)
        if room < 0:
            break
        kept += 1
    return text[:kept].rstrip() + "…"


def _attribute(value: str | float) -> str:
    return escape_markup(value) if isinstance(value, str) else coordinate(value)


def _em(c: str) -> float:
    if c in _NARROW:
        return 0.4
    if c in _BROAD:
        return 0.98
    return 0.65 if c < "\u1100" else 1.3


class Mark(NamedTuple):
    """A text that belongs to a place on a horizontal line."""

    x: float
    text: str
    hint: str


class Flag(NamedTuple):
    """The text of a mark beside its pole; row 0 is nearest to the line."""

    mark: Mark
    row: int
    left: float
    right: float


_POLE_GAP: Final = 4
_TEXT_GAP: Final = 8


def place_flags(marks: Iterable[Mark], font_size: float, left: float, right: float) -> list[Flag]:
    """The marks in as few rows as keep texts off each other and off each other's poles."""
    ordered = sorted(marks)
    layouts = (
        _try_rows(ordered, rows, font_size, (left, right), []) for rows in range(len(ordered) + 1)
    )
    return next(layout for layout in layouts if layout is not None)


def _try_rows(
    marks: Sequence[Mark],
    rows: int,
    font_size: float,
    bounds: tuple[float, float],
    placed: list[Flag],
) -> list[Flag] | None:
    if not marks:
        return placed
    mark, *others = marks
    width = text_width(mark.text, font_size)
    for row in range(rows):
        for left in (mark.x + _POLE_GAP, mark.x - _POLE_GAP - width):
            flag = Flag(mark, row, left, left + width)
            if (
                left < bounds[0]
                or flag.right > bounds[1]
                or any([_overlap(flag, f) for f in placed])
            ):
                continue
            layout = _try_rows(others, rows, font_size, bounds, [*placed, flag])
            if layout is not None:
                return layout
    return None


def _overlap(one: Flag, other: Flag) -> bool:
    if one.row == other.row:
        return one.left < other.right + _TEXT_GAP and other.left < one.right + _TEXT_GAP
    near, far = (one, other) if one.row < other.row else (other, one)
    return near.left - 2 < far.mark.x < near.right + 2
