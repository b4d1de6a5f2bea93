"""A cgroup for each test, taken away with all that is in it."""

from collections.abc import Iterator

import pytest
from tests.vm.guest.support import Cgroup


@pytest.fixture
def cgroup() -> Iterator[Cgroup]:
    made = Cgroup.at_root("memqos-test")
    try:
        yield made
    finally:
        made.remove()


@pytest.fixture
def kubepods() -> Iterator[Cgroup]:
    """The cgroup that the cgroupfs driver keeps all pods in."""
    made = Cgroup.at_root("kubepods")
    try:
        yield made
    finally:
        made.remove()
