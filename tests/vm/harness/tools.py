"""Finds the programs that the machines need, and installs them where it may.

`python -m tests.vm.harness.tools` installs what is missing.
"""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

SUITE = "bookworm"
PACKAGES = {
    "qemu-system-x86_64": "qemu-system-x86",
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "dpkg-deb": "dpkg",
    "setpriv": "util-linux",
    "unshare": "util-linux",
    "openssl": "openssl",
}
CHECKERS = {"promtool": "prometheus"}
"""What checks the files for Prometheus. The package starts a server: only CI installs it."""


def program(name: str) -> str | None:
    """Where a program is, also those that only root has on the PATH."""
    return shutil.which(name, path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")


def missing(packages: Mapping[str, str] = PACKAGES) -> list[str]:
    """The packages to install, each once."""
    return sorted({package for name, package in packages.items() if not program(name)})


def apt_sources() -> list[Path]:
    """The machine's own package sources: of Debian 12, which other suites take the place of."""
    folder = Path("/etc/apt/sources.list.d")
    listed = [Path("/etc/apt/sources.list"), *folder.glob("*.list"), *folder.glob("*.sources")]
    return [path for path in listed if path.is_file() and SUITE in path.read_text()]


def pip() -> list[str] | None:
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
        return "the virtual machines are emulated on Linux on x86-64 only"
    if packages := missing():
        return f"the virtual machines need {', '.join(packages)}; {how_to_get_them()}"
    return None


def how_to_get_them() -> str:
    """The command that installs what is missing, and why another one may be needed."""
    if not program("apt-get"):
        return "there is no apt-get: install them, or what holds these programs here, as root"
    if os.geteuid() != 0:
        return "only root may install packages. As root run: make vm-tools"
    return "get them with: make vm-tools"


def obstacle_to_building(cache: Path) -> str | None:
    """Why no image can be built into the cache and what to do about it, if so."""
    if os.geteuid() != 0:
        return (
            "the virtual machines' image is not built yet, and only root may unpack a system with "
            f"its owners and devices. As root run, once: make test MEMQOS_VM_CACHE={cache}"
        )
    if not apt_sources():
        return f"the virtual machines' image is made of Debian 12: add a source of {SUITE} to apt"
    if pip() is None:
        return "the virtual machines' image needs pip: apt-get install python3-pip"
    return None


def install() -> int:
    """Install what is missing; an exit code."""
    packages = missing({**PACKAGES, **(CHECKERS if os.environ.get("CI") == "true" else {})})
    if not packages:
        return 0
    if os.geteuid() != 0 or not program("apt-get"):
        sys.stderr.write(f"missing: {', '.join(packages)}\n  next: {how_to_get_them()}\n")
        return 1
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    options = ["-qq", "-o=Dpkg::Use-Pty=0"]
    for command in (
        ["apt-get", "update", *options],
        ["apt-get", "install", *options, "--yes", "--no-install-recommends", *packages],
    ):
        done = subprocess.run(command, env=environment, capture_output=True, check=False, text=True)
        if done.returncode:
            sys.stderr.write(done.stdout[-2000:] + done.stderr[-2000:])
            sys.stderr.write(f"{' '.join(command)}: failed\n  next: see why above\n")
            return 1
    sys.stdout.write(f"installed: {', '.join(packages)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(install())
