"""A container runtime to which NRI plugins connect, with the faults of real ones.

It does as containerd 1.7.24 and 2.1.9 did: Configure comes before the answer to the registration,
messages come in two frames, a first frame of more than 4096 bytes ends a connection, a slow plugin
is hung up on, and two plugins that set one value fail a creation.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.fakes.cgroups import FakeKernel
from tests.fakes.nri_messages import message

FRAME: Final = struct.Struct(">II")
HEADER: Final = struct.Struct(">IIBB")
FIRST: Final = 4096
EVENTS: Final = (
    "RunPodSandbox",
    "StopPodSandbox",
    "RemovePodSandbox",
    "CreateContainer",
    "PostCreateContainer",
    "StartContainer",
    "PostStartContainer",
    "UpdateContainer",
    "PostUpdateContainer",
    "StopContainer",
    "RemoveContainer",
)
OWN_METHODS: Final[tuple[str, ...]] = ("CreateContainer", "UpdateContainer", "StopContainer")


class CreationFailed(Exception):
    """What a kubelet is told."""


class HungUp(Exception):
    """A plugin is no longer connected."""


class ConnectedPlugin:
    """One plugin at the other end."""

    def __init__(self, runtime: "FakeNriRuntime", connection: socket.socket) -> None:
        self.runtime = runtime
        self.connection = connection
        self.key = ""
        self.events = 0
        self.is_ready = threading.Event()
        self._call = -1
        self._answers: dict[int, Any] = {}
        self._answered = threading.Condition()
        self._sending = threading.Lock()
        self._ended = False
        threading.Thread(target=self._read, daemon=True).start()

    def call(self, method: str, request: Any, answer: str) -> Any:
        """What the plugin answers; one that is too slow is hung up on."""
        self._call += 2
        call = self._call
        envelope = message("Request")(
            service="nri.pkg.api.v1alpha1.Plugin",
            method=method,
            payload=request.SerializeToString(),
            timeout_nano=int(self.runtime.request_timeout * 1e9),
        )
        self._send(1, call, 1, envelope.SerializeToString())
        with self._answered:
            came = self._answered.wait_for(
                lambda: call in self._answers or self._ended, self.runtime.request_timeout
            )
            response = self._answers.pop(call, None)
        if not came or response is None:
            self.hang_up()
            raise HungUp(method)
        if response.status.code:
            raise CreationFailed(response.status.message)
        return message(answer).FromString(response.payload)

    def hears(self, event: str) -> bool:
        return not self.events or bool(self.events >> EVENTS.index(event) & 1)

    def hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self._end()

    def _end(self) -> None:
        with self._answered:
            self._ended = True
            self._answered.notify_all()
        if self in self.runtime.plugins:
            self.runtime.plugins.remove(self)

    def _send(self, stream: int, call: int, kind: int, data: bytes) -> None:
        whole = HEADER.pack(len(data), call, kind, 0) + data
        with self._sending:
            try:
                for part in (whole[:FIRST], whole[FIRST:]):
                    if part:
                        self.connection.sendall(FRAME.pack(stream, len(part)) + part)
            except OSError:
                raise HungUp("send") from None

    def _read(self) -> None:
        buffers = {1: b"", 2: b""}
        try:
            while True:
                stream, length = FRAME.unpack(self._exactly(FRAME.size))
                if not buffers[stream] and length > FIRST:
                    break
                buffers[stream] += self._exactly(length)
                while len(buffers[stream]) >= HEADER.size:
                    size, call, _, _ = HEADER.unpack_from(buffers[stream])
                    end = HEADER.size + size
                    if len(buffers[stream]) < end:
                        break
                    data, buffers[stream] = (
                        buffers[stream][HEADER.size : end],
                        buffers[stream][end:],
                    )
                    self._take(stream, call, data)
        except (OSError, HungUp):
            pass
        self.hang_up()
        self.connection.close()

    def _exactly(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            more = self.connection.recv(length - len(data))
            if not more:
                raise HungUp("read")
            data += more
        return data

    def _take(self, stream: int, call: int, data: bytes) -> None:
        if stream == 1:
            with self._answered:
                self._answers[call] = message("Response").FromString(data)
                self._answered.notify_all()
            return
        request = message("Request").FromString(data)
        threading.Thread(target=self._serve, args=(call, request), daemon=True).start()

    def _serve(self, call: int, request: Any) -> None:
        answer = message("Response")()
        try:
            if request.method == "RegisterPlugin":
                registered = message("RegisterPlugin").FromString(request.payload)
                self.key = f"{registered.plugin_idx}-{registered.plugin_name}"
                if len(registered.plugin_idx) != 2:
                    answer.status.code, answer.status.message = 2, "invalid plugin index"
                else:
                    self.runtime.admit(self)
            elif request.method == "UpdateContainers":
                answer.payload = self.runtime.update_unasked(
                    message("Updates").FromString(request.payload)
                ).SerializeToString()
            self._send(2, call, 2, answer.SerializeToString())
        except HungUp:
            self.hang_up()


class FakeNriRuntime:
    """Knows pods and containers, and makes the cgroups of those that start."""

    def __init__(self, folder: Path, kernel: FakeKernel | None = None) -> None:
        self.socket = folder / "nri" / "nri.sock"
        self.socket.parent.mkdir(exist_ok=True)
        self.kernel = kernel
        self.request_timeout = 30.0
        self.parts = 1
        """In how many parts containers are listed; 0 for empty ones without end."""
        self.largest_name = 0
        """Bytes by which a container's annotations are padded."""
        self.own_methods: tuple[str, ...] = OWN_METHODS
        """Events with a method of their own; from NRI 0.12 on, all of them."""
        self.name = "containerd"
        self.plugins: list[ConnectedPlugin] = []
        self.failed_creations = 0
        self.registrations = 0
        self.specs: dict[str, dict[str, Any]] = {}
        """Container → what is stored of it."""
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None

    def start(self) -> None:
        self.socket.unlink(missing_ok=True)
        listener = self._listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self.socket))
        listener.listen()
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def stop(self) -> None:
        """As killed: containers go on."""
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        for plugin in list(self.plugins):
            plugin.hang_up()

    def admit(self, plugin: ConnectedPlugin) -> None:
        """Configure and Synchronize, before the registration is answered."""
        self.registrations += 1
        configure = message("Configure")(
            runtime_name=self.name, runtime_version="2.1.9", request_timeout=2000
        )
        plugin.events = plugin.call("Configure", configure, "ConfigureAnswer").events
        if plugin.events >> len(EVENTS):
            raise HungUp("an event that is unknown")
        with self._lock:
            listed = [self._container(each) for each in self.specs]
            pods = {spec["uid"]: self._pod(spec["uid"]) for spec in self.specs.values()}
            while self.parts == 0:
                plugin.call("Synchronize", message("Synchronize")(more=True), "SynchronizeAnswer")
            size = -(-len(listed) // self.parts) or 1
            chunks = [listed[at : at + size] for at in range(0, len(listed), size)] or [[]]
            for index, chunk in enumerate(chunks):
                request = message("Synchronize")(
                    pods=list(pods.values()) if not index else [],
                    containers=chunk,
                    more=index < len(chunks) - 1,
                )
                answer = plugin.call("Synchronize", request, "SynchronizeAnswer")
                assert answer.more == request.more
            self.plugins.append(plugin)
        plugin.is_ready.set()

    def create(
        self, uid: str, name: str, cgroup: str, limit: int = 0, unified: Mapping[str, str] = {}
    ) -> dict[str, str]:
        """Create a container as CRI does; what it will be started with."""
        container = cgroup.rpartition("/")[2]
        spec: dict[str, Any] = {
            "uid": uid,
            "name": name,
            "cgroup": cgroup,
            "limit": limit,
            "unified": {},
        }
        self.specs[container] = spec
        owners: dict[str, str] = {}
        with self._lock:
            try:
                for plugin, answer in self._ask(container, "CreateContainer", "CreateAnswer"):
                    for key, value in answer.adjust.linux.resources.unified.items():
                        if key in owners:
                            raise CreationFailed(
                                f'plugins "{plugin.key}" and "{owners[key]}" both tried to set '
                                f"unified resource {key}"
                            )
                        owners[key] = plugin.key
                        spec["unified"][key] = value
            except CreationFailed:
                self.failed_creations += 1
                self._announce(container, "StopContainer", "RemoveContainer")
                del self.specs[container]
                raise
            spec["unified"] = {**unified, **spec["unified"]}
            self._announce(container, "PostCreateContainer")
        return dict(spec["unified"])

    def start_container(self, container: str) -> None:
        """Its cgroup has its values before anything runs in it."""
        spec = self.specs[container]
        if self.kernel is not None:
            self.kernel.make(spec["cgroup"], {"memory.max": str(spec["limit"] or "max")})
            self._write(spec)
        with self._lock:
            self._announce(container, "StartContainer", "PostStartContainer")

    def update(self, container: str, limit: int = 0, unified: Mapping[str, str] = {}) -> None:
        """A CRI update: what is stored is written again."""
        spec = self.specs[container]
        with self._lock:
            event = self.update_event(container, limit, unified)
            spec["unified"] |= unified
            for plugin in self._hearing("UpdateContainer"):
                try:
                    answer = plugin.call("UpdateContainer", event, "Updates")
                except HungUp:
                    continue
                for each in answer.update:
                    spec["unified"] |= dict(each.linux.resources.unified)
        spec["limit"] = limit or spec["limit"]
        self._write(spec)

    def update_event(self, container: str, limit: int, unified: Mapping[str, str]) -> Any:
        """What plugins are asked about an update."""
        event = message("UpdateEvent")(pod=self._pod(self.specs[container]["uid"]))
        event.container.CopyFrom(self._container(container))
        if limit:
            event.linux_resources.memory.limit.value = limit
        event.linux_resources.unified.update(unified)
        return event

    def update_unasked(self, updates: Any) -> Any:
        with self._lock:
            for each in updates.update:
                if each.container_id in self.specs:
                    spec = self.specs[each.container_id]
                    spec["unified"] |= dict(each.linux.resources.unified)
                    self._write(spec)
        return message("UpdatesAnswer")()

    def stop_container(self, container: str) -> None:
        with self._lock:
            self._announce(container, "StopContainer", "RemoveContainer")
        spec = self.specs.pop(container)
        if self.kernel is not None and self.kernel.identity(spec["cgroup"]) is not None:
            self.kernel.remove(spec["cgroup"])

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            ConnectedPlugin(self, connection)

    def _hearing(self, event: str) -> list[ConnectedPlugin]:
        return [each for each in sorted(self.plugins, key=lambda p: p.key) if each.hears(event)]

    def _ask(self, container: str, method: str, answer: str) -> Any:
        for plugin in self._hearing(method):
            try:
                yield plugin, plugin.call(method, self._event(container), answer)
            except HungUp:
                continue

    def _announce(self, container: str, *events: str) -> None:
        for event in events:
            for plugin in self._hearing(event):
                request = self._event(container)
                if event not in self.own_methods:
                    request = message("StateChange")(
                        event=EVENTS.index(event) + 1,
                        pod=request.pod,
                        container=request.container,
                    )
                try:
                    method = event if event in self.own_methods else "StateChange"
                    plugin.call(method, request, "Updates")
                except HungUp:
                    continue

    def _event(self, container: str) -> Any:
        event = message("ContainerEvent")(pod=self._pod(self.specs[container]["uid"]))
        event.container.CopyFrom(self._container(container))
        return event

    def _pod(self, uid: str) -> Any:
        return message("PodSandbox")(id=f"sandbox-{uid}", name=uid, uid=uid, namespace="default")

    def _container(self, container: str) -> Any:
        """Without its unified values: those were not shown before NRI 0.10."""
        spec = self.specs[container]
        made = message("Container")(
            id=container, pod_sandbox_id=f"sandbox-{spec['uid']}", name=spec["name"]
        )
        made.linux.cgroups_path = spec["cgroup"]
        if spec["limit"]:
            made.linux.resources.memory.limit.value = spec["limit"]
        if self.largest_name:
            made.annotations["padding"] = "x" * self.largest_name
        return made

    def _write(self, spec: Mapping[str, Any]) -> None:
        if self.kernel is None or self.kernel.identity(spec["cgroup"]) is None:
            return
        if spec["limit"]:
            self.kernel.write(spec["cgroup"], "memory.max", str(spec["limit"]))
        for file, value in spec["unified"].items():
            self.kernel.write(spec["cgroup"], file, value)
