"""Dumps of clusters, read in blocks: plain files, compressed ones and standard input.

A block of a plain file is named by its bounds and read by whoever works on it; any other comes with
its text.
"""

import mmap
import os
import stat
import sys
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple, Protocol

import msgspec

from memqos.errors import InputError
from memqos.manifests.dumps.text import DumpLayout, Size, cut_before, dump_layout, is_json

STDIN: Final = "-"
DUMP_BLOCK: Final = 1 << 20
_HEAD: Final = 1 << 16
_SAMPLE: Final = 1 << 13
_LONG_LINE: Final = 256
_COMMA: Final = ord(",")
_GZIP: Final = b"\x1f\x8b"
_AS_GZIP: Final = 16 + zlib.MAX_WBITS
_LARGEST_YAML: Final = 512 << 20


class Readable(Protocol):
    """A file, or the answer of a server."""

    def read(self, count: int, /) -> bytes:
        """So many bytes, fewer only at the end."""


class DumpBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a dump: its text, or else where in the file it stands."""

    file: str
    layout: DumpLayout
    start: int = 0
    end: int
    is_last: bool = False
    text: bytes | None = None
    is_text: bool = False
    """Whether it came with its text, and cannot be read again."""


class YamlFile(NamedTuple):
    """A file that is not JSON, as a whole."""

    file: str
    text: bytes


class Restart(NamedTuple):
    """All that came of this source so far is void: it starts from the beginning."""


DumpPart = DumpBlock | YamlFile | InputError | Restart


class DumpSource(Protocol):
    """Whatever gives objects block by block: a file, or an API server page by page."""

    def blocks(self) -> Iterator[DumpPart]:
        """The parts in order; what cannot be read is an error in its place."""


class Dump(NamedTuple):
    """A file to be read, and how large it is; 0 where nobody knows before the end."""

    name: str
    size: int

    def blocks(self) -> Iterator[DumpPart]:
        """The parts of the file in order; what cannot be read is an error in its place."""
        try:
            if self.name == STDIN:
                yield from stream_blocks("<stdin>", sys.stdin.buffer)
                return
            with open(self.name, "rb") as file:
                if self.size and _head(file)[:2] != _GZIP:
                    yield from _map_blocks(self.name, file, self.size)
                else:
                    yield from stream_blocks(self.name, file)
        except (OSError, EOFError, zlib.error) as error:
            strerror = getattr(error, "strerror", None)
            what = strerror.lower() if strerror else f"cannot be decompressed: {error}"
            yield InputError(what, file=self.name)


def dump_of(path: str) -> Dump:
    """A file by its path; `-` is standard input."""
    if path == STDIN:
        return Dump(path, 0)
    try:
        status = os.stat(path)
    except OSError:
        return Dump(path, 0)
    return Dump(path, status.st_size if stat.S_ISREG(status.st_mode) else 0)


class BlockReader:
    """Reads blocks of plain files into the same room again and again."""

    def __init__(self) -> None:
        self._room = bytearray(DUMP_BLOCK + 2)

    def objects_of(self, block: DumpBlock) -> tuple[memoryview, Size] | None:
        """A block as the decoder takes it, and its size; it holds until the next one is read.

        Items come as an array. None where the block does not end between two of them.
        """
        count = block.end - block.start
        if count + 2 > len(self._room):
            self._room = bytearray(2 * count)
        room = self._room
        if block.text is not None:
            room[1 : count + 1] = block.text
        else:
            with open(block.file, "rb", buffering=0) as file:
                file.seek(block.start)
                if file.readinto(memoryview(room)[1 : count + 1]) != count:
                    return None
        last = room.rfind(b"\n", 1, count + 1)
        size = Size(_lines(room, 1, count + 1), count - max(last, 0))
        if block.layout.form == "lines":
            return memoryview(room)[1 : count + 1], size
        end = count
        while end and room[end] in b" \t\r\n":
            end -= 1
        if room[end] != _COMMA:
            return None
        room[0], room[end] = b"[]"
        return memoryview(room)[: end + 1], size


def _lines(text: bytearray, start: int, end: int) -> int:
    """How many lines end here.

    From one far away line end to the next is quicker than counting, which looks at every byte.
    """
    if text.count(b"\n", start, min(end, start + _SAMPLE)) > _SAMPLE // _LONG_LINE:
        return text.count(b"\n", start, end)
    found = 0
    while (start := text.find(b"\n", start, end) + 1) > 0:
        found += 1
    return found


def block_text(block: DumpBlock) -> bytes:
    """The text of a block, read now if it did not come along."""
    if block.text is not None:
        return block.text
    with open(block.file, "rb", buffering=0) as file:
        file.seek(block.start)
        text = file.read(block.end - block.start)
    if len(text) != block.end - block.start:
        raise InputError("the file has shrunk while it was read", file=block.file)
    return text


def _head(file: BinaryIO) -> bytes:
    head = file.read(_HEAD)
    file.seek(0)
    return head


def _map_blocks(name: str, file: BinaryIO, size: int) -> Iterator[DumpBlock | YamlFile]:
    head = _head(file)
    if not is_json(head):
        yield _yaml(name, file)
        return
    layout = dump_layout(head)
    with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as text:
        start = layout.start
        while start < size:
            end = _cut(text, layout, start, size)
            yield DumpBlock(file=name, layout=layout, start=start, end=end, is_last=end == size)
            start = end


def _cut(text: mmap.mmap, layout: DumpLayout, start: int, size: int) -> int:
    """Where the block that starts here ends: as far as it may reach, or further if it must."""
    reach = DUMP_BLOCK
    while start + reach < size:
        found = cut_before(text, layout, start, start + reach)
        if found is not None:
            return found
        reach *= 2
    return size


def stream_blocks(name: str, file: Readable) -> Iterator[DumpBlock | YamlFile]:
    """What comes as a stream, in blocks that have their text with them."""
    head = file.read(_HEAD)
    if head[:2] == _GZIP:
        file = GzipStream(head, file)
        head = file.read(_HEAD)
    if not is_json(head):
        yield _yaml(name, file, head)
        return
    layout = dump_layout(head)
    text, reach = head[layout.start :], DUMP_BLOCK
    error: Exception | None = None
    while error is None:
        try:
            more = file.read(max(_HEAD, reach - len(text)))
        except (OSError, EOFError, zlib.error) as broken:
            # What was decoded before it counts.
            more, error = b"", broken
        if not more:
            break
        text += more
        found = cut_before(text, layout, 0, len(text)) if len(text) >= reach else None
        if found is None:
            reach = max(reach, 2 * len(text)) if len(text) >= reach else reach
            continue
        yield DumpBlock(file=name, layout=layout, end=found, text=text[:found], is_text=True)
        text, reach = text[found:], DUMP_BLOCK
    yield DumpBlock(file=name, layout=layout, end=len(text), is_last=True, text=text, is_text=True)
    if error is not None:
        raise error


def _yaml(name: str, file: Readable, head: bytes = b"") -> YamlFile:
    text = head + file.read(_LARGEST_YAML + 1)
    if len(text) > _LARGEST_YAML:
        what = f"YAML larger than {_LARGEST_YAML >> 20} MiB"
        raise InputError(what, file=name, hint="dump the cluster as JSON: kubectl get … -o json")
    return YamlFile(name, text)


class GzipStream:
    """A gzip stream, of which everything comes that was there before it broke off."""

    def __init__(self, head: bytes, file: Readable) -> None:
        self._packed = head
        """Read and not yet unpacked."""
        self._file = file
        self._stream = zlib.decompressobj(_AS_GZIP)
        self._broken: Exception | None = None

    def read(self, count: int) -> bytes:
        """So many bytes, fewer only at the end."""
        parts: list[bytes] = []
        while count > 0 and self._broken is None:
            try:
                part = self._part(count)
            except (OSError, EOFError, zlib.error) as error:
                self._broken = error
                break
            if part is None:
                break
            parts.append(part)
            count -= len(part)
        if self._broken is not None and not parts:
            raise self._broken
        return b"".join(parts)

    def _part(self, count: int) -> bytes | None:
        """At most so many bytes, perhaps none yet; None at the end."""
        if self._stream.eof:
            # RFC 1952: members may be concatenated. Zeros are the padding of tapes.
            self._packed = self._stream.unused_data.lstrip(b"\0")
            while not self._packed:
                more = self._file.read(_HEAD)
                if not more:
                    return None
                self._packed = more.lstrip(b"\0")
            self._stream = zlib.decompressobj(_AS_GZIP)
        part = self._stream.decompress(self._packed, count)
        self._packed = self._stream.unconsumed_tail
        if not part and not self._packed and not self._stream.eof:
            self._packed = self._file.read(_HEAD)
            if not self._packed:
                raise EOFError("it ends too soon")
        return part
