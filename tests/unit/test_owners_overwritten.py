"""Values changed past their owner and put back: the owner is left as it was all the same."""

from collections.abc import Iterator

import pytest
from tests.fakes.node import MI, memory_folder
from tests.fakes.owner_node import BURSTABLE, CONTAINERS, KUBEPODS, OwnedNode

LOW, HIGH = "memory.low", "memory.high"


@pytest.fixture
def node() -> Iterator[OwnedNode]:
    with memory_folder() as folder:
        made = OwnedNode(folder)
        with made.owners():
            yield made


@pytest.mark.parametrize("path", [BURSTABLE, CONTAINERS["a1"]])
@pytest.mark.parametrize(("file", "ours"), [(LOW, str(8 * MI)), (HIGH, str(80 * MI))])
def test_nothing_of_memqos_is_left_with_the_owner(
    node: OwnedNode, path: str, file: str, ours: str
) -> None:
    stored = node.runtime.stored("a1")
    before = sorted(node.systemd.run.rglob("50-*")), stored.get(file)
    for _ in range(2):
        node.apply(node.steps({(path, file): ours}))
        node.kernel.set(path, file, str(3 * MI))
    node.apply(node.steps({(path, file): ours}))
    node.rollback()
    assert node.kernel.read(path, file) == str(3 * MI)
    after = node.runtime.stored("a1").get(file)
    assert sorted(node.systemd.run.rglob("50-*")) == before[0]
    assert after in (before[1], str(3 * MI), "max")


def test_what_the_kubelet_told_systemd_since_stays(node: OwnedNode) -> None:
    def kubelet_keeps(amount: int) -> None:
        node.systemd.set_properties("kubepods.slice", {"MemoryMin": amount * MI})

    kubelet_keeps(100)
    node.apply(node.steps({(KUBEPODS, LOW): str(8 * MI)}))
    kubelet_keeps(200)
    node.rollback()
    node.systemd.reload()
    assert node.kernel.read(KUBEPODS, "memory.min") == str(200 * MI)
    assert node.kernel.read(KUBEPODS, LOW) == "0"
