"""The flight recorder's records: what each means, and the format of its files.

A file starts with a line that names the format. Then come frames: a mark, the length of a payload,
its checksum, the payload in MessagePack. The first payload is the subject of the file. A frame
that was cut off or damaged is skipped: reading continues with the next one that is whole.

Times are milliseconds since 1970 by a clock that is never set (`RecordClock`), amounts are bytes,
shares are thousandths of the time.
"""

import hashlib
import struct
import zlib
from typing import Final, Literal

import msgspec

from memqos.kube.pod import Pod

RECORDS_MAGIC: Final = b"memqos records 1\n"
MAX_PAYLOAD: Final = 4096
"""Bytes of a payload."""
CURRENT_SUFFIX: Final = ".records"
OLDER_SUFFIX: Final = ".older"
HALF_SUFFIXES: Final = (OLDER_SUFFIX, CURRENT_SUFFIX)
"""The two files of a recording, in the order in which they were written."""
_HEAD: Final = struct.Struct("<2sHI")
_MARK: Final = b"\xa5Q"
_MOST_TEXT: Final = 1000

MemoryEvent = Literal["low", "max", "oom", "oom_kill", "oom_group_kill"]


class _Record(msgspec.Struct, frozen=True, array_like=True):
    """What all records share: when. The tag and the order of fields are the format."""

    at: int


class Subject(_Record, frozen=True, tag="w"):
    """The container that a file is about; all names are empty for the node itself."""

    namespace: str = ""
    pod: str = ""
    uid: str = ""
    container: str = ""
    qos: str = ""

    @property
    def is_node(self) -> bool:
        return not self.pod

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.namespace, self.pod, self.uid, self.container


NODE_SUBJECT: Final = Subject(0)


class LevelRecord(_Record, frozen=True, kw_only=True, tag="l"):
    """How much is in use, the values of the files, and what happened since the last level."""

    current: int = 0
    anon: int = 0
    """Anonymous and shared memory."""
    file: int = 0
    swap: int = 0
    min: int = 0
    low: int = 0
    high: int | None = None
    """None is `max`."""
    max: int | None = None
    high_events: int = 0
    some: int = 0
    full: int = 0
    shmem: int = 0
    """What of `anon` is shared: files in a tmpfs, above all."""
    kernel: int | None = None
    """Kernel memory; None where it was not recorded."""
    inactive_file: int | None = None
    """Page cache that was not used lately, which the working set does not count."""
    refaults: int | None = None
    """Pages of files that were read again soon after reclaim; None where it is not known."""


class CountRecord(_Record, frozen=True, tag="c"):
    """The kernel counted something in memory.events, so often since the last reading."""

    event: MemoryEvent = "max"
    count: int = 1


class ThrottleRecord(_Record, frozen=True, kw_only=True, tag="t"):
    """An episode past memory.high has begun or ended. Counts are from its beginning on."""

    since: int = 0
    is_over: bool = False
    events: int = 0
    full: int = 0
    """The largest share of the time, between two readings, in which nothing ran."""
    high: int = 0
    anon: int = 0
    swap_room: int = 0


class GuardRecord(_Record, frozen=True, kw_only=True, tag="g"):
    """A step of the guard; None is `max`."""

    kind: Literal["widen", "narrow"] = "widen"
    old: int | None = None
    new: int | None = None
    step: int = 0
    steps: int = 0
    events: int = 0
    """High events a second."""
    full: int = 0


class WriteRecord(_Record, frozen=True, tag="v"):
    """A value of a cgroup file was written, by memqos or by another program.

    Where `old` is `new` nothing was written: the value in place is the planned one, by this rule.
    """

    file: str = ""
    old: str = ""
    new: str = ""
    rule: str = ""
    says: str = ""
    by: str = "memqos"


class KillRecord(_Record, frozen=True, kw_only=True, tag="k"):
    """The kernel killed a process for want of memory."""

    comm: str = ""
    pid: int = 0
    constraint: Literal["memcg", "none", "cpuset", "memory_policy", ""] = ""
    """Whose memory had run out: a cgroup's (memcg) or the machine's (none)."""
    oom_cgroup: str = ""
    oom_score_adj: int | None = None
    points: int | None = None
    """Pages that it counted as."""
    rank: int | None = None
    """Its place among those that could have been killed, by what they counted as."""
    candidates: int = 0
    usage: int | None = None
    limit: int | None = None
    """Of the cgroup whose memory had run out."""
    anon: int = 0
    file: int = 0
    along: int = 0
    """How many others died with it."""
    total_anon: int | None = None
    """Of the cgroup whose memory had run out, as the kernel has logged it, and so the next four;
    None where it has not."""
    total_file: int | None = None
    """Page cache and tmpfs."""
    total_shmem: int | None = None
    total_kernel: int | None = None
    inactive_file: int | None = None


class EvictionRecord(_Record, frozen=True, tag="e"):
    """The kubelet evicted the pod."""

    reason: str = ""
    message: str = ""


class ResizeRecord(_Record, frozen=True, tag="r"):
    """The memory request and limit in use have changed; None is not set."""

    old_request: int | None = None
    new_request: int | None = None
    old_limit: int | None = None
    new_limit: int | None = None


class PressureRecord(_Record, frozen=True, tag="n"):
    """The node itself: what is available, and shares of the time waited for memory."""

    available: int = 0
    total: int = 0
    some: int = 0
    full: int = 0


class LifeRecord(_Record, frozen=True, tag="a"):
    """A cgroup has appeared or vanished."""

    what: Literal["appeared", "vanished"] = "appeared"
    cgroup: str = ""


class GapRecord(_Record, frozen=True, tag="p"):
    """Recording could not go on for a while."""

    since: int = 0
    why: str = ""
    lost: int = 0
    """Records."""


class ClockRecord(_Record, frozen=True, tag="d"):
    """What the times of the records after it are: `at` was so long after a boot, and the wall clock
    said `wall` then."""

    boot: str = ""
    up: int = 0
    wall: int = 0


FlightRecord = (
    Subject
    | LevelRecord
    | CountRecord
    | ThrottleRecord
    | GuardRecord
    | WriteRecord
    | KillRecord
    | EvictionRecord
    | ResizeRecord
    | PressureRecord
    | LifeRecord
    | GapRecord
    | ClockRecord
)


class DecodedRecords(msgspec.Struct, frozen=True):
    """The records of a file."""

    who: Subject | None
    records: tuple[FlightRecord, ...]
    """In the order in which they were written, without `who`."""
    damaged: int = 0
    """Bytes that could not be decoded."""


_decoder: Final = msgspec.msgpack.Decoder(FlightRecord)
_encoder: Final = msgspec.msgpack.Encoder()


def encode_frame(record: FlightRecord) -> bytes:
    """A record as it lies in a file; nothing where it is too long, which only texts can make it."""
    payload = _encoder.encode(record)
    if len(payload) > MAX_PAYLOAD:
        return b""
    return _HEAD.pack(_MARK, len(payload), zlib.crc32(payload)) + payload


def decode_flight_records(data: bytes) -> DecodedRecords:
    """All records that are not damaged."""
    records: list[FlightRecord] = []
    position = len(RECORDS_MAGIC) if data.startswith(RECORDS_MAGIC) else 0
    damaged = 0
    while position < len(data):
        payload = _payload(data, position)
        if payload is None:
            start = data.find(_MARK, position + 1)
            end = len(data) if start < 0 else start
            damaged += end - position
            position = end
            continue
        position += _HEAD.size + len(payload)
        record = _record(payload)
        if record is not None:
            records.append(record)
    who = next((record for record in records if isinstance(record, Subject)), None)
    return DecodedRecords(
        who, tuple(each for each in records if not isinstance(each, Subject)), damaged
    )


def truncate_text(text: str) -> str:
    """A text of which no record becomes too long."""
    return text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 1] + "…"


def _payload(data: bytes, position: int) -> bytes | None:
    if position + _HEAD.size > len(data):
        return None
    mark, length, checksum = _HEAD.unpack_from(data, position)
    start = position + _HEAD.size
    payload = data[start : start + length]
    if mark != _MARK or length > MAX_PAYLOAD or len(payload) < length:
        return None
    return payload if zlib.crc32(payload) == checksum else None


def _record(payload: bytes) -> FlightRecord | None:
    """None where a newer memqos has written something that this one does not know."""
    try:
        record: FlightRecord = _decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return record


def record_file_name(who: Subject) -> str:
    """The name of a container's file: a hash, as no user may choose a file's name."""
    if who.is_node:
        return "node"
    return hashlib.sha256("\0".join(who.key).encode("utf-8", "replace")).hexdigest()[:32]


def subject_of(pod: Pod, container: str) -> Subject:
    """A container of a pod, for the recorder."""
    metadata, status = pod.metadata, pod.status
    return Subject(
        0,
        truncate_text(metadata.namespace or "default"),
        truncate_text(metadata.name or ""),
        truncate_text(metadata.uid or ""),
        truncate_text(container),
        truncate_text((status.qos_class if status is not None else None) or ""),
    )
