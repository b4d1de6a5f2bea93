"""Processes that play the other end of a socket, and keep what they were asked."""

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NoReturn

Mood = Literal["well", "refuses", "hangs", "hangs up", "hangs up after"]
"""How a peer answers; the last does what it was asked, and hangs up before it says so."""


class Peer:
    """What is known of a peer on this side."""

    def __init__(self, folder: Path, name: str) -> None:
        self.socket = folder / f"{name}.sock"
        self._log = folder / f"{name}.log"
        self._mood = folder / f"{name}.mood"
        self._log.touch()

    @property
    def calls(self) -> list[dict[str, Any]]:
        """What was asked that would change something, in order."""
        return [json.loads(line) for line in self._log.read_text().splitlines()]

    def forget(self) -> None:
        self._log.write_text("")

    @property
    def mood(self) -> Mood:
        try:
            return self._mood.read_text()  # type: ignore[return-value]
        except FileNotFoundError:
            return "well"

    @mood.setter
    def mood(self, mood: Mood) -> None:
        self._mood.write_text(mood)

    def note(self, **call: Any) -> None:
        """The peer's own word about a call."""
        with self._log.open("a") as log:
            log.write(json.dumps(call) + "\n")


@contextlib.contextmanager
def process(serve: Callable[[int], None]) -> Iterator[int]:
    """Run a server in a process of its own until the block is left.

    It writes a byte to the handle it is given when it can be connected to.
    """
    ready, readying = os.pipe()
    child = os.fork()
    if not child:
        os.close(ready)
        _serve(serve, readying)
    os.close(readying)
    try:
        assert os.read(ready, 1) == b"!", "the peer did not start"
        yield child
    finally:
        os.close(ready)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _serve(serve: Callable[[int], None], readying: int) -> NoReturn:
    try:
        serve(readying)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(1)
