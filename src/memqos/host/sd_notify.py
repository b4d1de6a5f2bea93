"""Tell the service manager how things stand, as sd_notify(3) does."""

import os
import socket
from collections.abc import Mapping
from typing import Final

_SOCKET: Final = "NOTIFY_SOCKET"
_WATCHDOG: Final = "WATCHDOG_USEC"
_WATCHED: Final = "WATCHDOG_PID"


class ServiceNotifier:
    """The manager that started this process; without one nothing is said."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        given = os.environ if environment is None else environment
        self._address = given.get(_SOCKET, "")
        self.watchdog = _seconds(given)
        """The manager wants to hear of us this often; None where it does not."""

    def notify(self, **state: str | int) -> None:
        """Such as READY=1, STATUS="…". A manager that does not listen is no fault."""
        if not self._address:
            return
        # sd_notify(3): a leading @ stands for the NUL of an abstract socket.
        address = f"\0{self._address[1:]}" if self._address[0] == "@" else self._address
        message = "\n".join(f"{name}={value}" for name, value in state.items())
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)
            try:
                sender.sendto(message.encode("utf-8", "replace"), address)
            except OSError:
                return


def _seconds(given: Mapping[str, str]) -> float | None:
    micro, process = given.get(_WATCHDOG, ""), given.get(_WATCHED, "")
    if not micro.isdecimal() or (process and process != str(os.getpid())):
        return None
    return int(micro) / 1_000_000 or None
