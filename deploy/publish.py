"""Publish the images of all architectures under one name: `make publish REGISTRY=…`.

Prints the commands; runs them only with --run. Nothing signs in to a registry: do that first
(skopeo login).
"""

import argparse
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

from deploy.image import oci
from deploy.steps import MACHINES, project_version

BUILD: Final = Path("build")
INDEX: Final = BUILD / "memqos-index.tar"


def image_file(architecture: str) -> Path:
    """Where `make image` writes the image of an architecture."""
    return BUILD / f"memqos-image-{architecture}.tar"


def main() -> int:
    """Write the index of the images that were built, and print what pushes it, or run it."""
    parser = argparse.ArgumentParser(description=__doc__, prog="publish")
    parser.add_argument("registry", help="such as registry.example.com/platform")
    parser.add_argument("--run", action="store_true", help="run the commands")
    arguments = parser.parse_args()
    files = [image_file(each) for each in sorted(MACHINES)]
    if missing := [str(file) for file in files if not file.exists()]:
        builds = " and ".join(f"make image ARCH={each}" for each in sorted(MACHINES))
        sys.stderr.write(f"not built: {', '.join(missing)} – {builds}\n")
        return 1
    name = f"{arguments.registry.rstrip('/')}/memqos:{project_version()}"
    digest = oci.write_index(files, name, INDEX)
    sys.stdout.write(f"# {name}@{digest}\n")
    for command in commands(name):
        sys.stdout.write(f"{shlex.join(command)}\n")
        sys.stdout.flush()
        if arguments.run and (code := subprocess.run(command, check=False).returncode):
            return code
    if not arguments.run:
        sys.stdout.write("# nothing was pushed: RUN=yes runs these commands\n")
    return 0


def commands(name: str) -> list[list[str]]:
    """What pushes the index with its images, and shows what has arrived."""
    return [
        ["skopeo", "copy", "--all", f"oci-archive:{INDEX}", f"docker://{name}"],
        ["skopeo", "inspect", "--raw", f"docker://{name}"],
    ]


if __name__ == "__main__":
    sys.exit(main())
