"""The recording in examples/records: a shop's node on a bad morning, as an agent would keep it.

python -m tests.fakes.recording examples/records
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from tests.builders import Json

from memqos.agent.core.guard import GuardDecision, StallSigns
from memqos.agent.core.node_guard import GuardMove
from memqos.agent.flight_recorder import FlightRecorder
from memqos.host.record_clock import RecordClock
from memqos.host.record_files import RecordWriter
from memqos.kernel.oom_report import LimitUsage, OomReport, Task, Victim
from memqos.kube.pod import Pod
from memqos.plan.changes import Change
from memqos.plan.memory import ABOVE_REQUEST, TIERED_LOW, TIERED_MIN
from memqos.plan.setting import Rule, Setting
from memqos.record.format import Subject
from memqos.record.readings import kill_record

MI: Final = 1 << 20
GI: Final = 1 << 30
TEN: Final = 1_772_445_600_000
"""10:00 UTC on 2 March 2026."""
MINUTE: Final = 60
BOOT: Final = "0b6d0f6e-2f0e-4c5e-9d3c-6f1f0a7a4c11"
PODS: Final = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod"
API: Final = Subject(0, "shop", "api-1", "5a1c0e2f-api", "api", "Burstable")
DB: Final = Subject(0, "shop", "db-0", "77b0d9e4-db", "postgres", "Guaranteed")
REPORT: Final = Subject(0, "shop", "report-28", "c3d01f00-report", "c0", "BestEffort")
API_1: Final = f"{PODS}5a1c.slice/cri-containerd-a1.scope"
API_2: Final = f"{PODS}5a1c.slice/cri-containerd-a2.scope"
DB_POD: Final = "/kubepods.slice/kubepods-pod77b0.slice"
DB_1: Final = f"{DB_POD}/cri-containerd-d1.scope"
REPORT_1: Final = "/kubepods.slice/kubepods-besteffort.slice/pod-c3d0.slice/cri-containerd-r1.scope"

HIGH: Final = 510_025_728
"""256Mi + 0.9 × (512Mi − 256Mi), in whole pages."""
KERNEL: Final = 2 * MI
"""Kernel memory of each container."""
STEPS: Final = (HIGH, 516_739_072, 523_452_416, 530_161_664, 512 * MI)


class Files:
    """The files of a container that only ever grows older."""

    def __init__(self, **fixed: int | str) -> None:
        self.fixed = {name.replace("_", "."): str(value) for name, value in fixed.items()}
        self.high = self.full = self.kills = 0

    def at(self, anon: int, cache: int = 6 * MI, **changed: int | str) -> dict[str, str]:
        self.fixed |= {name.replace("_", "."): str(value) for name, value in changed.items()}
        return {
            "memory.current": str(anon + cache),
            "memory.stat": f"anon {anon}\nfile {cache - KERNEL}\nshmem 0\nkernel {KERNEL}\n"
            f"inactive_file {(cache - KERNEL) // 2}\n",
            "memory.events": f"low 0\nhigh {self.high}\nmax 0\noom 0\noom_kill {self.kills}\n",
            "memory.pressure": f"some total={self.full}\nfull total={self.full}\n",
            "memory.swap.max": "0",
            **self.fixed,
        }


def write_example(folder: str) -> None:
    """Have the whole morning recorded, once: a writer adds to the files that are there."""
    for path in Path(folder).glob("*.records"):
        path.unlink()
    recorder = RecordWriter(
        folder, clock=RecordClock(BOOT, uptime=lambda: 86_400.0, wall=lambda: TEN / 1000)
    )
    flight_recorder = FlightRecorder(recorder)
    for tell in (_node, _api, _db, _report):
        tell(flight_recorder)
    recorder.flush()


def _statistics(anon: int, **more: int) -> dict[str, int]:
    return {"anon": anon, "kernel": KERNEL, **more}


def _killed(flight_recorder: FlightRecorder, report: OomReport, second: int) -> None:
    kill = kill_record(report, TEN + second * 1000, 16 * GI, 4096)
    flight_recorder.record_kill(report.task_cgroup or "", kill)


def _node(flight_recorder: FlightRecorder) -> None:
    waited = 0
    for second in range(0, 45 * MINUTE, 20):
        is_short = 33 * MINUTE <= second <= 36 * MINUTE
        available = 160 * MI if is_short else (6 * GI - second * MI // 2)
        waited += 8_000_000 if is_short else 20_000
        flight_recorder.record_pressure(
            TEN + second * 1000, available, 16 * GI, waited, waited // 4
        )


def _api(flight_recorder: FlightRecorder) -> None:
    files = Files(memory_high=HIGH, memory_max=512 * MI, memory_low=256 * MI, memory_min=0)
    flight_recorder.record_sample(API_1, API, files.at(150 * MI), TEN)
    _wrote(flight_recorder, API_1, "memory.low", "0", 256 * MI, TIERED_LOW, (256 * MI,))
    inputs = (256 * MI, 512 * MI, "limit", 0.9, 4096)
    _wrote(flight_recorder, API_1, "memory.high", "max", HIGH, ABOVE_REQUEST, inputs)
    for second, anon in _growth(5, 12 * MINUTE, 150 * MI, 478 * MI):
        flight_recorder.record_sample(API_1, API, files.at(anon), TEN + second * 1000)
    second, anon = 12 * MINUTE - 5, 480 * MI
    for step, high in enumerate(STEPS[1:], 1):
        for _ in range(2):
            second += 5
            files.high += 390
            files.full += 3_300_000
            flight_recorder.record_sample(API_1, API, files.at(anon), TEN + second * 1000)
        signs = StallSigns(5.0, 78.0, 0.66, anon)
        move = GuardMove(API_1, GuardDecision("widen", high, step, signs), STEPS[step - 1], HIGH)
        flight_recorder.record_guard_move(move, 4, TEN + second * 1000)
        anon = high - 6 * MI
        files.fixed["memory.high"] = str(high)
    for _ in range(3):
        second += 5
        flight_recorder.record_sample(API_1, API, files.at(506 * MI), TEN + second * 1000)
    second += 2
    report = OomReport(
        at=0,
        sequence=0,
        victims=(
            Victim(
                pid=4711,
                comm="api-server",
                anon=503 * MI,
                file=2 * MI,
                shmem=0,
                uid=1000,
                page_tables=2 * MI,
                oom_score_adj=953,
            ),
        ),
        constraint="memcg",
        oom_cgroup=API_1,
        task_cgroup=API_1,
        memory=LimitUsage(512 * MI, 512 * MI),
        statistics=_statistics(anon=505 * MI, file=4 * MI, shmem=0, inactive_file=2 * MI),
        tasks=(
            Task(
                pid=4700,
                comm="sh",
                oom_score_adj=953,
                rss=280,
                swap=0,
                page_tables=45_056,
                uid=1000,
            ),
            Task(
                pid=4711,
                comm="api-server",
                oom_score_adj=953,
                rss=129_280,
                swap=0,
                page_tables=2_097_152,
                uid=1000,
            ),
        ),
    )
    _killed(flight_recorder, report, second)
    files.kills = 1
    flight_recorder.record_sample(API_1, API, files.at(MI), TEN + (second + 1) * 1000)
    flight_recorder.record_removal(API_1, TEN + (second + 3) * 1000)
    again = Files(memory_high=HIGH, memory_max=512 * MI, memory_low=256 * MI, memory_min=0)
    start = second + 10
    for second, anon in _growth(start, 25 * MINUTE, 120 * MI, 330 * MI):
        flight_recorder.record_sample(API_2, API, again.at(anon), TEN + second * 1000)
    _record_resize(flight_recorder)
    higher = {"memory_high": 1_043_333_120, "memory_max": GI, "memory_low": 512 * MI}
    for second, anon in _growth(25 * MINUTE + 5, 42 * MINUTE, 330 * MI, 590 * MI):
        flight_recorder.record_sample(API_2, API, again.at(anon, **higher), TEN + second * 1000)


def _record_resize(flight_recorder: FlightRecorder) -> None:
    for request, limit, second in (("256Mi", "512Mi", 0), ("512Mi", "1Gi", 25 * MINUTE)):
        found = {
            "name": "api",
            "resources": {"requests": {"memory": request}, "limits": {"memory": limit}},
        }
        flight_recorder.record_pods(
            [_pod(API, {"containerStatuses": [found]})], TEN + second * 1000
        )


def _pod(who: Subject, status: Json) -> Pod:
    data = {
        "metadata": {"name": who.pod, "namespace": who.namespace, "uid": who.uid},
        "spec": {"containers": [{"name": who.container}]},
        "status": {"qosClass": who.qos, **status},
    }
    return msgspec.convert(data, Pod)


def _db(flight_recorder: FlightRecorder) -> None:
    files = Files(memory_min=GI, memory_low=0, memory_high="max", memory_max=GI)
    flight_recorder.record_sample(DB_1, DB, files.at(240 * MI, 80 * MI), TEN)
    _wrote(flight_recorder, DB_1, "memory.min", "0", GI, TIERED_MIN, (GI,))
    for second, cache in _growth(5, 18 * MINUTE, 80 * MI, 770 * MI):
        flight_recorder.record_sample(DB_1, DB, files.at(240 * MI, cache), TEN + second * 1000)
    report = OomReport(
        at=0,
        sequence=0,
        victims=(
            Victim(
                pid=5120,
                comm="postgres",
                anon=180 * MI,
                file=30 * MI,
                shmem=0,
                uid=999,
                page_tables=MI,
                oom_score_adj=-997,
            ),
            Victim(
                pid=5121,
                comm="postgres",
                anon=20 * MI,
                file=30 * MI,
                shmem=0,
                uid=999,
                page_tables=MI,
                oom_score_adj=-997,
            ),
        ),
        constraint="memcg",
        oom_cgroup=DB_POD,
        task_cgroup=DB_1,
        memory=LimitUsage(GI, GI),
        statistics=_statistics(anon=245 * MI, file=777 * MI, shmem=0, inactive_file=380 * MI),
        tasks=(
            Task(
                pid=5001,
                comm="pause",
                oom_score_adj=-998,
                rss=1,
                swap=0,
                page_tables=28_672,
                uid=65_535,
            ),
            Task(
                pid=5120,
                comm="postgres",
                oom_score_adj=-997,
                rss=53_760,
                swap=0,
                page_tables=MI,
                uid=999,
            ),
            Task(
                pid=5121,
                comm="postgres",
                oom_score_adj=-997,
                rss=12_800,
                swap=0,
                page_tables=MI,
                uid=999,
            ),
        ),
        together=DB_1,
    )
    second = 18 * MINUTE + 4
    _killed(flight_recorder, report, second)
    files.kills = 2
    flight_recorder.record_sample(DB_1, DB, files.at(2 * MI, 770 * MI), TEN + (second + 1) * 1000)
    flight_recorder.record_removal(DB_1, TEN + (second + 4) * 1000)


def _report(flight_recorder: FlightRecorder) -> None:
    files = Files(memory_min=0, memory_low=0, memory_high="max", memory_max="max")
    for second, anon in _growth(20 * MINUTE, 35 * MINUTE, 40 * MI, 2100 * MI):
        flight_recorder.record_sample(
            REPORT_1, REPORT, files.at(anon, 90 * MI), TEN + second * 1000
        )
    status = {
        "phase": "Failed",
        "reason": "Evicted",
        "message": "The node was low on resource: memory. Threshold quantity: 200Mi, available: "
        "160Mi. Container c0 was using 2190Mi, request is 0.",
    }
    flight_recorder.record_pods([_pod(REPORT, status)], TEN + (35 * MINUTE + 6) * 1000)
    flight_recorder.record_removal(REPORT_1, TEN + (35 * MINUTE + 9) * 1000)


def _growth(start: int, end: int, first: int, last: int) -> Iterator[tuple[int, int]]:
    for second in range(start, end, 5):
        wave = ((second * 7919) % 13 - 6) * MI // 2
        yield second, first + (last - first) * (second - start) // (end - start) + wave


def _wrote(
    flight_recorder: FlightRecorder,
    path: str,
    file: str,
    old: str,
    new: int,
    rule: Rule,
    inputs: tuple[object, ...],
) -> None:
    setting = Setting(new, rule, inputs)
    flight_recorder.record_write(
        Change(path=path, file=file, old=old, new=str(new), level="container", setting=setting),
        TEN + 1000,
    )


if __name__ == "__main__":
    write_example(sys.argv[1])
