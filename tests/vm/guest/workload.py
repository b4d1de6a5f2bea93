"""Holds anonymous memory: for every line it reads that many bytes more, touched, then answered."""

import mmap
import sys

BLOCK = b"\1" * (1 << 20)

held = []
for line in sys.stdin:
    size = int(line)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for start in range(0, size, len(BLOCK)):
        block = BLOCK[: size - start]
        memory[start : start + len(block)] = block
    held.append(memory)
    sys.stdout.write("held\n")
    sys.stdout.flush()
