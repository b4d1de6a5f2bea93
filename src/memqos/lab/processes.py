"""Processes of an experiment: one that holds memory on request, programs that run unattended."""

import os
import select
import signal
import subprocess
from pathlib import Path
from typing import Final

from memqos.lab.waiting import wait_until

HOLD_FILE: Final = Path(__file__).with_name("workloads") / "hold.py"
PROGRAMS_FILE: Final = Path(__file__).with_name("workloads") / "programs.py"


class HoldingProcess:
    """A process that holds as much memory of its own as was requested."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, size: int, *, huge: bool = False) -> None:
        """Have it take more memory, which it may never finish."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{size} huge\n" if huge else f"{size}\n")
        self._process.stdin.flush()

    def hold(self, size: int, *, huge: bool = False) -> None:
        """Have it take more memory; returns when it has touched all of it."""
        self.ask(size, huge=huge)
        wait_until(f"{size} bytes are held", self.answered)

    def answered(self) -> bool:
        """Whether it reports that it holds what was requested; each answer is read once."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], 0)
        return bool(ready) and self._process.stdout.readline() == "held\n"

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def killed_by(self) -> int | None:
        """The signal that ended it, if one did."""
        code = self._process.poll()
        return -code if code is not None and code < 0 else None

    def end(self) -> None:
        """Kill it."""
        self._process.kill()
        try:
            self._process.communicate()
        except BrokenPipeError:  # it died with a request unread
            self._process.wait()


class RunningProgram:
    """A process that runs unattended, and reports its progress line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._text = ""

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def steps(self) -> int:
        """How far it has come."""
        return sum(line.partition(" ")[0] == "step" for line in self._lines())

    @property
    def figures(self) -> list[tuple[int, ...]]:
        """The numbers that it has reported with its steps."""
        words = [line.split() for line in self._lines()]
        return [tuple(map(int, rest)) for name, *rest in words if name == "step"]

    @property
    def finished(self) -> bool:
        """Whether it has done all it was to do."""
        return self._lines()[-1:] == ["finished"]

    @property
    def killed(self) -> bool:
        return self._process.poll() == -signal.SIGKILL

    @property
    def over(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()
        self._lines()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _lines(self) -> list[str]:
        """Whole lines."""
        assert self._process.stdout is not None
        try:
            while not self._process.stdout.closed and (
                more := os.read(self._process.stdout.fileno(), 1 << 16)
            ):
                self._text += more.decode()
        except BlockingIOError:  # it runs on
            pass
        return self._text[: self._text.rfind("\n") + 1].splitlines()
