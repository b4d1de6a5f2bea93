"""The messages of the CRI that memqos speaks, as Google's own library reads and writes them."""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto
_KINDS = {
    "string": _FIELD.TYPE_STRING,
    "int64": _FIELD.TYPE_INT64,
    "bool": _FIELD.TYPE_BOOL,
}
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "LinuxContainerResources": {
        "cpu_period": (1, "int64"),
        "memory_limit_in_bytes": (4, "int64"),
        "oom_score_adj": (5, "int64"),
        "cpuset_mems": (7, "string"),
        "unified": (9, "map"),
    },
    "UpdateContainerResourcesRequest": {
        "container_id": (1, "string"),
        "linux": (2, "LinuxContainerResources"),
    },
    "UpdateContainerResourcesResponse": {},
    "ContainerStatusRequest": {"container_id": (1, "string"), "verbose": (2, "bool")},
    "ContainerResources": {"linux": (1, "LinuxContainerResources")},
    "ContainerStatus": {
        "id": (1, "string"),
        "created_at": (4, "int64"),
        "resources": (16, "ContainerResources"),
    },
    "ListContainersRequest": {},
    "Container": {
        "id": (1, "string"),
        "state": (6, "int64"),
        "created_at": (7, "int64"),
        "labels": (8, "map"),
    },
    "ListContainersResponse": {"containers": (1, "many Container")},
    "ContainerStatusResponse": {"status": (1, "ContainerStatus"), "info": (2, "map")},
}


def _file() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="memqos_tests_cri.proto", package="runtime.v1", syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            _add(message, field, number, kind)
    return file


def _add(message: Any, name: str, number: int, kind: str) -> None:
    field = message.field.add(name=name, number=number, label=_FIELD.LABEL_OPTIONAL)
    if kind in _KINDS:
        field.type = _KINDS[kind]
        return
    field.type = _FIELD.TYPE_MESSAGE
    field.type_name = f".runtime.v1.{kind.removeprefix('many ')}"
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
        field.type_name = f".runtime.v1.{message.name}.{entry.name}"


_pool = descriptor_pool.DescriptorPool()
_pool.Add(_file())


def message(name: str) -> Any:
    """The class of a message."""
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"runtime.v1.{name}"))
