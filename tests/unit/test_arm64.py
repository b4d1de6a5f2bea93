"""The image for arm64 runs, under qemu-user: `make test-arm64` builds it first."""

import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Final

import pytest
from deploy.steps import project_version
from tests.commands import ROOT

IMAGE: Final = ROOT / "build" / "memqos-image-arm64.tar"
QEMU: Final = "qemu-aarch64-static"

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="chroot takes root"),
    pytest.mark.skipif(shutil.which(QEMU) is None, reason=f"{QEMU} is missing: qemu-user-static"),
    pytest.mark.skipif(not IMAGE.exists(), reason="it is not built: make test-arm64"),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("arm64")
    with tarfile.open(IMAGE) as tar:
        tar.extractall(folder / "image", filter="data")
    blobs = folder / "image" / "blobs"
    (described,) = json.loads((folder / "image" / "index.json").read_text())["manifests"]
    manifest = json.loads((blobs / described["digest"].replace(":", "/")).read_text())
    for layer in manifest["layers"]:
        with tarfile.open(blobs / layer["digest"].replace(":", "/")) as tar:
            tar.extractall(folder / "root", filter="tar")
    shutil.copy(str(shutil.which(QEMU)), folder / "root" / QEMU)
    return folder / "root"


def run(root: Path, *words: str) -> str:
    entrypoint = ["/usr/bin/python3.11", "-I", "-m", "memqos"]
    done = subprocess.run(
        ["/usr/sbin/chroot", str(root), f"/{QEMU}", *entrypoint, *words],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONDONTWRITEBYTECODE": "1", "LANG": "C.UTF-8"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_is_of_this_version(root: Path) -> None:
    assert run(root, "--version").split()[-1] == project_version()


def test_compiled_modules_are_those_of_arm64(root: Path) -> None:
    shutil.copy(ROOT / "examples" / "one.yaml", root)
    shown = run(root, "explain", "/one.yaml", "--capacity", "16Gi", "-o", "json")
    assert json.loads(shown)["pods"]
