"""Dumps of generated clusters as by `kubectl get pods,nodes,limitranges,resourcequotas -A -o json`:
pods of about 6 KB with all the fields that memqos does not read, most of them replicas."""

import json
import random
import zlib
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

Form = Literal["list", "indented", "ndjson"]

PODS_A_NODE = 40
REPLICAS = (1, 1, 1, 2, 2, 3, 3, 5, 8, 12, 20, 40)
"""Frequent values are listed several times."""
MACHINES = ((8, 32), (16, 64), (32, 128), (64, 256))
"""cpus, GiB."""
CPU = ("10m", "25m", "50m", "100m", "100m", "200m", "250m", "500m", "1", "2")
MEMORY = (32, 64, 64, 128, 128, 256, 256, 512, 512, 1024, 2048, 4096)
"""MiB."""
TEAMS = ("payments", "search", "checkout", "ads", "media", "ml", "platform", "billing", "maps")
TIERS = ("api", "worker", "web", "cache", "ingest", "scheduler", "gateway", "store")
KINDS = (("Deployment", "ReplicaSet"), ("StatefulSet", "StatefulSet"), ("DaemonSet", "DaemonSet"))
NAME, UID, NODE, IP, TAIL = "@name@", "@uid@", "@node@", "@ip@", "@tail@"
"""Placeholders in the text of a workload's pod, which differ from replica to replica."""


class Cluster(NamedTuple):
    """The size of a cluster."""

    pods: int
    seed: int = 1

    @property
    def nodes(self) -> int:
        return max(1, self.pods // PODS_A_NODE)

    @property
    def namespaces(self) -> int:
        return max(2, min(400, self.pods // 100))


def write(path: str, cluster: Cluster, form: Form = "list") -> None:
    """Write a dump; the cluster is the same in every form."""
    head, between, tail = _FORMS[form]
    with open(path, "w", encoding="utf-8") as file:
        file.write(head)
        for index, text in enumerate(_objects(cluster, form)):
            if index:
                file.write(between)
            file.write(text)
        file.write(tail)


def usage(cluster: Cluster) -> dict[str, Any]:
    """A PodMetricsList: what the pods of a dump use, most of them less than they request."""
    dice = random.Random(cluster.seed + 1)
    items = []
    for workload, number in _replicas(cluster):
        containers = [
            {
                "name": container["name"],
                "usage": {"cpu": "3m", "memory": f"{_used(container, dice)}Ki"},
            }
            for container in workload.pod["spec"]["containers"]
        ]
        name = _replica(workload, number)[0]
        metadata = {"name": name, "namespace": workload.namespace}
        items.append({"metadata": metadata, "containers": containers})
    return {"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "items": items}


_FORMS: dict[Form, tuple[str, str, str]] = {
    "list": ('{"apiVersion":"v1","items":[', ",", '],"kind":"List","metadata":{}}\n'),
    "indented": (
        '{\n    "apiVersion": "v1",\n    "items": [\n',
        ",\n",
        '\n    ],\n    "kind": "List",\n    "metadata": {}\n}\n',
    ),
    "ndjson": ("", "\n", "\n"),
}


class _Workload(NamedTuple):
    name: str
    namespace: str
    pod: dict[str, Any]
    number: int
    replicas: int
    memory: int
    """MiB requested by one replica."""


def _objects(cluster: Cluster, form: Form) -> Iterator[str]:
    known: tuple[int, str] = (-1, "")
    dice = random.Random(cluster.seed + 2)
    machines = [dice.choice(MACHINES) for _ in range(cluster.nodes)]
    free = [memory << 10 for _, memory in machines]
    for index, (workload, number) in enumerate(_replicas(cluster)):
        if known[0] != workload.number:
            known = workload.number, _text(workload.pod, form)
        name, uid, tail = _replica(workload, number)
        chosen = _roomiest(free, machines, dice)
        free[chosen] -= workload.memory
        node = f"node-{chosen:05}"
        text = known[1].replace(NAME, name).replace(UID, uid).replace(TAIL, tail)
        yield text.replace(NODE, node).replace(IP, f"10.{index >> 16 & 255}.{index >> 8 & 255}.7")
    for index, machine in enumerate(machines):
        yield _text(_node(f"node-{index:05}", *machine), form)
    for index in range(cluster.namespaces):
        namespace = f"{TEAMS[index % len(TEAMS)]}-{index:03}"
        if index % 3:
            yield _text(_limit_range(namespace), form)
        if index % 2:
            yield _text(_quota(namespace), form)


def _text(data: dict[str, Any], form: Form) -> str:
    if form != "indented":
        return json.dumps(data, separators=(",", ":"))
    return "\n".join(f"        {line}" for line in json.dumps(data, indent=4).split("\n"))


def _replicas(cluster: Cluster) -> Iterator[tuple[_Workload, int]]:
    dice = random.Random(cluster.seed)
    left, number = cluster.pods, 0
    while left:
        workload = _workload(number, min(left, dice.choice(REPLICAS)), cluster, dice)
        for replica in range(workload.replicas):
            yield workload, replica
        left -= workload.replicas
        number += 1


def _replica(workload: _Workload, number: int) -> tuple[str, str, str]:
    """Name, UID and the random tail of a replica."""
    mixed = (workload.number * 1_000_003 + number * 7_919 + 12_345) * 2_654_435_761 % (1 << 60)
    digits = f"{mixed:015x}"
    uid = (
        f"{digits[:8]}-{digits[8:12]}-4{digits[12:15]}-9{workload.number % 4096:03x}-{number:012x}"
    )
    tail = digits[-5:]
    return f"{workload.name}-7d9c6b{workload.number % 97:02}f-{tail}{number:x}", uid, tail


def _workload(number: int, replicas: int, cluster: Cluster, dice: random.Random) -> _Workload:
    which = dice.randrange(cluster.namespaces)
    namespace = f"{TEAMS[which % len(TEAMS)]}-{which:03}"
    name = f"{dice.choice(TEAMS)}-{dice.choice(TIERS)}-{number}"
    kind = dice.choice(KINDS)
    count = dice.choice((1, 1, 1, 2, 2, 3))
    style = dice.random()
    containers = [_container(f"{name}-{i}" if i else "app", style, dice) for i in range(count)]
    init = [_container("migrate", style, dice)] if dice.random() < 0.25 else []
    pod = _pod(name, namespace, kind, containers, init, dice)
    memory = sum(_mebibytes(each, "requests", 0) for each in containers)
    return _Workload(name, namespace, pod, number, replicas, memory)


def _mebibytes(container: dict[str, Any], side: str, default: int) -> int:
    amounts = container["resources"].get(side, {})
    return int(amounts.get("memory", f"{default}Mi").removesuffix("Mi"))


def _container(name: str, style: float, dice: random.Random) -> dict[str, Any]:
    memory, cpu = dice.choice(MEMORY), dice.choice(CPU)
    resources: dict[str, Any] = {}
    if style < 0.15:
        resources = {
            "limits": {"cpu": cpu, "memory": f"{memory}Mi"},
            "requests": {"cpu": cpu, "memory": f"{memory}Mi"},
        }
    elif style < 0.7:
        limit = memory * dice.choice((1, 2, 2, 4, 16))
        resources = {
            "limits": {"memory": f"{limit}Mi"},
            "requests": {"cpu": cpu, "memory": f"{memory}Mi"},
        }
    elif style < 0.9:
        resources = {"requests": {"cpu": cpu, "memory": f"{memory}Mi"}}
    return {
        "args": ["--config=/etc/app/config.yaml", "--listen=:8080", f"--log-level={name[:4]}"],
        "env": [
            {
                "name": "POD_NAME",
                "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}},
            },
            {
                "name": "DATABASE_URL",
                "valueFrom": {"secretKeyRef": {"key": "url", "name": f"{name}-database"}},
            },
            {"name": "FEATURE_FLAGS", "value": 'new-checkout=true,"dark"=false,größe=§'},
        ],
        "image": f"registry.example.com/team/{name}:v{dice.randrange(400)}.{dice.randrange(20)}",
        "imagePullPolicy": "IfNotPresent",
        "livenessProbe": _probe("/healthz"),
        "name": name,
        "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
        "resources": resources,
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "volumeMounts": [
            {"mountPath": "/etc/app", "name": "config"},
            {
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                "name": f"kube-api-access-{TAIL}",
                "readOnly": True,
            },
        ],
    }


def _probe(path: str) -> dict[str, Any]:
    return {
        "failureThreshold": 3,
        "httpGet": {"path": path, "port": 8080, "scheme": "HTTP"},
        "periodSeconds": 10,
        "successThreshold": 1,
        "timeoutSeconds": 1,
    }


def _pod(
    name: str,
    namespace: str,
    kind: tuple[str, str],
    containers: list[dict[str, Any]],
    init: list[dict[str, Any]],
    dice: random.Random,
) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "blockOwnerDeletion": True, "controller": True}
    owner |= {
        "kind": kind[1],
        "name": f"{name}-7d9c6b",
        "uid": "7b1f3a52-0000-4000-8000-000000000001",
    }
    priority = dice.choice(((None, 0), (None, 0), (None, 0), ("high", 1000000)))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "annotations": {
                "kubectl.kubernetes.io/restartedAt": "2026-03-01T10:00:00Z",
                "prometheus.io/scrape": "true",
            },
            "creationTimestamp": "2026-03-01T10:00:00Z",
            "generateName": f"{name}-7d9c6b-",
            "labels": {
                "app.kubernetes.io/name": name,
                "app.kubernetes.io/managed-by": "Helm",
                "pod-template-hash": "7d9c6b",
                "team": namespace.partition("-")[0],
            },
            "managedFields": [_managed(containers, "kube-controller-manager"), _status_managed()],
            "name": NAME,
            "namespace": namespace,
            "ownerReferences": [owner],
            "resourceVersion": "48151623",
            "uid": UID,
        },
        "spec": {
            **({"initContainers": init} if init else {}),
            "containers": containers,
            "dnsPolicy": "ClusterFirst",
            "enableServiceLinks": True,
            "nodeName": NODE,
            "preemptionPolicy": "PreemptLowerPriority",
            "priority": priority[1],
            **({"priorityClassName": priority[0]} if priority[0] else {}),
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "securityContext": {"fsGroup": 1000, "runAsNonRoot": True},
            "serviceAccountName": name,
            "terminationGracePeriodSeconds": 30,
            "tolerations": [
                {
                    "effect": "NoExecute",
                    "key": f"node.kubernetes.io/{key}",
                    "operator": "Exists",
                    "tolerationSeconds": 300,
                }
                for key in ("not-ready", "unreachable")
            ],
            "volumes": [
                {"configMap": {"defaultMode": 420, "name": f"{name}-config"}, "name": "config"},
                {
                    "name": f"kube-api-access-{TAIL}",
                    "projected": {
                        "defaultMode": 420,
                        "sources": [
                            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                            {
                                "configMap": {
                                    "items": [{"key": "ca.crt", "path": "ca.crt"}],
                                    "name": "kube-root-ca.crt",
                                }
                            },
                        ],
                    },
                },
            ],
        },
        "status": _status(containers, init),
    }


def _managed(containers: list[dict[str, Any]], manager: str) -> dict[str, Any]:
    fields = {
        f'k:{{"name":"{container["name"]}"}}': {
            ".": {},
            "f:args": {},
            "f:env": {".": {}, 'k:{"name":"POD_NAME"}': {".": {}, "f:name": {}, "f:valueFrom": {}}},
            "f:image": {},
            "f:imagePullPolicy": {},
            "f:name": {},
            "f:resources": {".": {}, "f:limits": {}, "f:requests": {}},
        }
        for container in containers
    }
    return {
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:labels": {}}, "f:spec": {"f:containers": fields}},
        "manager": manager,
        "operation": "Update",
        "time": "2026-03-01T10:00:00Z",
    }


def _status_managed() -> dict[str, Any]:
    conditions: dict[str, Any] = {
        f'k:{{"type":"{type}"}}': {
            ".": {},
            "f:lastTransitionTime": {},
            "f:status": {},
            "f:type": {},
        }
        for type in ("ContainersReady", "Initialized", "Ready")
    }
    return {
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:status": {"f:conditions": conditions, "f:hostIP": {}, "f:phase": {}}},
        "manager": "kubelet",
        "operation": "Update",
        "subresource": "status",
        "time": "2026-03-01T10:00:09Z",
    }


def _status(containers: list[dict[str, Any]], init: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "conditions": [
            {
                "lastProbeTime": None,
                "lastTransitionTime": "2026-03-01T10:00:09Z",
                "status": "True",
                "type": type,
            }
            for type in (
                "PodReadyToStartContainers",
                "Initialized",
                "Ready",
                "ContainersReady",
                "PodScheduled",
            )
        ],
        "containerStatuses": [_container_status(each) for each in containers],
        **({"initContainerStatuses": [_container_status(each) for each in init]} if init else {}),
        "hostIP": IP,
        "phase": "Running",
        "podIP": IP,
        "podIPs": [{"ip": IP}],
        "qosClass": _class_of(containers + init),
        "startTime": "2026-03-01T10:00:00Z",
    }


def _container_status(container: dict[str, Any]) -> dict[str, Any]:
    granted = container["resources"].get("requests")
    return {
        **({"allocatedResources": granted} if granted else {}),
        "containerID": f"containerd://4f1c9d2b{TAIL}8e7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f3",
        "image": container["image"],
        "imageID": f"{container['image'].partition(':')[0]}@sha256:9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c",
        "lastState": {},
        "name": container["name"],
        "ready": True,
        "resources": container["resources"],
        "restartCount": 0,
        "started": True,
        "state": {"running": {"startedAt": "2026-03-01T10:00:05Z"}},
    }


def _class_of(containers: list[dict[str, Any]]) -> str:
    stanzas = [container["resources"] for container in containers]
    if not any(stanzas):
        return "BestEffort"
    if all(each and each["requests"] == each.get("limits") for each in stanzas):
        return "Guaranteed"
    return "Burstable"


def _used(container: dict[str, Any], dice: random.Random) -> int:
    """KiB: mostly less than requested, now and then nearly all of the limit."""
    request = _mebibytes(container, "requests", 64) << 10
    limit = _mebibytes(container, "limits", 0) << 10
    if limit > request and dice.random() < 0.02:
        return int(limit * 0.98)
    return int(request * dice.choice((0.05, 0.3, 0.5, 0.7, 0.9, 1.0, 1.1)))


def _roomiest(free: list[int], machines: list[tuple[int, int]], dice: random.Random) -> int:
    """Of a few nodes at random the emptiest, much as a scheduler chooses."""
    some = [dice.randrange(len(free)) for _ in range(6)]
    return max(some, key=lambda node: free[node] / machines[node][1])


def _node(name: str, cpus: int, memory: int) -> dict[str, Any]:
    # No two machines have quite the same memory left by their firmware.
    kib = (memory << 20) - hash_of(name) % 40_000
    capacity = {
        "cpu": str(cpus),
        "ephemeral-storage": "203056560Ki",
        "hugepages-2Mi": "0",
        "memory": f"{kib}Ki",
        "pods": "110",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"labels": {"kubernetes.io/hostname": name}, "name": name, "uid": name},
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {
            "allocatable": {**capacity, "memory": f"{kib - (2 << 20)}Ki"},
            "capacity": capacity,
            "conditions": [{"status": "True", "type": "Ready"}],
            "nodeInfo": {"kubeletVersion": "v1.36.2", "kernelVersion": "6.1.0"},
        },
    }


def hash_of(name: str) -> int:
    """A number that looks random and is always the same."""
    return zlib.crc32(name.encode())


def _limit_range(namespace: str) -> dict[str, Any]:
    limits = [
        {"default": {"memory": "512Mi"}, "defaultRequest": {"memory": "256Mi"}, "type": "Container"}
    ]
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "defaults", "namespace": namespace},
        "spec": {"limits": limits},
    }


def _quota(namespace: str) -> dict[str, Any]:
    hard = {"limits.memory": "400Gi", "pods": "1k", "requests.memory": "200Gi"}
    used = {"limits.memory": "120Gi", "pods": "200", "requests.memory": "60Gi"}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "team", "namespace": namespace},
        "spec": {"hard": hard},
        "status": {"hard": hard, "used": used},
    }
