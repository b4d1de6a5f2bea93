"""`kubectl memqos`: the launcher of the archive, krew's manifest, and the real kubectl."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import yaml
from deploy.kubectl.build import LAUNCHER, PYTHONS, krew_manifest
from deploy.steps import project_version
from tests.commands import ROOT

with_kubectl = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl is not on the PATH"
)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An archive as it is unpacked, for the Python that runs here."""
    folder = tmp_path / "unpacked"
    (folder / "lib" / "common").mkdir(parents=True)
    shutil.copy(LAUNCHER, folder)
    (folder / "lib" / "common" / "memqos").symlink_to(ROOT / "src" / "memqos")
    version = "{}.{}".format(*sys.version_info[:2])
    (folder / "lib" / version).symlink_to(sysconfig.get_path("purelib"))
    return folder


def run(*command: str, path: Path) -> subprocess.CompletedProcess[str]:
    python = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{path}:{python}:{os.environ['PATH']}"}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT
    )


@with_kubectl
def test_kubectl_runs_memqos_as_its_plugin(archive: Path) -> None:
    done = run("kubectl", "memqos", "explain", "examples/one.yaml", "-o", "json", path=archive)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["pods"][0]["name"] == "pod/web"


@with_kubectl
def test_help_shows_the_command_as_it_was_typed(archive: Path) -> None:
    done = run("kubectl", "memqos", "explain", "--help", path=archive)
    assert done.stdout.startswith("Usage: kubectl memqos explain ")


@with_kubectl
def test_kubectl_passes_exit_codes_on(archive: Path) -> None:
    assert run("kubectl", "memqos", "explain", "--no-such-option", path=archive).returncode == 64


def test_the_archive_works_through_a_link(archive: Path, tmp_path: Path) -> None:
    """krew links the program into a folder of its own."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "kubectl-memqos").symlink_to(archive / "kubectl-memqos")
    done = run("kubectl-memqos", "--version", path=tmp_path / "bin")
    assert done.returncode == 0, done.stderr
    assert project_version() in done.stdout


def test_an_archive_without_packages_for_this_python_is_refused(archive: Path) -> None:
    (archive / "lib" / "{}.{}".format(*sys.version_info[:2])).unlink()
    done = run(sys.executable, str(archive / "kubectl-memqos"), "--version", path=archive)
    assert done.returncode == 1
    assert "has no packages for Python" in done.stderr


def test_the_archive_has_packages_for_every_python_that_is_supported() -> None:
    assert "{}.{}".format(*sys.version_info[:2]) in PYTHONS
    classifiers = (ROOT / "pyproject.toml").read_text()
    for version in PYTHONS:
        assert f'"Programming Language :: Python :: {version}"' in classifiers


def test_krews_manifest_names_each_archive_with_its_checksum(tmp_path: Path) -> None:
    file = tmp_path / "kubectl-memqos-linux-arm64.tar.gz"
    file.write_bytes(b"an archive")
    manifest = yaml.safe_load(krew_manifest({"arm64": file}, "https://example.com/memqos"))
    assert manifest["metadata"]["name"] == "memqos"
    assert manifest["spec"]["version"] == f"v{project_version()}"
    (platform,) = manifest["spec"]["platforms"]
    assert platform == {
        "selector": {"matchLabels": {"os": "linux", "arch": "arm64"}},
        "uri": f"https://example.com/memqos/v{project_version()}/{file.name}",
        "sha256": "9e691d5adacf0e102f203100842ffaba4e2a7dfe3dbd536827d3c0db8c7e88f1",
        "bin": "kubectl-memqos",
    }
