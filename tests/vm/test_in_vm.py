"""The modules in tests/vm/guest, each run by a real kernel."""

from pathlib import Path

import pytest
from tests.vm.harness.declared import machines_of
from tests.vm.harness.image import PROJECT, Image
from tests.vm.harness.junit import cases
from tests.vm.harness.machine import Job, run
from tests.vm.harness.topology import Topology

MODULES = sorted(Path(__file__).parent.glob("guest/test_*.py"))


@pytest.mark.parametrize(
    ("module", "topology"),
    [
        pytest.param(module, topology, id=f"{module.stem}-{name}")
        for module in MODULES
        for name, topology in machines_of(module).items()
    ],
)
def test_a_real_kernel_agrees(
    module: Path,
    topology: Topology,
    image: Image,
    payload: Path,
    tmp_path: Path,
    subtests: pytest.Subtests,
) -> None:
    job = Job(str(module.relative_to(PROJECT)), topology, image, payload)
    outcome = run(job, tmp_path)
    found = cases(outcome.junit)
    for case in found:
        with subtests.test(case.name):
            if case.verdict == "failed":
                pytest.fail(case.text, pytrace=False)
            if case.verdict == "skipped":
                pytest.skip(case.text)
    if outcome.exit_code != 0 and not any(case.verdict == "failed" for case in found):
        pytest.fail(outcome.story(), pytrace=False)
