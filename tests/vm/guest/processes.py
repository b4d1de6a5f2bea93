"""What a process of this machine has and may do, as the kernel shows it."""

import os
from pathlib import Path


def status_of(pid: int) -> dict[str, str]:
    """Its status, by name."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def writable_mounts(pid: int) -> set[str]:
    """Where it may write, as far as mounts go; devices and processes are guarded by other means."""
    lines = [line.split() for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
    writable = {line[4] for line in lines if "rw" in line[5].split(",")}
    return {path for path in writable if path.split("/")[1] not in ("proc", "dev")}


def watches() -> int:
    """How many inotify watches of this process the kernel knows."""
    handles = os.listdir("/proc/self/fdinfo")
    found = 0
    for handle in handles:
        try:
            with open(f"/proc/self/fdinfo/{handle}", encoding="ascii") as file:
                found += sum(line.startswith("inotify ") for line in file)
        except FileNotFoundError:  # that of the listing itself
            continue
    return found
