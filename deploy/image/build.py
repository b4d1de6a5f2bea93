"""Build memqos's image from Debian's packages and the project's pinned ones: `make image`.

No base image and no registry: mmdebstrap unpacks Python and what it needs, pip adds the pinned
packages and memqos with their bytecode. There is no shell in it, and no package manager.
"""

import argparse
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

from deploy.image import oci

PROJECT = Path(__file__).parents[2]
SUITE = "bookworm"
PYTHON = "3.11"
EPOCH = 1_700_000_000
"""The time of every file: the same packages give the same image."""
SITE = f"usr/local/lib/python{PYTHON}/dist-packages"
UNWANTED = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/lintian",
    "usr/share/bug",
    "usr/share/perl*",
    "usr/bin/[!p]*",
    "usr/bin/p[!y]*",
    "usr/bin/py[!t]*",
    "usr/sbin/*",
    "usr/lib/dpkg",
    "usr/lib/apt",
    "usr/lib/systemd",
    f"usr/lib/python{PYTHON}/pydoc_data",
    f"usr/lib/python{PYTHON}/lib2to3",
    f"usr/lib/python{PYTHON}/test",
    "usr/lib/x86_64-linux-gnu/gconv",
    "var/cache/*",
    "var/lib/apt",
    "etc/apt",
    "etc/cron.daily",
    "etc/logrotate.d",
)
"""Files that nothing in the image uses. The list of packages stays, for image scanners."""


class BuildFailed(Exception):
    """A step of the build failed; the message has the step and its output."""


def main() -> int:
    """Build the image, and print its name, digest and size."""
    parser = argparse.ArgumentParser(description=__doc__, prog="build")
    parser.add_argument("output", type=Path, help="the tar to write")
    parser.add_argument(
        "--setuptools-of", type=Path, required=True, help="a Python that has setuptools"
    )
    arguments = parser.parse_args()
    to = arguments.output.absolute()
    try:
        name, digest = build(to, arguments.setuptools_of.absolute())
    except (BuildFailed, OSError) as error:
        sys.stderr.write(f"the image could not be built: {error}\n")
        return 1
    sys.stdout.write(f"{name} {digest}\n{to}, {to.stat().st_size >> 20} MiB\n")
    sys.stdout.write(f"import it on a node with: ctr --namespace k8s.io images import {to.name}\n")
    return 0


def build(to: Path, python: Path) -> tuple[str, str]:
    """Write the image to a tar; its name and digest."""
    version = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    name = f"localhost/memqos:{version}"
    if platform.machine() != "x86_64":
        raise BuildFailed("it is made for x86-64, on a machine that is one")
    if os.geteuid() != 0:
        raise BuildFailed("it takes root to unpack Debian's packages – sudo make image")
    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="memqos-image-", dir=to.parent) as folder:
        root, site, layer = (Path(folder) / each for each in ("root", "site", "layer.tar"))
        _install(site, Path(folder), python)
        _bootstrap(root)
        _fill(root, site)
        pack(root, layer)
        image = oci.Image(
            name,
            (f"/usr/bin/python{PYTHON}", "-I", "-m", "memqos"),
            {"PATH": "/usr/bin", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"},
            {
                "org.opencontainers.image.title": "memqos",
                "org.opencontainers.image.version": version,
                "org.opencontainers.image.licenses": "Apache-2.0",
            },
        )
        return name, oci.write(image, layer, to)


def _install(site: Path, scratch: Path, python: Path) -> None:
    """Install the pinned packages and memqos itself, for the image's Python."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    _run(
        *(*pip, "install", "--no-compile", "--require-hashes", "--only-binary=:all:"),
        *("--implementation=cp", f"--python-version={PYTHON}"),
        *("--platform=manylinux2014_x86_64", "--platform=manylinux_2_28_x86_64"),
        *("--target", str(site), "--requirement", str(PROJECT / "requirements.txt")),
    )
    # From a copy: setuptools writes into the tree it builds.
    tree = scratch / "tree"
    tree.mkdir()
    for each in ("pyproject.toml", "README.md", "LICENSE", "src"):
        _copy(PROJECT / each, tree / each)
    _run(
        *(*pip, "--python", str(python), "install", "--no-compile", "--no-deps"),
        *("--no-build-isolation", "--target", str(site), str(tree)),
    )
    shutil.rmtree(site / "bin", ignore_errors=True)
    # Both name the folder of this build, and nothing is uninstalled from an image.
    for file in (*site.glob("memqos-*/direct_url.json"), *site.glob("memqos-*/RECORD")):
        file.unlink()


def _copy(what: Path, to: Path) -> None:
    if what.is_dir():
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(what, to, ignore=ignored)
    else:
        shutil.copy(what, to)


def _bootstrap(root: Path) -> None:
    """Unpack Python and the libraries it needs; no package is configured, as none needs it."""
    sources = Path("/etc/apt/sources.list.d")
    listed = [Path("/etc/apt/sources.list"), *sources.glob("*.list"), *sources.glob("*.sources")]
    _run(
        # What mmdebstrap mounts in the root is unmounted with the namespace (unshare(1)).
        *("unshare", "--mount"),
        *("mmdebstrap", "--quiet", "--mode=root", "--variant=extract", "--format=directory"),
        "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
        '--aptopt=Acquire::Languages "none"',
        '--aptopt=APT::Install-Recommends "false"',
        f"--include=python{PYTHON}",
        *(SUITE, str(root)),
        *(str(path) for path in listed if path.is_file() and SUITE in path.read_text()),
    )


def _fill(root: Path, site: Path) -> None:
    for pattern in UNWANTED:
        for path in root.glob(pattern):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    shutil.copytree(site, root / SITE, dirs_exist_ok=True)
    # Python does not check at every start whether a source has changed (PEP 552).
    compiling = ("-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash")
    _run("chroot", str(root), f"/usr/bin/python{PYTHON}", *compiling, "/usr/lib", f"/{SITE}")


def pack(root: Path, layer: Path) -> None:
    """Write a tar that depends on the files alone: sorted, owned by root, all of one time.

    All users may read them, whatever the umask of the build: not every container runs as root.
    """

    def neutral(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.mode = 0o755 if entry.mode & 0o100 else 0o644
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = EPOCH
        return entry

    with tarfile.open(layer, "w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(root.rglob("*")):
            if not path.relative_to(root).is_relative_to("dev"):
                tar.add(path, str(path.relative_to(root)), recursive=False, filter=neutral)


def _run(*command: str) -> None:
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


if __name__ == "__main__":
    sys.exit(main())
