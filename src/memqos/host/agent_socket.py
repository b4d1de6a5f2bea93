"""Read /state from the state socket of an agent on this machine."""

import os
import socket
import stat
import struct
import time
from typing import TYPE_CHECKING, Final

from memqos.errors import Unreachable, os_reason
from memqos.units import format_bytes

if TYPE_CHECKING:
    from http.client import HTTPResponse

_TIMEOUT: Final = 3.0
STATE_SIZE_LIMIT: Final = 64 << 20
_CHUNK: Final = 1 << 18
_CREDENTIALS: Final = struct.Struct("3i")


def fetch_state(path: str, timeout: float = _TIMEOUT) -> bytes | None:
    """The agent's answer; None where no agent listens, Unreachable where one does not answer.

    Only an agent that runs as root, or as this user, is trusted: its answer decides which problems
    of the node are reported.
    """
    deadline = time.monotonic() + timeout
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout)
        try:
            if not _is_trusted(os.lstat(path)):
                raise Unreachable(f"{path} is not a socket of root, so it is not used")
            connection.connect(path)
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
            return None  # a killed agent leaves its socket file behind
        except OSError as error:
            raise _unreachable(path, error) from None
        _, uid, _ = _CREDENTIALS.unpack(
            connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        if uid not in (0, os.geteuid()):
            raise Unreachable(f"{path} is served by user {uid}, not root, so it is not used")
        try:
            return _get_state(connection, path, deadline)
        except OSError as error:
            raise _unreachable(path, error) from None


def _get_state(connection: socket.socket, path: str, deadline: float) -> bytes:
    from http.client import HTTPException, HTTPResponse

    connection.sendall(b"GET /state HTTP/1.1\r\nHost: memqos\r\nConnection: close\r\n\r\n")
    response = HTTPResponse(connection)
    try:
        response.begin()
        body = _read_body(response, path, deadline)
    except HTTPException as error:
        raise Unreachable(f"{path}: not a response of an agent: {type(error).__name__}") from None
    finally:
        response.close()
    if response.status != 200:
        raise Unreachable(f"{path}: the agent answers with status {response.status}")
    return body


def _read_body(response: "HTTPResponse", path: str, deadline: float) -> bytes:
    body = bytearray()
    while chunk := response.read1(_CHUNK):
        body += chunk
        if len(body) > STATE_SIZE_LIMIT:
            raise Unreachable(
                f"{path}: the agent's response is larger than {format_bytes(STATE_SIZE_LIMIT)}"
            )
        if time.monotonic() > deadline:
            raise TimeoutError
    if response.length:
        raise Unreachable(f"{path}: the agent's response is truncated")
    return bytes(body)


def _is_trusted(found: os.stat_result) -> bool:
    return stat.S_ISSOCK(found.st_mode) and found.st_uid in (0, os.geteuid())


def _unreachable(path: str, error: OSError) -> Unreachable:
    if isinstance(error, TimeoutError):
        return Unreachable(f"{path}: the agent does not answer in time")
    hint = "run as root" if isinstance(error, PermissionError) else None
    return Unreachable(f"{path}: {os_reason(error)}", hint=hint)
