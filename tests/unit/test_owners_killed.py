"""A writer killed at any moment leaves nothing, in files or with their owners, that stays."""

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.eventually import PATIENCE
from tests.fakes.crash import VICTIMS, Victim, is_killed
from tests.fakes.node import MI, memory_folder
from tests.fakes.owner_node import CONTAINERS, KUBEPODS, PODS, OwnedNode
from tests.fakes.stage import alone

from memqos.host.cri import CriClient
from memqos.host.grpc import GrpcError
from memqos.host.systemd_bus import SystemdManager

WANTED = {
    (KUBEPODS, "memory.min"): str(2 * MI),
    (PODS[0], "memory.low"): str(2 * MI),
    (PODS[0], "memory.high"): str(300 * MI),
    (CONTAINERS["a1"], "memory.low"): str(MI),
    (CONTAINERS["a1"], "memory.high"): str(100 * MI),
}
OTHERS = {place: str(3 * MI) for place in WANTED}


class Stage:
    """A node that is put back, its owners with it, before every performance."""

    def __init__(
        self, node: OwnedNode, folder: Path, prepare: Callable[[OwnedNode], object]
    ) -> None:
        self.node, self.saved = node, folder / "saved"
        self.folder = node.kernel.folder.parent
        # Somebody has set a property already, and told the runtime of a value.
        node.systemd.set_properties("kubepods.slice", {"MemoryLow": 5 * MI})
        node.runtime.start("a1", CONTAINERS["a1"], {"memory.low": str(7 * MI)})
        self.original = self.state()
        prepare(node)
        shutil.copytree(self.folder, self.saved, ignore=shutil.ignore_patterns("*.sock"))

    def set(self) -> None:
        for name in ("systemd", "stored", "run"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            if (self.saved / name).exists():
                shutil.copytree(self.saved / name, self.folder / name)
        cgroups = self.saved / "cgroup"
        for file in cgroups.rglob("*.*"):
            target = self.folder / "cgroup" / file.relative_to(cgroups)
            if file.is_file() and target.read_bytes() != file.read_bytes():
                target.write_bytes(file.read_bytes())

    def state(self) -> tuple[object, object, object]:
        node = self.node
        low = node.runtime.stored("a1").get("memory.low")
        return node.kernel.contents(), node.systemd.traces(), low


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder


def wait_for_owners(node: OwnedNode) -> None:
    """Have them end what a killed writer has asked of them."""
    manager = SystemdManager(str(node.systemd.socket), PATIENCE)
    manager.set_properties("none", {})
    manager.close()
    runtime = CriClient(str(node.runtime.socket), PATIENCE)
    with pytest.raises(GrpcError):
        runtime.read_resources("none")
    runtime.close()


def rolled_back(node: OwnedNode) -> None:
    done = alone(node.rollback)
    assert {result.outcome for result in done.results} <= {"written"}
    assert {each.state for each in done.not_written} <= {"restored"}
    assert done.owner_failures == ()


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("act", ["apply", "apply again", "rollback"])
def test_all_is_as_before_once_it_was_taken_back(folder: Path, act: str, victim: Victim) -> None:
    prepare: dict[str, Callable[[OwnedNode], object]] = {
        "apply": lambda _node: None,
        "apply again": lambda node: node.apply(node.steps(OTHERS)),
        "rollback": lambda node: node.apply(node.steps(WANTED)),
    }
    (folder / "node").mkdir()
    node = OwnedNode(folder / "node")
    with node.owners():
        stage = Stage(node, folder, prepare[act])
        steps = node.steps(WANTED)
        action = node.rollback if act == "rollback" else lambda: node.apply(steps)
        for moment in itertools.count():
            stage.set()
            if not is_killed(action, moment, victim, node.kernel):
                break
            wait_for_owners(node)
            rolled_back(node)
            assert stage.state() == stage.original, f"killed at moment {moment}"
            assert not node.journal.exists()
    assert moment > 3 * len(WANTED)
