"""The guard and the recorder of an agent over 500 containers: processor time while all is calm."""

import time
from collections.abc import Iterator
from statistics import median

from tests.fakes.agent import MI, SteppedNode, a_pod, container_paths, pod_path
from tests.fakes.node import memory_folder

from memqos.agent.core.node_guard import NodeGuard
from memqos.agent.reconcile import build_reconciler, run_pass
from memqos.agent.sampler import Sampler
from memqos.host.record_clock import RecordClock
from memqos.host.record_files import RecordWriter

PODS = 250
SECONDS = 120
EVERY = 5
_STATISTICS = "\n".join(f"other_{number} {number * 4096}" for number in range(48))
FILES = {
    "memory.max": str(128 * MI),
    "memory.current": str(50 * MI),
    "memory.stat": f"anon {40 * MI}\nfile {10 * MI}\nshmem 0\n{_STATISTICS}",
    "memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0",
    "memory.events.local": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0",
    "memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    "full avg10=0.00 avg60=0.00 avg300=0.00 total=0",
}


def report() -> Iterator[str]:
    """Two minutes of samples, as an agent takes them, without the time between."""
    with memory_folder() as folder:
        bed, guard = SteppedNode(folder), NodeGuard()
        bed.core = build_reconciler(bed.reader, bed.writer, bed.now, guard)
        for number in range(PODS):
            pod = a_pod(f"p{number}", containers=("a", "b"))
            bed.pods.manifests[f"p{number}"] = pod
            for path in (pod_path(pod), *container_paths(pod)):
                bed.kernel.make(path, FILES)
        run_pass(bed.core, bed.reader, bed.writer, lambda: bed.now)
        clock = RecordClock(uptime=lambda: bed.now, wall=lambda: bed.now)
        sampler = Sampler(
            bed.kernel,
            guard=guard,
            recorder=RecordWriter(str(folder / "records"), clock=clock),
            proc=str(folder / "proc"),
        )
        first, *samples = [_sample(sampler, bed) for _ in range(0, SECONDS + EVERY, EVERY)]
        start = time.process_time()
        sampler.close()
        cpu = sum(samples) + time.process_time() - start
        bed.crash()
    yield (
        f"{2 * PODS} containers every {EVERY} s: {cpu / SECONDS * 100:.2f} % of a core, a look "
        f"{median(samples) * 1000:.0f} ms, the longest {max(samples) * 1000:.0f} ms; "
        f"the first of all {first * 1000:.0f} ms"
    )


def _sample(sampler: Sampler, bed: SteppedNode) -> float:
    bed.now += EVERY
    start = time.process_time()
    sampler.sample(bed.core, bed.now)
    return time.process_time() - start
