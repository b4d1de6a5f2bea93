"""Measure memqos, as ratios within one run: absolute times differ from machine to machine."""

import os
import sys
from importlib import import_module

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

_HERE = os.path.dirname(os.path.abspath(__file__))
BENCHES = (
    "startup",
    "semantics",
    "plan",
    "drivers",
    "fit",
    "numa",
    "scrape",
    "webhook",
    "webhook_attacks",
    "crash",
    "agent",
    "nri",
    "recorder",
    "sampler",
    "audit",
    "size",
    "apiserver",
    "agent_in_cluster",
    "top",
    "web",
)
"""A module each, with a function `report` that yields lines."""


def main() -> None:
    """Run the benches named on the command line, or all of them."""
    built = [name for name in BENCHES if os.path.exists(f"{_HERE}/{name}.py")]
    for name in sys.argv[1:] or built:
        print(f"# {name}")
        for line in import_module(f"bench.{name}").report():
            print(line)
        print()


if __name__ == "__main__":
    main()
