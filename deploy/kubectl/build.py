"""Build the kubectl plugin: an archive for each architecture, and krew's manifest of them.

An archive has memqos and its pinned packages, compiled ones for every Python that is supported,
and needs nothing but that Python. Files are not packed again inside it, since compiled modules
cannot be imported out of a zip: a start is as fast as that of an installed memqos.
"""

import argparse
import gzip
import hashlib
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from deploy.steps import (
    MACHINES,
    PROJECT,
    BuildFailed,
    install_memqos,
    install_pinned,
    pack,
    project_version,
)

PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
LAUNCHER: Final = Path(__file__).with_name("kubectl-memqos")
MANIFEST: Final = """\
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: memqos
spec:
  version: v{version}
  homepage: {url}
  shortDescription: Explain and audit memory quality of service
  description: |
    Shows what a node does with a Pod's memory, and why: protection, throttling, OOM and eviction
    order, for Kubernetes 1.22 to 1.38.
  caveats: |
    It needs Python 3.11 or newer as python3 on the PATH.
    Try: kubectl memqos explain deployment/NAME
  platforms:
"""
PLATFORM: Final = """\
  - selector: {{matchLabels: {{os: linux, arch: {architecture}}}}}
    uri: {url}/v{version}/{archive}
    sha256: {checksum}
    bin: kubectl-memqos
"""


def main() -> int:
    """Build all archives, and print the file and checksum of each."""
    parser = argparse.ArgumentParser(description=__doc__, prog="build")
    parser.add_argument("output", type=Path, help="the folder to write to")
    parser.add_argument(
        "--setuptools-of", type=Path, required=True, help="a Python that has setuptools"
    )
    parser.add_argument("--arch", choices=sorted(MACHINES), action="append")
    parser.add_argument(
        "--url",
        default="https://example.com/memqos",
        help="where the archives will be published, for krew's manifest",
    )
    arguments = parser.parse_args()
    to: Path = arguments.output.absolute()
    to.mkdir(parents=True, exist_ok=True)
    try:
        archives = {
            each: build(to, each, arguments.setuptools_of.absolute())
            for each in arguments.arch or sorted(MACHINES)
        }
    except (BuildFailed, OSError) as error:
        sys.stderr.write(f"the plugin could not be built: {error}\n")
        return 1
    manifest = to / "memqos.yaml"
    manifest.write_text(krew_manifest(archives, arguments.url))
    for archive in archives.values():
        sys.stdout.write(f"{_checksum(archive)}  {archive}\n")
    sys.stdout.write(f"krew's manifest: {manifest}\n")
    return 0


def build(to: Path, architecture: str, python: Path) -> Path:
    """Write the archive of an architecture."""
    archive = to / f"kubectl-memqos-{project_version()}-linux-{architecture}.tar.gz"
    with tempfile.TemporaryDirectory(prefix="memqos-kubectl-", dir=to) as folder:
        root = Path(folder) / "root"
        library = root / "lib"
        library.mkdir(parents=True)
        for version in PYTHONS:
            site = Path(folder) / version
            install_pinned(site, version, architecture)
            _take_in(site, library, version)
        install_memqos(library / "common", Path(folder), python)
        shutil.copy(PROJECT / "LICENSE", root)
        shutil.copy(LAUNCHER, root)
        pack(root, Path(folder) / "archive.tar")
        packed = Path(folder) / "archive.tar.gz"
        with (
            (Path(folder) / "archive.tar").open("rb") as file,
            packed.open("wb") as out,
            # Neither name nor time go into the header: the same files give the same bytes.
            gzip.GzipFile("", "wb", 9, out, mtime=0) as compressed,
        ):
            shutil.copyfileobj(file, compressed, 1 << 20)
        packed.replace(archive)
    return archive


def _take_in(site: Path, library: Path, python: str) -> None:
    """Move packages that are compiled to the folder of their Python, others to the common one."""
    for package in sorted(site.iterdir()):
        compiled = package.is_dir() and any(package.rglob("*.so"))
        folder = library / (python if compiled else "common")
        folder.mkdir(exist_ok=True)
        if not (folder / package.name).exists():
            package.replace(folder / package.name)


def krew_manifest(archives: dict[str, Path], url: str) -> str:
    """What krew installs by, as its index has it."""
    version = project_version()
    platforms = [
        PLATFORM.format(
            architecture=architecture,
            url=url,
            version=version,
            archive=archive.name,
            checksum=_checksum(archive),
        )
        for architecture, archive in archives.items()
    ]
    return MANIFEST.format(version=version, url=url) + "".join(platforms)


def _checksum(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


if __name__ == "__main__":
    sys.exit(main())
