"""Settings of the docs site, which `make docs` builds with Sphinx; a broken link fails it."""

from typing import Any

project = html_title = "memqos"
extensions = ["myst_parser"]
myst_heading_anchors = 4
html_theme = "furo"
html_copy_source = False
html_show_copyright = False

NAVIGATION = {
    "Guides": "install platforms guard protection swap sizing owners live-clusters alerts ci "
    "scripting library",
    "Commands": "commands/*",
    "Reference": "metrics terminal differences stability threat-model benchmarks performance "
    "architecture",
    "Decisions": "decisions/*",
}


def add_navigation(app: Any, page: str, source: list[str]) -> None:
    """Append tables of contents to the index, which stays plain Markdown for other readers."""
    if page == "index":
        for caption, pages in NAVIGATION.items():
            lines = [":hidden:", ":glob:", f":caption: {caption}", "", *pages.split()]
            source[0] += "\n".join(["", "```{toctree}", *lines, "```", ""])


def setup(app: Any) -> None:
    app.connect("source-read", add_navigation)
