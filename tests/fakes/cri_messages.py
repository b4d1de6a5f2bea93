"""The messages of the CRI that memqos speaks, as Google's own library reads and writes them."""

from tests.fakes.protobuf import Messages, message_classes

_MESSAGES: Messages = {
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

message = message_classes("runtime.v1", _MESSAGES)
"""The class of a message, by its name."""
