"""A terminal that a person types into: Debian's tmux, and the shells that run in it.

`python -m tests.terminal.tmux` installs them, as root.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.eventually import eventually

ROOT = Path(__file__).parents[2]
"""Not from tests.commands: the installer runs before the project's own packages are there."""

PACKAGES = ("tmux", "bash", "zsh", "fish")
"""Each has a program of its name."""
GET_IT = "make terminal-tools (as root)"
READY = "ready> "


def obstacle(*programs: str) -> str | None:
    """Why nothing can be typed here, and what to do about it."""
    missing = [each for each in ("tmux", *programs) if shutil.which(each) is None]
    return f"needs {' and '.join(missing)}; get it with: {GET_IT}" if missing else None


class Terminal:
    """One window, of some width."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def _tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self._socket), "-f", "/dev/null", *arguments],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
        return done.stdout

    def start(self, command: str, width: int, environment: Mapping[str, str]) -> None:
        """Open the window with a command in it."""
        variables = shlex.join([f"{name}={value}" for name, value in environment.items()])
        size = ("-x", str(width), "-y", "60")
        self._tmux("new-session", "-d", *size, "-c", str(ROOT), f"env {variables} {command}")

    def end(self) -> None:
        """Close it, with all that runs in it."""
        self._tmux("kill-server")

    def press(self, *keys: str) -> None:
        """Press keys, by tmux's names."""
        self._tmux("send-keys", *keys)

    def type(self, text: str) -> None:
        """Type a text as it stands."""
        self._tmux("send-keys", "-l", text)

    def screen(self, *, escapes: bool = False) -> list[str]:
        """The lines it shows; with their colours, as escapes."""
        shown = self._tmux("capture-pane", "-p", *(["-e"] if escapes else [])).rstrip()
        return shown.split("\n")

    def until(self, pattern: str) -> list[str]:
        """The lines it shows once a line matches."""
        eventually(pattern, lambda: any(re.search(pattern, each) for each in self.screen()))
        return self.screen()

    def run(self, command: str) -> list[str]:
        """Type a command; what the screen shows of it when the prompt is there again."""
        self.press("C-l")
        eventually("the screen is cleared", lambda: self.screen() == [READY.strip()])
        self.type(command)
        self.press("Enter")
        eventually(
            f"{command} has ended",
            lambda: self.screen()[-1] == READY.strip() and len(self.screen()) > 1,
        )
        return self.screen()[1:-1]


@contextmanager
def terminal(
    folder: Path, command: str, width: int = 120, environment: Mapping[str, str] | None = None
) -> Iterator[Terminal]:
    """A terminal in which `memqos` is this one, until the test ends."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    script = programs / "memqos"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m memqos.cli.main "$@"\n')
    script.chmod(0o755)
    opened = Terminal(folder / "tmux")
    variables = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
        **(environment or {}),
    }
    opened.start(command, width, variables)
    try:
        yield opened
    finally:
        opened.end()


def install() -> int:
    """Install what is missing; needs root and apt-get."""
    missing = [each for each in PACKAGES if shutil.which(each) is None]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "-q", "update"],
        ["apt-get", "-qy", "install", "--no-install-recommends", *missing],
    ):
        done = subprocess.run(command, env=environment, check=False) if missing else None
        if done is not None and done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(install())
