"""One connection of a plugin to a runtime: registration, the runtime's calls, updates of its own.

A runtime fails the creation of a container on an error, and waits for a slow answer while it
creates no other container. So every call is answered at once, and never with an error.
"""

import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from memqos.errors import Unreachable
from memqos.host.nri import messages
from memqos.host.nri.messages import NriContainer, RuntimeInfo, container_in
from memqos.host.nri.mux import PLUGIN_SERVICE, RUNTIME_SERVICE, ConnectionEnded, Mux
from memqos.host.nri.ttrpc import (
    REQUEST,
    RESPONSE,
    MessageReader,
    Request,
    Response,
    TtrpcMessage,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from memqos.host.protowire import MalformedMessage, decode_message, encode_message

_CONNECT_SECONDS: Final = 2.0
SUBSCRIBED: Final = (
    "CreateContainer",
    "PostCreateContainer",
    "StartContainer",
    "UpdateContainer",
    "StopContainer",
)
"""Each costs a round trip a container."""


AcceptResponse = Callable[[Response | None], None]
"""Takes the answer to a call; None where the connection has ended."""


class NriHandler(Protocol):
    """What a plugin does with the runtime's calls. It is called by the thread that serves."""

    def configure(self, runtime: RuntimeInfo) -> None: ...

    def synchronize(self, containers: list[NriContainer]) -> None:
        """From now on there are events; these containers exist already."""

    def create(self, container: NriContainer) -> Mapping[str, str]:
        """The unified values that a new container gets."""

    def update(self, container: NriContainer) -> Mapping[str, str]:
        """Unified values beside those that an update has."""

    def note_created(self, container: str) -> None:
        """Nobody has refused the creation."""

    def note_started(self, container: str) -> None: ...

    def note_stopped(self, container: str) -> None: ...

    def note_failure(self, error: Exception) -> None:
        """A call was answered with nothing because of this."""


class NriConnection:
    """Connects as a plugin; `serve` runs until the connection ends."""

    def __init__(self, path: str, name: str, index: str, handler: NriHandler) -> None:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(_CONNECT_SECONDS)
        try:
            connection.connect(path)
            connection.settimeout(None)
        except OSError as error:
            connection.close()
            raise ConnectionEnded(f"{path}: {error.strerror}") from None
        self._mux = Mux(connection)
        self._name = name
        self._index = index
        self._handler = handler
        self._call = -1
        self._waiting: dict[int, AcceptResponse] = {}
        self._calling = threading.Lock()
        self._pods: dict[str, str] = {}
        self._containers: list[Mapping[str, Any]] = []

    def serve(self) -> None:
        """Register and answer calls; always ends by raising ConnectionEnded."""
        readers = {PLUGIN_SERVICE: MessageReader(), RUNTIME_SERVICE: MessageReader()}
        try:
            registration = {"plugin_name": self._name, "plugin_idx": self._index}
            # Not waited for: Configure may come before the answer.
            self._start_call(
                "RegisterPlugin",
                encode_message(messages.REGISTER, registration),
                self._check_registration,
            )
            while True:
                stream, data = self._mux.receive()
                for message in readers[stream].feed(data) if stream in readers else ():
                    self._accept(stream, message)
        except OSError as error:
            raise ConnectionEnded(error.strerror or str(error)) from None
        except MalformedMessage as error:
            raise ConnectionEnded(f"the runtime sends what is no message: {error}") from None
        finally:
            self.hang_up()

    def update_containers(self, updates: Mapping[str, Mapping[str, str]], timeout: float) -> None:
        """Have the runtime set and store values of containers, by ID.

        A runtime that does not answer in time is hung up on. Never from within a handler: it
        answers only after the call that it waits for.
        """
        done = threading.Event()
        answers: list[Response | None] = []

        def accept(response: Response | None) -> None:
            answers.append(response)
            done.set()

        try:
            self._start_call("UpdateContainers", messages.encode_updates(updates), accept)
        except OSError as error:
            # A part of the message may be sent: what follows would be read as its end.
            self.hang_up()
            raise unreachable_over_nri(f"takes no updates: {error.strerror}") from None
        if not done.wait(timeout):
            # The next write fails at once; a new connection waits for the runtime by itself.
            self.hang_up()
            raise unreachable_over_nri(f"has not answered within {timeout:g} s")
        [response] = answers
        if response is None:
            raise unreachable_over_nri("has hung up during an update")
        try:
            failed = decode_message(messages.UPDATES_ANSWER, response.payload).get("failed")
        except MalformedMessage as error:
            raise UpdateRefused(f"the answer is not what it should be: {error}") from None
        if response.code or failed:
            raise UpdateRefused(response.message or "the update of a container has failed")

    def hang_up(self) -> None:
        """End the connection; a caller that waits for an answer gets none."""
        self._mux.hang_up()
        with self._calling:
            waiting, self._waiting = self._waiting, {}
        for accept in waiting.values():
            accept(None)

    def _start_call(self, method: str, payload: bytes, accept: AcceptResponse) -> None:
        with self._calling:
            self._call += 2
            call = self._call
            self._waiting[call] = accept
        request = Request(messages.RUNTIME, method, payload)
        self._mux.send(RUNTIME_SERVICE, encode_request(call, request))

    def _check_registration(self, response: Response | None) -> None:
        if response is not None and response.code:
            raise ConnectionEnded(f"the runtime refuses the plugin: {response.message}")

    def _accept(self, stream: int, message: TtrpcMessage) -> None:
        if stream == RUNTIME_SERVICE and message.type == RESPONSE:
            response = decode_response(message.data)
            with self._calling:
                accept = self._waiting.pop(message.call, None)
            if accept is not None:
                accept(response)
        elif stream == PLUGIN_SERVICE and message.type == REQUEST:
            answer = self._answer(decode_request(message.data))
            self._mux.send(PLUGIN_SERVICE, encode_response(message.call, Response(answer)))

    def _answer(self, request: Request) -> bytes:
        answer = _ANSWERS.get(request.method)
        if answer is None:
            return b""
        try:
            return answer(self, request.payload)
        except ConnectionEnded:
            raise
        except Exception as error:
            # An error as an answer would fail the creation of the container.
            self._handler.note_failure(error)
            return b""

    def _configure(self, payload: bytes) -> bytes:
        values = decode_message(messages.CONFIGURE, payload)
        milliseconds = values.get("request_timeout")
        runtime = RuntimeInfo(
            name=values.get("runtime_name", ""),
            version=values.get("runtime_version", ""),
            request_timeout=None if milliseconds is None else milliseconds / 1000,
        )
        self._handler.configure(runtime)
        mask = messages.event_mask(SUBSCRIBED)
        return encode_message(messages.CONFIGURE_ANSWER, {"events": mask})

    def _synchronize(self, payload: bytes) -> bytes:
        """Parts of pods and containers need not belong together: they are collected first."""
        values = decode_message(messages.SYNCHRONIZE, payload)
        pods, containers = values.get("pods", ()), values.get("containers", ())
        self._pods |= {each.get("id", ""): each.get("uid", "") for each in pods}
        self._containers += containers
        if values.get("more"):
            if not pods and not containers:
                # containerd 2.1 sends empty parts until its timeout where a single pod is larger
                # than a message, and creates no container meanwhile.
                raise ConnectionEnded("the runtime's list of containers does not fit a message")
            return encode_message(messages.SYNCHRONIZE_ANSWER, {"more": True})
        found = [
            container_in({"container": each, "pod": {"uid": self._pods.get(sandbox, "")}})
            for each in self._containers
            for sandbox in (each.get("pod_sandbox_id", ""),)
        ]
        self._pods, self._containers = {}, []
        self._handler.synchronize(found)
        return b""

    def _create(self, payload: bytes) -> bytes:
        values = decode_message(messages.CONTAINER_EVENT, payload)
        return messages.encode_adjustment(self._handler.create(container_in(values)))

    def _update(self, payload: bytes) -> bytes:
        values = decode_message(messages.UPDATE, payload)
        container = container_in(values, values.get("linux_resources", {}))
        return messages.encode_updates({container.id: self._handler.update(container)})

    def _change_state(self, payload: bytes) -> bytes:
        """Events without a method of their own, up to NRI 0.11."""
        values = decode_message(messages.STATE_CHANGE, payload)
        note = _NOTES_BY_NUMBER.get(values.get("event", 0))
        if note is not None:
            note(self._handler, container_in(values).id)
        return b""

    def _note_created(self, payload: bytes) -> bytes:
        values = decode_message(messages.CONTAINER_EVENT, payload)
        self._handler.note_created(container_in(values).id)
        return b""

    def _note_started(self, payload: bytes) -> bytes:
        values = decode_message(messages.CONTAINER_EVENT, payload)
        self._handler.note_started(container_in(values).id)
        return b""

    def _note_stopped(self, payload: bytes) -> bytes:
        values = decode_message(messages.CONTAINER_EVENT, payload)
        self._handler.note_stopped(container_in(values).id)
        return b""


def unreachable_over_nri(what: str) -> Unreachable:
    """A runtime that takes no updates."""
    return Unreachable(
        f"the runtime, over NRI, {what}",
        hint="is it running, or being restarted? Apply again once it answers",
    )


class UpdateRefused(Exception):
    """The runtime has not set the values; it does not say of which container."""


_ANSWERS: Final[dict[str, Callable[[NriConnection, bytes], bytes]]] = {
    "Configure": NriConnection._configure,
    "Synchronize": NriConnection._synchronize,
    "CreateContainer": NriConnection._create,
    "UpdateContainer": NriConnection._update,
    "PostCreateContainer": NriConnection._note_created,
    "StartContainer": NriConnection._note_started,
    "StopContainer": NriConnection._note_stopped,
    "RemoveContainer": NriConnection._note_stopped,
    "StateChange": NriConnection._change_state,
}
"""What a method is answered with; others, such as Shutdown, are answered with nothing."""
_NOTES_BY_NUMBER: Final[dict[int, Callable[[NriHandler, str], None]]] = {
    messages.EVENTS["PostCreateContainer"]: lambda handler, container: handler.note_created(
        container
    ),
    messages.EVENTS["StartContainer"]: lambda handler, container: handler.note_started(container),
    messages.EVENTS["StopContainer"]: lambda handler, container: handler.note_stopped(container),
    messages.EVENTS["RemoveContainer"]: lambda handler, container: handler.note_stopped(container),
}
