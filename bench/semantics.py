"""How long the semantics of one decoded pod take, beside json.loads of 1 MB in the same run."""

import json
import time
from collections.abc import Callable, Iterator

import msgspec

from memqos.kube.pod import Pod
from memqos.plan.semantics import Planner, semantics_of_shape
from memqos.release import Release
from memqos.settings.settings import Settings

CASES = "tests/conformance/cases/pod_semantics.jsonl"
ROUNDS = 15
NEVER_SEEN, SEEN = 60.0, 20.0
"""Bounds in microseconds, on a machine that reads 1 MB of JSON in 25 ms."""
MEGABYTE_MS = 25.0


def report() -> Iterator[str]:
    """Microseconds a pod over the recorded valid pods, best of several rounds."""
    pods = _valid_pods()
    settings = Settings(
        Release.of("1.38"),
        0.9,
        "TieredReservation",
        memory_capacity=64 << 30,
        memory_allocatable=60 << 30,
    )
    planner = Planner(settings)
    text = _megabyte()

    def never_seen() -> None:
        for pod in pods:
            semantics_of_shape(pod, settings)

    def seen() -> None:
        for pod in pods:
            planner.semantics(pod)

    seen()
    loads = fresh = known = float("inf")
    for _ in range(ROUNDS):
        loads = min(loads, _seconds(lambda: json.loads(text)))
        fresh = min(fresh, _seconds(never_seen))
        known = min(known, _seconds(seen))
    scale = loads * 1000 / MEGABYTE_MS
    yield f"json.loads of {len(text) / 1e6:.2f} MB          {loads * 1000:6.1f} ms"
    for name, seconds, bound in (
        ("a shape never seen", fresh, NEVER_SEEN),
        ("a shape seen before", known, SEEN),
    ):
        micros = seconds / len(pods) * 1e6
        yield (
            f"{name:<27} {micros:6.1f} µs a pod  ({bound * scale:.0f} asked at this json.loads;"
            f" {len(pods)} pods)"
        )


def _valid_pods() -> list[Pod]:
    with open(CASES, encoding="utf-8") as lines:
        cases = [json.loads(line) for line in lines]
    return [
        msgspec.convert(case["input"]["pod"], Pod)
        for case in cases
        if not case["expect"]["errors"] and "container_cgroups" in case["expect"]
    ]


def _megabyte() -> str:
    with open(CASES, encoding="utf-8") as lines:
        pods = [json.loads(line)["input"]["pod"] for line in lines]
    return (
        json.dumps(pods * (1_000_000 // len(json.dumps(pods)) + 1))[:1_000_000].rsplit(
            ', {"metadata"', 1
        )[0]
        + "]"
    )


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
