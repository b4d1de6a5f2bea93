"""What a machine of the tests runs: pytest on some modules, with the project beside memqos."""

from collections.abc import Iterable
from pathlib import Path

from memqos.lab.vm.image import PROJECT, MachineImage
from memqos.lab.vm.machine import Job
from memqos.lab.vm.payload import make_payload
from memqos.lab.vm.topology import Topology

CONTENT = (
    "pyproject.toml",
    "deploy/systemd",
    "tests/builders.py",
    "tests/eventually.py",
    "tests/fakes",
    "tests/vm",
)


def job_of(modules: Iterable[str], topology: Topology, image: MachineImage, payload: Path) -> Job:
    """Modules by their paths in the project; they run one after the other."""
    paths = tuple(modules)
    return Job(
        ("tests/vm/harness/run_pytest", str(topology.seconds_a_test), *paths),
        topology,
        image,
        payload,
        topology.seconds_in_all * len(paths),
    )


def project_payload(folder: Path, *more: Path) -> Path:
    """The project's sources and tests as they are now; more folders are there by their names."""
    content = {name: PROJECT / name for name in CONTENT}
    return make_payload(folder, content | {each.name: each for each in more})
