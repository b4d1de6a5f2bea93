"""An agent as an NRI plugin on a fake tree: how long a runtime waits for it, and what it holds."""

import os
import sys
import time
from collections.abc import Iterator

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from tests.eventually import eventually
from tests.fakes.nri_runtime import FakeNriRuntime

from bench.agent import AgentNode, AgentProcess

PODS = 250
CREATIONS = 2000
MOST_MS, MOST_MB = 20.0, 2.0


def report() -> Iterator[str]:
    """Agents without and with NRI, one after the other on the same pods."""
    with AgentNode(PODS) as node:
        with AgentProcess(node) as plain:
            time.sleep(5)
            without = plain.resident
        runtime = FakeNriRuntime(node.folder, node.bed.kernel)
        runtime.start()
        with AgentProcess(node, str(runtime.socket)) as plugged:
            eventually("the agent is connected", lambda: runtime.plugins)
            time.sleep(5)
            connected = plugged.resident
            waits = sorted(_create(runtime, number) for number in range(CREATIONS))
            after = plugged.resident
        runtime.stop()
    middle, late = waits[len(waits) // 2], waits[len(waits) * 99 // 100]
    yield (
        f"{CREATIONS} creations, {PODS} pods: {middle * 1000:.2f} ms in the median, "
        f"p99 {late * 1000:.2f} ms (at most {MOST_MS:.0f}), longest {waits[-1] * 1000:.2f} ms"
    )
    yield (
        f"resident: {without:.1f} MB without NRI, {connected:.1f} MB connected, a difference of "
        f"{connected - without:.1f} (at most {MOST_MB:.0f}); {after:.1f} MB after all of these"
    )


def _create(runtime: FakeNriRuntime, number: int) -> float:
    """Create, start and stop a container; how long its creation took."""
    uid, container = f"p{number % PODS}", f"{number:064x}"
    start = time.perf_counter()
    values = runtime.create(uid, "a", f"/kubepods/burstable/pod{uid}/{container}", 2 << 20)
    waited = time.perf_counter() - start
    assert values, "the agent knows this pod"
    runtime.start_container(container)
    runtime.stop_container(container)
    return waited
