"""What a bench has passed to its machine."""

from pathlib import Path


def argument(name: str) -> str:
    """From the kernel's command line: bench.NAME=VALUE."""
    words = Path("/proc/cmdline").read_text().split()
    return next(word.partition("=")[2] for word in words if word.startswith(f"bench.{name}="))
