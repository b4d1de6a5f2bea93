"""An image can be imported by whoever reads OCI images, and is the same each time."""

import gzip
import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from deploy import steps
from deploy.image import build, oci

IMAGE = oci.Image(
    "localhost/memqos:1.0",
    "arm64",
    ("/usr/bin/python3", "-m", "memqos"),
    {"LANG": "C.UTF-8"},
    {"a": "b"},
)


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    file = tmp_path / "layer.tar"
    with tarfile.open(file, "w") as tar:
        entry = tarfile.TarInfo("etc/hostname")
        entry.size = 5
        tar.addfile(entry, io.BytesIO(b"node\n"))
    return file


def blobs(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as tar:
        return {entry.name: _content(tar, entry) for entry in tar}


def _content(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    opened = tar.extractfile(entry)
    assert opened is not None
    return opened.read()


def blob(found: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    """What a descriptor refers to, which has to be what it says."""
    content = found[f"blobs/{descriptor['digest'].replace(':', '/')}"]
    assert len(content) == descriptor["size"]
    assert f"sha256:{hashlib.sha256(content).hexdigest()}" == descriptor["digest"]
    return content


def test_every_reference_leads_to_what_it_says(tmp_path: Path, layer: Path) -> None:
    digest = oci.write(IMAGE, layer, tmp_path / "image.tar")
    found = blobs(tmp_path / "image.tar")
    assert json.loads(found["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (described,) = json.loads(found["index.json"])["manifests"]
    assert described["digest"] == digest
    assert described["annotations"]["io.containerd.image.name"] == IMAGE.name
    manifest = json.loads(blob(found, described))
    config = json.loads(blob(found, manifest["config"]))
    assert config["config"]["Entrypoint"] == list(IMAGE.entrypoint)
    (packed,) = manifest["layers"]
    unpacked = gzip.decompress(blob(found, packed))
    assert unpacked == layer.read_bytes()
    (unpacked_digest,) = config["rootfs"]["diff_ids"]
    assert unpacked_digest == f"sha256:{hashlib.sha256(unpacked).hexdigest()}"


def test_the_same_layer_gives_the_same_bytes_and_leaves_nothing_else(
    tmp_path: Path, layer: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    oci.write(IMAGE, layer, out / "one.tar")
    oci.write(IMAGE, layer, out / "two.tar")
    assert (out / "one.tar").read_bytes() == (out / "two.tar").read_bytes()
    assert sorted(path.name for path in out.iterdir()) == ["one.tar", "two.tar"]


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_files_are_everybodys_to_read_whoever_packs_them(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        (tmp_path / "root" / "bin").mkdir(parents=True)
        program, text = tmp_path / "root" / "bin" / "program", tmp_path / "root" / "text"
        program.touch(0o777)
        text.touch(0o666)
    finally:
        os.umask(before)
    steps.pack(tmp_path / "root", tmp_path / "layer.tar")
    with tarfile.open(tmp_path / "layer.tar") as tar:
        found = {entry.name: (entry.mode, entry.mtime, entry.uid) for entry in tar}
    assert found == {
        "bin": (0o755, steps.EPOCH, 0),
        "bin/program": (0o755, steps.EPOCH, 0),
        "text": (0o644, steps.EPOCH, 0),
    }


def test_nothing_of_the_machine_of_the_build_is_in_the_image(tmp_path: Path) -> None:
    """mmdebstrap copies its name and its name servers: every machine would make another digest."""
    (tmp_path / "etc").mkdir()
    for name in ("hostname", "resolv.conf", "mime.types"):
        (tmp_path / "etc" / name).touch()
    build.remove_unwanted(tmp_path)
    assert [path.name for path in (tmp_path / "etc").iterdir()] == ["mime.types"]


def test_debians_python_compiles_whatever_else_is_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, debians = tmp_path / f"python{build.PYTHON}", Path(f"/usr/bin/python{build.PYTHON}")
    other.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build.find_compiler() == str(debians if debians.exists() else other)
