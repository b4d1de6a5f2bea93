"""Small programs with the memory habits of real ones. Each tells of its progress, a line a step.

grow TARGET STEP    takes anonymous memory, STEP bytes at a time, and ends well at TARGET
read FILE TIMES     reads a file through the page cache, so often
burst HIGH LOW TIMES  takes HIGH bytes, gives all but LOW back, so often
stay TARGET STEP TIMES  takes that much, then touches every page of it again, so often
churn HIGH LOW STEP TIMES  as burst, but STEP bytes at a time: no huge pages
leak STEP           takes anonymous memory for as long as it is let
"""

import mmap
import sys

PAGE = mmap.PAGESIZE


def taken(size: int) -> mmap.mmap:
    """Anonymous memory, every page of it touched."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for start in range(0, size, PAGE):
        memory[start] = 1
    return memory


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def grow(target: int, step: int) -> None:
    held: list[mmap.mmap] = []
    while len(held) * step < target:
        held.append(taken(step))
        say("step")


def stay(target: int, step: int, times: int) -> None:
    held = [taken(step) for _ in range(target // step)]
    for _ in range(times):
        for memory in held:
            for start in range(0, step, PAGE):
                memory[start] = 2
        say("step")


def read(file: str, times: int) -> None:
    for _ in range(times):
        with open(file, "rb", buffering=0) as opened:
            while opened.read(1 << 20):
                pass
        say("step")


def burst(high: int, low: int, times: int) -> None:
    kept = taken(low)
    for _ in range(times):
        memory = taken(high - low)
        memory.close()
        say("step")
    kept.close()


def churn(high: int, low: int, step: int, times: int) -> None:
    kept = [taken(step) for _ in range(low // step)]
    for _ in range(times):
        for memory in [taken(step) for _ in range((high - low) // step)]:
            memory.close()
        say("step")
    kept.clear()


def leak(step: int) -> None:
    held = []
    while True:
        held.append(taken(step))
        say("step")


if __name__ == "__main__":
    name, *words = sys.argv[1:]
    if name == "read":
        read(words[0], int(words[1]))
    elif name == "burst":
        burst(*map(int, words))
    elif name == "churn":
        churn(*map(int, words))
    elif name == "grow":
        grow(*map(int, words))
    elif name == "stay":
        stay(*map(int, words))
    else:
        leak(*map(int, words))
    say("finished")
