"""How pictures look: colours on light and on dark paper, patterns, and the shape of text.

Everything is said at least twice, by colour and by pattern, shape or word, and there are viewers
that know neither variables nor media queries: they show what stands outside of those.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from memqos.draw.svg import SVG_NAMESPACE, Markup, coordinate, el

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
    """A whole SVG document on paper; `own` is style of its own, `spoken` is for who cannot see."""
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
    # In an HTML page a style element holds for the whole page.
    return "".join([f".{ROOT_CLASS} {selector}{{{look}}}" for selector, look in looks])


def pattern_defs() -> Markup:
    """The patterns that `filled` refers to."""
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


def zone_path(kind: str, outline: str, hint: str) -> Markup:
    """An outline in the colour of its kind, or in its pattern if it has one."""
    if kind in FILL_PATTERNS:
        return el(
            "path", el("title", hint), d=outline, class_="axis", fill=f"url(#{ROOT_CLASS}-{kind})"
        )
    return el("path", el("title", hint), d=outline, class_=f"axis {kind}")
