"""Two byte streams over one unix socket: NRI's multiplexing (containerd/nri, pkg/net/multiplex).

A frame is the number of a stream, a length and the payload. There is no handshake.
"""

import socket
import threading
from contextlib import suppress
from struct import Struct
from typing import Final

PLUGIN_SERVICE: Final = 1
"""The stream on which the runtime calls and the plugin answers."""
RUNTIME_SERVICE: Final = 2
"""The stream on which the plugin calls and the runtime answers."""

FRAME_HEADER: Final = Struct(">II")
FIRST_FRAME: Final = 4096
"""The runtime reads the start of a message with a buffer of this size, and hangs up when a frame is
larger. The rest of a message goes into one more frame: a runtime queues at most 256."""
LARGEST_FRAME: Final = 64 << 20
_SEND_SECONDS: Final = 2
_TIMEVAL: Final = Struct("ll")


class ConnectionEnded(Exception):
    """The other side has hung up, or says what no runtime says."""


class Mux:
    """A connection to a runtime. Any thread may send; one thread receives."""

    def __init__(self, connection: socket.socket) -> None:
        # A stopped runtime reads nothing: a sender must not wait for it without end.
        connection.setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(_SEND_SECONDS, 0)
        )
        self._connection = connection
        self._sending = threading.Lock()

    def send(self, stream: int, message: bytes) -> None:
        """Send one ttrpc message."""
        parts = (message[:FIRST_FRAME], message[FIRST_FRAME:])
        frames = b"".join(FRAME_HEADER.pack(stream, len(part)) + part for part in parts if part)
        with self._sending:
            self._connection.sendall(frames)

    def receive(self) -> tuple[int, bytes]:
        """The next frame: its stream, and what it holds."""
        stream, length = FRAME_HEADER.unpack(self._read(FRAME_HEADER.size))
        if length > LARGEST_FRAME:
            raise ConnectionEnded(f"a frame of {length} bytes")
        return stream, self._read(length)

    def hang_up(self) -> None:
        """End the connection, whichever thread is waiting for it."""
        with suppress(OSError):  # the other side may have been first
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _read(self, length: int) -> bytes:
        data = bytearray(length)
        view, position = memoryview(data), 0
        while position < length:
            count = self._connection.recv_into(view[position:])
            if not count:
                raise ConnectionEnded("the runtime has hung up")
            position += count
        return bytes(data)
