"""An agent's read endpoint with TLS on loopback, in a thread of its own."""

import asyncio
import contextlib
import io
import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack

import msgspec
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.kubelet import TlsFiles

from memqos.agent.configuration import AgentConfiguration, EndpointConfig, RecorderConfig
from memqos.agent.endpoint import listen_for_readers
from memqos.agent.events import EventLog
from memqos.agent.state import AgentView
from memqos.host.cgroups import CgroupFs

SERVER_NAME = "memqos-agent.memqos-system.svc"


class ServedEndpoint:
    """Where it listens, and what it has logged."""

    def __init__(self) -> None:
        self.port = 0
        self.logged = io.StringIO()


@contextlib.contextmanager
def serve_read_endpoint(
    view: Callable[[], AgentView], fs: CgroupFs, identity: TlsFiles, records: str
) -> Iterator[ServedEndpoint]:
    """Serve until the block is left; the API server is that of $KUBECONFIG."""
    served, started, stopping = ServedEndpoint(), threading.Event(), asyncio.Event()
    configuration = AgentConfiguration(
        endpoint=EndpointConfig("127.0.0.1:0", str(identity.cert), str(identity.key)),
        recorder=RecorderConfig(folder=records),
    )

    def current_view() -> AgentView:
        now = view()
        return msgspec.structs.replace(
            now, node=msgspec.structs.replace(now.node, configuration=configuration)
        )

    async def run() -> None:
        log = EventLog("text", stream=served.logged)
        async with AsyncExitStack() as stack:
            listener = await listen_for_readers(configuration, current_view, fs, log, stack)
            served.port = int(listener.address.rpartition(":")[2])
            started.set()
            await stopping.wait()

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        assert started.wait(30)
        yield served
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join()
        loop.close()


def put_agent(
    server: FakeApiServer, served: ServedEndpoint, identity: TlsFiles, ca: str | None = None
) -> None:
    """The agent's pod, its authority, and the way to it."""
    labels = {"app.kubernetes.io/name": "memqos", "app.kubernetes.io/component": "agent"}
    server.pods.put(
        {
            "metadata": {"name": "memqos-agent-x", "namespace": "memqos-system", "labels": labels},
            "spec": {"nodeName": "node-1", "containers": []},
            "status": {"phase": "Running"},
        }
    )
    text = identity.cert.read_text() if ca is None else ca
    metadata = {"name": "memqos-agent-ca", "namespace": "memqos-system"}
    server.stores["configmaps"].put({"metadata": metadata, "data": {"ca.crt": text}})
    server.forwards["memqos-agent-x", "9178"] = served.port
