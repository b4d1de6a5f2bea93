"""Figures, not tests: programs past memory.high under the three settings, several times each.

Started by bench/vm.py, which passes the factor and the number of runs to the machine.
"""

import json
from pathlib import Path

import pytest
from tests.vm.guest.bench_arguments import argument
from tests.vm.guest.pods import Setting_, burstable, file_of, watched
from tests.vm.guest.support import MI, Cgroup

REQUEST = 64 * MI
LIMIT = 128 * MI
ENOUGH = 600
"""High events after which a program under upstream's values counts as throttled still."""
PROGRAMS: dict[str, tuple[object, ...]] = {
    "grow": ("grow", 124 * MI, MI),
    "burst": ("burst", 122 * MI, 24 * MI, 3),
    "leak": ("leak", MI),
    "read": ("read", "FILE", 2),
}


FACTOR = float(argument("factor"))
HIGH = int(REQUEST + FACTOR * (LIMIT - REQUEST)) // 4096 * 4096


@pytest.mark.parametrize("run", range(int(argument("runs"))))
@pytest.mark.parametrize("setting", argument("settings").split(","))
@pytest.mark.parametrize("program", PROGRAMS)
def test_figures(
    program: str,
    setting: Setting_,
    run: int,
    cgroup: Cgroup,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    container = burstable(cgroup, setting, LIMIT, HIGH).container
    with file_of(tmp_path, 160 * MI) as file:
        words = [file if word == "FILE" else word for word in PROGRAMS[program]]
        started = container.program(*words)
        outcome = watched(
            container,
            setting,
            HIGH,
            started,
            lambda: setting == "upstream" and container.events()["high"] > ENOUGH,
        )
    figures = {"program": program, "setting": setting, "factor": FACTOR, **outcome._asdict()}
    with capsys.disabled():
        print(f"\nFIGURES {json.dumps(figures)}")  # noqa: T201
