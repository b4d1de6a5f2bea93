"""The flight recorder: bytes and processor time for a container and an hour, by what it does."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator

from memqos.agent.flight_recorder import FlightRecorder
from memqos.host.record_clock import RecordClock
from memqos.host.record_files import RecordBounds, RecordWriter
from memqos.record.format import Subject

CONTAINERS = 20
HOUR = 3600
EVERY = 5
"""Seconds between two samples."""
MIB = 1 << 20
START = 1_772_445_600


def report() -> Iterator[str]:
    """An hour of several containers, each kind on its own, as an agent samples them."""
    for name, life in LIVES.items():
        size, writes, seconds = _hour(life)
        yield (
            f"{name}: {size / 1024:.1f} KiB and {seconds * 1000:.0f} ms of processor time a "
            f"container-hour, {writes:.0f} records"
        )
    bounds = RecordBounds()
    yield (
        f"bounded by {bounds.bytes_each >> 10} KiB a container, {bounds.containers} containers: "
        f"{bounds.total >> 20} MiB"
    )


def _hour(life: Callable[[int], tuple[int, int]]) -> tuple[float, float, float]:
    """Bytes, records and processor seconds of one container."""
    subjects = [
        Subject(0, "bench", f"pod-{n}", f"uid-{n}", "app", "Burstable") for n in range(CONTAINERS)
    ]
    with tempfile.TemporaryDirectory() as folder:
        now = float(START)
        recorder = RecordWriter(
            folder,
            RecordBounds(bytes_each=1 << 30),
            clock=RecordClock(uptime=lambda: now, wall=lambda: now),
        )
        flight_recorder = FlightRecorder(recorder)
        count = 0
        note = recorder.add

        def counting(who: Subject, *records: object) -> None:
            nonlocal count
            count += len(records)
            note(who, *records)  # type: ignore[arg-type]

        recorder.add = counting  # type: ignore[method-assign]
        cpu = time.process_time()
        for second in range(0, HOUR, EVERY):
            now = START + second
            files = _files(*life(second))
            for number, who in enumerate(subjects):
                flight_recorder.record_sample(f"/pods/{number}", who, files, int(now * 1000))
            recorder.flush()
        cpu = time.process_time() - cpu
        size = sum(entry.stat().st_size for entry in os.scandir(folder))
    return size / CONTAINERS, count / CONTAINERS, cpu / CONTAINERS


def _files(current: int, high_events: int) -> dict[str, str]:
    statistics = "\n".join(f"{name} {current // (n + 1)}" for n, name in enumerate(_STATISTICS))
    return {
        "memory.current": str(current),
        "memory.stat": statistics,
        "memory.events": f"low 0\nhigh {high_events}\nmax 0\noom 0\noom_kill 0\n",
        "memory.pressure": f"some total={high_events * 9}\nfull total={high_events * 5}\n",
        "memory.min": "0",
        "memory.low": str(256 * MIB),
        "memory.high": str(486 * MIB),
        "memory.max": str(512 * MIB),
        "memory.swap.max": "0",
        "memory.swap.current": "0",
    }


_STATISTICS = ("anon", "file", "kernel", "shmem", "inactive_file", *(f"s{n}" for n in range(45)))
"""memory.stat has some fifty lines."""


def _idle(second: int) -> tuple[int, int]:
    return 200 * MIB, 0


def _growing(second: int) -> tuple[int, int]:
    return (100 + second // 9) * MIB, 0


def _wild(second: int) -> tuple[int, int]:
    return (400 if second // EVERY % 2 else 150) * MIB, 0


def _throttled(second: int) -> tuple[int, int]:
    return 486 * MIB, second * 50 if second // 60 % 2 else second // 60 * 60 * 50


LIVES: dict[str, Callable[[int], tuple[int, int]]] = {
    "idle": _idle,
    "growing by 400 MiB": _growing,
    "as wild as can be": _wild,
    "throttled every other minute": _throttled,
}
