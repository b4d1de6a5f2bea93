"""A container runtime at work in the machine: containerd, its images, pods and containers.

What a kubelet would do is done here with as little as a runtime needs: host network, one image that
is made of busybox, cgroups named and made as the kubelet's.
"""

import hashlib
import io
import json
import signal
import subprocess
import tarfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from jeepney import DBusAddress, new_method_call
from jeepney.io.blocking import open_dbus_connection
from tests.eventually import PATIENCE, eventually
from tests.vm.guest.support import ROOT

from memqos.errors import Unreachable
from memqos.host import cri, grpc
from memqos.host.protowire import Message, ProtoField, Repeated, decode_message, encode_message
from memqos.kube.pod import QosClass
from memqos.plan.names import CgroupNames, Driver, cgroup_names, inner

Handler = Literal["runc", "crun"]

IMAGE: Final = "localhost/busybox:1"
PAUSE: Final = "localhost/pause:1"
SOCKET: Final = "/run/containerd/containerd.sock"
APPLETS: Final = ("sh", "sleep", "tail", "dd", "cat", "head")

CONFIG: Final = """
version = 2
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.internal.v1.opt", "io.containerd.tracing.processor.v1.otlp"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
"""
HANDLER: Final = """
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{name}]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{name}.options]
        BinaryName = "/usr/bin/{binary}"
        SystemdCgroup = {systemd}
"""

NODE_NETWORK: Final = 2
OWN_PROCESSES: Final = 1
NAMESPACES: Final[Message] = {"network": ProtoField(1, "number"), "pid": ProtoField(2, "number")}
NUMBER: Final[Message] = {"value": ProtoField(1, "number")}
PROFILE: Final[Message] = {"profile_type": ProtoField(1, "number")}
SANDBOX_LINUX: Final[Message] = {
    "cgroup_parent": ProtoField(1, "text"),
    "security_context": ProtoField(
        2,
        {
            "namespace_options": ProtoField(1, NAMESPACES),
            "run_as_user": ProtoField(3, NUMBER),
            "privileged": ProtoField(6, "flag"),
            "run_as_group": ProtoField(8, NUMBER),
            "seccomp": ProtoField(9, PROFILE),
        },
    ),
}
SANDBOX: Final[Message] = {
    "metadata": ProtoField(
        1,
        {
            "name": ProtoField(1, "text"),
            "uid": ProtoField(2, "text"),
            "namespace": ProtoField(3, "text"),
        },
    ),
    "log_directory": ProtoField(3, "text"),
    "labels": ProtoField(6, "map"),
    "linux": ProtoField(8, SANDBOX_LINUX),
}
RESOURCES: Final[Message] = {
    **cri.LINUX_RESOURCES,
    "cpu_shares": ProtoField(3, "number"),
    "oom_score_adj": ProtoField(5, "number"),
}
MOUNT: Final[Message] = {
    "container_path": ProtoField(1, "text"),
    "host_path": ProtoField(2, "text"),
    "readonly": ProtoField(3, "flag"),
    "propagation": ProtoField(5, "number"),
}
CONTEXT: Final[Message] = {
    "capabilities": ProtoField(
        1, {"add_capabilities": ProtoField(1, "texts"), "drop_capabilities": ProtoField(2, "texts")}
    ),
    "privileged": ProtoField(2, "flag"),
    "namespace_options": ProtoField(3, NAMESPACES),
    "run_as_user": ProtoField(5, NUMBER),
    "readonly_rootfs": ProtoField(7, "flag"),
    "no_new_privs": ProtoField(11, "flag"),
    "run_as_group": ProtoField(12, NUMBER),
    "masked_paths": ProtoField(13, "texts"),
    "readonly_paths": ProtoField(14, "texts"),
    "seccomp": ProtoField(15, PROFILE),
}
CONTAINER: Final[Message] = {
    "metadata": ProtoField(1, {"name": ProtoField(1, "text")}),
    "image": ProtoField(2, {"image": ProtoField(1, "text")}),
    "command": ProtoField(3, "texts"),
    "args": ProtoField(4, "texts"),
    "envs": ProtoField(6, Repeated({"key": ProtoField(1, "text"), "value": ProtoField(2, "text")})),
    "mounts": ProtoField(7, Repeated(MOUNT)),
    "labels": ProtoField(9, "map"),
    "log_path": ProtoField(11, "text"),
    "linux": ProtoField(
        15, {"resources": ProtoField(1, RESOURCES), "security_context": ProtoField(2, CONTEXT)}
    ),
}
RUN_SANDBOX: Final[Message] = {
    "config": ProtoField(1, SANDBOX),
    "runtime_handler": ProtoField(2, "text"),
}
CREATE: Final[Message] = {
    "pod_sandbox_id": ProtoField(1, "text"),
    "config": ProtoField(2, CONTAINER),
    "sandbox_config": ProtoField(3, SANDBOX),
}
ID: Final[Message] = {"id": ProtoField(1, "text")}
UPDATE: Final[Message] = {"container_id": ProtoField(1, "text"), "linux": ProtoField(2, RESOURCES)}

NRI: Final = """
[plugins."io.containerd.nri.v1.nri"]
  disable = false
  plugin_registration_timeout = "60s"
  plugin_request_timeout = "20s"
"""


class Containerd:
    """One containerd whose runtimes put cgroups where the driver says."""

    def __init__(self, driver: Driver, *, nri: bool = False) -> None:
        self.driver = driver
        self._of_thread = threading.local()
        self._channels: list[grpc.Channel] = []
        self._process: subprocess.Popen[bytes] | None = None
        folder = Path("/etc/containerd")
        folder.mkdir(exist_ok=True)
        handlers = (
            HANDLER.format(name=name, binary=name, systemd=str(driver == "systemd").lower())
            for name in ("runc", "crun")
        )
        config = [CONFIG.format(pause=PAUSE), *handlers, NRI if nri else ""]
        (folder / "config.toml").write_text("".join(config))
        self.start()
        archive = Path("/var/tmp/images.tar")
        archive.write_bytes(_archive())
        self.take_in(archive)

    def take_in(self, archive: Path) -> None:
        """Import images, as the documentation has it."""
        _run("ctr", "--namespace", "k8s.io", "images", "import", str(archive))

    def start(self) -> None:
        with Path("/tmp/containerd.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["containerd"], stdout=log, stderr=log, start_new_session=True
            )
        eventually("containerd answers", self._answers)

    def kill(self) -> None:
        """Containers go on without it."""
        self.close()
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """It is there, and does not answer."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def ask(
        self, method: str, message: Message, values: Mapping[str, Any], answer: Message = ID
    ) -> dict[str, Any]:
        called = self._channel().call(f"{cri.SERVICE}/{method}", encode_message(message, values))
        return decode_message(answer, called)

    def update(self, container: str, **resources: Any) -> None:
        """What a kubelet sends when it resizes a container."""
        values = {"container_id": container, "linux": resources}
        self.ask("UpdateContainerResources", UPDATE, values)

    def stored(self, container: str) -> dict[str, str]:
        """The unified values that containerd has stored."""
        runtime = cri.CriClient(SOCKET, PATIENCE)
        try:
            return runtime.read_resources(container).unified
        finally:
            runtime.close()

    def close(self) -> None:
        """It and its containers go on until the machine ends."""
        for channel in self._channels:
            channel.close()
        self._channels, self._of_thread = [], threading.local()

    def _channel(self) -> grpc.Channel:
        """One for each thread: calls wait for their answers."""
        found: grpc.Channel | None = getattr(self._of_thread, "channel", None)
        if found is None:
            found = self._of_thread.channel = grpc.Channel(SOCKET, PATIENCE)
            self._channels.append(found)
        return found

    def _answers(self) -> bool:
        channel = grpc.Channel(SOCKET, 20)
        try:
            channel.call(f"{cri.SERVICE}/Version", b"")
        except (Unreachable, grpc.GrpcError):
            return False
        finally:
            channel.close()
        return True


class RunningPod:
    """A pod with its cgroups, made as a kubelet makes them."""

    def __init__(
        self, containerd: Containerd, uid: str, qos: QosClass, handler: Handler = "runc"
    ) -> None:
        self.containerd = containerd
        self.uid = uid
        self.names: CgroupNames = cgroup_names(containerd.driver)
        self.path = self.names.pod(uid, qos)
        self.handler = handler
        self.containers: dict[str, str] = {}
        make_cgroups(self.names, self.path)
        name = self.path.rpartition("/")[2] if containerd.driver == "systemd" else self.path
        network = {"network": NODE_NETWORK}
        self._config = {
            "metadata": {"name": uid, "uid": uid, "namespace": "default"},
            "linux": {
                "cgroup_parent": name,
                "security_context": {"namespace_options": network},
            },
        }
        self.sandbox = containerd.ask(
            "RunPodSandbox", RUN_SANDBOX, {"config": self._config, "runtime_handler": handler}
        )["id"]

    def container(
        self,
        name: str,
        command: tuple[str, ...] = (),
        mounts: Mapping[str, Path] | None = None,
        **resources: Any,
    ) -> Path:
        """Start a container, with folders of the node by their paths in it; its cgroup."""
        config = {
            "metadata": {"name": name},
            "image": {"image": IMAGE},
            "command": command or ("/bin/sleep", "2147483647"),
            "mounts": [
                {"container_path": path, "host_path": str(folder)}
                for path, folder in (mounts or {}).items()
            ],
            "labels": {
                "io.kubernetes.pod.namespace": "default",
                "io.kubernetes.pod.name": self.uid,
                "io.kubernetes.pod.uid": self.uid,
                "io.kubernetes.container.name": name,
            },
            "linux": {
                "resources": resources,
                "security_context": {"namespace_options": {"network": NODE_NETWORK}},
            },
        }
        made = self.containerd.ask(
            "CreateContainer",
            CREATE,
            {"pod_sandbox_id": self.sandbox, "config": config, "sandbox_config": self._config},
        )["id"]
        self.containerd.ask("StartContainer", ID, {"id": made})
        self.containers[name] = made
        return self.cgroup(name)

    def remove_container(self, name: str) -> None:
        """Remove a container, running or not."""
        self.containerd.ask("RemoveContainer", ID, {"id": self.containers.pop(name)})

    def cgroup(self, name: str) -> Path:
        """Where a container's processes are, or the scope around them."""
        return ROOT / self.names.container(
            self.path, self.containers[name], "containerd"
        ).removeprefix("/")

    def inner(self, name: str) -> Path:
        """The cgroup crun makes within a scope."""
        return Path(inner(str(self.cgroup(name))))

    def remove(self) -> None:
        self.containerd.ask("StopPodSandbox", ID, {"id": self.sandbox})
        self.containerd.ask("RemovePodSandbox", ID, {"id": self.sandbox})
        remove_cgroup(self.path)


def make_cgroups(names: CgroupNames, *paths: str) -> None:
    """Those above pods, and these; what is there already stays."""
    for path in (names.kubepods, names.burstable, names.besteffort, *paths):
        folder = ROOT / path.removeprefix("/")
        if folder.is_dir():
            continue
        if names.driver == "systemd":
            start_unit(folder.name, {"MemoryAccounting": ("b", True), "CPUAccounting": ("b", True)})
            eventually(f"{path} is there", folder.is_dir)
        else:
            folder.mkdir()
            for each in (folder.parent, folder):
                (each / "cgroup.subtree_control").write_text("+cpuset +cpu +memory +pids")


def remove_cgroup(path: str) -> None:
    """As a kubelet does when a pod has ended."""
    folder = ROOT / path.removeprefix("/")
    if path.endswith(".slice"):
        _run("systemctl", "stop", folder.name)
    eventually(f"{path} is gone", lambda: not folder.exists() or _removed(folder))


def start_unit(name: str, properties: Mapping[str, tuple[str, Any]]) -> None:
    """A transient unit, as kubelets make slices and runtimes make scopes."""
    with open_dbus_connection("SYSTEM") as bus:
        call = new_method_call(
            DBusAddress(
                "/org/freedesktop/systemd1",
                "org.freedesktop.systemd1",
                "org.freedesktop.systemd1.Manager",
            ),
            "StartTransientUnit",
            "ssa(sv)a(sa(sv))",
            (name, "replace", [("DefaultDependencies", ("b", False)), *properties.items()], []),
        )
        bus.send_and_get_reply(call, timeout=PATIENCE)


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


def _archive() -> bytes:
    """Two images of one layer, busybox, in the form that `docker save` gives them."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for folder in ("bin", "etc", "proc", "sys", "dev", "tmp"):
            _add(tar, folder, kind=tarfile.DIRTYPE)
        _add(tar, "bin/busybox", Path("/bin/busybox").read_bytes())
        for applet in APPLETS:
            _add(tar, f"bin/{applet}", kind=tarfile.SYMTYPE, link="busybox")
    content = layer.getvalue()
    digest = hashlib.sha256(content).hexdigest()
    archive, manifest = io.BytesIO(), []
    with tarfile.open(fileobj=archive, mode="w") as tar:
        _add(tar, f"{digest}.tar", content)
        for tag in (IMAGE, PAUSE):
            config = json.dumps(
                {
                    "architecture": "amd64",
                    "os": "linux",
                    "config": {"Entrypoint": ["/bin/sleep", "2147483647"], "Env": ["PATH=/bin"]},
                    "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
                    "history": [{"created_by": tag}],
                }
            ).encode()
            name = f"{hashlib.sha256(config).hexdigest()}.json"
            _add(tar, name, config)
            manifest.append({"Config": name, "RepoTags": [tag], "Layers": [f"{digest}.tar"]})
        _add(tar, "manifest.json", json.dumps(manifest).encode())
    return archive.getvalue()


def _add(
    tar: tarfile.TarFile,
    name: str,
    data: bytes = b"",
    kind: bytes = tarfile.REGTYPE,
    link: str = "",
) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.mode, entry.size = kind, link, 0o755, len(data)
    tar.addfile(entry, io.BytesIO(data))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
