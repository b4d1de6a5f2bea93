"""Runs a command in a machine that QEMU runs, and brings back what came of it."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from memqos.errors import LabError
from memqos.lab.vm.image import MachineImage
from memqos.lab.vm.tools import find_program
from memqos.lab.vm.topology import Accel, Topology
from memqos.units import format_bytes

PORTS: Final = ("progress", "output", "result")
_TRIES: Final = 2
_LONGEST_LINE: Final = 1 << 20
"""Bytes; an event has some thousands."""
LEAST_DISK: Final = 1 << 20
"""Bytes that QEMU can still write."""
MOST_SENT: Final = 64 << 20
"""Bytes of events, output and console: all experiments, a hundred times, send less."""
_LOOK: Final = 0.1
"""Seconds between two looks at what a machine has sent."""

_INIT_ARGUMENTS: Final = {
    "tiny": (),
    "systemd": (
        "memqos.init=/lib/systemd/systemd",
        "systemd.unit=memqos-job.target",
        "systemd.show_status=0",
    ),
}


class Job(NamedTuple):
    """What a machine is to run, and on what."""

    command: tuple[str, ...]
    """Its words have neither spaces nor commas; it starts in /memqos."""
    topology: Topology
    image: MachineImage
    payload: Path
    seconds: int
    """The most that it may take, of the host's."""
    accel: Accel = "tcg"


class Outcome(NamedTuple):
    """What a machine sent before it ended, and how it ended."""

    progress: list[str]
    output: str
    result: bytes
    console: str
    emulator: str
    timed_out: bool

    @property
    def exit_code(self) -> int | None:
        """That of the command; None where it was never received."""
        return next((int(line.split()[1]) for line in self.progress if "exited" in line), None)

    @property
    def lost(self) -> bool:
        """Whether the machine itself failed, and not a command that hangs."""
        hangs = self.timed_out and "started" in self.progress
        return self.exit_code is None and not hangs

    def story(self) -> str:
        """Everything there is to know about a run that left no result."""
        ended = "was stopped: it took too long" if self.timed_out else "ended by itself"
        parts = {
            f"the machine {ended}; its progress": "\n".join(self.progress),
            "output of the command": self.output,
            "the kernel's console": self.console[-4000:],
            "the emulator": self.emulator,
        }
        return "\n".join(f"--- {title}\n{text.strip()}" for title, text in parts.items())


class VM:
    """A machine that lives as long as its `with` block, or shorter.

    It does not outlive the process that started it either, not even one that is killed.
    """

    def __init__(self, job: Job, folder: Path) -> None:
        self._job = job
        self._folder = folder
        self._timed_out = False

    def __enter__(self) -> Self:
        if self._job.topology.swap:
            with self._swap.open("wb") as disk:
                disk.truncate(self._job.topology.swap << 20)
        with self._log("emulator").open("wb") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self._command()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Where QEMU keeps what the guest writes to its root.
                env={**os.environ, "TMPDIR": str(self._folder)},
                # Ctrl-C is for the process that started it, which then ends the machine.
                start_new_session=True,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._swap.unlink(missing_ok=True)

    def result_lines(self, silence: float) -> Iterator[bytes]:
        """What the machine sends, a line at a time, until it powers off or is silent too long."""
        deadline = time.monotonic() + silence
        rest, at, has_ended = b"", 0, False
        while not has_ended:
            has_ended = self._process.poll() is not None
            if not has_ended and time.monotonic() > deadline:
                self._end()
                has_ended = True
            # Only now: what was sent before the end is in the file.
            with self._log("result").open("ab+") as file:
                file.seek(at)
                more = file.read(_LONGEST_LINE)
                has_ended = has_ended and not more
            at += len(more)
            if more:
                deadline = time.monotonic() + silence
            *lines, rest = (rest + more).split(b"\n")
            if len(rest) > _LONGEST_LINE:
                raise LabError("the virtual machine sent a line that has no end")
            yield from lines
            if not has_ended:
                self._check_disk()
                self._check_sent()
                time.sleep(_LOOK)

    def _check_disk(self) -> None:
        """Where QEMU cannot write, the machine stands still and cannot say why."""
        if shutil.disk_usage(self._folder).free < LEAST_DISK:
            raise LabError(
                f"the virtual machine has no disk left in {self._folder.parent}",
                hint="free some, or choose another place with TMPDIR",
            )

    def _check_sent(self) -> None:
        """What a machine sends is kept on the host's disk, and events in its memory."""
        if sum(log.stat().st_size for log in self._folder.glob("*.log")) > MOST_SENT:
            raise LabError(f"the virtual machine sent more than {format_bytes(MOST_SENT)}")

    def outcome(self) -> Outcome:
        """Wait for the machine to power off; one that takes too long is ended."""
        try:
            self._process.wait(self._job.seconds)
        except subprocess.TimeoutExpired:
            self._end()
        return Outcome(
            progress=self._text("progress").splitlines(),
            output=self._text("output"),
            result=self._log("result").read_bytes() if self._log("result").exists() else b"",
            console=self._text("console"),
            emulator=self._text("emulator"),
            timed_out=self._timed_out,
        )

    def _end(self) -> None:
        self._timed_out = True
        self._process.kill()
        self._process.wait()

    @property
    def _swap(self) -> Path:
        return self._folder / "swap"

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _text(self, name: str) -> str:
        log = self._log(name)
        return log.read_text(errors="replace") if log.exists() else ""

    def _command(self) -> Iterator[str]:
        image, topology = self._job.image, self._job.topology
        yield find_program("qemu-system-x86_64") or "qemu-system-x86_64"
        # Emulated unless KVM is requested, even where it is available: a nested one may hang.
        # 6.12 oopsed (int3 in sched_clock_cpu) in one of 17 boots with a thread for each processor.
        threads = "multi" if topology.suite == "bookworm" else "single"
        accel = f"tcg,thread={threads}" if self._job.accel == "tcg" else self._job.accel
        if topology.counts_instructions:
            accel = "tcg,thread=single"
            yield from ("-icount", "shift=0,sleep=off")
        yield from ("-accel", accel, "-machine", "q35", "-cpu", "max")
        yield from ("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot")
        yield from ("-kernel", str(image.kernel), "-initrd", str(image.initrd))
        yield from ("-append", " ".join(self._kernel_arguments()))
        yield from ("-serial", f"file:{self._log('console')}", "-device", "virtio-rng-pci")
        yield from ("-device", "virtio-serial-pci")
        for port in PORTS:
            yield from ("-chardev", f"file,id={port},path={self._log(port)}")
            yield from ("-device", f"virtserialport,chardev={port},name=memqos.{port}")
        yield from ("-drive", f"file={image.root},format=raw,if=virtio,snapshot=on,cache=unsafe")
        yield from ("-drive", f"file={self._job.payload},format=raw,if=virtio,readonly=on")
        if topology.swap:
            yield from ("-drive", f"file={self._swap},format=raw,if=virtio,cache=unsafe")
        yield from ("-m", f"{sum(topology.nodes)}M", "-smp", str(topology.cpus))
        yield from _numa(topology)

    def _kernel_arguments(self) -> Iterator[str]:
        topology = self._job.topology
        # A panic reboots at once, which for this machine is the end.
        yield from ("console=ttyS0", "quiet", "panic=-1", "mitigations=off")
        yield from _INIT_ARGUMENTS[topology.init]
        yield f"memqos.command={','.join(self._job.command)}"
        yield f"memqos.cgroup={','.join(_cgroup_options(topology))}"
        yield from topology.kernel_arguments


def _cgroup_options(topology: Topology) -> Iterator[str]:
    yield from ("nosuid", "nodev", "noexec", "nsdelegate")
    if topology.recursive_protection:
        yield "memory_recursiveprot"


def _numa(topology: Topology) -> Iterator[str]:
    for node, memory in enumerate(topology.nodes):
        cpus = "".join(f",cpus={cpu}" for cpu in range(node, topology.cpus, len(topology.nodes)))
        yield from ("-object", f"memory-backend-ram,id=memory{node},size={memory}M")
        yield from ("-numa", f"node,nodeid={node},memdev=memory{node}{cpus}")
    for source, row in enumerate(topology.distances):
        for target, distance in enumerate(row):
            yield from ("-numa", f"dist,src={source},dst={target},val={distance}")


def run_job(job: Job, folder: Path) -> Outcome:
    """Run a command to its end. A machine that is lost is tried again, a command never."""
    for attempt in range(1, _TRIES + 1):
        own_folder = folder / f"try-{attempt}"
        own_folder.mkdir()
        with VM(job, own_folder) as machine:
            outcome = machine.outcome()
        if not outcome.lost:
            break
    return outcome
