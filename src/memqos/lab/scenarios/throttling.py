"""memory.high by factor, with and without swap and guard, against the kernel's own formula."""

import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from memqos.errors import LabError
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
# a hundredth of a second, never for more than two seconds. Before, it reclaims once and, where that
# frees nothing, MAX_RECLAIM_RETRIES times more: a high event each.
_BATCH: Final = 64 * 4096
_LONGEST_SLEEP: Final = 2.0
_SHORTEST_SLEEP: Final = 0.01
_EVENTS_A_SLEEP: Final = 1 + 16


class UsageSample(NamedTuple):
    """A container at a moment."""

    usage: int
    high_events: int


def formula_sleep(high: int, usage: int) -> float:
    """Seconds of one sleep."""
    sleep = 64 * (max(usage - high, 0) / high) ** 2
    return min(sleep, _LONGEST_SLEEP) if sleep > _SHORTEST_SLEEP else 0.0


def predicted_sleep(high: int, reached: int) -> float:
    """Seconds that one task sleeps on its way from memory.high to what it has reached, at least.

    A processor keeps what is left of a batch, in 6.1 and 6.12 for one cgroup alone: where another
    one charges memory meanwhile, the next page takes another batch, and another sleep.
    """
    return sum(formula_sleep(high, at) for at in range(high, reached, _BATCH))


def counted_sleep(high: int, samples: Sequence[UsageSample]) -> float:
    """Seconds of as many sleeps as high events tell, each as long as the formula says."""
    return sum(
        (after.high_events - before.high_events)
        / _EVENTS_A_SLEEP
        * (formula_sleep(high, before.usage) + formula_sleep(high, after.usage))
        / 2
        for before, after in pairwise(samples)
    )


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
    samples: list[UsageSample] = []

    def gives_up() -> bool:
        usage, high_events = container.number("memory.current"), container.events()["high"]
        samples.append(UsageSample(usage, high_events))
        return seconds_asleep(container) >= _ASLEEP or time.monotonic() > deadline

    run = follow_program(
        container,
        planned,
        program,
        gives_up,
        guarded=bool(variant.parameters.get("guard")),
    )
    if run.end == "still throttled" and run.asleep < _ASLEEP:
        # Slow, or failed for a reason of its own: no verdict follows from that.
        raise LabError(
            f"the program has not finished, and slept {run.asleep:.1f} of {run.seconds:.0f} s"
        )
    figures: Figures = {
        "end": run.end,
        "taken": run.steps * MIB,
        "high_events": run.high_events,
        "asleep": run.asleep,
        "guard_steps": run.guard_steps,
        "kills": run.kills,
        "seconds": run.seconds,
    }
    if isinstance(high, int):
        figures["high"] = high
        figures["predicted"] = predicted_sleep(high, container.number("memory.peak"))
        # The guard moves memory.high, and with swap the kernel reclaims instead.
        if not swap and not variant.parameters.get("guard"):
            figures["counted"] = counted = counted_sleep(high, samples)
            if counted > 1:
                figures["against_formula"] = run.asleep / counted
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
        "predicted": LabMeasure("asleep by the formula, at least", "seconds"),
        "counted": LabMeasure("asleep by the formula, sleeps counted", "seconds"),
        "against_formula": LabMeasure("asleep ÷ sleeps counted", "ratio"),
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
            text="With 0.5 and no swap each sleep is as long as the kernel's formula says: all "
            "that high events count add up to the time asleep, within a factor of 1.5.",
            variants=("0.5",),
            holds=lambda by: 1 / 1.5 <= float(by["0.5"].get("against_formula", 0)) <= 1.5,
        ),
    ),
    measure=_measure,
)
