"""What builds share: a step that is run, pinned packages that are installed, a reproducible tar."""

import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).parents[1]
EPOCH: Final = 1_700_000_000
"""The time of every file: the same packages give the same bytes."""
PIP: Final = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
"""Debian's, Go's and OCI's name of an architecture → that of the kernel and of wheels."""


class BuildFailed(Exception):
    """A step of the build failed; the message has the step and its output."""


def project_version() -> str:
    """The version in pyproject.toml."""
    version: str = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    return version


def run(*command: str) -> None:
    """Run a step of a build; its output is shown only if it fails."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)},
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise BuildFailed(f"{command[0]} is missing – apt-get install {command[0]}") from None
    if done.returncode:
        raise BuildFailed(f"{shlex.join(command[:4])} …:\n{done.stdout[-3000:]}")


def install_pinned(site: Path, python: str, architecture: str) -> None:
    """Install the pinned packages for a Python, such as 3.11, on an architecture."""
    install_requirements(site, python, architecture, "requirements.txt")
    shutil.rmtree(site / "bin", ignore_errors=True)


def install_requirements(site: Path, python: str, architecture: str, file: str) -> None:
    """Install all that a file pins, with the programs."""
    machine = MACHINES[architecture]
    run(
        *(*PIP, "install", "--no-compile", "--no-deps", "--require-hashes", "--only-binary=:all:"),
        *("--implementation=cp", f"--python-version={python}"),
        *(f"--platform=manylinux2014_{machine}", f"--platform=manylinux_2_28_{machine}"),
        *("--target", str(site), "--requirement", str(PROJECT / file)),
    )


def install_memqos(site: Path, scratch: Path, python: Path) -> None:
    """Install memqos itself; `python` has setuptools."""
    # From a copy: setuptools writes into the tree it builds.
    tree = scratch / "tree"
    tree.mkdir()
    for each in ("pyproject.toml", "README.md", "LICENSE", "src"):
        _copy(PROJECT / each, tree / each)
    run(
        *(*PIP, "--python", str(python), "install", "--no-compile", "--no-deps"),
        *("--no-build-isolation", "--target", str(site), str(tree)),
    )
    shutil.rmtree(site / "bin", ignore_errors=True)
    # Both name the folder of this build, and nothing is uninstalled from what is built.
    for file in (*site.glob("memqos-*/direct_url.json"), *site.glob("memqos-*/RECORD")):
        file.unlink()


def _copy(what: Path, to: Path) -> None:
    if what.is_dir():
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(what, to, ignore=ignored)
    else:
        shutil.copy(what, to)


def pack(root: Path, to: Path) -> None:
    """Write a tar that depends on the files alone: sorted, owned by root, all of one time.

    All users may read them, whatever the umask of the build: not every container runs as root.
    """

    def neutral(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.mode = 0o755 if entry.mode & 0o100 else 0o644
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = EPOCH
        return entry

    with tarfile.open(to, "w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(root.rglob("*")):
            if not path.relative_to(root).is_relative_to("dev"):
                tar.add(path, str(path.relative_to(root)), recursive=False, filter=neutral)
