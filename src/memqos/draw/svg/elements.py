"""SVG as text: elements, escaping, the width of text without its font, styles."""

from collections.abc import Iterable, Sequence
from math import fsum
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
    return font_size * fsum([_em(c) for c in text])  # sum() of floats is another from 3.12 on


def ellipsize(text: str, font_size: float, width: float) -> str:
    """The text, or as much of its beginning as fits, with … for the rest."""
    text = printable(text)
    if text_width(text, font_size) <= width:
        return text
    return text[: _fitting(text, font_size, width - text_width("…", font_size))].rstrip() + "…"


def _fitting(text: str, font_size: float, width: float) -> int:
    """How many of the first characters fit."""
    for place, c in enumerate(text):
        width -= font_size * _em(c)
        if width < 0:
            return place
    return len(text)


def _attribute(value: str | float) -> str:
    return escape_markup(value) if isinstance(value, str) else coordinate(value)


def _em(c: str) -> float:
    if c in _NARROW:
        return 0.4
    if c in _BROAD:
        return 0.98
    return 0.65 if c < "\u1100" else 1.3


_TITLE_LINES: Final = 8
"""Enough for the names of a pod, a namespace and a container, which have 253 and 63 characters."""


def svg_title(x: float, y: float, title: str, width: float) -> tuple[list[Markup], float]:
    """A title on as many lines as the longest names of Kubernetes take, and the last baseline.

    It ends in the namespace, the container or the class: its end is not cut off.
    """
    size, left, lines = TITLE_FONT * BOLD_WIDENING, printable(title), list[Markup]()
    while True:
        if len(lines) == _TITLE_LINES - 1:
            left = ellipsize(left, size, width)
        fits = _fitting(left, size, width)
        if fits < len(left):
            # Names are broken after their punctuation, if that is not too far from the margin.
            breaks = [place for place in range(fits // 2, fits) if left[place] in " -./"]
            fits = breaks[-1] + 1 if breaks else max(fits, 1)
        lines.append(svg_text(x, y, "ink title", left[:fits].rstrip()))
        left = left[fits:]
        if not left:
            return lines, y
        y += TITLE_FONT + 4


def svg_text(x: float, y: float, look: str, text: str, hint: str = "") -> Markup:
    """A text at its baseline, with a tooltip where there is a hint."""
    title = [el("title", hint)] if hint else []
    return el("text", *title, text, x=x, y=y, class_=look)


def svg_line(look: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    """A straight line."""
    return el("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=look)


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


ROOT_CLASS: Final = "memqos"
"""The class of the picture itself."""
SMALL_FONT: Final = 11
NAME_FONT: Final = 13
TITLE_FONT: Final = 17
BOLD_WIDENING: Final = 1.12
"""How much wider a bold text is."""

SVG_COLOURS: Final[tuple[tuple[str, str, str], ...]] = (
    # selector, on light paper, on dark paper
    (".paper", "fill:#ffffff", "fill:#0d1117"),
    (".ink", "fill:#1f2328", "fill:#e6edf3"),
    (".dim", "fill:#59636e", "fill:#9aa2ab"),
    (".halo", "stroke:#ffffff", "stroke:#0d1117"),
    (".grid", "stroke:#e2e6ea", "stroke:#252c35"),
    (".axis", "stroke:#7d8690", "stroke:#737c86"),
    (".pole", "stroke:#59636e", "stroke:#9aa2ab"),
    (".kill", "stroke:#b3261e", "stroke:#ff8078"),
    (".min", "fill:#0b5cad", "fill:#1f6fd0"),
    (".low", "fill:#a9d0f5", "fill:#1b4470"),
    (".low-mark", "fill:#3f86c8", "fill:#6aaef0"),
    (".normal", "fill:#e9edf1", "fill:#2b323b"),
    (".high", "fill:#fbd68a", "fill:#5c3d05"),
    (".high-mark", "stroke:#d9920f", "stroke:#c8891d"),
    (".unknown", "fill:#ffffff", "fill:#0d1117"),
    (".on-min", "fill:#ffffff;stroke:#0b5cad", "fill:#ffffff;stroke:#1f6fd0"),
    (".on-low", "fill:#0d2b49;stroke:#a9d0f5", "fill:#e8f3ff;stroke:#1b4470"),
    (".on-normal", "fill:#3d444d;stroke:#e9edf1", "fill:#d1d7e0;stroke:#2b323b"),
    (".on-high", "fill:#4a2f00;stroke:#fbd68a", "fill:#ffeac2;stroke:#5c3d05"),
    (".on-unknown", "fill:#59636e;stroke:#ffffff", "fill:#9aa2ab;stroke:#0d1117"),
)

_SHAPES: Final = (
    (
        "text",
        "font-family:system-ui,-apple-system,'Segoe UI','Noto Sans',Arial,sans-serif;"
        f"font-size:{SMALL_FONT}px",
    ),
    (".title", f"font-size:{TITLE_FONT}px;font-weight:600"),
    (".name", f"font-size:{NAME_FONT}px;font-weight:600"),
    (".halo", "paint-order:stroke;stroke-width:4px;stroke-linejoin:round"),
    (".end", "text-anchor:end"),
    (".middle", "text-anchor:middle"),
    (".edge", "stroke-width:4px"),
    (".cross", "stroke-width:2px;fill:none"),
    (".unknown", "stroke-dasharray:4 3"),
    (".node", "stroke-dasharray:2 3"),
)

FILL_PATTERNS: Final[dict[str, Markup]] = {
    "low": el("path", d="M1 2h2v2h-2ZM5 6h2v2h-2Z", class_="low-mark"),
    "high": el("path", d="M-2 2L2 -2M-2 10L10 -2M6 10L10 6", class_="high-mark"),
}


def style_element() -> Markup:
    """The style element of a picture."""
    light = _css_rules([*_SHAPES, *[(selector, look) for selector, look, _ in SVG_COLOURS]])
    dark = _css_rules([(selector, look) for selector, _, look in SVG_COLOURS])
    return el("style", Markup(f"{light}@media (prefers-color-scheme:dark){{{dark}}}"))


def svg_document(
    title: str,
    description: str,
    parts: Sequence[Markup],
    width: float,
    height: float,
    *extra_styles: Markup,
) -> Markup:
    """A whole SVG document on paper; the description is for screen readers."""
    return el(
        "svg",
        el("title", title, id=f"{ROOT_CLASS}-title"),
        el("desc", description, id=f"{ROOT_CLASS}-desc"),
        style_element(),
        *extra_styles,
        pattern_defs(),
        el("rect", class_="paper", width=width, height=height, rx=8),
        *parts,
        xmlns=SVG_NAMESPACE,
        class_=ROOT_CLASS,
        role="img",
        aria_labelledby=f"{ROOT_CLASS}-title {ROOT_CLASS}-desc",
        width=width,
        height=height,
        viewBox=f"0 0 {coordinate(width)} {coordinate(height)}",
    )


def _css_rules(looks: Iterable[tuple[str, str]]) -> str:
    # In an HTML page a style element applies to the whole page.
    return "".join([f".{ROOT_CLASS} {selector}{{{look}}}" for selector, look in looks])


def pattern_defs() -> Markup:
    """The patterns that `zone_path` refers to."""
    return el(
        "defs",
        *[
            el(
                "pattern",
                el("rect", width=8, height=8, class_=kind),
                marks,
                id=f"{ROOT_CLASS}-{kind}",
                width=8,
                height=8,
                patternUnits="userSpaceOnUse",
            )
            for kind, marks in FILL_PATTERNS.items()
        ],
    )


_PLATE_MARGIN: Final = 4


def zone_label(kind: str, x: float, y: float, words: str) -> Markup:
    """A text in the middle of a zone. A plain plate keeps the marks of a pattern from it."""
    text = svg_text(x, y, f"halo middle on-{kind}", words)
    if kind not in FILL_PATTERNS:
        return text
    width = text_width(words, SMALL_FONT) + 2 * _PLATE_MARGIN
    plate = el(
        "rect",
        x=x - width / 2,
        y=y - SMALL_FONT,
        width=width,
        height=SMALL_FONT + _PLATE_MARGIN,
        rx=3,
        class_=kind,
    )
    return el("g", plate, text, pointer_events="none")


def zone_path(kind: str, outline: str, hint: str) -> Markup:
    """An outline in the colour of its kind, or in its pattern if it has one."""
    if kind in FILL_PATTERNS:
        return el(
            "path", el("title", hint), d=outline, class_="axis", fill=f"url(#{ROOT_CLASS}-{kind})"
        )
    return el("path", el("title", hint), d=outline, class_=f"axis {kind}")
