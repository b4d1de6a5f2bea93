"""The bill of materials of an image, as CycloneDX: `make sbom`.

Read from what is in the image: Debian's list of packages, and the metadata of Python's. The same
image gives the same bytes.
"""

import argparse
import io
import json
import sys
import tarfile
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from email.parser import HeaderParser
from pathlib import Path
from typing import Any, Final

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from deploy.steps import EPOCH
from packageurl import PackageURL

VERSION: Final = SchemaVersion.V1_6
STATUS: Final = "var/lib/dpkg/status"
METADATA: Final = ".dist-info/METADATA"


def main() -> int:
    """Write the SBOM of an image, and print how many packages it lists."""
    parser = argparse.ArgumentParser(description=__doc__, prog="sbom")
    parser.add_argument("image", type=Path, help="a tar that make image wrote")
    parser.add_argument("output", type=Path, help="the JSON file to write")
    arguments = parser.parse_args()
    if not arguments.image.exists():
        sys.stderr.write(f"not built: {arguments.image} – make image ARCH=…\n")
        return 1
    text = image_sbom(arguments.image)
    arguments.output.write_text(text)
    count = len(json.loads(text)["components"])
    sys.stdout.write(f"{arguments.output}, {count} packages\n")
    return 0


def image_sbom(image: Path) -> str:
    """CycloneDX, validated against its schema."""
    with tarfile.open(image) as tar:
        (manifest_at,) = _load(tar, "index.json")["manifests"]
        manifest = _load(tar, _blob(manifest_at))
        config = _load(tar, _blob(manifest["config"]))
        components = [
            each for layer in manifest["layers"] for each in _components(_read(tar, _blob(layer)))
        ]
    labels = config["config"]["Labels"]
    bom = Bom(
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, manifest_at["digest"]), components=components
    )
    bom.metadata.timestamp = datetime.fromtimestamp(EPOCH, UTC)
    bom.metadata.component = Component(
        type=ComponentType.CONTAINER,
        name=labels["org.opencontainers.image.title"],
        version=labels["org.opencontainers.image.version"],
        bom_ref=manifest_at["digest"],
        purl=PackageURL(
            "oci",
            name=labels["org.opencontainers.image.title"],
            version=manifest_at["digest"],
            qualifiers={"arch": config["architecture"]},
        ),
    )
    bom.register_dependency(bom.metadata.component, components)
    text = make_outputter(bom, OutputFormat.JSON, VERSION).output_as_string(indent=2)
    if (fault := JsonStrictValidator(VERSION).validate_str(text)) is not None:
        raise ValueError(f"the SBOM is not valid: {str(fault).partition(chr(10))[0]}")
    return f"{text}\n"


def _components(layer: bytes) -> Iterator[Component]:
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        for entry in tar:
            if entry.name == STATUS:
                yield from map(_debian_component, _stanzas(_read(tar, entry.name).decode()))
            elif entry.name.endswith(METADATA):
                yield _python_component(_read(tar, entry.name).decode())


def _stanzas(status: str) -> Iterator[Any]:
    for stanza in status.strip().split("\n\n"):
        yield HeaderParser().parsestr(stanza)


def _debian_component(fields: Any) -> Component:
    name, version = fields["Package"], fields["Version"]
    qualifiers = {"arch": fields["Architecture"]}
    return _component(PackageURL("deb", "debian", name, version, qualifiers))


def _python_component(metadata: str) -> Component:
    fields = HeaderParser().parsestr(metadata)
    return _component(PackageURL("pypi", None, fields["Name"], fields["Version"]))


def _component(purl: PackageURL) -> Component:
    return Component(
        type=ComponentType.LIBRARY,
        name=purl.name,
        version=purl.version,
        purl=purl,
        bom_ref=purl.to_string(),
    )


def _blob(descriptor: dict[str, Any]) -> str:
    return f"blobs/{descriptor['digest'].replace(':', '/')}"


def _load(tar: tarfile.TarFile, name: str) -> Any:
    return json.loads(_read(tar, name))


def _read(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    if file is None:
        raise ValueError(f"{name} is not a plain file")
    return file.read()


if __name__ == "__main__":
    sys.exit(main())
