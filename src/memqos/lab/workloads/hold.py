"""Holds memory: for every line it reads that many bytes more, touched, then answered.

A line is a size, and `huge` where the memory is to be of huge pages.
"""

import mmap
import sys

BLOCK = b"\1" * (1 << 20)
MAP_HUGETLB = 0x40000

held = []
for line in sys.stdin:
    size, *kind = line.split()
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (MAP_HUGETLB if kind else 0)
    memory = mmap.mmap(-1, int(size), flags=flags)
    for start in range(0, len(memory), len(BLOCK)):
        block = BLOCK[: len(memory) - start]
        memory[start : start + len(block)] = block
    held.append(memory)
    sys.stdout.write("held\n")
    sys.stdout.flush()
