"""What it costs to audit a cluster, beside `json.load` of the same file by the same interpreter.

Costs are seconds of processor time of whole processes, start-up included, the best of several
rounds in turns: such times are comparable on a busy machine. Only the gain by a second process is
measured by the wall clock.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from bench.dumps import Cluster, write

ROUNDS = 3
AT_MOST = 0.35
"""Of json.load."""
RESIDENT = 2.0
"""Times the size of the file."""
STREAMED = 1.1
"""Times that."""
SLOPE = 0.15
FASTER = 1.6
SIZES = (10_000, 50_000, 200_000)
LOAD = "import json, sys; json.load(open(sys.argv[1], encoding='utf-8'))"


class Cost(NamedTuple):
    """What a process took."""

    cpu: float
    wall: float
    resident: int
    """Bytes at most."""


def report() -> Iterator[str]:
    """The figures, each beside its bound."""
    with tempfile.TemporaryDirectory() as folder:
        whole, streamed = f"{folder}/20k.json", f"{folder}/100k.ndjson"
        cluster = Cluster(20_000)
        write(whole, cluster)
        size = os.path.getsize(whole)
        load, audit = _in_turns([_load(whole), _audit(whole)])
        yield f"20,000 pods, {size / 1e6:.0f} MB"
        yield f"  json.load             {load.cpu:6.2f} s  {load.resident >> 20} MiB"
        ratio = audit.cpu / load.cpu
        yield f"  the whole audit       {audit.cpu:6.2f} s  {ratio:5.2f} ×  (at most {AT_MOST})"
        times = audit.resident / size
        bound = f"(at most {RESIDENT:g} × the file)"
        yield f"  resident at most      {_size(audit)}  {times:5.2f} ×  {bound}"
        write(streamed, Cluster(100_000), "ndjson")
        (stream,) = _in_turns([_audit(streamed)], 1)
        times = stream.resident / (RESIDENT * size)
        yield f"100,000 pods an object a line: {stream.cpu:.2f} s"
        bound = f"(at most {STREAMED} × what 20,000 may)"
        yield f"  resident at most      {_size(stream)}  {times:5.2f} ×  {bound}"
        one, two = _in_turns([_audit(streamed), _audit(streamed, "--jobs", "2")])
        faster = one.wall / two.wall
        yield f"  two processes         {two.wall:6.2f} s  {faster:5.2f} ×  faster ({FASTER} asked)"
        yield f"  this machine's cores: two audits at once are {_at_once(streamed):.2f} × faster"
        os.unlink(streamed)
        yield from _slopes(folder)


def _at_once(path: str) -> float:
    """The gain by two processes that share nothing: what two cores give just now."""
    shares = []
    with ThreadPoolExecutor(2) as pool:
        for _ in range(ROUNDS):
            alone = _cost(_audit(path))
            both = pool.map(_cost, [_audit(path)] * 2)
            shares.append(2 * alone.wall / max(each.wall for each in both))
    return max(shares)


def _slopes(folder: str) -> Iterator[str]:
    paths = [f"{folder}/{pods}.json" for pods in SIZES]
    for pods, path in zip(SIZES, paths, strict=True):
        write(path, Cluster(pods))
    costs = _in_turns([_audit(path) for path in paths])
    for pods, cost in zip(SIZES, costs, strict=True):
        yield f"{pods:7,} pods             {cost.cpu:6.2f} s  {_size(cost)}"
    slopes = [
        (costs[place + 1].cpu - costs[place].cpu) / (SIZES[place + 1] - SIZES[place]) * 1e6
        for place in range(len(SIZES) - 1)
    ]
    change = slopes[1] / slopes[0] - 1
    listed = " and ".join(f"{slope:.1f}" for slope in slopes)
    yield f"  {listed} µs a pod more: {change:+.0%}  (linear within {SLOPE:.0%})"


def _size(cost: Cost) -> str:
    return f"{cost.resident >> 20:4} MiB"


def _load(path: str) -> list[str]:
    return [sys.executable, "-c", LOAD, path]


def _audit(path: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "memqos.cli.main", "audit", path, *options]


def _in_turns(commands: list[list[str]], rounds: int = ROUNDS) -> list[Cost]:
    """The best of several rounds of each."""
    found: list[list[Cost]] = [[] for _ in commands]
    for _ in range(rounds):
        for command, costs in zip(commands, found, strict=True):
            costs.append(_cost(command))
    return [
        Cost(
            min(each.cpu for each in costs),
            min(each.wall for each in costs),
            min(each.resident for each in costs),
        )
        for costs in found
    ]


def _cost(command: list[str]) -> Cost:
    start = time.perf_counter()
    nothing = os.open(os.devnull, os.O_WRONLY)
    actions = [(os.POSIX_SPAWN_DUP2, nothing, 1), (os.POSIX_SPAWN_DUP2, nothing, 2)]
    pid = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
    _, status, usage = os.wait4(pid, 0)
    os.close(nothing)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    wall = time.perf_counter() - start
    return Cost(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss << 10)
