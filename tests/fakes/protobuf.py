"""Messages that Google's own library reads and writes, made of tables of their fields."""

from collections.abc import Callable
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Messages = dict[str, dict[str, tuple[int, str]]]
"""Message → field → its number and kind: string, bytes, int64, bool, map, a message, many of it."""

_FIELD = descriptor_pb2.FieldDescriptorProto
_KINDS = {
    "string": _FIELD.TYPE_STRING,
    "bytes": _FIELD.TYPE_BYTES,
    "int64": _FIELD.TYPE_INT64,
    "bool": _FIELD.TYPE_BOOL,
}


def message_classes(package: str, messages: Messages) -> Callable[[str], Any]:
    """From the name of a message to its class."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"memqos_tests_{package}.proto", package=package, syntax="proto3"
    )
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            _add(message, package, field, number, kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)

    def class_of(name: str) -> Any:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))

    return class_of


def _add(message: Any, package: str, name: str, number: int, kind: str) -> None:
    field = message.field.add(name=name, number=number, label=_FIELD.LABEL_OPTIONAL)
    if kind in _KINDS:
        field.type = _KINDS[kind]
        return
    field.type = _FIELD.TYPE_MESSAGE
    field.type_name = f".{package}.{kind.removeprefix('many ')}"
    if kind.startswith("many "):
        field.label = _FIELD.LABEL_REPEATED
    if kind == "map":
        entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
        entry.options.map_entry = True
        for index, part in enumerate(("key", "value"), start=1):
            entry.field.add(
                name=part, number=index, type=_FIELD.TYPE_STRING, label=_FIELD.LABEL_OPTIONAL
            )
        field.label = _FIELD.LABEL_REPEATED
        field.type_name = f".{package}.{message.name}.{entry.name}"
