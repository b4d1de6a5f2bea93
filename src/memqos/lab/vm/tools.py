"""Finds the programs that machines need, and says how to get those that are missing.

Imported with nothing installed: `make vm-tools` runs before there are packages.
"""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

HOST_SUITE: Final = "bookworm"
TOOL_PACKAGES: Final = {
    "qemu-system-x86_64": "qemu-system-x86",
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "dpkg-deb": "dpkg",
    "setpriv": "util-linux",
    "unshare": "util-linux",
}
"""Program → Debian package."""


def find_program(name: str) -> str | None:
    """Where a program is, also those that only root has on the PATH."""
    return shutil.which(name, path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")


def missing_packages(packages: Mapping[str, str] = TOOL_PACKAGES) -> list[str]:
    """The packages to install, each once."""
    return sorted({package for name, package in packages.items() if not find_program(name)})


def apt_sources() -> list[Path]:
    """The machine's own package sources: of Debian 12, which other suites take the place of."""
    folder = Path("/etc/apt/sources.list.d")
    listed = [Path("/etc/apt/sources.list"), *folder.glob("*.list"), *folder.glob("*.sources")]
    return [path for path in listed if path.is_file() and HOST_SUITE in path.read_text()]


def pip_command() -> list[str] | None:
    """The command of a pip; a virtual environment may leave that to the Python it was made of."""
    base = getattr(sys, "_base_executable", sys.executable)
    for python in (sys.executable, base):
        command = [python, "-m", "pip"]
        if (
            subprocess.run([*command, "--version"], capture_output=True, check=False).returncode
            == 0
        ):
            return command
    return None


def obstacle_to_booting() -> str | None:
    """Why no machine can start here and what to do about it, if so."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "virtual machines need Linux on x86-64"
    if packages := missing_packages():
        return f"virtual machines need {', '.join(packages)} – {how_to_install(packages)}"
    return None


def how_to_install(packages: list[str]) -> str:
    """The command that installs packages."""
    if not find_program("apt-get"):
        return "there is no apt-get: install them, or what has these programs here, as root"
    return f"as root run: apt-get install --no-install-recommends {' '.join(packages)}"
