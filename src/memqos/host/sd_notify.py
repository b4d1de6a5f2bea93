"""Notify the service manager of the service's state, as sd_notify(3) does."""

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

_SOCKET: Final = "NOTIFY_SOCKET"
_WATCHDOG: Final = "WATCHDOG_USEC"
_WATCHED: Final = "WATCHDOG_PID"


class ServiceNotifier:
    """The manager that started this process; without one nothing is sent."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        variables = os.environ if environment is None else environment
        self._address = variables.get(_SOCKET, "")
        self.watchdog = _watchdog_seconds(variables)
        """Seconds within which the manager expects a keep-alive; None where it does not."""

    def notify(self, **state: str | int) -> None:
        """Send states such as READY=1 or STATUS="…". A manager that does not listen is no error."""
        if not self._address:
            return
        # sd_notify(3): a leading @ stands for the NUL of an abstract socket.
        address = f"\0{self._address[1:]}" if self._address[0] == "@" else self._address
        message = "\n".join(f"{name}={value}" for name, value in state.items())
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        # Without a free file descriptor, too: the next message may get through.
        with suppress(OSError), socket.socket(socket.AF_UNIX, kind) as sender:
            sender.sendto(message.encode("utf-8", "replace"), address)


def _watchdog_seconds(variables: Mapping[str, str]) -> float | None:
    # sd_watchdog_enabled(3): microseconds, and the process they apply to.
    micro, process = variables.get(_WATCHDOG, ""), variables.get(_WATCHED, "")
    if not micro.isdecimal() or (process and process != str(os.getpid())):
        return None
    return int(micro) / 1_000_000 or None
