"""A kubelet's PodsAPI, served by grpclib and protobuf from a thread of the test."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from tests.eventually import PATIENCE
from tests.fakes.pod_messages import encode_pod, message

Mood = Literal["well", "starting", "hangs", "hangs within the list", "garbage", "huge", "refuses"]

ADDED, MODIFIED, DELETED, SYNCED = 1, 2, 3, 4


class FakePodsApi:
    """Pods by UID; a change goes to all who watch, as the kubelet's does."""

    def __init__(self, socket: Path) -> None:
        self.socket = str(socket)
        self.mood: Mood = "well"
        self.watches = 0
        """How many were opened."""
        self.pods: dict[str, bytes] = {}
        self._watchers: set[asyncio.Queue[tuple[int, bytes] | None]] = set()
        self._loop = asyncio.new_event_loop()
        self._server: Any = None
        self._connections: list[Any] = []

    @property
    def watching(self) -> int:
        return len(self._watchers)

    def put(self, manifest: Mapping[str, Any]) -> None:
        uid = manifest["metadata"]["uid"]
        kind = MODIFIED if uid in self.pods else ADDED
        self.pods[uid] = encode_pod(manifest)
        self._send(kind, self.pods[uid])

    def delete(self, uid: str) -> None:
        del self.pods[uid]
        self._send(DELETED, encode_pod({"metadata": {"name": "x", "uid": uid}}))

    def lose(self, uid: str) -> None:
        """A deletion that no watch hears of."""
        del self.pods[uid]

    def send(self, kind: int, data: bytes) -> None:
        """An event as it stands."""
        self._send(kind, data)

    def cut_off(self) -> None:
        """End all watches, as the kubelet does with those that are 100 events behind."""
        self._send(None, b"")

    def run(self, action: Callable[[], Any]) -> Any:
        async def act() -> Any:
            answer = action()
            return await answer if asyncio.iscoroutine(answer) else answer

        return asyncio.run_coroutine_threadsafe(act(), self._loop).result(PATIENCE)

    def _send(self, kind: int | None, data: bytes) -> None:
        def send() -> None:
            for watcher in self._watchers:
                watcher.put_nowait(None if kind is None else (kind, data))

        self.run(send)

    # In its thread.

    def _check_mood(self) -> None:
        from grpclib import GRPCError, Status

        if self.mood == "starting":
            raise GRPCError(Status.FAILED_PRECONDITION, "pod sources are not ready")
        if self.mood == "refuses":
            raise GRPCError(Status.RESOURCE_EXHAUSTED, "too many requests")

    async def _list(self, stream: Any) -> None:
        await stream.recv_message()
        self._check_mood()
        if self.mood == "hangs":
            await asyncio.sleep(PATIENCE)
        pods = [b"\xff\xff"] if self.mood == "garbage" else list(self.pods.values())
        await stream.send_message(message("ListPodsResponse")(pods=pods))

    async def _get(self, stream: Any) -> None:
        from grpclib import GRPCError, Status

        uid = (await stream.recv_message()).podUID
        self._check_mood()
        if uid not in self.pods:
            raise GRPCError(Status.NOT_FOUND, "pod not found")
        await stream.send_message(message("GetPodResponse")(pod=self.pods[uid]))

    async def _watch(self, stream: Any) -> None:
        await stream.recv_message()
        self.watches += 1
        # grpclib leaves connections open when its server is closed; a kubelet that ends does not.
        self._connections.append(stream._stream.connection)
        self._check_mood()
        event = message("WatchPodsEvent")
        if self.mood == "hangs":
            await asyncio.sleep(PATIENCE)
        if self.mood == "garbage":
            await stream.send_message(event(type=ADDED, pod=b"\xff\xff"))
        if self.mood == "huge":
            await stream.send_message(event(type=ADDED, pod=b"\x0a" * (5 << 20)))
        queue: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue()
        self._watchers.add(queue)
        try:
            for data in list(self.pods.values()):
                await stream.send_message(event(type=ADDED, pod=data))
                if self.mood == "hangs within the list":
                    await asyncio.sleep(PATIENCE)
            await stream.send_message(event(type=SYNCED))
            while (next_event := await queue.get()) is not None:
                await stream.send_message(event(type=next_event[0], pod=next_event[1]))
        finally:
            self._watchers.discard(queue)

    def _mapping(self) -> dict[str, Any]:
        from grpclib.const import Cardinality, Handler

        unary, streaming = Cardinality.UNARY_UNARY, Cardinality.UNARY_STREAM
        return {
            f"/v1alpha1.Pods/{name}": Handler(
                method, cardinality, message(f"{name}Request"), message(answer)
            )
            for name, method, cardinality, answer in (
                ("ListPods", self._list, unary, "ListPodsResponse"),
                ("GetPod", self._get, unary, "GetPodResponse"),
                ("WatchPods", self._watch, streaming, "WatchPodsEvent"),
            )
        }

    async def start(self) -> None:
        from grpclib.server import Server

        api = self

        class Service:
            def __mapping__(self) -> dict[str, Any]:
                return api._mapping()

        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.socket)
        self._server = Server([Service()])
        await self._server.start(path=self.socket)

    async def end(self) -> None:
        """As a kubelet that is stopped: connections end, and the socket's file stays."""
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    def restart(self) -> None:
        self.run(self.end)
        self.run(self.start)


@contextlib.contextmanager
def fake_pods_api(socket: Path, *, is_up: bool = True) -> Iterator[FakePodsApi]:
    """Serve until the block is left; not before `run(api.start)` where it is not up yet."""
    api = FakePodsApi(socket)
    thread = threading.Thread(target=api._loop.run_forever)
    thread.start()
    try:
        if is_up:
            api.run(api.start)
        yield api
    finally:
        api.run(api.end)
        api._loop.call_soon_threadsafe(api._loop.stop)
        thread.join()
        # Connections that have ended close their sockets in the loop's next turn.
        api._loop.run_until_complete(asyncio.sleep(0))
        api._loop.close()
