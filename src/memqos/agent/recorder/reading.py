"""Reads what a recorder has kept, in a folder of this node or of any other."""

import os
from collections.abc import Iterable, Iterator

import msgspec

from memqos.agent.recorder.files import CURRENT, OLDER, files_in
from memqos.agent.recorder.records import Record, Who, decode


class Recording(msgspec.Struct, frozen=True):
    """All that is kept about one container, or about the node."""

    who: Who
    records: tuple[Record, ...]
    damaged: int = 0


def recordings(folder: str) -> Iterator[Recording]:
    """What is kept in a folder, by whatever process; files that make no sense are passed over."""
    for name in sorted({name for name, _ in files_in(folder)}):
        halves = (content(os.path.join(folder, name + suffix)) for suffix in (OLDER, CURRENT))
        recording = recording_of(*halves)
        if recording is not None:
            yield recording


def latest_of(recorded: Iterable[Recording]) -> list[Recording]:
    """Of pods of one name, one after another, the containers of the last."""
    by_uid: dict[str, list[Recording]] = {}
    for each in recorded:
        by_uid.setdefault(each.who.uid, []).append(each)
    last = max(by_uid.values(), key=lambda group: max(map(_last, group)), default=[])
    return sorted(last, key=lambda each: each.who.container)


def _last(recording: Recording) -> int:
    return max((record.at for record in recording.records), default=0)


def recording_of(older: bytes, current: bytes) -> Recording | None:
    """What the two halves of a file say, if they say whom they are about."""
    halves = decode(older), decode(current)
    who = next((half.who for half in reversed(halves) if half.who is not None), None)
    if who is None:
        return None
    records = tuple(record for half in halves for record in half.records)
    return Recording(who, records, sum(half.damaged for half in halves))


def content(path: str) -> bytes:
    """What is in a file; nothing where there is none, or only a link."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return b""
    with open(handle, "rb") as file:
        return file.read(64 << 20)
