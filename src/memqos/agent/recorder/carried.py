"""The recorder's files in a snapshot: those last written to, as many as there is room for."""

import binascii
import os
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from memqos.agent.recorder.files import (
    CURRENT_SUFFIX,
    OLDER_SUFFIX,
    list_record_files,
    record_file_name,
)
from memqos.agent.recorder.reading import (
    Recording,
    decode_recording,
    read_record_file,
    to_wall_clock,
)
from memqos.agent.recorder.records import Subject
from memqos.manifests.snapshot import Snapshot

SNAPSHOT_RECORD_BYTES: Final = 4 << 20
"""Bytes of files; in a snapshot they take a third more."""
_HALVES: Final = (OLDER_SUFFIX, CURRENT_SUFFIX)
_NODE: Final = record_file_name(Subject(0))


def add_records(snapshot: Snapshot, folder: str, most: int = SNAPSHOT_RECORD_BYTES) -> Snapshot:
    """A snapshot that holds the records in a folder too; its notes say which are missing."""
    try:
        names = _latest_first(folder)
    except PermissionError:
        notes = (*snapshot.notes, f"no records: {folder} is not yours to read – run as root")
        return msgspec.structs.replace(snapshot, notes=notes)
    held: dict[str, str] = {}
    carried = 0
    for name in names:
        files = {
            name + suffix: read_record_file(os.path.join(folder, name + suffix))
            for suffix in _HALVES
        }
        most -= sum(map(len, files.values()))
        if most < 0:
            break
        carried += 1
        held |= {file: b64encode(data).decode() for file, data in files.items() if data}
    notes = snapshot.notes
    if carried < len(names):
        notes += (f"records: the {carried} last written to, of {len(names)}",)
    return msgspec.structs.replace(snapshot, records=held, notes=notes)


def snapshot_recordings(snapshot: Snapshot) -> Iterator[Recording]:
    """The records in a snapshot; what makes no sense is passed over."""
    files = snapshot.records
    yield from to_wall_clock(
        decode_recording(*[_decode_file(files, name + suffix) for suffix in _HALVES])
        for name in sorted({os.path.splitext(file)[0] for file in files})
    )


def _latest_first(folder: str) -> list[str]:
    """The names of recordings, the node's own before all others."""
    touched: dict[str, float] = {}
    for name, when in list_record_files(folder):
        touched[name] = max(when, touched.get(name, 0.0))
    return sorted(touched, key=lambda name: (name != _NODE, -touched[name], name))


def _decode_file(files: Mapping[str, str], name: str) -> bytes:
    try:
        return b64decode(files.get(name, ""), validate=True)
    except (binascii.Error, ValueError):
        return b""
