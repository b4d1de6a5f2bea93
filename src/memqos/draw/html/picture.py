"""A picture and some text as a page of its own."""

from collections.abc import Iterable

from memqos.draw.html.style import PAGE_STYLE
from memqos.draw.svg.elements import Markup, el


def picture_page(title: str, picture: str, lines: Iterable[str] = ()) -> str:
    """The whole page, without scripts or anything to load. `picture` is finished SVG."""
    text = "\n".join(lines)
    body = [
        el("h1", title),
        el("div", Markup(picture), class_="card scrolling", tabindex="0"),
        *([el("pre", el("code", *_lines(text)), class_="card")] if text else []),
    ]
    head = el(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="color-scheme" content="light dark">'),
        Markup('<link rel="icon" href="data:,">'),
        el("title", title),
        el("style", Markup(f"{PAGE_STYLE}.scrolling,pre{{overflow-x:auto;margin-top:14px}}")),
    )
    return "<!doctype html>\n" + el("html", head, el("body", el("main", *body)), lang="en")


def _lines(text: str) -> list[Markup]:
    return [el("span", line or " ", class_="line") for line in text.split("\n")]
