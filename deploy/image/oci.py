"""An OCI image of one layer, as a tar that any runtime can import without a registry."""

import gzip
import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
INDEX = "application/vnd.oci.image.index.v1+json"


class Descriptor(NamedTuple):
    """How one blob refers to another."""

    type: str
    digest: str
    size: int

    def data(self, **more: Any) -> dict[str, Any]:
        return {"mediaType": self.type, "digest": self.digest, "size": self.size, **more}


class Image(NamedTuple):
    """The command of an image, and the name under which it is imported."""

    name: str
    architecture: str
    entrypoint: Sequence[str]
    environment: Mapping[str, str]
    labels: Mapping[str, str]


def write(image: Image, layer: Path, to: Path) -> str:
    """Write an image with the files in the tar `layer`; its digest.

    The same layer gives the same bytes.
    """
    packed = to.with_suffix(".layer")
    partial = to.with_suffix(".partial")
    try:
        unpacked_digest = _compress(layer, packed)
        with tarfile.open(partial, "w", format=tarfile.GNU_FORMAT) as tar:
            digest = _fill(tar, image, packed, unpacked_digest)
        partial.replace(to)
    finally:
        packed.unlink(missing_ok=True)
        partial.unlink(missing_ok=True)
    return digest


def write_index(images: Sequence[Path], name: str, to: Path) -> str:
    """Write one tar with the images of several architectures under one name; the index's digest."""
    with ExitStack() as stack:
        tars = [stack.enter_context(tarfile.open(image)) for image in images]
        manifests = [
            {key: each[key] for key in ("mediaType", "digest", "size", "platform")}
            for tar in tars
            for each in json.loads(_read(tar, "index.json"))["manifests"]
        ]
        index = _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests})
        index_at = _descriptor(INDEX, index)
        names = _names(name)
        outer = {
            "schemaVersion": 2,
            "mediaType": INDEX,
            "manifests": [index_at.data(annotations=names)],
        }
        with tarfile.open(to, "w", format=tarfile.GNU_FORMAT) as merged:
            _add(merged, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
            _add(merged, "index.json", _json(outer))
            _add(merged, _path(index_at), index)
            for tar in tars:
                for entry in tar:
                    if entry.name.startswith("blobs/"):
                        merged.addfile(_entry(entry.name, entry.size), tar.extractfile(entry))
    return index_at.digest


def tag(image: Path) -> str:
    """The tag that an image was written with."""
    with tarfile.open(image) as tar:
        (described,) = json.loads(_read(tar, "index.json"))["manifests"]
    found: str = described["annotations"]["org.opencontainers.image.ref.name"]
    return found


def _names(name: str) -> dict[str, str]:
    return {
        "io.containerd.image.name": name,
        "org.opencontainers.image.ref.name": name.rpartition(":")[2],
    }


def _read(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    assert file is not None, f"{name} is a plain file"
    return file.read()


def _fill(tar: tarfile.TarFile, image: Image, packed: Path, unpacked_digest: str) -> str:
    with packed.open("rb") as file:
        layer = Descriptor(LAYER, _digest(file), packed.stat().st_size)
    config = _json(
        {
            "architecture": image.architecture,
            "os": "linux",
            "config": {
                "Entrypoint": list(image.entrypoint),
                "Env": [f"{name}={value}" for name, value in image.environment.items()],
                "Labels": dict(image.labels),
            },
            "rootfs": {"type": "layers", "diff_ids": [unpacked_digest]},
        }
    )
    config_at = _descriptor(CONFIG, config)
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config_at.data(),
            "layers": [layer.data()],
        }
    )
    manifest_at = _descriptor(MANIFEST, manifest)
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [
            manifest_at.data(
                platform={"architecture": image.architecture, "os": "linux"},
                annotations=_names(image.name),
            )
        ],
    }
    _add(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
    _add(tar, "index.json", _json(index))
    for blob, content in ((manifest_at, manifest), (config_at, config)):
        _add(tar, _path(blob), content)
    entry = _entry(_path(layer), layer.size)
    with packed.open("rb") as file:
        tar.addfile(entry, file)
    return manifest_at.digest


def _compress(layer: Path, to: Path) -> str:
    """Compress a layer; the digest of the uncompressed layer."""
    with layer.open("rb") as file:
        digest = _digest(file)
        file.seek(0)
        # Neither name nor time go into the header: the same layer gives the same bytes.
        with to.open("wb") as out, gzip.GzipFile("", "wb", 6, out, mtime=0) as packed:
            shutil.copyfileobj(file, packed, 1 << 20)
    return digest


def _digest(file: io.BufferedReader) -> str:
    return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _descriptor(type: str, content: bytes) -> Descriptor:
    return Descriptor(type, f"sha256:{hashlib.sha256(content).hexdigest()}", len(content))


def _path(blob: Descriptor) -> str:
    return f"blobs/{blob.digest.replace(':', '/')}"


def _json(data: Any) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o644
    return entry


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    tar.addfile(_entry(name, len(content)), io.BytesIO(content))
