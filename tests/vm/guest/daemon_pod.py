"""A DaemonSet's pod on this machine: what a kubelet makes of its manifest, asked of containerd.

Everything is taken from the manifest. Only the network is the machine's own, since there is no
plugin here that would make another one.
"""

import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.eventually import PATIENCE
from tests.vm.guest.runtime import (
    CREATE,
    ID,
    NODE_NETWORK,
    OWN_PROCESSES,
    RUN_SANDBOX,
    Containerd,
    make_cgroups,
    remove_cgroup,
)
from tests.vm.guest.support import ROOT

from memqos.host import cri
from memqos.host.protowire import Message, ProtoField
from memqos.kube.quantity import Quantity
from memqos.plan.names import cgroup_names

Object = dict[str, Any]

NODE: Final = "guest"
TOKENS: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
KUBELET: Final = Path("/var/lib/kubelet")
LOGS: Final = Path("/var/log/pods")
CRITICAL: Final = {"system-node-critical": (2_000_001_000, -997)}
"""Priority, and what the kubelet makes of it."""
MASKED: Final = ("/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware")
READ_ONLY: Final = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
PROPAGATIONS: Final = {None: 0, "None": 0, "HostToContainer": 1, "Bidirectional": 2}
IS_TYPE: Final[dict[str, Callable[[int], bool]]] = {
    "Directory": stat.S_ISDIR,
    "File": stat.S_ISREG,
    "Socket": stat.S_ISSOCK,
    "CharDevice": stat.S_ISCHR,
}
EXEC: Final[Message] = {
    "container_id": ProtoField(1, "text"),
    "cmd": ProtoField(2, "texts"),
    "timeout": ProtoField(3, "number"),
}
SAID: Final[Message] = {
    "stdout": ProtoField(1, "text"),
    "stderr": ProtoField(2, "text"),
    "exit_code": ProtoField(3, "number"),
}
STOP: Final[Message] = {"container_id": ProtoField(1, "text"), "timeout": ProtoField(2, "number")}
STATUS: Final[Message] = {
    "status": ProtoField(1, {"exit_code": ProtoField(7, "number")}),
    "info": ProtoField(2, "map"),
}


class Said(NamedTuple):
    """What a command in a container came to."""

    code: int
    out: str
    err: str


class Cluster(NamedTuple):
    """What a pod learns of its cluster."""

    url: str
    ca: Path
    token: str


class DaemonPod:
    """The pod of the one DaemonSet among rendered objects, from its start to its end."""

    def __init__(
        self, containerd: Containerd, objects: list[Object], uid: str, cluster: Cluster
    ) -> None:
        (daemon_set,) = [each for each in objects if each["kind"] == "DaemonSet"]
        self.config_maps = {
            each["metadata"]["name"]: each["data"]
            for each in objects
            if each["kind"] == "ConfigMap"
        }
        self.uid = uid
        self.namespace: str = daemon_set["metadata"]["namespace"]
        self.template: Object = daemon_set["spec"]["template"]
        self.spec: Object = self.template["spec"]
        (self.declared,) = self.spec["containers"]
        self._containerd = containerd
        self._cluster = cluster
        self.folder = KUBELET / "pods" / uid
        self.sandbox = self.id = ""

    # What it is made of.

    @property
    def name(self) -> str:
        return f"memqos-agent-{self.uid}"

    def manifest(self) -> Object:
        """The pod as the API server holds it."""
        priority, _ = CRITICAL[self.spec["priorityClassName"]]
        status = [{"name": self.declared["name"], "containerID": f"containerd://{self.id}"}]
        return {
            "metadata": {
                **self.template["metadata"],
                "name": self.name,
                "namespace": self.namespace,
                "uid": self.uid,
            },
            "spec": {**self.spec, "nodeName": NODE, "priority": priority},
            "status": {"phase": "Running", "containerStatuses": status if self.id else []},
        }

    @property
    def path(self) -> str:
        return cgroup_names(self._containerd.driver).pod(self.uid, "Burstable")

    @property
    def cgroup(self) -> Path:
        names = cgroup_names(self._containerd.driver)
        return ROOT / names.container(self.path, self.id, "containerd").removeprefix("/")

    def context(self) -> Object:
        return {**self.spec.get("securityContext", {}), **self.declared["securityContext"]}

    def mounts(self) -> Iterator[Object]:
        """Those of the manifest, and those a kubelet adds."""
        volumes = {each["name"]: each for each in self.spec["volumes"]}
        for mount in self.declared["volumeMounts"]:
            yield {
                "container_path": mount["mountPath"],
                "host_path": str(self._volume(volumes[mount["name"]])),
                "readonly": mount.get("readOnly", False),
                "propagation": PROPAGATIONS[mount.get("mountPropagation")],
            }
        if self.spec["automountServiceAccountToken"]:
            yield {
                "container_path": TOKENS,
                "host_path": str(self._token()),
                "readonly": True,
            }
        ending = self.folder / "termination-log"
        ending.touch()
        yield {"container_path": "/dev/termination-log", "host_path": str(ending)}

    def _volume(self, volume: Object) -> Path:
        match volume:
            case {"hostPath": {"path": path, "type": kind}}:
                return _host_path(Path(path), kind)
            case {"configMap": {"name": name}}:
                return self._files(volume["name"], self.config_maps[name])
        raise AssertionError(f"a kubelet may know what this is: {volume}")

    def _token(self) -> Path:
        content = {"token": self._cluster.token, "namespace": self.namespace}
        return self._files("token", {**content, "ca.crt": self._cluster.ca.read_text()})

    def _files(self, name: str, content: Mapping[str, str]) -> Path:
        folder = self.folder / "volumes" / name
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in content.items():
            (folder / file).write_text(text)
        return folder

    def _environment(self) -> dict[str, str]:
        fields = {
            "spec.nodeName": NODE,
            "metadata.name": self.name,
            "metadata.namespace": self.namespace,
            "metadata.uid": self.uid,
        }
        host, _, port = self._cluster.url.rpartition("/")[2].partition(":")
        environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        for each in self.declared["env"]:
            source = each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            environment[each["name"]] = each["value"] if source is None else fields[source]
        return environment

    def _resources(self) -> Object:
        resources = self.declared["resources"]
        _, adjustment = CRITICAL[self.spec["priorityClassName"]]
        millicores = Quantity.parse(resources["requests"]["cpu"]).milli
        return {
            "cpu_shares": max(2, millicores * 1024 // 1000),
            "memory_limit_in_bytes": Quantity.parse(resources["limits"]["memory"]).value,
            "oom_score_adj": adjustment,
        }

    # Its life.

    def start(self) -> None:
        """As a kubelet does: cgroup, sandbox, container."""
        assert not self.spec.get("hostPID")
        self.folder.mkdir(parents=True)
        names = cgroup_names(self._containerd.driver)
        make_cgroups(names, self.path)
        is_systemd = self._containerd.driver == "systemd"
        context = self.context()
        seccomp = {
            "profile_type": {"RuntimeDefault": 0, "Unconfined": 1}[
                context["seccompProfile"]["type"]
            ]
        }
        namespaces = {"network": NODE_NETWORK, "pid": OWN_PROCESSES}
        privileged = context.get("privileged", False)
        sandbox = {
            "metadata": {"name": self.name, "uid": self.uid, "namespace": self.namespace},
            "log_directory": str(LOGS / self.uid),
            "linux": {
                "cgroup_parent": self.path.rpartition("/")[2] if is_systemd else self.path,
                "security_context": {
                    "namespace_options": namespaces,
                    "seccomp": seccomp,
                    "privileged": privileged,
                },
            },
        }
        config = {
            "metadata": {"name": self.declared["name"]},
            "image": {"image": self.declared["image"]},
            "command": self.declared.get("command", ()),
            "args": self.declared.get("args", ()),
            "envs": [{"key": k, "value": v} for k, v in self._environment().items()],
            "mounts": list(self.mounts()),
            "labels": {
                "io.kubernetes.pod.namespace": self.namespace,
                "io.kubernetes.pod.uid": self.uid,
            },
            "log_path": "agent.log",
            "linux": {
                "resources": self._resources(),
                "security_context": {
                    "capabilities": {
                        f"{verb}_capabilities": context["capabilities"].get(verb, ())
                        for verb in ("add", "drop")
                    },
                    "privileged": privileged,
                    "namespace_options": namespaces,
                    "run_as_user": {"value": context["runAsUser"]},
                    "run_as_group": {"value": context["runAsGroup"]},
                    "readonly_rootfs": context["readOnlyRootFilesystem"],
                    "no_new_privs": not context["allowPrivilegeEscalation"],
                    "masked_paths": () if privileged else MASKED,
                    "readonly_paths": () if privileged else READ_ONLY,
                    "seccomp": seccomp,
                },
            },
        }
        ask = self._containerd.ask
        self.sandbox = ask("RunPodSandbox", RUN_SANDBOX, {"config": sandbox})["id"]
        made = {"pod_sandbox_id": self.sandbox, "config": config, "sandbox_config": sandbox}
        self.id = ask("CreateContainer", CREATE, made)["id"]
        ask("StartContainer", ID, {"id": self.id})

    def stop(self) -> int:
        """With the patience that the manifest asks for; how it ended."""
        patience = self.spec["terminationGracePeriodSeconds"]
        self._containerd.ask("StopContainer", STOP, {"container_id": self.id, "timeout": patience})
        return int(self._status()["status"].get("exit_code", 0))

    def remove(self) -> None:
        self._containerd.ask("StopPodSandbox", ID, {"id": self.sandbox})
        self._containerd.ask("RemovePodSandbox", ID, {"id": self.sandbox})
        remove_cgroup(self.path)
        shutil.rmtree(self.folder)

    def run(self, *command: str) -> Said:
        """As kubectl exec does."""
        asked = {"container_id": self.id, "cmd": command, "timeout": int(PATIENCE)}
        said = self._containerd.ask("ExecSync", EXEC, asked, SAID)
        return Said(said.get("exit_code", 0), said.get("stdout", ""), said.get("stderr", ""))

    @property
    def pid(self) -> int:
        """On the machine."""
        return int(json.loads(self._status()["info"]["info"])["pid"])

    def log(self) -> str:
        return (LOGS / self.uid / "agent.log").read_text()

    def _status(self) -> dict[str, Any]:
        asked = {"container_id": self.id, "verbose": True}
        return self._containerd.ask("ContainerStatus", cri.STATUS_REQUEST, asked, STATUS)


def _host_path(path: Path, kind: str) -> Path:
    """Of this type, which a kubelet sees to before it starts a pod."""
    if kind == "DirectoryOrCreate":
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
        kind = "Directory"
    assert IS_TYPE[kind](os.stat(path).st_mode), f"{path} is no {kind}"
    return path
