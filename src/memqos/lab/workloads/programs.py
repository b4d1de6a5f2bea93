"""Small programs with the memory habits of real ones. Each reports its progress, a line a step.

grow TARGET STEP          takes anonymous memory, STEP bytes at a time, and ends well at TARGET
read FILE TIMES [PAUSE]   reads a file through the page cache, so often, PAUSE ms apart
serve FILE SIZE TIMES     takes SIZE bytes, reads the file, gives them back; reports µs of both
burst HIGH LOW TIMES      takes HIGH bytes, gives all but LOW back, so often
stay TARGET STEP TIMES    takes that much, then touches every page of it again; reports µs
churn HIGH LOW STEP TIMES  as burst, but STEP bytes at a time: no huge pages
leak STEP                 takes anonymous memory for as long as it is let

TIMES 0 is for as long as it is let.
"""

import mmap
import sys
import time
from collections.abc import Callable, Iterator

MEBIBYTE = b"\1" * (1 << 20)


def taken(size: int) -> mmap.mmap:
    """Anonymous memory, every page of it touched."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    touch(memory)
    return memory


def touch(memory: mmap.mmap) -> None:
    """By blocks: a loop over pages would take longer than the pages themselves."""
    for start in range(0, len(memory), len(MEBIBYTE)):
        block = MEBIBYTE[: len(memory) - start]
        memory[start : start + len(block)] = block


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def laps(times: int) -> Iterator[int]:
    lap = 0
    while not times or lap < times:
        yield lap
        lap += 1


def microseconds() -> int:
    return time.monotonic_ns() // 1000


def grow(target: int, step: int) -> None:
    held: list[mmap.mmap] = []
    while len(held) * step < target:
        held.append(taken(step))
        say("step")


def stay(target: int, step: int, times: int) -> None:
    held = [taken(step) for _ in range(target // step)]
    for _ in laps(times):
        start = microseconds()
        for memory in held:
            touch(memory)
        say("step", microseconds() - start)


def read_once(file: str) -> None:
    with open(file, "rb", buffering=0) as opened:
        while opened.read(1 << 20):
            pass


def read(file: str, times: int, pause: int = 0) -> None:
    for _ in laps(times):
        read_once(file)
        say("step")
        time.sleep(pause / 1000)


def serve(file: str, size: int, times: int) -> None:
    for _ in laps(times):
        start = microseconds()
        memory = taken(size)
        took = microseconds()
        read_once(file)
        say("step", took - start, microseconds() - took)
        memory.close()


def burst(high: int, low: int, times: int) -> None:
    kept = taken(low)
    for _ in laps(times):
        memory = taken(high - low)
        memory.close()
        say("step")
    kept.close()


def churn(high: int, low: int, step: int, times: int) -> None:
    kept = [taken(step) for _ in range(low // step)]
    for _ in laps(times):
        for memory in [taken(step) for _ in range((high - low) // step)]:
            memory.close()
        say("step")
    kept.clear()


def leak(step: int) -> None:
    held = []
    while True:
        held.append(taken(step))
        say("step")


PROGRAMS: dict[str, Callable[..., None]] = {
    function.__name__: function for function in (grow, stay, read, serve, burst, churn, leak)
}

if __name__ == "__main__":
    name, *words = sys.argv[1:]
    PROGRAMS[name](*[int(word) if word.isdigit() else word for word in words])
    say("finished")
