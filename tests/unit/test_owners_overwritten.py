"""Values changed past their owner and put back: the owner is left as it was all the same."""

from collections.abc import Iterator

import pytest
from tests.fakes.node import MI, memory_folder
from tests.fakes.owner_node import BURSTABLE, CONTAINERS, KUBEPODS, OwnedNode

from memqos.converge.records import OwnerState
from memqos.plan.names import inner

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


@pytest.mark.parametrize(("file", "before"), [(LOW, "0"), (HIGH, "max")])
def test_no_update_brings_back_a_value_that_was_written_over_in_the_file_alone(
    node: OwnedNode, file: str, before: str
) -> None:
    path = CONTAINERS["a1"]
    node.apply(node.steps({(path, file): str(8 * MI)}))
    node.kernel.set(path, file, before)
    node.rollback()
    node.runtime.limit_only_update("a1")
    assert node.kernel.read(path, file) == before


@pytest.mark.parametrize("runtime", ["runc", "crun"])
def test_what_crun_stores_is_compared_with_the_cgroup_that_it_writes_to(
    node: OwnedNode, runtime: str
) -> None:
    scope = CONTAINERS["a1"]
    node.runtime.start("a1", scope, {HIGH: str(50 * MI)})
    node.kernel.set(scope, HIGH, "max")
    if runtime == "crun":
        node.kernel.make(inner(scope))
    before = OwnerState("runtime", "a1", {HIGH: None})
    with node.driver() as driver:
        driver.restore_owner(scope, before, [HIGH])
    assert node.runtime.stored("a1")[HIGH] == ("max" if runtime == "runc" else str(50 * MI))


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
