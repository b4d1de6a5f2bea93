"""The guard and the placement of protection on a real kernel: tables out of several runs.

    python bench/vm.py guard [RUNS [FACTOR…]]
    python bench/vm.py published [RUNS [FACTOR…]]
    python bench/vm.py protection [RUNS]
    python bench/vm.py nri [PAIRS [crun|runc]]

Boots the machines of tests/vm, which takes minutes. Counters and outcomes mean what they say;
seconds are those of an emulated machine, and only comparable with each other.
"""

import json
import os
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from tests.vm.harness.jobs import job_of, project_payload

from memqos.lab.vm import image as images
from memqos.lab.vm.machine import run_job
from memqos.lab.vm.topology import Topology

FACTORS = {"guard": (0.9, 0.5), "published": (0.9,)}
SIZES = {"guard": ("small", 512), "published": ("published", 1536)}
"""What bench_guard.py calls the container's size, and MiB of the machine."""
MIB = 1 << 20
PROGRESS = "PROGRESS "
"""Before what a machine prints while it is at work; pytest puts the test's name before it."""

Figures = dict[str, Any]


def main() -> None:
    """Print the tables named on the command line."""
    what, runs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3
    if what == "nri":
        rows = nri(max(runs, 32), *sys.argv[3:4])
    else:
        factors = [float(word) for word in sys.argv[3:]] or FACTORS.get(what, ())
        rows = protection(runs) if what == "protection" else guard(what, runs, factors)
    for line in rows:
        print(line, flush=True)


def guard(what: str, runs: int, factors: Iterable[float]) -> Iterator[str]:
    """Programs past memory.high, under three settings."""
    size, memory = SIZES[what]
    yield (
        "| factor | program | setting | end | seconds | asleep | steps | high events | kills "
        "| guard steps |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for number, factor in enumerate(factors):
        # Without a memory.high the factor has no effect.
        settings = "plain,upstream,memqos" if not number else "upstream,memqos"
        topology = Topology(
            nodes=(memory,),
            seconds_a_test=600,
            seconds_in_all=5400,
            kernel_arguments=(
                f"bench.size={size}",
                f"bench.factor={factor}",
                f"bench.runs={runs}",
                f"bench.settings={settings}",
            ),
        )
        found = figures("tests/vm/guest/bench_guard.py", topology)
        for (program, setting), group in _grouped(found, ("program", "setting")):
            yield (
                f"| {factor} | {program} | {setting} | {_ends(group)} | "
                f"{_spread(group, 'seconds')} | {_spread(group, 'asleep')} | "
                f"{_spread(group, 'steps')} | "
                f"{_spread(group, 'high_events')} | {_spread(group, 'kills')} | "
                f"{_spread(group, 'guard_steps')} |"
            )


def protection(runs: int) -> Iterator[str]:
    """A page-cache workload in a Guaranteed pod, by where protection is claimed."""
    yield (
        "| memory_recursiveprot | placement | read | kills | pgscan | refaults | "
        "effective at limit | effective when short | before | kept |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for recursive in (True, False):
        topology = Topology(
            nodes=(512,),
            recursive_protection=recursive,
            seconds_in_all=1700,
            kernel_arguments=(f"bench.runs={runs}",),
        )
        found = figures("tests/vm/guest/bench_page_cache.py", topology)
        for (placement,), group in _grouped(found, ("placement",)):
            times = group[0]["times"]
            sizes = " | ".join(
                _spread(group, name, MIB)
                for name in ("at_own_limit", "node_short", "before", "kept")
            )
            yield (
                f"| {'on' if recursive else 'off'} | {placement} | {_spread(group, 'read')} of "
                f"{times} | {_spread(group, 'kills')} | {_spread(group, 'scanned')} | "
                f"{_spread(group, 'refaults')} | {sizes} |"
            )


def nri(pairs: int, handler: str = "crun") -> Iterator[str]:
    """Containers whose first command lacks its values, and what their creation takes."""
    topology = Topology(
        suite="forky",
        nodes=(1536,),
        init="systemd",
        cpus=1,
        counts_instructions=True,
        seconds_a_test=5400,
        seconds_in_all=10800,
        kernel_arguments=(f"bench.pairs={pairs}", f"bench.handler={handler}"),
    )
    turns, first = figures("tests/vm/guest/bench_nri.py", topology)
    apart, plugged = median(turns["apart"]), median(turns["plugged"])
    yield (
        f"create and start with {handler}, {pairs} pairs in turns: {apart:.3f} s without, "
        f"{plugged:.3f} s with the plugin in the median, a ratio of {plugged / apart:.3f}"
    )
    creations = first["creations"] + 2 * len(turns["plugged"])
    yield (
        f"{first['without_values'] + turns['without_values']} of {creations} containers without "
        f"their values at their first instruction; the agent's slowest answer took "
        f"{first['slowest'] * 1000:.0f} ms"
    )


def figures(module: str, topology: Topology) -> list[Figures]:
    """What the machine has printed."""
    image = images.machine_image(topology.suite)
    with tempfile.TemporaryDirectory() as folder, shown_progress(Path(folder)):
        job = job_of((module,), topology, image, project_payload(Path(folder)))
        outcome = run_job(job, Path(folder))
    lines = [line for line in outcome.output.splitlines() if line.startswith("FIGURES ")]
    if not lines or outcome.exit_code != 0:
        sys.exit(outcome.story())
    return [json.loads(line.removeprefix("FIGURES ")) for line in lines]


@contextmanager
def shown_progress(folder: Path) -> Iterator[None]:
    """Lines of progress, as a machine prints them, go to stderr."""
    is_over = threading.Event()

    def follow() -> None:
        shown = 0
        while not is_over.wait(1):
            outputs = (each.read_text() for each in sorted(folder.glob("try-*/output.log")))
            lines = [line for text in outputs for line in text.split("\n")[:-1]]
            progress = [line.partition(PROGRESS)[2] for line in lines if PROGRESS in line]
            for line in progress[shown:]:
                print(line, file=sys.stderr, flush=True)
            shown = len(progress)

    follower = threading.Thread(target=follow)
    follower.start()
    try:
        yield
    finally:
        is_over.set()
        follower.join()


def _grouped(
    found: Iterable[Figures], names: tuple[str, ...]
) -> Iterable[tuple[tuple[str, ...], list[Figures]]]:
    groups: dict[tuple[str, ...], list[Figures]] = {}
    for each in found:
        groups.setdefault(tuple(str(each[name]) for name in names), []).append(each)
    return groups.items()


def _spread(group: list[Figures], name: str, unit: int = 1) -> str:
    """The median, and the smallest and largest where they differ."""
    values = sorted(each[name] / unit for each in group)
    digits = 1 if name in ("seconds", "asleep") or unit > 1 else 0
    low, middle, high = (
        f"{value:,.{digits}f}" for value in (values[0], median(values), values[-1])
    )
    return middle if low == high else f"{middle} ({low}–{high})"


def _ends(group: list[Figures]) -> str:
    ends: dict[str, int] = {}
    for each in group:
        ends[each["end"]] = ends.get(each["end"], 0) + 1
    if len(ends) == 1:
        return next(iter(ends))
    return ", ".join(f"{end} {count} ×" for end, count in ends.items())


if __name__ == "__main__":
    main()
