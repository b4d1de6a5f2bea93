"""Publish the images of all architectures under one name: `make publish REGISTRY=…`.

The images are those of the release in dist, or else those of make image. Prints the commands; runs
them only with --run. Nothing signs in to a registry: do that first (skopeo login).
"""

import argparse
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

from deploy.image import oci
from deploy.release import released_image
from deploy.steps import MACHINES, project_version

BUILD: Final = Path("build")
DIST: Final = Path("dist")
INDEX: Final = BUILD / "memqos-index.tar"


def image_files(version: str) -> list[Path]:
    """The image of each architecture, all of the release or all of `make image`."""
    released = [DIST / released_image(version, each) for each in sorted(MACHINES)]
    if all(file.exists() for file in released):
        return released
    return [BUILD / f"memqos-image-{each}.tar" for each in sorted(MACHINES)]


def main() -> int:
    """Write the index of the images that were built, and print what pushes it, or run it."""
    parser = argparse.ArgumentParser(description=__doc__, prog="publish")
    parser.add_argument("registry", help="such as registry.example.com/platform")
    parser.add_argument("--run", action="store_true", help="run the commands")
    arguments = parser.parse_args()
    version = project_version()
    files = image_files(version)
    if missing := [str(file) for file in files if not file.exists()]:
        builds = " and ".join(f"make image ARCH={each}" for each in sorted(MACHINES))
        sys.stderr.write(f"not built: {', '.join(missing)} – {builds}\n")
        return 1
    if others := [f"{file} is of {tag}" for file in files if (tag := oci.tag(file)) != version]:
        sys.stderr.write(f"not of {version}: {', '.join(others)} – build them again\n")
        return 1
    name = f"{arguments.registry.rstrip('/')}/memqos:{version}"
    BUILD.mkdir(exist_ok=True)
    digest = oci.write_index(files, name, INDEX)
    sys.stdout.write(f"# {name}@{digest}, of {' and '.join(map(str, files))}\n")
    for command in commands(name):
        sys.stdout.write(f"{shlex.join(command)}\n")
        sys.stdout.flush()
        if arguments.run and (code := _push(command)):
            return code
    if not arguments.run:
        sys.stdout.write("# nothing was pushed: RUN=yes runs these commands\n")
    return 0


def _push(command: list[str]) -> int:
    """Run a command in the terminal; its exit code."""
    try:
        return subprocess.run(command, check=False).returncode
    except FileNotFoundError:
        sys.stderr.write(f"{command[0]} is missing – apt-get install {command[0]}\n")
        return 1


def commands(name: str) -> list[list[str]]:
    """What pushes the index with its images, and shows what has arrived."""
    return [
        ["skopeo", "copy", "--all", f"oci-archive:{INDEX}", f"docker://{name}"],
        ["skopeo", "inspect", "--raw", f"docker://{name}"],
    ]


if __name__ == "__main__":
    sys.exit(main())
