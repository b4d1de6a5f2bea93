"""The drop-in files by which systemd remembers, until the next boot, a property it was told."""

import os
from contextlib import suppress
from typing import Final

RUN: Final = "/run/systemd"


class DropIns:
    """Those below systemd's runtime directory, a file for each property of a unit."""

    def __init__(self, run: str = RUN) -> None:
        self.run = run

    def read(self, unit: str, name: str) -> str | None:
        """What it says of a property; None where it says nothing."""
        try:
            with open(self._file(unit, name), encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def restore(self, unit: str, name: str, content: str | None) -> None:
        """Have it say what it said before."""
        path = self._file(unit, name)
        if content is not None:
            if self.read(unit, name) != content:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(content)
            return
        with suppress(FileNotFoundError):
            os.unlink(path)
        with suppress(OSError):
            # Others may be beside it.
            os.rmdir(os.path.dirname(path))

    def _file(self, unit: str, name: str) -> str:
        # systemd keeps what it is told of a transient unit, as kubelet and runtimes make them,
        # beside that unit, and removes it with the unit.
        transient = f"{self.run}/transient"
        is_transient = os.path.exists(f"{transient}/{unit}")
        folder = transient if is_transient else f"{self.run}/system.control"
        return f"{folder}/{unit}.d/50-{name}.conf"
