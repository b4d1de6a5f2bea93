"""The messages of ttrpc and NRI, as Google's own library reads and writes them."""

from tests.fakes.protobuf import Messages, message_classes

_MESSAGES: Messages = {
    "Request": {
        "service": (1, "string"),
        "method": (2, "string"),
        "payload": (3, "bytes"),
        "timeout_nano": (4, "int64"),
    },
    "Status": {"code": (1, "int64"), "message": (2, "string")},
    "Response": {"status": (1, "Status"), "payload": (2, "bytes")},
    "Optional": {"value": (1, "int64")},
    "Memory": {"limit": (1, "Optional"), "swap": (3, "Optional")},
    "Resources": {"memory": (1, "Memory"), "unified": (6, "map")},
    "PodLinux": {"cgroup_parent": (3, "string")},
    "PodSandbox": {
        "id": (1, "string"),
        "name": (2, "string"),
        "uid": (3, "string"),
        "namespace": (4, "string"),
        "annotations": (6, "map"),
        "linux": (8, "PodLinux"),
    },
    "ContainerLinux": {
        "resources": (3, "Resources"),
        "oom_score_adj": (4, "Optional"),
        "cgroups_path": (5, "string"),
    },
    "Container": {
        "id": (1, "string"),
        "pod_sandbox_id": (2, "string"),
        "name": (3, "string"),
        "state": (4, "int64"),
        "annotations": (6, "map"),
        "linux": (11, "ContainerLinux"),
    },
    "RegisterPlugin": {"plugin_name": (1, "string"), "plugin_idx": (2, "string")},
    "Configure": {
        "config": (1, "string"),
        "runtime_name": (2, "string"),
        "runtime_version": (3, "string"),
        "registration_timeout": (4, "int64"),
        "request_timeout": (5, "int64"),
    },
    "ConfigureAnswer": {"events": (2, "int64")},
    "Update": {"container_id": (1, "string"), "linux": (2, "UpdateLinux")},
    "UpdateLinux": {"resources": (1, "Resources")},
    "Synchronize": {
        "pods": (1, "many PodSandbox"),
        "containers": (2, "many Container"),
        "more": (3, "bool"),
    },
    "SynchronizeAnswer": {"update": (1, "many Update"), "more": (2, "bool")},
    "ContainerEvent": {"pod": (1, "PodSandbox"), "container": (2, "Container")},
    "StateChange": {
        "event": (1, "int64"),
        "pod": (2, "PodSandbox"),
        "container": (3, "Container"),
    },
    "AdjustLinux": {"resources": (2, "Resources"), "oom_score_adj": (4, "Optional")},
    "Adjustment": {"annotations": (2, "map"), "linux": (6, "AdjustLinux")},
    "CreateAnswer": {"adjust": (1, "Adjustment"), "update": (2, "many Update")},
    "UpdateEvent": {
        "pod": (1, "PodSandbox"),
        "container": (2, "Container"),
        "linux_resources": (3, "Resources"),
    },
    "Updates": {"update": (1, "many Update")},
    "UpdatesAnswer": {"failed": (1, "many Update")},
}

message = message_classes("nri", _MESSAGES)
"""The class of a message, by its name."""
