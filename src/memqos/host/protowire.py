"""Protocol Buffers on the wire: messages as plain mappings, by a table of their fields.

Only what the CRI calls of memqos need: text, whole numbers, flags, lists of text, maps from text to
text, and messages in messages, one or many. A field that is not in the table is skipped, so that
newer senders can add fields (protobuf.dev, Encoding).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

FieldKind = Literal["text", "bytes", "number", "flag", "texts", "map"]

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5
_LONGEST_VARINT: Final = 10
_WRAP: Final = 1 << 64
_SIGN: Final = 1 << 63


class MalformedMessage(Exception):
    """Bytes that are no message."""


class ProtoField(NamedTuple):
    """A field's number and type."""

    number: int
    kind: "FieldKind | Message | Repeated"


Message = Mapping[str, ProtoField]
"""The fields of a message by name."""


class Repeated(NamedTuple):
    """A list of messages."""

    message: Message


_ENTRY: Final[Message] = {"key": ProtoField(1, "text"), "value": ProtoField(2, "text")}


def encode_message(message: Message, values: Mapping[str, Any]) -> bytes:
    """A message with these values; an empty value is not encoded, as proto3 does by default."""
    return b"".join(
        part for name, value in values.items() for part in _parts(message[name], value) if value
    )


def decode_message(message: Message, data: bytes) -> dict[str, Any]:
    """The values of the fields that a message has."""
    by_number = {field.number: (name, field.kind) for name, field in message.items()}
    values: dict[str, Any] = {}
    for number, value in wire_fields(data):
        if number in by_number:
            name, kind = by_number[number]
            _store_field(values, name, kind, value)
    return values


def _parts(field: ProtoField, value: Any) -> Iterator[bytes]:
    number, kind = field
    if kind == "text":
        yield _length_delimited(number, value.encode())
    elif kind == "bytes":
        yield _length_delimited(number, value)
    elif kind == "texts":
        yield from (_length_delimited(number, each.encode()) for each in value)
    elif kind == "map":
        for key, each in value.items():
            yield _length_delimited(number, encode_message(_ENTRY, {"key": key, "value": each}))
    elif isinstance(kind, str):
        yield _varint(number << 3 | _VARINT) + _varint(int(value) % _WRAP)
    elif isinstance(kind, Repeated):
        yield from (_length_delimited(number, encode_message(kind.message, each)) for each in value)
    else:
        yield _length_delimited(number, encode_message(kind, value))


def _store_field(
    values: dict[str, Any], name: str, kind: FieldKind | Message | Repeated, value: int | bytes
) -> None:
    if isinstance(value, int):
        if kind not in ("number", "flag"):
            raise MalformedMessage(f"{name} is a number")
        signed = value - _WRAP if value >= _SIGN else value
        values[name] = bool(value) if kind == "flag" else signed
    elif kind == "text":
        values[name] = _text(value)
    elif kind == "bytes":
        values[name] = value
    elif kind == "texts":
        values.setdefault(name, []).append(_text(value))
    elif kind == "map":
        entry = decode_message(_ENTRY, value)
        values.setdefault(name, {})[entry.get("key", "")] = entry.get("value", "")
    elif isinstance(kind, str):
        raise MalformedMessage(f"{name} is no number")
    elif isinstance(kind, Repeated):
        values.setdefault(name, []).append(decode_message(kind.message, value))
    else:
        values[name] = decode_message(kind, value)


def wire_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message as they come: the number of each, and its value undecoded."""
    position = 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        wire = tag & 7
        if wire == _VARINT:
            number, position = _read_varint(data, position)
            yield tag >> 3, number
            continue
        size = {_FIXED64: 8, _FIXED32: 4}.get(wire)
        if size is None:
            if wire != _BYTES:
                raise MalformedMessage(f"wire type {wire}")
            size, position = _read_varint(data, position)
        if position + size > len(data):
            raise MalformedMessage("it ends within a field")
        yield tag >> 3, data[position : position + size]
        position += size


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    number = 0
    for index, byte in enumerate(data[position : position + _LONGEST_VARINT]):
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return number % _WRAP, position + index + 1
    raise MalformedMessage("it ends within a number")


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*encoded, number))


def _length_delimited(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(data)) + data


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
