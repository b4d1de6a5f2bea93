"""The server's end of a port-forward over a WebSocket, as a kubelet serves it."""

import base64
import contextlib
import hashlib
import socket
import struct
import threading
from http.server import BaseHTTPRequestHandler
from io import BufferedIOBase

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def serve_port_forward(handler: BaseHTTPRequestHandler, port: int, asked: int) -> None:
    """Answer the upgrade, then carry bytes to a port of this machine and back."""
    assert handler.headers["Sec-WebSocket-Protocol"] == "v4.channel.k8s.io"
    key = handler.headers["Sec-WebSocket-Key"].encode()
    handler.send_response(101)
    handler.send_header("Upgrade", "websocket")
    handler.send_header("Connection", "Upgrade")
    accept = base64.b64encode(hashlib.sha1(key + GUID).digest()).decode()
    handler.send_header("Sec-WebSocket-Accept", accept)
    handler.send_header("Sec-WebSocket-Protocol", "v4.channel.k8s.io")
    handler.end_headers()
    handler.close_connection = True
    lock = threading.Lock()

    def send(kind: int, payload: bytes) -> None:
        with lock, contextlib.suppress(OSError):
            handler.wfile.write(_frame(kind, payload))
            handler.wfile.flush()

    # Both channels begin with the port; a ping may come at any time.
    number = struct.pack("<H", asked)
    send(2, b"\0" + number)
    send(2, b"\1" + number)
    send(9, b"ping")
    try:
        target = socket.create_connection(("127.0.0.1", port))
    except OSError as error:
        send(2, b"\1" + f"connection refused: {error}".encode())
        send(8, b"")
        while _receive(handler.rfile) is not None:
            pass
        return
    with target:

        def carry_back() -> None:
            with contextlib.suppress(OSError):
                while data := target.recv(1000):
                    send(2, b"\0" + data)
            send(8, b"")

        thread = threading.Thread(target=carry_back, daemon=True)
        thread.start()
        with contextlib.suppress(OSError, EOFError):
            while (message := _receive(handler.rfile)) is not None:
                if message:
                    target.sendall(message[1:])
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
        thread.join()


def _frame(kind: int, payload: bytes) -> bytes:
    size = len(payload)
    length = bytes([size]) if size < 126 else bytes([126]) + struct.pack("!H", size)
    return bytes([0x80 | kind]) + length + payload


def _receive(reader: BufferedIOBase) -> bytes | None:
    """A binary message of the client; empty for others, None at the end."""
    head = reader.read(2)
    if len(head) < 2:
        return None
    length = head[1] & 0x7F
    assert head[1] & 0x80, "a client masks its frames"
    if length == 126:
        (length,) = struct.unpack("!H", reader.read(2))
    elif length == 127:
        (length,) = struct.unpack("!Q", reader.read(8))
    mask, data = reader.read(4), reader.read(length)
    payload = bytes(byte ^ mask[index % 4] for index, byte in enumerate(data))
    kind = head[0] & 0x0F
    return None if kind == 8 else payload if kind == 2 else b""
