"""Figures, not tests: programs past memory.high under the three settings, several times each.

Started by bench/vm.py, which passes the size, the factor and the number of runs to the machine.
"""

import json
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec import structs
from tests.vm.guest.bench_arguments import argument
from tests.vm.guest.pods import Setting_, burstable, watched
from tests.vm.guest.support import MI, Cgroup

from memqos.agent.core.guard import GuardTuning
from memqos.lab.throttled import QUICK_GUARD, sparse_file


class Size(NamedTuple):
    """A container, what is run in it, and how closely it is watched."""

    request: int
    limit: int
    programs: dict[str, tuple[object, ...]]
    enough: int
    """High events after which a program under upstream's values counts as throttled still."""
    tuning: GuardTuning
    interval: float


SIZES = {
    "small": Size(
        64 * MI,
        128 * MI,
        {
            "grow": ("grow", 124 * MI, MI),
            "burst": ("burst", 122 * MI, 24 * MI, 3),
            "leak": ("leak", MI),
            "read": ("read", "FILE", 2),
        },
        600,
        QUICK_GUARD,
        0.2,
    ),
    # As published, and the guard as it is configured by default.
    "published": Size(
        256 * MI,
        512 * MI,
        {
            "grow": ("grow", 508 * MI, MI),
            "stay": ("stay", 488 * MI, MI, 10),
            "burst": ("burst", 508 * MI, 256 * MI, 5),
            "churn": ("churn", 508 * MI, 480 * MI, MI, 10),
            "leak": ("leak", MI),
        },
        100_000,
        GuardTuning(),
        5.0,
    ),
}
SIZE = SIZES[argument("size")]
FACTOR = float(argument("factor"))
HIGH = int(SIZE.request + FACTOR * (SIZE.limit - SIZE.request)) // 4096 * 4096


@pytest.mark.parametrize("run", range(int(argument("runs"))))
@pytest.mark.parametrize("setting", argument("settings").split(","))
@pytest.mark.parametrize("program", SIZE.programs)
def test_figures(
    program: str,
    setting: Setting_,
    run: int,
    cgroup: Cgroup,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    container = burstable(cgroup, setting, SIZE.limit, HIGH).container
    with sparse_file(tmp_path / "data", 160 * MI) as file:
        words = [file if word == "FILE" else word for word in SIZE.programs[program]]
        started = container.program(*words)
        outcome = watched(
            container,
            setting,
            HIGH,
            started,
            lambda: setting == "upstream" and container.events()["high"] > SIZE.enough,
            SIZE.tuning,
            SIZE.interval,
        )
    figures = {"program": program, "setting": setting, "factor": FACTOR, **structs.asdict(outcome)}
    with capsys.disabled():
        print(f"\nFIGURES {json.dumps(figures)}")  # noqa: T201
