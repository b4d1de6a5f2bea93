"""Machines for the tests of this folder, where they can be had."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.vm.harness import deployment as deployments
from tests.vm.harness.jobs import project_payload

from memqos.lab.vm import image as images
from memqos.lab.vm import tools
from memqos.lab.vm.image import MachineImage
from memqos.lab.vm.topology import Suite

collect_ignore = ["guest"]
"""Those tests are collected in the machine."""


@pytest.fixture(scope="session")
def image_of() -> Callable[[Suite], MachineImage]:
    """What a machine of a suite boots from; the test is skipped where there is none to be had."""

    def find_image(suite: Suite) -> MachineImage:
        if obstacle := tools.obstacle_to_booting():
            pytest.skip(obstacle)
        if ready := images.built_image(suite):
            return ready
        if obstacle := images.obstacle_to_building(suite):
            pytest.skip(obstacle)
        return images.machine_image(suite)

    return find_image


@pytest.fixture(scope="session")
def image(image_of: Callable[[Suite], MachineImage]) -> MachineImage:
    return image_of("bookworm")


@pytest.fixture(scope="session")
def payload(image: MachineImage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Asks for the image too, which is to say: only where there are machines."""
    return project_payload(tmp_path_factory.mktemp("payload"))


@pytest.fixture(scope="session")
def deployed(image: MachineImage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The payload with memqos's own image and all that deploys it."""
    if obstacle := deployments.obstacle():
        pytest.skip(obstacle)
    made = deployments.deployment(tmp_path_factory.mktemp("made"))
    return project_payload(tmp_path_factory.mktemp("payload"), made)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what needs a machine: `make check` leaves it out."""
    if "image_of" in getattr(item, "fixturenames", ()):
        item.add_marker("vm")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the machines: they take longest, and run beside the other tests."""
    items.sort(key=lambda item: item.get_closest_marker("vm") is None)
