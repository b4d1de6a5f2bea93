"""Make a release: `make release`. Tags the commit, builds everything into dist, and pushes nothing.

The version is that of pyproject.toml. CHANGELOG.md has to have a section of it: make changelog.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from deploy.image import build as image
from deploy.kubectl import build as plugin
from deploy.steps import MACHINES, PROJECT, BuildFailed, project_version, run

CHECKSUMS: Final = "SHA256SUMS"


def main() -> int:
    """Build all files of a release, and print them with their sizes."""
    parser = argparse.ArgumentParser(description=__doc__, prog="release")
    parser.add_argument("--output", type=Path, default=PROJECT / "dist")
    parser.add_argument(
        "--tools-of", type=Path, required=True, help="a Python with the tools of make setup"
    )
    parser.add_argument("--no-tag", action="store_true", help="build only, for a rehearsal")
    parser.add_argument("--url", required=True, help="where the files will be published")
    arguments = parser.parse_args()
    version = project_version()
    try:
        check_state(PROJECT, version)
        tools_of = arguments.tools_of.absolute()
        files = build(arguments.output.absolute(), version, arguments.url, tools_of)
        if not arguments.no_tag:
            run("git", "-C", str(PROJECT), "tag", "-a", f"v{version}", "-m", f"memqos {version}")
    except (BuildFailed, OSError) as error:
        sys.stderr.write(f"there is no release: {error}\n")
        return 1
    for file in files:
        sys.stdout.write(f"{file.name}  {file.stat().st_size >> 10} KiB\n")
    if not arguments.no_tag:
        sys.stdout.write(f"tagged v{version}; publish it with: git push origin v{version}\n")
    return 0


def check_state(project: Path, version: str) -> None:
    """Refuse what could not be built again from the tag."""
    if changed := _git(project, "status", "--porcelain"):
        raise BuildFailed(f"the tree has changes – commit them first:\n{changed}")
    if _git(project, "tag", "--list", f"v{version}"):
        raise BuildFailed(f"v{version} is tagged already – raise the version in pyproject.toml")
    heading = f"## {version} ("
    dated = [
        line
        for line in (project / "CHANGELOG.md").read_text().splitlines()
        if line.startswith(heading) and "unreleased" not in line
    ]
    if not dated:
        raise BuildFailed(f"CHANGELOG.md has no dated section of {version} – make changelog")


def released_image(version: str, architecture: str) -> str:
    """The file name of an image in a release."""
    return f"memqos-{version}-image-{architecture}.tar"


def build(to: Path, version: str, url: str, python: Path) -> list[Path]:
    """Write all files of a release to a folder, the checksums last; `python` has the tools."""
    to.mkdir(parents=True, exist_ok=True)
    files = _build_python(to, version, python)
    for architecture in sorted(MACHINES):
        file = to / released_image(version, architecture)
        image.build(file, python, architecture)
        sbom = file.with_suffix(".cdx.json")
        run(str(python), "-m", "deploy.image.sbom", str(file), str(sbom))
        files += [file, sbom]
    archives = {each: plugin.build(to, each, python) for each in sorted(MACHINES)}
    manifest = to / "memqos.yaml"
    manifest.write_text(plugin.krew_manifest(archives, url))
    chart = PROJECT / "deploy" / "helm" / "memqos"
    run(str(python.with_name("helm")), "package", str(chart), "--destination", str(to))
    files += [*archives.values(), manifest, to / f"memqos-{version}.tgz"]
    return [*files, write_checksums(files, to / CHECKSUMS)]


def write_checksums(files: list[Path], to: Path) -> Path:
    """In the form that sha256sum --check reads."""
    digests = [(hashlib.sha256(file.read_bytes()).hexdigest(), file.name) for file in files]
    to.write_text("".join(f"{digest}  {name}\n" for digest, name in digests))
    return to


def _build_python(to: Path, version: str, python: Path) -> list[Path]:
    """The wheel and the source, from a copy of what git knows: setuptools writes into its tree."""
    with tempfile.TemporaryDirectory(prefix="memqos-release-") as folder:
        archive = Path(folder) / "tree.tar"
        run("git", "-C", str(PROJECT), "archive", "-o", str(archive), "HEAD")
        tree = Path(folder) / "tree"
        shutil.unpack_archive(archive, tree, filter="data")
        for kind in ("wheel", "sdist"):
            backend = (
                "import os, sys; os.chdir(sys.argv[1]); from setuptools import build_meta; "
                f"build_meta.build_{kind}(sys.argv[2])"
            )
            run(str(python), "-c", backend, str(tree), str(to))
    return [to / f"memqos-{version}-py3-none-any.whl", to / f"memqos-{version}.tar.gz"]


def _git(project: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(project), *words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BuildFailed(done.stderr.strip())
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
