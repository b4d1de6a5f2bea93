"""Pods as Google's own library encodes them, with the fields of the API's generated.proto."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "string": _FIELD.TYPE_STRING,
    "int32": _FIELD.TYPE_INT32,
    "int64": _FIELD.TYPE_INT64,
    "bytes": _FIELD.TYPE_BYTES,
}
_CONTAINER = {
    "name": (1, "string"),
    "image": (2, "string"),
    "command": (3, "many string"),
    "resources": (8, "Resources"),
    "resizePolicy": (23, "many ResizePolicy"),
    "restartPolicy": (24, "string"),
}
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "Quantity": {"string": (1, "string")},
    "Time": {"seconds": (1, "int64"), "nanos": (2, "int32")},
    "Claim": {"name": (1, "string"), "request": (2, "string")},
    "Resources": {
        "limits": (1, "map Quantity"),
        "requests": (2, "map Quantity"),
        "claims": (3, "many Claim"),
    },
    "PodClaim": {"name": (1, "string")},
    "ResizePolicy": {"resourceName": (1, "string"), "restartPolicy": (2, "string")},
    "Container": _CONTAINER,
    "EphemeralContainer": {"common": (1, "Container"), "targetContainerName": (2, "string")},
    "OS": {"name": (1, "string")},
    "Toleration": {
        "key": (1, "string"),
        "operator": (2, "string"),
        "value": (3, "string"),
        "effect": (4, "string"),
        "tolerationSeconds": (5, "int64"),
    },
    "EmptyDir": {"medium": (1, "string"), "sizeLimit": (2, "Quantity")},
    "VolumeSource": {"emptyDir": (2, "EmptyDir")},
    "Volume": {"name": (1, "string"), "source": (2, "VolumeSource")},
    "SecurityContext": {"supplementalGroupsPolicy": (12, "string")},
    "Spec": {
        "volumes": (1, "many Volume"),
        "containers": (2, "many Container"),
        "terminationGracePeriodSeconds": (4, "int64"),
        "activeDeadlineSeconds": (5, "int64"),
        "nodeName": (10, "string"),
        "securityContext": (14, "SecurityContext"),
        "initContainers": (20, "many Container"),
        "tolerations": (22, "many Toleration"),
        "priorityClassName": (24, "string"),
        "priority": (25, "int32"),
        "runtimeClassName": (29, "string"),
        "overhead": (32, "map Quantity"),
        "ephemeralContainers": (34, "many EphemeralContainer"),
        "os": (36, "OS"),
        "resourceClaims": (39, "many PodClaim"),
        "resources": (40, "Resources"),
    },
    "Running": {"startedAt": (1, "Time")},
    "Terminated": {
        "exitCode": (1, "int32"),
        "reason": (3, "string"),
        "startedAt": (5, "Time"),
        "finishedAt": (6, "Time"),
    },
    "State": {"running": (2, "Running"), "terminated": (3, "Terminated")},
    "ContainerStatus": {
        "name": (1, "string"),
        "state": (2, "State"),
        "lastState": (3, "State"),
        "restartCount": (5, "int32"),
        "containerID": (8, "string"),
        "allocatedResources": (10, "map Quantity"),
        "resources": (11, "Resources"),
    },
    "Condition": {
        "type": (1, "string"),
        "status": (2, "string"),
        "lastTransitionTime": (4, "Time"),
        "reason": (5, "string"),
        "message": (6, "string"),
    },
    "ClaimMapping": {"name": (1, "string"), "quantity": (2, "Quantity")},
    "ClaimOverhead": {
        "name": (1, "string"),
        "perPod": (2, "Quantity"),
        "perContainer": (3, "Quantity"),
    },
    "ClaimStatus": {
        "resourceClaimName": (1, "string"),
        "containers": (2, "many string"),
        "mapping": (4, "many ClaimMapping"),
        "overhead": (5, "many ClaimOverhead"),
    },
    "Status": {
        "phase": (1, "string"),
        "conditions": (2, "many Condition"),
        "message": (3, "string"),
        "reason": (4, "string"),
        "startTime": (7, "Time"),
        "containerStatuses": (8, "many ContainerStatus"),
        "qosClass": (9, "string"),
        "initContainerStatuses": (10, "many ContainerStatus"),
        "ephemeralContainerStatuses": (13, "many ContainerStatus"),
        "allocatedResources": (19, "map Quantity"),
        "resources": (20, "Resources"),
        "nodeAllocatableResourceClaimStatuses": (21, "many ClaimStatus"),
    },
    "Metadata": {
        "name": (1, "string"),
        "generateName": (2, "string"),
        "namespace": (3, "string"),
        "uid": (5, "string"),
        "resourceVersion": (6, "string"),
        "creationTimestamp": (8, "Time"),
        "deletionTimestamp": (9, "Time"),
        "deletionGracePeriodSeconds": (10, "int64"),
        "labels": (11, "map string"),
        "annotations": (12, "map string"),
    },
    "Pod": {"metadata": (1, "Metadata"), "spec": (2, "Spec"), "status": (3, "Status")},
    # The service v1alpha1.Pods of the kubelet.
    "ListPodsRequest": {},
    "ListPodsResponse": {"pods": (1, "many bytes")},
    "GetPodRequest": {"podUID": (1, "string")},
    "GetPodResponse": {"pod": (1, "bytes")},
    "WatchPodsRequest": {},
    "WatchPodsEvent": {"type": (1, "int32"), "pod": (2, "bytes")},
}


def _file() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="memqos_tests_pod.proto", package="v1")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            _add(message, field, number, kind)
    return file


def _add(message: Any, name: str, number: int, kind: str) -> None:
    many, _, single = kind.rpartition(" ")
    field = message.field.add(name=name, number=number, label=_FIELD.LABEL_OPTIONAL)
    if many:
        field.label = _FIELD.LABEL_REPEATED
    if many == "map":
        entry = message.nested_type.add(name=f"{name[0].upper()}{name[1:]}Entry")
        entry.options.map_entry = True
        _add(entry, "key", 1, "string")
        _add(entry, "value", 2, single)
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".v1.{message.name}.{entry.name}"
    elif single in _SCALARS:
        field.type = _SCALARS[single]
    else:
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".v1.{single}"


_pool = descriptor_pool.DescriptorPool()
_pool.Add(_file())


def message(name: str) -> Any:
    """The class of a message."""
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"v1.{name}"))


def encode_pod(manifest: Mapping[str, Any]) -> bytes:
    """A pod as the kubelet sends it: like the API's encoders, with empty texts for missing ones."""
    pod = message("Pod")()
    _fill(pod, "Pod", manifest)
    encoded: bytes = pod.SerializeToString()
    return encoded


def _fill(target: Any, name: str, values: Mapping[str, Any]) -> None:
    for field, (_, kind) in _MESSAGES[name].items():
        many, _, single = kind.rpartition(" ")
        value = values.get(field)
        if field in _INLINE:
            _fill(getattr(target, field), single, values)
        elif value is None:
            if kind == "string":
                setattr(target, field, "")
        elif many:
            _fill_many(getattr(target, field), many, single, value)
        elif single in _SCALARS:
            setattr(target, field, value)
        else:
            _fill_message(getattr(target, field), single, value)


_INLINE = ("source", "common")
"""Messages whose fields stand beside their neighbours in JSON."""


def _fill_many(target: Any, many: str, kind: str, values: Any) -> None:
    if kind in _SCALARS:
        target.update(values) if many == "map" else target.extend(values)
    elif many == "map":
        for key, value in values.items():
            _fill_message(target[key], kind, value)
    else:
        for each in values:
            _fill_message(target.add(), kind, each)


def _fill_message(target: Any, kind: str, value: Any) -> None:
    target.SetInParent()
    if kind == "Quantity":
        target.string = str(value)
    elif kind == "Time":
        target.seconds = int(datetime.fromisoformat(value).timestamp())
    else:
        _fill(target, kind, value)
