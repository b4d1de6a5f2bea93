"""memory.high by factor, with and without swap and guard, against the kernel's own formula."""

import time
from collections.abc import Mapping
from typing import Final

from memqos.lab.node import PlannedNode, lab_pod, memory_resources
from memqos.lab.scenario import MIB, Figures, Hypothesis, LabMeasure, Scenario, Variant, Workbench
from memqos.lab.throttled import follow_program, seconds_asleep

_CAPACITY: Final = 160 * MIB
_REQUEST: Final = 32 * MIB
_LIMIT: Final = 96 * MIB
_TARGET: Final = 80 * MIB
_SWAP: Final = 160 * MIB
_ASLEEP: Final = 10
"""Seconds of sleep after which a program that has not ended is said to be throttled still: on a
slow machine everything else takes longer, and proves nothing."""
_LONGEST: Final = 120
"""Seconds that this may take."""

# mem_cgroup_handle_over_high() and calculate_high_delay(), mm/memcontrol.c: for every batch that is
# charged a task sleeps 64 × x² seconds, x its excess as a share of memory.high; never for less than
# a hundredth of a second, never for more than two seconds.
_BATCH: Final = 64 * 4096
_LONGEST_SLEEP: Final = 2.0
_SHORTEST_SLEEP: Final = 0.01


def predicted_sleep(high: int, reached: int) -> float:
    """Seconds that one task sleeps on its way from memory.high to what it has reached."""
    sleeps = (64 * ((at - high) / high) ** 2 for at in range(high, reached, _BATCH))
    return sum(min(each, _LONGEST_SLEEP) for each in sleeps if each > _SHORTEST_SLEEP)


def _measure(bench: Workbench, variant: Variant) -> Figures:
    swap = int(variant.parameters.get("swap", 0))
    pod = lab_pod("grower", {"app": memory_resources(_REQUEST, _LIMIT)})
    kubelet = dict(variant.kubelet)
    if swap:
        kubelet["memorySwap"] = {"swapBehavior": "LimitedSwap"}
    node = PlannedNode(bench, [pod], capacity=_CAPACITY, kubelet=kubelet, swap=swap)
    container, planned = node.container("grower"), node.planned[node.container_path("grower")]
    high = planned.settings["memory.high"].value
    program = container.program("grow", _TARGET, MIB)
    deadline = time.monotonic() + _LONGEST
    run = follow_program(
        container,
        planned,
        program,
        lambda: seconds_asleep(container) >= _ASLEEP or time.monotonic() > deadline,
        guarded=bool(variant.parameters.get("guard")),
    )
    peak = container.number("memory.peak")
    predicted = predicted_sleep(high, peak) if isinstance(high, int) else 0.0
    # The guard moves memory.high, and with swap the kernel reclaims instead.
    follows_formula = predicted > 1 and not swap and not variant.parameters.get("guard")
    figures: Figures = {
        "end": run.end,
        "taken": run.steps * MIB,
        "high": high if isinstance(high, int) else _LIMIT,
        "high_events": run.high_events,
        "asleep": run.asleep,
        "predicted": predicted,
        "guard_steps": run.guard_steps,
        "kills": run.kills,
        "seconds": run.seconds,
    }
    if follows_formula:
        figures["against_formula"] = run.asleep / predicted
    return figures


def _ended(figures: Mapping[str, Figures], *variants: str) -> bool:
    return all(figures[each]["end"] == "finished" for each in variants)


THROTTLING: Final = Scenario(
    name="throttling",
    title="Throttling by memory.high",
    about="A Burstable container with a request of 32Mi and a limit of 96Mi takes 80Mi of "
    "anonymous memory, a mebibyte at a time. memory.high follows from the throttling factor. "
    f"A program that has slept for {_ASLEEP} s counts as still throttled.",
    source="KEP-2570, memoryThrottlingFactor",
    memory=_CAPACITY + 32 * MIB,
    swap=_SWAP,
    seconds=11,
    variants={
        "off": Variant(title="MemoryQoS off", kubelet={"featureGates": {"MemoryQoS": False}}),
        "0.9": Variant(title="factor 0.9", kubelet={"memoryThrottlingFactor": 0.9}),
        "0.7": Variant(title="factor 0.7", kubelet={"memoryThrottlingFactor": 0.7}),
        "0.5": Variant(title="factor 0.5", kubelet={"memoryThrottlingFactor": 0.5}),
        "0.5-swap": Variant(
            title="factor 0.5, swap",
            kubelet={"memoryThrottlingFactor": 0.5},
            parameters={"swap": _SWAP},
        ),
        "0.5-guard": Variant(
            title="factor 0.5, guard",
            kubelet={"memoryThrottlingFactor": 0.5},
            parameters={"guard": True},
        ),
    },
    measures={
        "end": LabMeasure("end", "text"),
        "taken": LabMeasure("taken", "bytes", charted=True),
        "high": LabMeasure("memory.high", "bytes"),
        "high_events": LabMeasure("high events", charted=True),
        "asleep": LabMeasure("asleep (PSI full)", "seconds", charted=True),
        "predicted": LabMeasure("asleep by the formula", "seconds"),
        "against_formula": LabMeasure("asleep ÷ formula", "ratio"),
        "guard_steps": LabMeasure("steps of the guard"),
        "kills": LabMeasure("kills"),
        "seconds": LabMeasure("seconds", "seconds"),
    },
    hypotheses=(
        Hypothesis(
            text="Below memory.high nothing is throttled: with 0.9 the program ends, without a "
            "high event.",
            variants=("0.9",),
            holds=lambda by: _ended(by, "0.9") and not by["0.9"]["high_events"],
        ),
        Hypothesis(
            text="Without Memory QoS the program ends.",
            variants=("off",),
            holds=lambda by: _ended(by, "off"),
        ),
        Hypothesis(
            text="With 0.5 and no swap the program neither ends nor is killed.",
            variants=("0.5",),
            holds=lambda by: by["0.5"]["end"] == "still throttled" and not by["0.5"]["kills"],
        ),
        Hypothesis(
            text="With swap the same program ends.",
            variants=("0.5-swap",),
            holds=lambda by: _ended(by, "0.5-swap"),
        ),
        Hypothesis(
            text="With the guard the same program ends.",
            variants=("0.5-guard",),
            holds=lambda by: _ended(by, "0.5-guard"),
        ),
        Hypothesis(
            text="A program without swap sleeps as long as the kernel's formula says, within a "
            "factor of two.",
            variants=("0.5",),
            holds=lambda by: 0.5 <= float(by["0.5"].get("against_formula", 0)) <= 2,
        ),
    ),
    measure=_measure,
)
