"""The client of container runtimes, against a server that others have written."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.eventually import PATIENCE
from tests.fakes.node import memory_folder
from tests.fakes.owner_node import CONTAINERS, OwnedNode

from memqos.errors import Unreachable
from memqos.host.cri import CriClient, StoredResources, _resources_in
from memqos.host.grpc import GrpcError

A1 = CONTAINERS["a1"]


@pytest.fixture
def node() -> Iterator[OwnedNode]:
    with memory_folder() as folder:
        yield OwnedNode(folder)


@pytest.fixture
def runtime(node: OwnedNode) -> Iterator[CriClient]:
    client = CriClient(str(node.runtime.socket), PATIENCE)
    yield client
    client.close()


def test_what_a_runtime_has_stored_is_in_its_verbose_status(
    node: OwnedNode, runtime: CriClient
) -> None:
    # The answer is longer than a window of HTTP/2, so it also has to be acknowledged.
    with node.runtime.serving():
        assert runtime.read_resources("a1") == StoredResources(
            {"memory.low": "0", "memory.oom.group": "1"}
        )
        runtime.update("a1", {"memory.low": "8192"}, "0-1")
        assert runtime.read_resources("a1") == StoredResources(
            {"memory.low": "8192", "memory.oom.group": "1"}, "0-1"
        )
    assert node.kernel.read(A1, "memory.low") == "8192"


def test_many_calls_go_over_one_connection(node: OwnedNode, runtime: CriClient) -> None:
    with node.runtime.serving():
        for size in range(1, 60):
            runtime.update("a1", {"memory.low": str(size << 12)})
            assert runtime.read_resources("a1").unified["memory.low"] == str(size << 12)


def test_a_runtime_without_a_verbose_status_is_taken_by_its_plain_one() -> None:
    plain = {"status": {"resources": {"linux": {"unified": {"memory.low": "1"}}}}}
    assert _resources_in(plain) == StoredResources({"memory.low": "1"})
    assert _resources_in({**plain, "info": {"info": "no JSON"}}) == StoredResources(
        {"memory.low": "1"}
    )
    assert _resources_in({}) == StoredResources()


def test_a_refusal_has_the_runtime_s_words(node: OwnedNode, runtime: CriClient) -> None:
    with node.runtime.serving():
        node.runtime.mood = "refuses"
        with pytest.raises(GrpcError, match="runc did not like it"):
            runtime.update("a1", {"memory.low": "0"})
        with pytest.raises(GrpcError, match="no such container") as refused:
            runtime.read_resources("other")
    assert refused.value.code == "5"


def test_a_runtime_that_is_not_there_is_unreachable_by_name(
    node: OwnedNode, runtime: CriClient
) -> None:
    with pytest.raises(Unreachable, match=r"runtime\.sock: No such file or directory – is the run"):
        runtime.read_resources("a1")


def test_a_runtime_that_ends_within_a_call_is_unreachable_and_asked_again_later(
    node: OwnedNode, runtime: CriClient
) -> None:
    node.runtime.mood = "hangs up"
    with node.runtime.serving(), pytest.raises(Unreachable):
        runtime.update("a1", {"memory.low": "8192"})
    node.runtime.mood = "well"
    with node.runtime.serving():
        runtime.update("a1", {"memory.low": "8192"})


def test_a_runtime_that_was_silent_is_asked_again_after_a_while(node: OwnedNode) -> None:
    client = CriClient(str(node.runtime.socket), 0.2)
    node.runtime.mood = "hangs"
    with node.runtime.serving():
        with pytest.raises(Unreachable):
            client.update("a1", {"memory.low": "8192"})
        node.runtime.mood = "well"
        with pytest.raises(Unreachable):
            client.update("a1", {"memory.low": "8192"})
        client._channel._breaker._until = 0.0
        client._channel.timeout = PATIENCE
        client.update("a1", {"memory.low": "8192"})
        client.close()


def test_a_runtime_that_does_not_answer_is_given_up(node: OwnedNode) -> None:
    client = CriClient(str(node.runtime.socket), 0.2)
    node.runtime.mood = "hangs"
    with node.runtime.serving():
        for _ in range(2):
            with pytest.raises(Unreachable, match=r"no answer within 0\.2 s"):
                client.update("a1", {"memory.low": "8192"})
    assert node.runtime.calls == []


@pytest.mark.parametrize("message", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 64])
def test_a_socket_where_something_else_listens_is_unreachable(
    message: bytes, tmp_path: Path
) -> None:
    path = str(tmp_path / "other.sock")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()

        def answer() -> None:
            client, _ = server.accept()
            with client:
                client.recv(1 << 16)
                client.sendall(message)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            with pytest.raises(Unreachable, match=r"other\.sock"):
                CriClient(path, PATIENCE).read_resources("a1")
        finally:
            thread.join()
