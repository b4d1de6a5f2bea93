"""The tests with the Pythons of Debian releases, each in a root of its own: `make test-pythons`.

Needs root, mmdebstrap and Debian's archive. Roots are kept below build/pythons; remove them for
newer packages. A warning fails a test, as everywhere (pyproject.toml).
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from deploy.steps import PROJECT, BuildFailed, install_memqos, install_requirements, run

SUITES: Final = {"3.11": "bookworm", "3.13": "trixie", "3.14": "testing"}
ROOTS: Final = PROJECT / "build" / "pythons"
PACKAGES: Final = (
    "bash,coreutils,dash,diffutils,findutils,git,grep,gzip,openssl,procps,sed,tzdata,util-linux"
)
"""What the tests start; /bin/sh is dash's."""
TESTS: Final = ("tests/unit", "tests/properties", "tests/conformance")
IGNORED: Final = ("tests/unit/test_helm.py", "tests/unit/test_release_files.py")
"""Tests of tools that build a release, with the Python that builds it."""


def main() -> int:
    """Run the tests with each Python that is named; all of them if none is."""
    parser = argparse.ArgumentParser(description=__doc__, prog="pythons")
    parser.add_argument("--setuptools-of", type=Path, required=True)
    parser.add_argument("--tests", default=" ".join(TESTS), help="arguments for pytest")
    parser.add_argument("pythons", nargs="*", metavar="VERSION", help=", ".join(SUITES))
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        sys.stderr.write("it takes root to unpack Debian's packages – sudo make test-pythons\n")
        return 1
    failed = []
    for version in arguments.pythons or SUITES:
        sys.stdout.write(f"Python {version} of Debian {SUITES[version]}\n")
        sys.stdout.flush()
        try:
            root = _make_root(version, arguments.setuptools_of.absolute())
        except (BuildFailed, OSError) as error:
            sys.stderr.write(f"Python {version}: no root could be made: {error}\n")
            failed.append(version)
            continue
        if _run_tests(root, version, arguments.tests.split()):
            failed.append(version)
    if failed:
        sys.stderr.write(f"failed with Python {', '.join(failed)}\n")
    return 1 if failed else 0


def _make_root(version: str, setuptools_of: Path) -> Path:
    root = ROOTS / version
    if (root / "complete").exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    ROOTS.mkdir(parents=True, exist_ok=True)
    run(
        *("unshare", "--mount", "mmdebstrap", "--quiet", "--mode=root", "--variant=extract"),
        *("--format=directory", "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr"),
        '--aptopt=Acquire::Languages "none"',
        '--aptopt=APT::Install-Recommends "false"',
        # Such as Acquire::Check-Valid-Until, where the archive is a mirror that is not kept fresh.
        *(f"--aptopt={each}" for each in os.environ.get("APT_OPTIONS", "").split(",") if each),
        f"--include=python{version},{PACKAGES}",
        *(SUITES[version], str(root)),
    )
    site = root / "site"
    packages = root / "usr/local/lib" / f"python{version}" / "dist-packages"
    packages.mkdir(parents=True, exist_ok=True)
    (packages / "tests.pth").write_text("/memqos/src\n/site\n")
    command = root / "usr/local/bin/memqos"
    # The postinst of base-files makes this folder, and none is run.
    command.parent.mkdir(parents=True, exist_ok=True)
    command.write_text(f"#!/usr/bin/python{version}\nfrom memqos.cli.main import main\nmain()\n")
    command.chmod(0o755)
    # As Debian's package python3 has it, which may be of another version.
    command.with_name("python3").symlink_to(f"/usr/bin/python{version}")
    for file in ("requirements-dev.txt", "requirements.txt", "requirements-build.txt"):
        install_requirements(site, version, "amd64", file)
    install_memqos(site, root / "tmp", setuptools_of)
    (root / "complete").touch()
    return root


def _run_tests(root: Path, version: str, tests: list[str]) -> int:
    """Run the tests on a copy of the files that git knows, in namespaces of their own."""
    copy = root / "memqos"
    shutil.rmtree(copy, ignore_errors=True)
    listed = subprocess.run(
        ("git", "-C", str(PROJECT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"),
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (PROJECT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(PROJECT / name, copy / name)
    script = (
        'mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" '
        '&& mount --rbind /sys "$1/sys" && mount -t tmpfs tmpfs "$1/tmp" && root=$1 && shift '
        # No exec: the shell is process 1, and reaps the orphans that tests wait for.
        '&& chroot "$root" env -i -C /memqos "$@"; exit $?'
    )
    return subprocess.run(
        [
            *("unshare", "--mount", "--pid", "--fork", "sh", "-c", script, "sh", str(root)),
            *("PATH=/usr/local/bin:/usr/bin", "LANG=C.UTF-8", "HOME=/tmp"),
            *(f"python{version}", "-m", "pytest"),
            *("-n", "auto", "--dist", "worksteal"),
            *("-p", "no:cacheprovider", "-rfE", "-q", *tests),
            *(f"--ignore={each}" for each in IGNORED),
        ],
        check=False,
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
