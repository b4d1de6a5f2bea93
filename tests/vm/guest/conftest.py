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
