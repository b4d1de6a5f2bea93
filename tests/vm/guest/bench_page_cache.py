"""Figures, not tests: a Guaranteed pod that lives on page cache, by where protection is claimed.

Started by bench/vm.py, which passes the number of runs to the machine.
"""

import json
from pathlib import Path

import pytest
from msgspec import structs
from tests.vm.guest.bench_arguments import argument
from tests.vm.guest.support import Cgroup

from memqos.lab.node import protection_is_recursive
from memqos.lab.scenario import Workbench
from memqos.lab.scenarios.page_cache import PLACEMENT_VARIANTS, read_in_guaranteed_pod

TIMES = 6


@pytest.mark.parametrize("run", range(int(argument("runs"))))
@pytest.mark.parametrize("name", PLACEMENT_VARIANTS)
def test_figures(
    name: str, run: int, cgroup: Cgroup, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = Workbench(cgroup, tmp_path, [])
    found = read_in_guaranteed_pod(bench, PLACEMENT_VARIANTS[name], TIMES)
    recursive = protection_is_recursive()
    figures = {"placement": name, "recursive": recursive, "times": TIMES, **structs.asdict(found)}
    with capsys.disabled():
        print(f"\nFIGURES {json.dumps(figures)}")  # noqa: T201
