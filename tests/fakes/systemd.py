"""systemd at the other end of a bus: units with memory properties over a fake kernel's files.

As the real one, it writes all it knows of a unit whenever one property is set and on a reload, it
remembers in drop-ins, and it takes memory.oom.group back to 0.
"""

import contextlib
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jeepney import HeaderFields, Parser, new_error, new_method_return
from tests.eventually import eventually
from tests.fakes.cgroups import FakeKernel
from tests.fakes.peer import Peer, process

FILES = {"MemoryMin": "memory.min", "MemoryLow": "memory.low", "MemoryHigh": "memory.high"}
DEFAULTS = {"MemoryMin": "0", "MemoryLow": "0", "MemoryHigh": "max"}
INFINITY = (1 << 64) - 1


class FakeSystemd(Peer):
    """systemd and its bus in one."""

    def __init__(self, folder: Path, kernel: FakeKernel) -> None:
        super().__init__(folder, "bus")
        self.kernel = kernel
        self.run = folder / "systemd"
        (self.run / "transient").mkdir(parents=True, exist_ok=True)

    def start_unit(self, path: str) -> None:
        """A transient unit of this cgroup, as kubelets and runtimes make them."""
        (self.run / "transient" / path.rpartition("/")[2]).touch()

    def reload(self) -> None:
        """What the real one does on daemon-reload."""
        for folder, _, _ in os.walk(self.kernel.folder):
            if folder.endswith((".slice", ".scope")):
                self._realise(f"/{Path(folder).relative_to(self.kernel.folder)}")

    def traces(self) -> dict[str, str]:
        """All that systemd remembers."""
        return {
            str(path.relative_to(self.run)): path.read_text() if path.is_file() else ""
            for path in sorted(self.run.rglob("*"))
        }

    @contextlib.contextmanager
    def serving(self) -> Iterator[int]:
        with contextlib.suppress(FileNotFoundError):
            self.socket.unlink()
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(self.socket))
            server.listen()
            with process(lambda ready: self._serve(server, ready)) as pid:
                server.close()
                yield pid

    def _serve(self, server: socket.socket, ready: int) -> None:
        os.write(ready, b"!")
        while True:
            client, _ = server.accept()
            # One client at a time is what the tests have.
            with client, contextlib.suppress(ConnectionError):
                self._answer(client, self._welcome(client))

    def _welcome(self, client: socket.socket) -> bytes:
        """Let anybody in; what they have sent already after that."""
        received, begin = b"", b"BEGIN\r\n"
        while begin not in received:
            received += _some(client)
            if received.endswith(b"\r\n") and b"AUTH EXTERNAL" in received.splitlines()[-1]:
                client.sendall(b"OK 0123456789abcdef0123456789abcdef\r\n")
        return received.partition(begin)[2]

    def _answer(self, client: socket.socket, received: bytes) -> None:
        parser, serial = Parser(), 0
        parser.add_data(received)
        while True:
            while (message := parser.get_next_message()) is not None:
                serial += 1
                answer = self._reply(message)
                if answer is None:
                    return
                client.sendall(answer.serialise(serial=serial))
            parser.add_data(_some(client))

    def _reply(self, message: Any) -> Any:
        if message.header.fields[HeaderFields.member] == "Hello":
            return new_method_return(message, "s", (":1.1",))
        mood = self.mood
        if mood == "hangs":
            eventually("it hangs no more", lambda: self.mood != "hangs")
            return None
        unit, runtime, properties = message.body
        self.note(unit=unit, runtime=runtime, properties={name: v for name, (_, v) in properties})
        if mood == "hangs up":
            return None
        if mood == "refuses":
            return new_error(
                message, "org.freedesktop.DBus.Error.AccessDenied", "s", ("Access denied",)
            )
        self.set_properties(unit, {name: value for name, (_, value) in properties})
        return None if mood == "hangs up after" else new_method_return(message)

    def set_properties(self, unit: str, properties: dict[str, int]) -> None:
        if not properties:
            return
        folder = self._folder(unit)
        folder.mkdir(parents=True, exist_ok=True)
        section = unit.rpartition(".")[2].capitalize()
        for name, value in properties.items():
            text = "infinity" if value == INFINITY else str(value)
            (folder / f"50-{name}.conf").write_text(f"# drop-in\n[{section}]\n{name}={text}\n")
        for path in self.kernel.folder.rglob(unit):
            self._realise(f"/{path.relative_to(self.kernel.folder)}")

    def _folder(self, unit: str) -> Path:
        transient = self.run / "transient"
        chosen = transient if (transient / unit).exists() else self.run / "system.control"
        return chosen / f"{unit}.d"

    def _realise(self, path: str) -> None:
        folder = self._folder(path.rpartition("/")[2])
        for name, file in FILES.items():
            dropin = folder / f"50-{name}.conf"
            known = re.search(r"=(\w+)", dropin.read_text()) if dropin.exists() else None
            value = known[1] if known else DEFAULTS[name]
            self.kernel.write(path, file, "max" if value == "infinity" else value)
        self.kernel.set(path, "memory.oom.group", "0")


def _some(client: socket.socket) -> bytes:
    received = client.recv(1 << 16)
    if not received:
        raise ConnectionResetError
    return received
