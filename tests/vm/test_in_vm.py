"""The modules in tests/vm/guest, each run by a real kernel."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.vm.harness.declared import DEFAULT, in_suites, shared
from tests.vm.harness.jobs import job_of
from tests.vm.harness.junit import cases

from memqos.lab.vm.image import PROJECT, MachineImage
from memqos.lab.vm.machine import run_job
from memqos.lab.vm.topology import SUITES, Suite, Topology

MODULES = sorted(Path(__file__).parent.glob("guest/test_*.py"))
SMOKE = ("test_kernel_facts", "test_lab")
"""What every system runs with make test; make test-matrix runs all on all."""
WHOLE: tuple[Suite, ...] = SUITES if os.environ.get("MEMQOS_VM_MATRIX") else (DEFAULT,)


def name_of(modules: list[Path], topology: Topology) -> str:
    names = "+".join(module.stem[5:] for module in modules)
    return names if topology.suite == DEFAULT else f"{names}-{topology.suite}"


@pytest.mark.parametrize(
    ("modules", "topology"),
    [
        pytest.param(modules, topology, id=name_of(modules, topology))
        for modules, topology in in_suites(shared(MODULES), WHOLE, SMOKE)
    ],
)
def test_a_real_kernel_agrees(
    modules: list[Path],
    topology: Topology,
    image_of: Callable[[Suite], MachineImage],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    subtests: pytest.Subtests,
) -> None:
    paths = tuple(str(module.relative_to(PROJECT)) for module in modules)
    payload: Path = request.getfixturevalue("deployed" if topology.deployment else "payload")
    job = job_of(paths, topology, image_of(topology.suite), payload)
    outcome = run_job(job, tmp_path)
    found = cases(outcome.result)
    for case in found:
        with subtests.test(case.name):
            if case.verdict == "failed":
                pytest.fail(case.text, pytrace=False)
            if case.verdict == "skipped":
                pytest.skip(case.text)
    if outcome.exit_code != 0 and not any(case.verdict == "failed" for case in found):
        pytest.fail(outcome.story(), pytrace=False)
