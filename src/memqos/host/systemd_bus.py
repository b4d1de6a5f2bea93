"""systemd's manager over the system bus: the properties of a unit, all in one call."""

import socket
import time
from collections.abc import Mapping
from typing import Any, Final

from jeepney import DBusAddress, HeaderFields, MessageType, Parser, new_method_call
from jeepney.auth import AuthenticationError
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import prep_socket

from memqos.errors import MemqosError, Unreachable
from memqos.host.backoff import CircuitBreaker

MANAGER: Final = DBusAddress(
    "/org/freedesktop/systemd1", "org.freedesktop.systemd1", "org.freedesktop.systemd1.Manager"
)
NO_SUCH_UNIT: Final = "org.freedesktop.systemd1.NoSuchUnit"
_UNAVAILABLE: Final = frozenset(
    f"org.freedesktop.DBus.Error.{name}"
    for name in (
        "Disconnected",
        "NameHasNoOwner",
        "NoReply",
        "NoServer",
        "ServiceUnknown",
        "Spawn.ChildExited",
        "Spawn.ChildSignaled",
        "TimedOut",
        "Timeout",
    )
)
"""What the bus answers while systemd is not connected to it, as during systemctl daemon-reexec."""
_CHUNK: Final = 4096


class SystemdError(MemqosError):
    """systemd answered with an error."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message or name)
        self.name = name


class SystemdManager:
    """systemd over the bus; connected to at the first call, and again after the bus restarted."""

    def __init__(self, bus: str, timeout: float) -> None:
        self.bus = bus
        self.timeout = timeout
        self._connection: _Connection | None = None
        self._breaker = CircuitBreaker()

    def set_properties(self, unit: str, properties: Mapping[str, int]) -> None:
        """Set properties of a unit until the next boot; systemd takes all of them or none."""
        # True is `runtime`: the drop-ins go to /run and end with the boot, as the kubelet's and the
        # runtimes' units do (org.freedesktop.systemd1(5), SetUnitProperties).
        values = [(name, ("t", value)) for name, value in properties.items()]
        self._call(new_method_call(MANAGER, "SetUnitProperties", "sba(sv)", (unit, True, values)))

    def close(self) -> None:
        """Close the connection; the next call connects again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _call(self, call: Any) -> None:
        self._breaker.check()
        is_used = self._connection is not None
        try:
            if self._connection is None:
                self._connection = _Connection(self.bus, self.timeout)
            reply = self._connection.call(call)
        except TimeoutError:
            self.close()
            raise self._breaker.trip(
                Unreachable(
                    f"systemd: no answer over the bus within {self.timeout:g} s",
                    hint="check systemctl status; --timeout waits longer",
                )
            ) from None
        except (OSError, AuthenticationError) as error:
            self.close()
            if is_used:
                self._call(call)
                return
            raise _unavailable(getattr(error, "strerror", None) or str(error)) from None
        _raise_error(reply)


class _Connection:
    """One connection to the bus; each call waits for its answer, for a bounded time."""

    def __init__(self, bus: str, timeout: float) -> None:
        self._timeout = timeout
        self._socket: socket.socket = prep_socket(bus, timeout=timeout)
        self._parser = Parser()
        self._serial = 0
        try:
            self.call(message_bus.Hello())
        except BaseException:
            self.close()
            raise

    def call(self, call: Any) -> Any:
        deadline = time.monotonic() + self._timeout
        self._serial += 1
        self._socket.settimeout(self._timeout)
        self._socket.sendall(call.serialise(serial=self._serial))
        while True:
            message = self._parser.get_next_message()
            if message is None:
                self._receive(deadline)
            elif message.header.fields.get(HeaderFields.reply_serial) == self._serial:
                return message

    def close(self) -> None:
        self._socket.close()

    def _receive(self, deadline: float) -> None:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        self._socket.settimeout(remaining)
        received = self._socket.recv(_CHUNK)
        if not received:
            raise ConnectionResetError("the connection was closed")
        self._parser.add_data(received)


def _raise_error(reply: Any) -> None:
    if reply.header.message_type is not MessageType.error:
        return
    name = reply.header.fields.get(HeaderFields.error_name, "")
    message = str(reply.body[0]) if reply.body else ""
    if name in _UNAVAILABLE:
        raise _unavailable(message or name)
    raise SystemdError(name, message)


def _unavailable(why: str) -> Unreachable:
    return Unreachable(
        f"systemd cannot be reached over the bus: {why}",
        hint="apply again when the bus is back: systemctl status dbus",
    )
