"""Recordings as an agent sends them to those who may read them, and as they are read there."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from memqos.errors import InputError
from memqos.record.format import PressureRecord, Subject
from memqos.record.recordings import Recording

LARGEST_TRANSFER: Final = 16 << 20
"""Bytes of records in one answer."""
_AROUND: Final = 60_000
"""Milliseconds before and after."""


class SentRecords(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the agent of one node has recorded of containers."""

    node: str = ""
    version: str = ""
    """Of the agent."""
    recordings: tuple[Recording, ...] = ()
    pressure: tuple[PressureRecord, ...] = ()
    """The node's own memory in the time of these records."""
    files: Mapping[str, Mapping[str, Mapping[str, str]]] = {}
    """namespace/pod → container that runs → its cgroup files, as they are now."""
    truncated: bool = False
    """Whether there is more than one answer holds."""

    @property
    def node_recording(self) -> Recording | None:
        """The node's pressure as a recording."""
        return Recording(Subject(0), self.pressure) if self.pressure else None


def encode_transfer(sent: SentRecords) -> bytes:
    """The records as JSON: each an array, by its tag."""
    return msgspec.json.encode(sent)


def decode_transfer(data: bytes, origin: str) -> SentRecords:
    """What an agent has sent; `origin` names it in errors."""
    try:
        return msgspec.json.decode(data, type=SentRecords)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(
            f"this is not an agent's response with records ({error})",
            file=origin,
            hint="use the same release of memqos here and in the agent",
        ) from None


def pressure_around(
    node: Recording | None, recordings: Iterable[Recording]
) -> tuple[PressureRecord, ...]:
    """The node's pressure in the time of some recordings: nothing else of the node is theirs."""
    times = [record.at for each in recordings for record in each.records]
    if node is None or not times:
        return ()
    first, last = min(times) - _AROUND, max(times) + _AROUND
    return tuple(
        record
        for record in node.records
        if isinstance(record, PressureRecord) and first <= record.at <= last
    )
