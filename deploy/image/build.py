"""Build memqos's image from Debian's packages and the project's pinned ones: `make image`.

No base image and no registry: mmdebstrap unpacks Python and what it needs, pip adds the pinned
packages and memqos with their bytecode. There is no shell in it, and no package manager.
"""

import argparse
import os
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from deploy.image import oci
from deploy.steps import (
    EPOCH,
    MACHINES,
    BuildFailed,
    install_memqos,
    install_pinned,
    pack,
    project_version,
    run,
)

CREATED = datetime.fromtimestamp(EPOCH, UTC).isoformat()
SUITE = "bookworm"
PYTHON = "3.11"
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
    "usr/lib/*-linux-gnu/gconv",
    "var/cache/*",
    "var/lib/apt",
    "etc/apt",
    "etc/cron.daily",
    "etc/hostname",
    "etc/logrotate.d",
    "etc/resolv.conf",
)
"""Files that nothing in the image uses, and the two that mmdebstrap copies from the machine of the
build. The list of packages stays, for image scanners."""
LIST_PACKAGES = (
    """for deb in "$1"/var/cache/apt/archives/*.deb; do """
    """dpkg-deb --field "$deb" | sed '1a Status: install ok unpacked'; echo; """
    """done > "$1/var/lib/dpkg/status\""""
)
"""Unpacked packages are not listed by dpkg. Scanners, and the SBOM, read this list."""


def main() -> int:
    """Build the image, and print its name, digest and size."""
    parser = argparse.ArgumentParser(description=__doc__, prog="build")
    parser.add_argument("output", type=Path, help="the tar to write")
    parser.add_argument(
        "--setuptools-of", type=Path, required=True, help="a Python that has setuptools"
    )
    parser.add_argument("--arch", choices=sorted(MACHINES), default="amd64")
    arguments = parser.parse_args()
    to = arguments.output.absolute()
    try:
        name, digest = build(to, arguments.setuptools_of.absolute(), arguments.arch)
    except (BuildFailed, OSError) as error:
        sys.stderr.write(f"the image could not be built: {error}\n")
        return 1
    sys.stdout.write(f"{name} {digest}\n{to}, {to.stat().st_size >> 20} MiB\n")
    sys.stdout.write(f"import it on a node with: ctr --namespace k8s.io images import {to.name}\n")
    return 0


def build(to: Path, python: Path, architecture: str) -> tuple[str, str]:
    """Write the image to a tar; its name and digest."""
    version = project_version()
    name = f"localhost/memqos:{version}"
    if os.geteuid() != 0:
        raise BuildFailed("it takes root to unpack Debian's packages – sudo make image")
    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="memqos-image-", dir=to.parent) as folder:
        root, site, layer = (Path(folder) / each for each in ("root", "site", "layer.tar"))
        install_pinned(site, PYTHON, architecture)
        install_memqos(site, Path(folder), python)
        shutil.rmtree(site / "memqos" / "lab")  # experiments are no work of an agent
        _bootstrap(root, architecture)
        remove_unwanted(root)
        shutil.copytree(site, root / SITE, dirs_exist_ok=True)
        _compile(root)
        pack(root, layer)
        image = oci.Image(
            name=name,
            architecture=architecture,
            entrypoint=(f"/usr/bin/python{PYTHON}", "-I", "-m", "memqos"),
            environment={"PATH": "/usr/bin", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"},
            labels={
                "org.opencontainers.image.title": "memqos",
                "org.opencontainers.image.description": (
                    "Memory quality of service for Kubernetes nodes"
                ),
                "org.opencontainers.image.version": version,
                "org.opencontainers.image.licenses": "Apache-2.0",
                "org.opencontainers.image.created": CREATED,
            },
        )
        return name, oci.write(image, layer, to)


def _bootstrap(root: Path, architecture: str) -> None:
    """Unpack Python and the libraries it needs; no package is configured, as none needs it."""
    sources = Path("/etc/apt/sources.list.d")
    listed = [Path("/etc/apt/sources.list"), *sources.glob("*.list"), *sources.glob("*.sources")]
    run(
        # What mmdebstrap mounts in the root is unmounted with the namespace (unshare(1)).
        *("unshare", "--mount"),
        *("mmdebstrap", "--quiet", "--mode=root", "--variant=extract", "--format=directory"),
        "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
        '--aptopt=Acquire::Languages "none"',
        '--aptopt=APT::Install-Recommends "false"',
        f"--architectures={architecture}",
        f"--extract-hook={LIST_PACKAGES}",
        f"--include=python{PYTHON}",
        *(SUITE, str(root)),
        *(str(path) for path in listed if path.is_file() and SUITE in path.read_text()),
    )


def remove_unwanted(root: Path) -> None:
    """Remove what nothing in the image uses."""
    for pattern in UNWANTED:
        for path in root.glob(pattern):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _compile(root: Path) -> None:
    """Compile all modules; bytecode is the same on every architecture.

    By the build's own Python of the image's version, so that the image of another architecture
    needs no emulator. Python does not check at every start whether a source has changed (PEP 552).
    """
    run(
        *(find_compiler(), "-I", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"),
        # Tracebacks name files as they are in the image.
        *("-s", str(root), "-p", "/", str(root / "usr/lib" / f"python{PYTHON}"), str(root / SITE)),
    )


def find_compiler() -> str:
    """Debian's Python, where it is: other patch releases compile some modules differently."""
    path = os.pathsep.join(("/usr/bin", os.environ.get("PATH", "")))
    python = shutil.which(f"python{PYTHON}", path=path)
    if python is None:
        raise BuildFailed(f"python{PYTHON} is missing – apt-get install python{PYTHON}")
    return python


if __name__ == "__main__":
    sys.exit(main())
