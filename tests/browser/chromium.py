"""A real browser without a screen: Debian's chromium, asked over its debugging protocol.

`python -m tests.browser.chromium` installs it, as root.
"""

import base64
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.eventually import PATIENCE, eventually

PACKAGE = "chromium"
NPM = "npm"
"""Gets axe-core. Its package brings some hundred others: only CI installs it."""
GET_IT = "make browser-tools (as root)"


def program() -> str | None:
    """Where the browser is."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


def obstacle() -> str | None:
    """Why no page can be opened here, and what to do about it."""
    return None if program() else f"needs {PACKAGE}; get it with: {GET_IT}"


class Tab:
    """A page that is open."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask the browser for something, and keep what it tells meanwhile."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        self._connection.sendall(_frame(json.dumps(message).encode()))
        while True:
            answer = json.loads(_message(self._connection))
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result = answer["result"]
                assert isinstance(result, dict)
                return result
            self.events.append(answer)

    def value(self, expression: str) -> Any:
        """What a script in the page comes to."""
        result = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def open(self, url: str, width: int, *, dark: bool = False) -> None:
        """Open a page on a screen of some width."""
        self.events.clear()
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.ask("Emulation.setEmulatedMedia", features=scheme)
        self.ask("Page.navigate", url=url)
        eventually(
            "the page has loaded",
            lambda: (
                self.value("document.readyState") == "complete"
                and self.value("location.href") == url
            ),
        )

    def picture(self, file: Path) -> None:
        """Keep the whole page as an image."""
        data = self.ask("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        file.write_bytes(base64.b64decode(data))

    def complaints(self) -> list[str]:
        """What the page wrote to the console, and what went wrong in it."""
        telling = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [str(event) for event in self.events if event.get("method") in telling]

    def requests(self) -> list[str]:
        """What the page asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]


@contextmanager
def browser() -> Iterator[Tab]:
    """A browser with one page."""
    found = program()
    assert found is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [
            found,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--hide-scrollbars",
            "--remote-debugging-port=0",
            f"--user-data-dir={profile}",
            "about:blank",
        ]
        quiet = subprocess.DEVNULL
        with subprocess.Popen(command, stdout=quiet, stderr=quiet) as process:
            try:
                connection = _connected(_port(Path(profile)))
                try:
                    yield Tab(connection)
                finally:
                    connection.close()
            finally:
                process.terminate()


def _port(profile: Path) -> int:
    port_file = profile / "DevToolsActivePort"
    eventually(
        "the browser has started", lambda: port_file.exists() and port_file.read_text().strip()
    )
    return int(port_file.read_text().split()[0])


def _connected(port: int) -> socket.socket:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list") as answer:
        page = next(each for each in json.load(answer) if each["type"] == "page")
    path = page["webSocketDebuggerUrl"].partition(f":{port}")[2]
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    key = base64.b64encode(os.urandom(16)).decode()
    head = [
        f"GET {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {key}",
        "Sec-WebSocket-Version: 13",
    ]
    connection.sendall("\r\n".join([*head, "", ""]).encode())
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        answer += connection.recv(1)
    assert b" 101 " in answer.split(b"\r\n")[0]
    return connection


def _frame(data: bytes) -> bytes:
    """A text frame, masked as RFC 6455 wants it of a client."""
    mask = os.urandom(4)
    if len(data) < 126:
        head = struct.pack("!BB", 0x81, 0x80 | len(data))
    elif len(data) < 1 << 16:
        head = struct.pack("!BBH", 0x81, 0xFE, len(data))
    else:
        head = struct.pack("!BBQ", 0x81, 0xFF, len(data))
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))


def _message(connection: socket.socket) -> bytes:
    parts = b""
    while True:
        first, second = _exactly(connection, 2)
        size = second & 0x7F
        if size == 126:
            (size,) = struct.unpack("!H", _exactly(connection, 2))
        elif size == 127:
            (size,) = struct.unpack("!Q", _exactly(connection, 8))
        parts += _exactly(connection, size)
        if first & 0x80:
            return parts


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        assert more, "the browser is gone"
        data += more
    return data


def install() -> int:
    """Install what is missing; needs root and apt-get."""
    missing = [] if program() else [PACKAGE]
    if os.environ.get("CI") == "true" and shutil.which(NPM) is None:
        missing.append(NPM)
    if not missing:
        return 0
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "-q", "update"],
        ["apt-get", "-qy", "install", "--no-install-recommends", *missing],
    ):
        done = subprocess.run(command, env=environment, check=False)
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(install())
