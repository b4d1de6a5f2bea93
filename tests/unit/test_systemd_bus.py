"""The client of systemd, against a bus that speaks the protocol."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.eventually import PATIENCE
from tests.fakes.node import MI, memory_folder
from tests.fakes.owner_node import KUBEPODS, OwnedNode
from tests.fakes.peer import Mood

from memqos.errors import MemqosError, Unreachable
from memqos.host.systemd_bus import SystemdError, SystemdManager
from memqos.host.systemd_dropins import DropIns, is_drop_in


@pytest.fixture
def node() -> Iterator[OwnedNode]:
    with memory_folder() as folder:
        yield OwnedNode(folder)


@pytest.fixture
def manager(node: OwnedNode) -> Iterator[SystemdManager]:
    client = SystemdManager(str(node.systemd.socket), PATIENCE)
    yield client
    client.close()


def test_properties_are_set_together_until_the_next_boot(
    node: OwnedNode, manager: SystemdManager
) -> None:
    with node.systemd.serving():
        manager.set_properties("kubepods.slice", {"MemoryMin": MI, "MemoryHigh": (1 << 64) - 1})
        manager.set_properties("kubepods.slice", {"MemoryMin": 2 * MI})
    assert [(call["runtime"], call["properties"]) for call in node.systemd.calls] == [
        (True, {"MemoryMin": MI, "MemoryHigh": (1 << 64) - 1}),
        (True, {"MemoryMin": 2 * MI}),
    ]
    assert node.kernel.read(KUBEPODS, "memory.min") == str(2 * MI)


def test_a_refusal_has_systemd_s_words(node: OwnedNode, manager: SystemdManager) -> None:
    node.systemd.mood = "refuses"
    with node.systemd.serving(), pytest.raises(SystemdError, match="Access denied") as refused:
        manager.set_properties("kubepods.slice", {"MemoryMin": MI})
    assert refused.value.name.endswith("AccessDenied")


@pytest.mark.parametrize(
    ("mood", "seconds", "says"),
    [("hangs up", PATIENCE, "cannot be reached"), ("hangs", 0.5, "no answer over the bus")],
)
def test_a_bus_that_is_lost_is_unreachable_with_a_way_on(
    node: OwnedNode, mood: Mood, seconds: float, says: str
) -> None:
    node.systemd.mood = mood
    manager = SystemdManager(str(node.systemd.socket), seconds)
    with node.systemd.serving(), pytest.raises(Unreachable, match=f"{says}.* – "):
        manager.set_properties("kubepods.slice", {"MemoryMin": MI})
    manager.close()


def test_a_bus_that_is_not_there_is_unreachable(manager: SystemdManager) -> None:
    with pytest.raises(Unreachable, match="No such file or directory"):
        manager.set_properties("kubepods.slice", {"MemoryMin": MI})


@pytest.mark.skipif(shutil.which("dbus-daemon") is None, reason="no dbus-daemon here")
def test_a_real_bus_without_systemd_on_it_is_unreachable(tmp_path: Path) -> None:
    path = tmp_path / "bus"
    configuration = tmp_path / "bus.conf"
    configuration.write_text(
        f"""<busconfig><listen>unix:path={path}</listen><auth>EXTERNAL</auth>
        <policy context="default"><allow user="*"/><allow send_destination="*"/>
        <allow receive_sender="*"/><allow own="*"/></policy>
        </busconfig>"""
    )
    command = ["dbus-daemon", f"--config-file={configuration}", "--nofork", "--print-address"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout is not None
        daemon.stdout.readline()
        manager = SystemdManager(str(path), PATIENCE)
        try:
            with pytest.raises(Unreachable, match="systemd1 was not provided"):
                manager.set_properties("kubepods.slice", {"MemoryMin": MI})
        finally:
            manager.close()
            daemon.kill()


class TestDropIns:
    def test_are_beside_a_transient_unit_and_else_in_a_folder_of_their_own(
        self, tmp_path: Path
    ) -> None:
        dropins = DropIns(str(tmp_path))
        for folder in ("transient", "system.control"):
            file = tmp_path / folder / "a.slice.d" / "50-MemoryLow.conf"
            file.parent.mkdir(parents=True)
            file.write_text(folder)
        assert dropins.read("a.slice", "MemoryLow") == "system.control"
        (tmp_path / "transient" / "a.slice").touch()
        assert dropins.read("a.slice", "MemoryLow") == "transient"
        assert dropins.read("a.slice", "MemoryMin") is None

    def test_are_taken_away_with_their_folder_once_that_is_empty(self, tmp_path: Path) -> None:
        folder = tmp_path / "system.control" / "a.slice.d"
        folder.mkdir(parents=True)
        for name in ("Low", "Min"):
            (folder / f"50-Memory{name}.conf").write_text("ours")
        dropins = DropIns(str(tmp_path))
        assert dropins.restore("a.slice", "MemoryLow", None)
        assert [path.name for path in folder.iterdir()] == ["50-MemoryMin.conf"]
        theirs = "[Slice]\nMemoryMin=4096\n"
        assert dropins.restore("a.slice", "MemoryMin", theirs)
        assert not dropins.restore("a.slice", "MemoryMin", theirs)
        assert [path.name for path in folder.iterdir()] == ["50-MemoryMin.conf"]
        assert (folder / "50-MemoryMin.conf").read_text() == theirs
        assert dropins.restore("a.slice", "MemoryMin", None)
        assert not dropins.restore("a.slice", "MemoryMin", None)
        assert not folder.exists()

    def test_that_somebody_had_systemd_forget_are_not_made_again(self, tmp_path: Path) -> None:
        (tmp_path / "system.control").mkdir()
        dropins = DropIns(str(tmp_path))
        assert not dropins.restore("a.slice", "MemoryMin", "[Slice]\nMemoryMin=4096\n")
        assert not any((tmp_path / "system.control").iterdir())

    @pytest.mark.parametrize(
        ("unit", "text", "is_one"),
        [
            ("a.slice", "[Slice]\nMemoryLow=5242880\n", True),
            ("a.scope", "# Do not edit.\n\n[Scope]\nMemoryLow=infinity\n", True),
            ("a.service", "[Service]\nMemoryLow=0\n", True),
            ("a.slice", "[Service]\nMemoryLow=0\n", False),
            ("a.slice", "[Slice]\nMemoryMin=0\n", False),
            ("a.slice", "[Slice]\nMemoryLow=0\nMemoryMax=1\n", False),
            ("a.slice", "[Slice]\nMemoryLow=0\n[Service]\nExecStart=/bin/sh\n", False),
            ("a.service", "[Service]\nExecStartPre=/bin/sh\nMemoryLow=0\n", False),
            ("a.slice", "# \x1b[2J\n[Slice]\nMemoryLow=0\n", False),
            ("a.slice", "#" * 5000 + "\n[Slice]\nMemoryLow=0\n", False),
            ("a.slice", "[Slice]\nMemoryLow=\n", False),
            ("a.slice", "", False),
        ],
    )
    def test_of_systemd_set_one_property_of_their_unit(
        self, unit: str, text: str, is_one: bool
    ) -> None:
        assert is_drop_in(unit, "MemoryLow", text) == is_one

    @pytest.mark.parametrize(
        "link",
        [
            "system.control",
            "system.control/a.slice.d",
            "system.control/a.slice.d/50-MemoryLow.conf",
        ],
    )
    def test_are_never_reached_through_a_link(self, tmp_path: Path, link: str) -> None:
        run, theirs = tmp_path / "run", tmp_path / "theirs"
        file = theirs / "system.control/a.slice.d/50-MemoryLow.conf"
        file.parent.mkdir(parents=True)
        file.write_text("[Slice]\nMemoryLow=1\n")
        (run / link).parent.mkdir(parents=True)
        (run / link).symlink_to(theirs / link)
        dropins = DropIns(str(run))
        for content in (None, "[Slice]\nMemoryLow=2\n"):
            with pytest.raises(MemqosError, match="a link"):
                dropins.restore("a.slice", "MemoryLow", content)
        assert file.read_text() == "[Slice]\nMemoryLow=1\n"
