"""The journal's records: what each says, and how a damaged one is recognised.

A record is a line: length of the payload, checksum, payload in JSON.

    0000006b 5a7c09e1 {"type":"intent",…}

The checksum covers the payload and the checksum before it, so that a record that is missing or
out of place shows as well as one that is altered.
"""

import zlib
from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from memqos.converge.values import file_fault, level_fault, path_fault, value_fault
from memqos.host.systemd_dropins import PROPERTIES, is_drop_in
from memqos.plan.levels import PROTECTION_FILES
from memqos.plan.names import container_of, systemd_unit
from memqos.plan.tree import ABOVE_PODS, Level

JOURNAL_FORMAT: Final = 1
_HEAD: Final = len(b"00000000 00000000 ")
_END: Final = b"\n"

FileKey = tuple[str, str, int]
"""Path, file and inode of the cgroup: a cgroup that comes back under its name is another one."""
CgroupKey = tuple[str, int]
"""Path and inode of a cgroup."""
NEW_CGROUP: Final = 0
"""In place of an inode: a cgroup that a runtime is about to make. Its path ends in the ID of a
container, so that no other cgroup ever has it."""
OwnerKind = Literal["systemd", "runtime"]


class Hierarchy(msgspec.Struct, frozen=True, tag="hierarchy", forbid_unknown_fields=True):
    """The tree that a journal is about; always the first record."""

    boot: str
    root: str
    """Where it was mounted, for people; the two numbers tell whether it is the same tree."""
    device: int
    inode: int
    format: int = JOURNAL_FORMAT

    def is_same_tree(self, other: "Hierarchy") -> bool:
        """Whether two mounts, perhaps in different places, show one tree."""
        return (self.device, self.inode) == (other.device, other.inode)


class FileRecord(msgspec.Struct, frozen=True):
    """One file of one cgroup."""

    path: str
    file: str
    cgroup: int

    @property
    def key(self) -> FileKey:
        return self.path, self.file, self.cgroup


class IntentRecord(FileRecord, frozen=True, tag="intent", forbid_unknown_fields=True):
    """A value is about to be written, and what was there before."""

    old: str
    new: str
    level: Level
    pod: str | None = None
    container: str | None = None


class KubeletWriteRecord(FileRecord, frozen=True, tag="kubelet-write", forbid_unknown_fields=True):
    """The same on behalf of the kubelet: nothing to restore, if the running kubelet keeps the file.

    Whether it does is not confirmed yet. Outcomes without a write follow once it is, an intent
    once the kubelet turns out not to keep it.
    """

    old: str
    new: str
    level: Level


class OutcomeRecord(FileRecord, frozen=True, tag="outcome", forbid_unknown_fields=True):
    """What became of the last intent about a file."""

    written: bool


class OwnerState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an owner keeps about a cgroup, and would restore by itself."""

    owner: OwnerKind
    name: str
    """The unit, or the container's ID."""
    values: dict[str, str | None]
    """File → systemd's drop-in, or the value the runtime has stored; None where there is none."""


class OwnerRecord(msgspec.Struct, frozen=True, tag="held", forbid_unknown_fields=True):
    """What the owner of a cgroup stored about it before memqos changed that."""

    path: str
    cgroup: int
    holding: OwnerState

    @property
    def key(self) -> CgroupKey:
        return self.path, self.cgroup


PriorValueRecord = IntentRecord | KubeletWriteRecord
"""What is recorded before a value is written."""
JournalRecord = Hierarchy | PriorValueRecord | OutcomeRecord | OwnerRecord


class Damage(msgspec.Struct, frozen=True):
    """Where a journal stops making sense."""

    record: int
    """Counted from 1."""
    torn: bool
    """Whether only its end is missing. A killed writer had not acted on that; it is unknown
    whether it was one, or whether the file was cut short afterwards."""


class DecodedJournal(msgspec.Struct, frozen=True):
    """The records up to the first that is damaged."""

    records: tuple[JournalRecord, ...]
    checksum: int
    """Of the last good record: the next one's begins with it."""
    damage: Damage | None


_decoder: Final = msgspec.json.Decoder(JournalRecord)


def encode_journal(records: Iterable[JournalRecord], checksum: int = 0) -> tuple[bytes, int]:
    """Lines for the records, going on from a checksum; and the last one's checksum."""
    lines = bytearray()
    for record in records:
        payload = msgspec.json.encode(record)
        checksum = zlib.crc32(payload, checksum)
        lines += b"%08x %08x %s%s" % (len(payload), checksum, payload, _END)
    return bytes(lines), checksum


def decode_journal(data: bytes) -> DecodedJournal:
    """All records before the first damaged one."""
    records: list[JournalRecord] = []
    position = checksum = 0
    while position < len(data):
        length = _number(data[position : position + 8])
        start = position + _HEAD
        end = start + (length or 0)
        payload = data[start:end]
        next_checksum = zlib.crc32(payload, checksum)
        line = b"%08x %08x %s%s" % (length or 0, next_checksum, payload, _END)
        record = _record(payload) if data[position : end + 1] == line else None
        if record is None:
            torn = _END not in data[position:]
            return DecodedJournal(tuple(records), checksum, Damage(len(records) + 1, torn))
        records.append(record)
        checksum, position = next_checksum, end + 1
    return DecodedJournal(tuple(records), checksum, None)


def _number(digits: bytes) -> int | None:
    try:
        return int(digits, 16)
    except ValueError:
        return None


def _record(payload: bytes) -> JournalRecord | None:
    try:
        record = _decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if isinstance(record, Hierarchy):
        return record
    if isinstance(record, OwnerRecord):
        return record if _is_sound(record) else None
    fault = file_fault(record.path, record.file)
    if fault is None and not isinstance(record, OutcomeRecord):
        fault = level_fault(record.path, record.file, record.level)
        fault = fault or value_fault(record.file, record.old)
        fault = fault or value_fault(record.file, record.new)
    if isinstance(record, KubeletWriteRecord) and not _is_of_kubelet(record):
        return None
    return record if fault is None else None


def _is_of_kubelet(record: KubeletWriteRecord) -> bool:
    """Whether a kubelet keeps such a file: protection above pods, of a cgroup that is there."""
    is_above_pods = record.level in ABOVE_PODS and record.cgroup != NEW_CGROUP
    return is_above_pods and record.file in PROTECTION_FILES


def _is_sound(record: OwnerRecord) -> bool:
    """Whether memqos itself could have written this: rollback does as it says.

    Only where there is an intent about the same cgroup, too, whose level says what it may be.
    """
    state = record.holding
    if path_fault(record.path) or any(file_fault(record.path, file) for file in state.values):
        return False
    if state.owner == "runtime":
        container = container_of(record.path)
        return container is not None and state.name == container.container_id
    return state.name == systemd_unit(record.path) and all(
        file in PROPERTIES and (text is None or is_drop_in(state.name, PROPERTIES[file], text))
        for file, text in state.values.items()
    )
