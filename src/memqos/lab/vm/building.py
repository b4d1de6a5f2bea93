"""Runs the commands that builds are made of, one build at a time."""

import errno
import fcntl
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from memqos.errors import LabError
from memqos.lab.vm.tools import find_program
from memqos.lab.waiting import waits_for

_REMOVAL_SECONDS: Final = 10.0


def run_tool(name: str, *arguments: str) -> None:
    """Run a command that ends when this process does, even if that is killed."""
    command = [find_program(name) or name, *arguments]
    done = subprocess.run(
        ["setpriv", "--pdeathsig", "KILL", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise failure_of(
            f"{name} exited with {done.returncode}", f"{shlex.join(command)}\n{done.stdout}"
        )


def failure_of(what: str, output: str) -> LabError:
    """An error with the last line of an output; all of it is in the error's notes."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    full = os.strerror(errno.ENOSPC) in output
    error = LabError(
        f"{what}: {lines[-1]}" if lines else what, hint="is the disk full?" if full else None
    )
    error.add_note(output[-8000:])
    return error


@contextmanager
def building_folder(prefix: str, parent: Path) -> Iterator[Path]:
    """A new folder, removed at the end with all that is left in it."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        yield folder
    finally:
        remove_tree(folder)


def remove_tree(folder: Path) -> None:
    """Remove a folder. Processes of a build that was just killed may still write to it."""
    if not waits_for(lambda: _is_removed(folder), _REMOVAL_SECONDS):
        shutil.rmtree(folder)


def _is_removed(folder: Path) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """The first process continues, the others wait."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def make_disk(disk: Path, folder: Path, *, size: str) -> None:
    """An ext4 file system, sparse, with everything that is in the folder."""
    run_tool("mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-d", str(folder), str(disk), size)
