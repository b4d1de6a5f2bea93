"""Runs the commands that builds are made of, one build at a time."""

import fcntl
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.vm.harness.tools import program


class BuildFailed(Exception):
    """A step of a build went wrong; the message has the command and what it said."""


def run(name: str, *arguments: str) -> None:
    """Run a command that ends when the tests do, even if those are killed."""
    command = [program(name) or name, *arguments]
    done = subprocess.run(
        ["setpriv", "--pdeathsig", "TERM", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        said = done.stdout[-4000:]
        raise BuildFailed(f"{shlex.join(command)}\nexited with {done.returncode}:\n{said}")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Whoever comes first goes on, the others wait."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def make_disk(disk: Path, folder: Path, *, size: str) -> None:
    """An ext4 file system, sparse, with everything that is in the folder."""
    run("mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-d", str(folder), str(disk), size)
