"""The modules in tests/vm/guest, each run by a real kernel."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.vm.harness.declared import shared
from tests.vm.harness.image import PROJECT, Image
from tests.vm.harness.junit import cases
from tests.vm.harness.machine import Job, run
from tests.vm.harness.topology import Suite, Topology

MODULES = sorted(Path(__file__).parent.glob("guest/test_*.py"))


@pytest.mark.parametrize(
    ("modules", "topology"),
    [
        pytest.param(modules, topology, id="+".join(module.stem[5:] for module in modules))
        for modules, topology in shared(MODULES)
    ],
)
def test_a_real_kernel_agrees(
    modules: list[Path],
    topology: Topology,
    image_of: Callable[[Suite], Image],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    subtests: pytest.Subtests,
) -> None:
    paths = tuple(str(module.relative_to(PROJECT)) for module in modules)
    payload: Path = request.getfixturevalue("deployed" if topology.deployment else "payload")
    job = Job(paths, topology, image_of(topology.suite), payload)
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
