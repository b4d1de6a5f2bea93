"""Dumps of clusters, cut into blocks: plain files, compressed ones and standard input.

A block of a plain file has only its bounds, and is read by the process that decodes it; any other
block has its text with it.
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
from memqos.units import format_bytes

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
        """Up to `count` bytes, fewer only at the end."""


class DumpBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a dump: its text, or else its position in the file."""

    file: str
    layout: DumpLayout
    start: int = 0
    end: int
    is_last: bool = False
    text: bytes | None = None
    is_text: bool = False
    """Whether it was created with its text, and cannot be read again."""


class YamlFile(NamedTuple):
    """A file that is not JSON, as a whole."""

    file: str
    text: bytes


class Restart(NamedTuple):
    """The source starts again from the beginning: its parts so far are void."""


DumpPart = DumpBlock | YamlFile | InputError | Restart


class DumpSource(Protocol):
    """A source of objects, block by block: a file, or an API server page by page."""

    def blocks(self) -> Iterator[DumpPart]:
        """The parts in order; an error for each that cannot be read."""


class Dump(NamedTuple):
    """A file to be read, and its size; 0 where that is not known in advance."""

    name: str
    size: int

    def blocks(self) -> Iterator[DumpPart]:
        """The parts of the file in order; an error for each that cannot be read."""
        try:
            if self.name == STDIN:
                yield from stream_blocks("<stdin>", sys.stdin.buffer)
                return
            with open(self.name, "rb") as file:
                if self.size and _head(file)[:2] != _GZIP:
                    yield from _map_blocks(self.name, file, self.size)
                else:
                    yield from stream_blocks(self.name, file)
        except IsADirectoryError:
            yield InputError("no manifest in this folder", file=self.name)
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
    """Reads blocks, one after the other into the same buffer."""

    def __init__(self) -> None:
        self._buffer = bytearray(DUMP_BLOCK + 2)

    def objects_of(self, block: DumpBlock) -> tuple[memoryview, Size] | None:
        """A block as the decoder takes it, and its size; valid until the next one is read.

        Items form an array. None where the block does not end between two items.
        """
        count = block.end - block.start
        if count + 2 > len(self._buffer):
            self._buffer = bytearray(2 * count)
        buffer = self._buffer
        if block.text is not None:
            buffer[1 : count + 1] = block.text
        else:
            with open(block.file, "rb", buffering=0) as file:
                file.seek(block.start)
                if file.readinto(memoryview(buffer)[1 : count + 1]) != count:
                    return None
        last = buffer.rfind(b"\n", 1, count + 1)
        size = Size(_lines(buffer, 1, count + 1), count - max(last, 0))
        if block.layout.form == "lines":
            return memoryview(buffer)[1 : count + 1], size
        end = count
        while end and buffer[end] in b" \t\r\n":
            end -= 1
        if buffer[end] != _COMMA:
            return None
        buffer[0], buffer[end] = b"[]"
        return memoryview(buffer)[: end + 1], size


def _lines(text: bytearray, start: int, end: int) -> int:
    """How many lines end here.

    Where lines are long, finding one end after another is faster than counting, which compares
    every byte.
    """
    if text.count(b"\n", start, min(end, start + _SAMPLE)) > _SAMPLE // _LONG_LINE:
        return text.count(b"\n", start, end)
    found = 0
    while (start := text.find(b"\n", start, end) + 1) > 0:
        found += 1
    return found


def block_text(block: DumpBlock) -> bytes:
    """The text of a block, read from its file where the block has only its bounds."""
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
    """Where the block that starts here ends: past the usual size where an object is larger."""
    span = DUMP_BLOCK
    while start + span < size:
        found = cut_before(text, layout, start, start + span)
        if found is not None:
            return found
        span *= 2
    return size


def stream_blocks(name: str, file: Readable) -> Iterator[DumpBlock | YamlFile]:
    """A stream in blocks, each with its text."""
    head = file.read(_HEAD)
    if head[:2] == _GZIP:
        file = GzipStream(head, file)
        head = file.read(_HEAD)
    if not is_json(head):
        yield _yaml(name, file, head)
        return
    layout = dump_layout(head)
    text, span = head[layout.start :], DUMP_BLOCK
    error: Exception | None = None
    while error is None:
        try:
            more = file.read(max(_HEAD, span - len(text)))
        except (OSError, EOFError, zlib.error) as broken:
            # What was decoded before the error counts.
            more, error = b"", broken
        if not more:
            break
        text += more
        found = cut_before(text, layout, 0, len(text)) if len(text) >= span else None
        if found is None:
            span = max(span, 2 * len(text)) if len(text) >= span else span
            continue
        yield DumpBlock(file=name, layout=layout, end=found, text=text[:found], is_text=True)
        text, span = text[found:], DUMP_BLOCK
    yield DumpBlock(file=name, layout=layout, end=len(text), is_last=True, text=text, is_text=True)
    if error is not None:
        raise error


def _yaml(name: str, file: Readable, head: bytes = b"") -> YamlFile:
    text = head + file.read(_LARGEST_YAML + 1)
    if len(text) > _LARGEST_YAML:
        what = f"YAML larger than {format_bytes(_LARGEST_YAML)}"
        raise InputError(what, file=name, hint="dump the cluster as JSON: kubectl get … -o json")
    return YamlFile(name, text)


class GzipStream:
    """A gzip stream; one that breaks off gives everything before that."""

    def __init__(self, head: bytes, file: Readable) -> None:
        self._packed = head
        """Read, and not yet unpacked."""
        self._file = file
        self._stream = zlib.decompressobj(_AS_GZIP)
        self._broken: Exception | None = None

    def read(self, count: int) -> bytes:
        """Up to `count` bytes, fewer only at the end."""
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
        """At most `count` bytes, perhaps none yet; None at the end."""
        if self._stream.eof:
            # RFC 1952: members may be concatenated. Zeros after them pad a tape (gzip(1)).
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
