"""Installs what the tests on a real kernel need: `make vm-tools`."""

import os
import subprocess
import sys

from memqos.lab.vm.tools import (
    TOOL_PACKAGES,
    find_program,
    how_to_install,
    missing_packages,
)

CHECKERS = {"promtool": "prometheus", "kubectl": "kubernetes-client"}
"""What checks the files for Prometheus and the plugin of kubectl. The first package starts a
server, and people have a kubectl of their own: only CI installs them."""
CERTIFICATES = {"openssl": "openssl"}


def install() -> int:
    """Install what is missing; an exit code."""
    checkers = CHECKERS if os.environ.get("CI") == "true" else {}
    packages = missing_packages({**TOOL_PACKAGES, **CERTIFICATES, **checkers})
    if not packages:
        return 0
    if os.geteuid() != 0 or not find_program("apt-get"):
        sys.stderr.write(f"missing: {', '.join(packages)}\n  next: {how_to_install(packages)}\n")
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
