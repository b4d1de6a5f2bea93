"""The terminal of `memqos top`: colours, and the loop that draws and takes keys."""

import os
import signal
from typing import Final, TextIO

import urwid

from memqos.cli.top_screen import TopScreen
from memqos.converge.refresher import Refresher

PALETTE: Final = [
    ("head", "default,bold", "default"),
    ("titles", "standout", "default"),
    ("cursor", "standout", "default"),
    ("throttled", "yellow", "default"),
    ("killed", "light red", "default"),
    ("note", "dark cyan", "default"),
    ("group", "default,bold", "default"),
]


class _Terminal(urwid.display.raw.Screen):
    def get_cols_rows(self) -> tuple[int, int]:
        """Its size; one that does not know it, such as a serial line, has 0 × 0."""
        columns, rows = super().get_cols_rows()
        return columns or 80, rows or 24


def run_screen(screen: TopScreen, refresher: Refresher, output: TextIO, *, colour: bool) -> None:
    """Show the screen until the user quits."""
    terminal = _Terminal(output=output)
    terminal.set_terminal_properties(16 if colour else 1)
    loop = urwid.MainLoop(
        screen, PALETTE if colour else _plain_palette(), terminal, handle_mouse=False
    )

    def draw(_: bytes) -> None:
        screen.refresh()

    pipe = loop.watch_pipe(draw)
    refresher.on_read(lambda: os.write(pipe, b"."))
    refresher.start()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _quit)
    try:
        loop.run()
    finally:
        refresher.stop()


def _quit(*_: object) -> None:
    """A request to end is as good as q: the terminal is as before."""
    raise urwid.ExitMainLoop


def _plain_palette() -> list[tuple[str, str, str, str]]:
    """Without colour: bold and standout alone."""
    return [
        (name, "", "", "standout" if "standout" in look else "bold" if "bold" in look else "")
        for name, look, _ in PALETTE
    ]
