"""The option --open: a page is written to a file of one's own, and the browser opened on it."""

import os
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from memqos.cli.help_sections import help_section
from memqos.cli.output import complain

_F = TypeVar("_F", bound=Callable[..., Any])
_DISPLAYS: Final = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
"""Without any of these a machine has no browser that shows anything: webbrowser would find one for
terminals, such as lynx, and block."""


@help_section("Output")
def open_option(command: _F) -> _F:
    """--open."""
    return click.option(
        "--open",
        "opens",
        is_flag=True,
        help="Write it as a page to a file, and open the browser on it where there is one.",
    )(command)


def require_page(output: str, *allowed: str) -> None:
    """Refuse --open together with an output that is no page."""
    if output not in allowed:
        raise click.UsageError(f"--open shows a page: leave -o {output} out")


def open_page(page: str) -> None:
    """Write a page, say where, and open it."""
    import tempfile

    folder = tempfile.mkdtemp(prefix="memqos-")
    file = os.path.join(folder, "page.html")
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
        opened.write(page)
    complain(f"the page is in {file}")
    open_browser(f"file://{file}")


def open_browser(url: str) -> bool:
    """Open a browser; False, with a message, where there is none."""
    import webbrowser

    if any(os.environ.get(name) for name in _DISPLAYS) and webbrowser.open(url):
        return True
    complain("no browser was found here: open the page yourself")
    return False
