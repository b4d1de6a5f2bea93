"""How long a command takes to start, beside the interpreter that runs it."""

import compileall
import subprocess
import sys
import time
from collections.abc import Iterator

ROUNDS = 15
MOST = 10.0
ENTRY = "from memqos.cli.main import main; main()"
"""What the installed script runs."""
COMMANDS = {
    "memqos --help": ["-c", ENTRY, "--help"],
    "memqos explain examples/one.yaml": ["-c", ENTRY, "explain", "examples/one.yaml"],
}


def report() -> Iterator[str]:
    """The best of several rounds, taken in turns so that all see the same machine."""
    # As for installed packages: PYTHONDONTWRITEBYTECODE keeps Python from doing it by itself.
    compileall.compile_dir("src", quiet=1)
    best = {"python -c pass": float("inf")} | dict.fromkeys(COMMANDS, float("inf"))
    arguments = {"python -c pass": ["-c", "pass"]} | COMMANDS
    for _ in range(ROUNDS):
        for name, argument in arguments.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, *argument], stdout=subprocess.DEVNULL, check=True)
            best[name] = min(best[name], time.perf_counter() - start)
    base = best["python -c pass"]
    for name, seconds in best.items():
        bound = "" if name not in COMMANDS else f"  (at most {MOST:g})"
        yield f"{name:<36} {seconds * 1000:7.1f} ms  {seconds / base:5.1f} ×{bound}"
