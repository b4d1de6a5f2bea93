"""The plugin side of NRI against a runtime that does what real ones were seen to do."""

import errno
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.eventually import PATIENCE, eventually
from tests.fakes.node import memory_folder
from tests.fakes.nri_messages import message
from tests.fakes.nri_runtime import EVENTS, FRAME, HEADER, CreationFailed, FakeNriRuntime

from memqos.errors import Unreachable
from memqos.findings.facts import NriFacts
from memqos.host.nri.messages import NriContainer, RuntimeInfo
from memqos.host.nri.mux import ConnectionEnded
from memqos.host.nri.plugin import NriConnection, UpdateRefused
from memqos.host.owner_discovery import read_nri


class Handler:
    """Answers as it is told to, and keeps what it heard."""

    def __init__(self) -> None:
        self.runtime: RuntimeInfo | None = None
        self.listed: list[NriContainer] | None = None
        self.created: list[NriContainer] = []
        self.updated: list[NriContainer] = []
        self.made: list[str] = []
        self.started: list[str] = []
        self.stopped: list[str] = []
        self.failures: list[Exception] = []
        self.values: Mapping[str, str] = {"memory.high": "4096"}
        self.failure: Exception | None = None
        self.pause = threading.Event()
        self.pause.set()

    def configure(self, runtime: RuntimeInfo) -> None:
        self.runtime = runtime

    def synchronize(self, containers: list[NriContainer]) -> None:
        self.listed = containers

    def create(self, container: NriContainer) -> Mapping[str, str]:
        self.pause.wait()
        self.created.append(container)
        if self.failure is not None:
            raise self.failure
        return self.values

    def update(self, container: NriContainer) -> Mapping[str, str]:
        self.updated.append(container)
        return self.values

    def note_created(self, container: str) -> None:
        self.made.append(container)

    def note_started(self, container: str) -> None:
        self.started.append(container)

    def note_stopped(self, container: str) -> None:
        self.stopped.append(container)

    def note_failure(self, error: Exception) -> None:
        self.failures.append(error)


class Connected:
    """A plugin that serves in a thread of its own."""

    def __init__(self, runtime: FakeNriRuntime, index: str = "10", name: str = "p") -> None:
        self.handler = Handler()
        self.end: str | None = None
        self.connection = NriConnection(str(runtime.socket), name, index, self.handler)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def wait_until_listed(self) -> "Connected":
        eventually("the plugin is in the list", lambda: self.handler.listed is not None)
        return self

    def hang_up(self) -> None:
        self.connection.hang_up()
        self._thread.join()

    def _serve(self) -> None:
        try:
            self.connection.serve()
        except ConnectionEnded as error:
            self.end = str(error)


@pytest.fixture
def runtime() -> Iterator[FakeNriRuntime]:
    with memory_folder() as folder:
        made = FakeNriRuntime(folder)
        made.start()
        yield made
        made.stop()


def create(runtime: FakeNriRuntime, name: str, limit: int = 0) -> dict[str, str]:
    return runtime.create("uid", name, f"/kubepods/poduid/{name}", limit)


def test_a_plugin_is_told_of_the_runtime_and_asked_about_each_container(
    runtime: FakeNriRuntime,
) -> None:
    plugin = Connected(runtime).wait_until_listed()
    assert plugin.handler.runtime == RuntimeInfo(
        name="containerd", version="2.1.9", request_timeout=2.0
    )
    assert create(runtime, "a", limit=1 << 40) == {"memory.high": "4096"}
    runtime.start_container("a")
    runtime.update("a", limit=8192, unified={"memory.low": "1"})
    runtime.stop_container("a")
    [created], [updated] = plugin.handler.created, plugin.handler.updated
    assert (created.id, created.name, created.pod_uid) == ("a", "a", "uid")
    assert created.limit == 1 << 40
    assert (updated.limit, updated.unified) == (8192, {"memory.low": "1"})
    # Events up to NRI 0.11 come as StateChange, StopContainer by its own method.
    assert plugin.handler.made == plugin.handler.started == ["a"]
    assert plugin.handler.stopped == ["a"]
    plugin.hang_up()


def test_from_nri_0_12_on_each_event_has_a_method_of_its_own(runtime: FakeNriRuntime) -> None:
    runtime.own_methods = EVENTS
    plugin = Connected(runtime).wait_until_listed()
    create(runtime, "a")
    runtime.start_container("a")
    runtime.stop_container("a")
    heard = plugin.handler
    assert (heard.made, heard.started, heard.stopped) == (["a"], ["a"], ["a"])
    plugin.hang_up()


def test_only_events_that_are_needed_are_subscribed_to(runtime: FakeNriRuntime) -> None:
    plugin = Connected(runtime).wait_until_listed()
    eventually("the runtime has its answer", lambda: runtime.plugins)
    [connected] = runtime.plugins
    assert [each for each in EVENTS if connected.hears(each)] == [
        "CreateContainer",
        "PostCreateContainer",
        "StartContainer",
        "UpdateContainer",
        "StopContainer",
    ]
    plugin.hang_up()


@pytest.mark.parametrize("size", [10, 4050, 4096, 9_000, 60_000])
def test_answers_of_any_size_arrive(runtime: FakeNriRuntime, size: int) -> None:
    plugin = Connected(runtime).wait_until_listed()
    plugin.handler.values = {"memory.high": "9" * size}
    assert create(runtime, "a") == plugin.handler.values
    assert runtime.plugins
    plugin.hang_up()


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_containers_that_exist_are_listed_however_many_parts_they_come_in(
    runtime: FakeNriRuntime, parts: int
) -> None:
    runtime.largest_name, runtime.parts = 100_000, parts
    for number in range(20):
        create(runtime, f"c{number}")
    plugin = Connected(runtime).wait_until_listed()
    assert [each.id for each in plugin.handler.listed or ()] == [f"c{n}" for n in range(20)]
    assert {each.pod_uid for each in plugin.handler.listed or ()} == {"uid"}
    plugin.hang_up()


def test_a_plugin_hangs_up_on_a_list_without_end(runtime: FakeNriRuntime) -> None:
    runtime.parts = 0
    plugin = Connected(runtime)
    eventually("it hangs up", lambda: plugin.end is not None)
    assert "does not fit a message" in str(plugin.end)


def test_an_error_is_answered_with_nothing_and_the_container_is_created(
    runtime: FakeNriRuntime,
) -> None:
    plugin = Connected(runtime).wait_until_listed()
    plugin.handler.failure = RuntimeError("a fault")
    assert create(runtime, "a") == {}
    assert [str(each) for each in plugin.handler.failures] == ["a fault"]
    plugin.handler.failure = None
    assert create(runtime, "b") == {"memory.high": "4096"}
    plugin.hang_up()


def test_a_slow_plugin_is_hung_up_on_and_containers_are_created_without_it(
    runtime: FakeNriRuntime,
) -> None:
    plugin = Connected(runtime).wait_until_listed()
    runtime.request_timeout = 0.05
    plugin.handler.pause.clear()
    assert create(runtime, "a") == {}
    plugin.handler.pause.set()
    eventually("the connection has ended", lambda: plugin.end is not None)
    assert create(runtime, "b") == {}


def test_a_runtime_that_stops_ends_the_connection(runtime: FakeNriRuntime) -> None:
    plugin = Connected(runtime).wait_until_listed()
    runtime.stop()
    eventually("the connection has ended", lambda: plugin.end is not None)
    with pytest.raises(ConnectionEnded, match=r"No such file|refused"):
        NriConnection(str(runtime.socket), "p", "10", Handler())
    runtime.start()
    Connected(runtime).wait_until_listed().hang_up()


def test_two_plugins_that_set_one_value_fail_every_creation(runtime: FakeNriRuntime) -> None:
    first = Connected(runtime, "10", "p").wait_until_listed()
    second = Connected(runtime, "20", "q").wait_until_listed()
    with pytest.raises(CreationFailed, match='"20-q" and "10-p" both tried'):
        create(runtime, "a")
    assert first.handler.made == first.handler.started == []
    assert first.handler.stopped == ["a", "a"] or first.handler.stopped == ["a"]
    second.handler.values = {"memory.low": "4096"}
    assert create(runtime, "b") == {"memory.high": "4096", "memory.low": "4096"}
    first.hang_up()
    second.hang_up()


def test_a_runtime_that_refuses_the_plugin_says_why(runtime: FakeNriRuntime) -> None:
    plugin = Connected(runtime, index="5")
    eventually("the connection has ended", lambda: plugin.end is not None)
    assert plugin.end == "the runtime refuses the plugin: invalid plugin index"


def test_values_are_updated_unasked(runtime: FakeNriRuntime) -> None:
    plugin = Connected(runtime).wait_until_listed()
    create(runtime, "a")
    plugin.connection.update_containers({"a": {"memory.low": "8192"}}, timeout=60)
    assert runtime.specs["a"]["unified"] == {"memory.high": "4096", "memory.low": "8192"}
    plugin.hang_up()
    with pytest.raises(Unreachable):
        plugin.connection.update_containers({"a": {"memory.low": "1"}}, timeout=60)


def test_an_update_that_is_sent_in_part_ends_the_connection(
    runtime: FakeNriRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is sent next would be read as its end: a creation would wait for its answer in vain."""
    plugin = Connected(runtime).wait_until_listed()

    def stop_within(stream: int, message: bytes) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(plugin.connection._mux, "send", stop_within)
    with pytest.raises(Unreachable, match="takes no updates: Resource temporarily unavailable"):
        plugin.connection.update_containers({"a": {"memory.low": "1"}}, timeout=PATIENCE)
    eventually("the connection has ended", lambda: plugin.end is not None)


def test_an_answer_to_an_update_that_makes_no_sense_is_a_refusal(
    runtime: FakeNriRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = Connected(runtime).wait_until_listed()
    nonsense = message("ConfigureAnswer").FromString(b"\x0a\x01\xff")
    monkeypatch.setattr(runtime, "update_unasked", lambda _updates: nonsense)
    with pytest.raises(UpdateRefused, match="the answer is not what it should be"):
        plugin.connection.update_containers({"a": {"memory.low": "1"}}, timeout=PATIENCE)
    plugin.hang_up()


def test_nobody_waits_for_an_answer_that_is_no_message(
    runtime: FakeNriRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = Connected(runtime).wait_until_listed()
    eventually("the runtime has its answer", lambda: runtime.plugins)
    [connected] = runtime.plugins
    send = connected._send
    monkeypatch.setattr(
        connected, "_send", lambda stream, call, kind, _: send(stream, call, kind, b"\xff")
    )
    with pytest.raises(Unreachable, match="has hung up during an update"):
        plugin.connection.update_containers({"a": {"memory.low": "1"}}, timeout=PATIENCE)
    plugin.hang_up()


def frame(stream: int, data: bytes) -> bytes:
    return FRAME.pack(stream, len(data)) + data


@pytest.fixture
def peer() -> Iterator[tuple[socket.socket, Handler, list[str]]]:
    """The other end of a plugin's connection, to send anything on; what came of it."""
    handler, ends = Handler(), list[str]()
    with memory_folder() as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "nri.sock"))
        listener.listen()
        connection = NriConnection(str(folder / "nri.sock"), "p", "10", handler)
        other, _ = listener.accept()

        def serve() -> None:
            try:
                connection.serve()
            except ConnectionEnded as error:
                ends.append(str(error))

        thread = threading.Thread(target=serve)
        thread.start()
        with other:
            yield other, handler, ends
        thread.join()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (frame(1, b"") + FRAME.pack(1, (64 << 20) + 1), "a frame of 67108865 bytes"),
        (frame(1, HEADER.pack((64 << 20) + 1, 1, 1, 0)), "a message of 67108865 bytes"),
        (frame(1, HEADER.pack(1, 1, 1, 0) + b"\xff"), "what is no message: it ends within"),
        (frame(2, HEADER.pack(2, 1, 2, 0) + b"\x08\x01"), "what is no message: status is a number"),
        (FRAME.pack(1, 9)[:5], "the runtime has hung up"),
        (FRAME.pack(1, 9) + b"part", "the runtime has hung up"),
    ],
)
def test_a_connection_ends_with_what_no_runtime_says(
    peer: tuple[socket.socket, Handler, list[str]], data: bytes, why: str
) -> None:
    other, _, ends = peer
    other.sendall(data)
    other.shutdown(socket.SHUT_WR)
    eventually("the connection has ended", lambda: ends)
    assert why in ends[0]


def test_what_is_cut_anyhow_or_nobody_asked_for_does_not_disturb(
    peer: tuple[socket.socket, Handler, list[str]],
) -> None:
    other, handler, ends = peer
    event = message("ContainerEvent")()
    event.container.id = "a"
    request = message("Request")(method="CreateContainer", payload=event.SerializeToString())
    data = request.SerializeToString()
    nobodys = HEADER.pack(0, 99, 2, 0)
    unknown = message("Request")(method="Surprise", payload=b"\xff").SerializeToString()
    other.sendall(
        frame(7, b"a stream of its own")
        + frame(1, nobodys)  # an answer where there are only questions
        + frame(2, nobodys * 2)  # an answer to no call, twice
        + frame(2, HEADER.pack(len(data), 1, 1, 0) + data)
        + frame(1, HEADER.pack(len(unknown), 1, 1, 0) + unknown)
    )
    assert _answers(other, 1) == {1: b""}
    # A byte a frame, those of another stream between them.
    for byte in HEADER.pack(len(data), 3, 1, 0) + data:
        other.sendall(frame(1, bytes([byte])) + frame(2, nobodys) + frame(1, b""))
    [(call, answer)] = _answers(other, 1).items()
    assert call == 3
    values = message("CreateAnswer").FromString(answer).adjust.linux.resources.unified
    assert dict(values) == handler.values
    assert [each.id for each in handler.created] == ["a"]
    assert not ends


def _answers(other: socket.socket, count: int) -> dict[int, bytes]:
    """So many answers of the plugin, by their numbers; its own calls are left out."""
    found: dict[int, bytes] = {}
    while len(found) < count:
        stream, length = FRAME.unpack(other.recv(FRAME.size, socket.MSG_WAITALL))
        data = other.recv(length, socket.MSG_WAITALL)
        if stream == 1:
            _, call, _, _ = HEADER.unpack_from(data)
            answer = message("Response").FromString(data[HEADER.size :])
            found[call] = answer.payload
    return found


def test_the_socket_is_looked_at_and_its_plugins_are_named(runtime: FakeNriRuntime) -> None:
    runtime.socket.chmod(0o755)
    runtime.socket.parent.chmod(0o700)
    plugins = [Connected(runtime, "10", name).wait_until_listed() for name in ("p", "q")]
    found = read_nri(str(runtime.socket))
    assert found is not None
    assert (found.mode, found.folder_mode) == (0o755, 0o700)
    own = f"{Path('/proc/self/comm').read_text().strip()} (PID {os.getpid()})"
    assert found.plugins == (own, own)
    for plugin in plugins:
        plugin.hang_up()
    missing = runtime.socket.with_name("none.sock")
    assert read_nri(str(missing)) == NriFacts(socket=str(missing))


def test_a_socket_in_a_folder_of_root_is_not_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(path: str) -> os.stat_result:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "stat", refuse)
    assert read_nri() is None


def test_a_socket_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConnectionEnded, match=r"nri\.sock: No such file"):
        NriConnection(str(tmp_path / "nri.sock"), "p", "10", Handler())
