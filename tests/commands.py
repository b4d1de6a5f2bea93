"""The command, run in this process as a shell would run it from the project's folder."""

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from memqos.cli.main import main

ROOT = Path(__file__).parents[1]


class Done(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """What it printed as JSON."""
        return json.loads(self.out)

    def rows(self) -> list[list[str]]:
        """What it printed, a list of words a line."""
        return [line.split() for line in self.out.splitlines()]


def memqos(*arguments: str, stdin: str = "") -> Done:
    out, err = io.StringIO(), io.StringIO()
    with _as_typed(arguments, stdin), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    assert isinstance(code, int)
    return Done(code, out.getvalue(), err.getvalue())


def memqos_at_terminal(*arguments: str, typed: str = "") -> tuple[int, str]:
    """The command in a process of its own, at a terminal: its exit code, and what is shown."""
    terminal, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "memqos", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=ROOT,
    ) as process:
        os.close(theirs)
        os.write(terminal, typed.encode())
        shown = b""
        try:
            while more := os.read(terminal, 1 << 16):
                shown += more
        except OSError:  # What a terminal answers when its last user has gone.
            pass
    os.close(terminal)
    return process.returncode, shown.decode().replace("\r\n", "\n")


@contextmanager
def _as_typed(arguments: tuple[str, ...], stdin: str) -> Iterator[None]:
    before = sys.argv, sys.stdin, os.getcwd()
    sys.argv = ["memqos", *arguments]
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()))
    os.chdir(ROOT)
    try:
        yield
    finally:
        sys.argv, sys.stdin = before[:2]
        os.chdir(before[2])
