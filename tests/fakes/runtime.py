"""A container runtime at the other end of its socket, served by grpclib and protobuf.

As the real ones, it writes all it has stored of a container on every update.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.eventually import eventually_on_loop
from tests.fakes.cgroups import FakeKernel
from tests.fakes.peer import Peer, process


class FakeRuntime(Peer):
    """Knows the containers it was told of, each by its cgroup."""

    def __init__(self, folder: Path, kernel: FakeKernel) -> None:
        super().__init__(folder, "runtime")
        self.kernel = kernel
        self._stored = folder / "stored"
        self._stored.mkdir(exist_ok=True)

    def start(self, container: str, path: str, unified: dict[str, str] | None = None) -> None:
        """A container with these values, as a kubelet would start it."""
        self._keep(container, {"path": path, "unified": unified or {}})
        for file, value in (unified or {}).items():
            self.kernel.write(path, file, value)

    def label(self, container: str, labels: dict[str, str], **more: int) -> None:
        """How the kubelet has labelled a container, and what else the runtime lists of it."""
        self._keep(container, {**self._kept(container), "labels": labels, **more})

    def stored(self, container: str) -> dict[str, str]:
        unified: dict[str, str] = self._kept(container)["unified"]
        return unified

    def limit_only_update(self, container: str) -> None:
        """What happens when a kubelet resizes a container: what is stored is written again."""
        self._write(self._kept(container))

    @contextlib.contextmanager
    def serving(self) -> Iterator[int]:
        with contextlib.suppress(FileNotFoundError):
            self.socket.unlink()
        with process(lambda ready: asyncio.run(self._serve(ready))) as pid:
            yield pid

    async def _serve(self, ready: int) -> None:
        from grpclib.const import Cardinality, Handler
        from grpclib.server import Server
        from tests.fakes.cri_messages import message

        def handler(method: Any, name: str) -> Handler:
            return Handler(
                method,
                Cardinality.UNARY_UNARY,
                message(f"{name}Request"),
                message(f"{name}Response"),
            )

        runtime = self

        class Service:
            def __mapping__(self) -> dict[str, Handler]:
                methods = {
                    "UpdateContainerResources": runtime._update,
                    "ContainerStatus": runtime._status,
                    "ListContainers": runtime._list,
                }
                return {
                    f"/runtime.v1.RuntimeService/{name}": handler(method, name)
                    for name, method in methods.items()
                }

        server = Server([Service()])
        await server.start(path=str(self.socket))
        os.write(ready, b"!")
        await server.wait_closed()

    async def _list(self, stream: Any) -> None:
        from tests.fakes.cri_messages import message

        await stream.recv_message()
        answer = message("ListContainersResponse")()
        for name in sorted(os.listdir(self._stored)):
            kept = self._kept(name)
            listed = answer.containers.add()
            listed.id, listed.state = name, kept.get("state", 1)
            listed.created_at = kept.get("created_at", 0)
            listed.labels.update(kept.get("labels", {}))
        await stream.send_message(answer)

    async def _status(self, stream: Any) -> None:
        from grpclib import GRPCError, Status
        from tests.fakes.cri_messages import message

        request = await stream.recv_message()
        try:
            kept = self._kept(request.container_id)
        except FileNotFoundError:
            raise GRPCError(Status.NOT_FOUND, "no such container") from None
        resources = {"unified": kept["unified"], "cpu": {"mems": kept.get("mems", "")}}
        info = {"runtimeSpec": {"linux": {"resources": resources}}, "padding": "x" * 100_000}
        answer = message("ContainerStatusResponse")()
        answer.status.id = request.container_id
        answer.status.created_at = 1
        answer.info["info"] = json.dumps(info)
        await stream.send_message(answer)

    async def _update(self, stream: Any) -> None:
        from grpclib import GRPCError, Status
        from tests.fakes.cri_messages import message

        request = await stream.recv_message()
        mood = self.mood
        await eventually_on_loop("it hangs no more", lambda: self.mood != "hangs")
        unified = dict(request.linux.unified)
        self.note(container=request.container_id, unified=unified, mems=request.linux.cpuset_mems)
        if mood == "hangs up":
            os._exit(0)
        if mood == "refuses":
            raise GRPCError(Status.UNKNOWN, "runc did not like it")
        kept = self._kept(request.container_id)
        kept["unified"].update(unified)
        kept["mems"] = request.linux.cpuset_mems or kept.get("mems", "")
        self._keep(request.container_id, kept)
        self._write(kept)
        if mood == "hangs up after":
            os._exit(0)
        await stream.send_message(message("UpdateContainerResourcesResponse")())

    def _write(self, kept: dict[str, Any]) -> None:
        for file, value in kept["unified"].items():
            self.kernel.write(kept["path"], file, value)
        if kept.get("mems"):
            self.kernel.write(kept["path"], "cpuset.mems", kept["mems"])

    def _kept(self, container: str) -> dict[str, Any]:
        kept: dict[str, Any] = json.loads((self._stored / container).read_text())
        return kept

    def _keep(self, container: str, kept: dict[str, Any]) -> None:
        fresh = self._stored / f".{container}"
        fresh.write_text(json.dumps(kept))
        fresh.replace(self._stored / container)
