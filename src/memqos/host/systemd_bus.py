"""systemd's manager over the system bus: the properties of a unit, all in one call."""

import os
from collections.abc import Mapping
from typing import Any, Final

from jeepney import DBusAddress, HeaderFields, MessageType, new_method_call
from jeepney.auth import AuthenticationError
from jeepney.io.blocking import DBusConnection, open_dbus_connection

from memqos.errors import MemqosError, Unreachable

BUS: Final = "/run/dbus/system_bus_socket"
MANAGER: Final = DBusAddress(
    "/org/freedesktop/systemd1", "org.freedesktop.systemd1", "org.freedesktop.systemd1.Manager"
)
NO_SUCH_UNIT: Final = "org.freedesktop.systemd1.NoSuchUnit"
_AWAY: Final = frozenset(
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
"""What the bus answers while systemd is not on it, as when it executes itself anew."""


class Refused(MemqosError):
    """systemd answered, and the answer is no."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message or name)
        self.name = name


def bus_address() -> str:
    """Where the system bus listens: a path, or what the environment says."""
    return os.environ.get("DBUS_SYSTEM_BUS_ADDRESS") or f"unix:path={BUS}"


class Manager:
    """systemd; connected to when it is first asked, and anew when the bus was restarted.

    A bus or a systemd that does not answer in time is not asked again.
    """

    def __init__(self, timeout: float, address: str | None = None) -> None:
        self.timeout = timeout
        self.address = address or bus_address()
        self._connection: DBusConnection | None = None
        self._silence: Unreachable | None = None

    def set_properties(self, unit: str, properties: Mapping[str, int]) -> None:
        """Set properties of a unit until the next boot; all of them or none is taken."""
        values = [(name, ("t", value)) for name, value in properties.items()]
        self._ask("SetUnitProperties", "sba(sv)", (unit, True, values))

    def close(self) -> None:
        """Hang up; the next call connects anew."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, method: str, signature: str, body: tuple[Any, ...]) -> tuple[Any, ...]:
        if self._silence is not None:
            raise self._silence
        is_used = self._connection is not None
        try:
            reply = self._connected().send_and_get_reply(
                new_method_call(MANAGER, method, signature, body), timeout=self.timeout
            )
        except TimeoutError:
            self.close()
            self._silence = Unreachable(
                f"systemd: no answer over the bus within {self.timeout:g} s",
                hint="see whether it is well: systemctl status; --timeout waits longer",
            )
            raise self._silence from None
        except (OSError, AuthenticationError) as error:
            self.close()
            if is_used:
                return self._ask(method, signature, body)
            raise _away(getattr(error, "strerror", None) or str(error)) from None
        return _body(reply)

    def _connected(self) -> DBusConnection:
        if self._connection is None:
            self._connection = open_dbus_connection(self.address, auth_timeout=self.timeout)
        return self._connection


def _body(reply: Any) -> tuple[Any, ...]:
    if reply.header.message_type is not MessageType.error:
        return tuple(reply.body)
    name = reply.header.fields.get(HeaderFields.error_name, "")
    message = str(reply.body[0]) if reply.body else ""
    if name in _AWAY:
        raise _away(message or name)
    raise Refused(name, message)


def _away(why: str) -> Unreachable:
    return Unreachable(
        f"systemd cannot be reached over the bus: {why}",
        hint="apply again when the bus is back: systemctl status dbus",
    )
