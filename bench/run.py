"""Measure memqos, as ratios within one run: absolute times differ from machine to machine."""

import sys

from bench import semantics, startup

BENCHES = {"startup": startup.report, "semantics": semantics.report}


def main() -> None:
    """Run the benches named on the command line, or all of them."""
    for name in sys.argv[1:] or BENCHES:
        print(f"# {name}")
        for line in BENCHES[name]():
            print(line)
        print()


if __name__ == "__main__":
    main()
