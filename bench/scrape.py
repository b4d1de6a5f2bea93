"""A scrape of 10,000 series: writing them, and answering over HTTP."""

import asyncio
import time
from collections.abc import Callable, Iterator

from memqos.serve.endpoints import monitoring_routes, parse_listen_address
from memqos.serve.exposition import Family, MetricSample, add_labels, exposition, labels
from memqos.serve.http import listen

CONTAINERS = 500
KINDS = ("memory.min", "memory.low", "memory.high", "low", "high", "max", "oom", "oom_kill")
FAMILIES = 20
ROUNDS = 20


def report() -> Iterator[str]:
    """Processor time, which does not depend on what else the machine does."""
    texts = _labels()
    size = len(exposition(_families(texts)))
    yield f"{sum(len(list(f.samples)) for f in _families(texts)):,} series, {size / 1e6:.1f} MB"
    yield f"written in       {_best(lambda: exposition(_families(texts))):6.1f} ms"
    plain, zipped = asyncio.run(_scrape(texts))
    yield f"scraped in       {plain:6.1f} ms, client included"
    yield f"with gzip in     {zipped:6.1f} ms"


def _labels() -> list[list[str]]:
    """Labels as an agent keeps them: formatted once for a container, not for each scrape."""
    found = []
    for index in range(CONTAINERS):
        base = labels(
            namespace=f"team-{index % 20}",
            pod=f"deployment-{index // 2}-7d9c8b6f5-x{index:04}",
            container=f"c{index % 2}",
        )
        found.append([add_labels(base, file=kind) for kind in KINDS])
    return found


def _families(texts: list[list[str]]) -> Iterator[Family]:
    for number in range(FAMILIES):
        kind = number % len(KINDS)
        samples = (MetricSample(each[kind], 123_456_789) for each in texts)
        yield Family(f"memqos_family_{number}_bytes", "gauge", "One of twenty.", samples)


async def _scrape(texts: list[list[str]]) -> tuple[float, float]:
    routes = monitoring_routes(lambda: _families(texts), lambda: None, lambda: None)
    listener = await listen(routes, "127.0.0.1", 0)
    times = []
    for header in (b"", b"Accept-Encoding: gzip\r\n"):
        best = float("inf")
        for _ in range(ROUNDS):
            start = time.process_time()
            reader, writer = await asyncio.open_connection(*parse_listen_address(listener.address))
            writer.write(b"GET /metrics HTTP/1.0\r\n" + header + b"\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 200")
            writer.close()
            best = min(best, time.process_time() - start)
        times.append(best * 1e3)
    await listener.close()
    return times[0], times[1]


def _best(run: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return best * 1e3
