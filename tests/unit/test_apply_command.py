"""`memqos apply` and `memqos rollback` as a person or a script meets them."""

import errno
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
from click.testing import CliRunner
from tests.fakes.node import BUSY, CONTAINERS, MI, Node, a_plan, memory_folder

from memqos.cli.main import cli
from memqos.converge.saved_plan import encode_saved_plan, plan_to_save
from memqos.host.machine import read_machine
from memqos.host.owner_discovery import OwnerEndpoints

NODES = Path(__file__).parents[1] / "nodes"
MIN = "memory.min"
FEW = {(path, MIN): str(MI) for path in CONTAINERS[:3]}


class Said(NamedTuple):
    code: int
    out: str
    err: str


class Shell:
    """Types commands about one node, whose kernel is a fake."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.options: tuple[str, ...] = (
            "--cgroup-root",
            node.kernel.root,
            "--journal",
            node.journal_folder,
        )

    def memqos(self, *arguments: str, answer: str = "") -> Said:
        options = self.options if arguments[0] != "plan" else self.options[:2]
        done = CliRunner().invoke(
            cli, [*arguments, *options], input=answer, standalone_mode=False, catch_exceptions=False
        )
        return Said(done.return_value or 0, done.stdout, done.stderr)

    def saved(self, wanted: dict[tuple[str, str], str]) -> str:
        file = self.node.kernel.folder.with_name("plan.json")
        boot = read_machine().boot_id
        assert boot is not None
        steps = self.node.steps(wanted)
        file.write_bytes(encode_saved_plan(plan_to_save(steps, boot, self.node.kernel.root, "1.0")))
        return str(file)


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    with memory_folder() as folder:
        node = Node(folder)
        (node.kernel.folder / "cgroup.controllers").write_text("cpuset cpu memory\n")
        monkeypatch.setattr("memqos.converge.cgroup_writer.CgroupFs", lambda _root: node.kernel)
        yield Shell(node)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody sits there."""
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _self: True)


class TestApply:
    def test_writes_a_saved_plan(self, shell: Shell) -> None:
        done = shell.memqos("apply", shell.saved(a_plan()), "--yes")
        assert done.code == 0
        assert done.out.endswith("40 written\n")
        assert done.err == ""

    def test_shows_what_it_is_about_to_write(self, shell: Shell) -> None:
        done = shell.memqos("apply", shell.saved({("/kubepods", MIN): str(MI)}), "--yes")
        assert done.out.splitlines() == [
            "   cgroup     file        now     planned",
            "+  /kubepods  memory.min    0  →      1Mi",
            "",
            "1 to set",
            "1 written",
        ]

    def test_has_nothing_to_do_the_second_time(self, shell: Shell) -> None:
        file = shell.saved(FEW)
        shell.memqos("apply", file, "--yes")
        journal = shell.node.journal.read_bytes()
        done = shell.memqos("apply", file)
        assert (done.code, done.out) == (0, "converged: nothing to change\n")
        assert shell.node.journal.read_bytes() == journal

    def test_does_not_write_where_nobody_can_be_asked(self, shell: Shell) -> None:
        before = shell.node.kernel.contents()
        with pytest.raises(click.UsageError, match="add --yes"):
            shell.memqos("apply", shell.saved(FEW), answer="y\n")
        assert shell.node.kernel.contents() == before

    @pytest.mark.usefixtures("terminal")
    def test_asks_first(self, shell: Shell) -> None:
        before = shell.node.kernel.contents()
        asked = shell.memqos("apply", shell.saved(FEW), answer="n\n")
        assert asked.code == 2
        assert "Write these 3 values? [y/N]: " in asked.err
        assert shell.node.kernel.contents() == before
        assert shell.memqos("apply", shell.saved(FEW), answer="y\n").code == 0
        assert shell.node.kernel.read(BUSY, MIN) == str(MI)

    @pytest.mark.usefixtures("terminal")
    def test_shows_how_far_it_is_to_who_watches(self, shell: Shell) -> None:
        done = shell.memqos("apply", shell.saved(FEW), "--yes")
        assert f"3/3 {CONTAINERS[2]}/memory.min" in done.err
        assert done.err.endswith("\r\033[K")

    def test_refuses_a_plan_of_a_tree_that_has_moved_and_says_where(self, shell: Shell) -> None:
        file = shell.saved(FEW)
        shell.node.kernel.set(BUSY, MIN, "4096")
        before = shell.node.kernel.contents()
        done = shell.memqos("apply", file, "--yes")
        assert done.code == 1
        assert f"  {BUSY}/memory.min: 0 when planned, 4096 now\n" in done.err
        assert shell.node.kernel.contents() == before

    def test_refuses_terms_beside_a_plan_that_holds_them(self, shell: Shell) -> None:
        with pytest.raises(click.UsageError, match="remove --policy"):
            shell.memqos("apply", shell.saved(FEW), "--policy", "None")

    def test_refuses_to_guess_which_pods_there_are(self, shell: Shell) -> None:
        with pytest.raises(click.UsageError, match="--pods"):
            shell.memqos("apply", "--yes")

    def test_tells_what_was_refused_and_writes_the_rest(self, shell: Shell) -> None:
        shell.node.kernel.refusals[BUSY, MIN] = errno.EBUSY
        done = shell.memqos("apply", shell.saved(FEW), "--yes")
        assert done.code == 1
        assert done.err == f"refused: {BUSY}/memory.min: cannot write '{MI}' – a fake\n"
        assert done.out.endswith("2 written, 1 refused\n")

    def test_tells_what_it_withheld_and_how_to_get_it(self, shell: Shell) -> None:
        shell.node.kernel.set(BUSY, "memory.stat", f"anon {300 * MI}")
        shell.node.kernel.set(BUSY, "memory.swap.max", "0")
        file = shell.saved({(BUSY, "memory.high"): str(200 * MI)})
        done = shell.memqos("apply", file, "--yes")
        assert (done.code, done.out.splitlines()[-1]) == (2, "1 withheld")
        assert "with no swap for it – --force writes it anyway" in done.err
        assert shell.memqos("apply", file, "--yes", "--force").code == 0

    def test_counts_what_has_vanished(self, shell: Shell) -> None:
        file = shell.saved(FEW)
        shell.node.kernel.remove(BUSY)
        done = shell.memqos("apply", file, "--yes")
        assert done.code == 0
        assert done.out.endswith("2 written, 1 removed with their cgroups\n")

    def test_tells_scripts_what_came_of_each_value(self, shell: Shell) -> None:
        shell.node.kernel.refusals[BUSY, MIN] = errno.EBUSY
        done = shell.memqos("apply", shell.saved(FEW), "--yes", "-o", "json")
        results = json.loads(done.out)["results"]
        assert {result["path"]: result["end"] for result in results} == {
            BUSY: "refused",
            CONTAINERS[1]: "written",
            CONTAINERS[2]: "written",
        }

    def test_says_by_whom_values_are_written_and_why(
        self, shell: Shell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            "memqos.converge.cgroup_writer.discover_owners",
            lambda *_args, **_options: OwnerEndpoints(systemd="/run"),
        )
        shell.node.kernel.make("/kubepods.slice")
        file = shell.saved({("/kubepods.slice", MIN): str(MI), (BUSY, MIN): str(MI)})
        lines = shell.memqos("apply", file, "--yes").out.splitlines()
        assert lines[-3:-1] == [
            "directly: 1 value – a systemd unit, but D-Bus does not answer: daemon-reload resets "
            "the value",
            "directly: 1 value – nothing restores old values here",
        ]


class TestRollback:
    def test_puts_everything_back(self, shell: Shell) -> None:
        before = shell.node.kernel.contents()
        shell.memqos("apply", shell.saved(a_plan()), "--yes")
        done = shell.memqos("rollback")
        assert (done.code, done.out, done.err) == (0, "40 restored\n", "")
        assert shell.node.kernel.contents() == before

    def test_has_nothing_to_do_the_second_time_or_before_the_first(self, shell: Shell) -> None:
        assert shell.memqos("rollback") == (0, "nothing to restore\n", "")
        assert not Path(shell.node.journal_folder).exists()
        shell.memqos("apply", shell.saved(FEW), "--yes")
        shell.memqos("rollback")
        assert shell.memqos("rollback") == (0, "nothing to restore\n", "")

    def test_lists_what_it_would_put_back(self, shell: Shell) -> None:
        assert shell.memqos("rollback", "--list") == (0, "nothing to restore\n", "")
        shell.memqos("apply", shell.saved(FEW), "--yes")
        shell.node.kernel.set(BUSY, MIN, "4096")
        before = shell.node.kernel.contents()
        done = shell.memqos("rollback", "--list")
        assert done.code == 2
        rows = {tuple(line.split()) for line in done.out.splitlines()}
        assert ("conflict", f"{BUSY}/{MIN}", "0", str(MI), "4096") in rows
        assert ("ours", f"{CONTAINERS[1]}/{MIN}", "0", str(MI), str(MI)) in rows
        assert done.out.endswith("2 to restore, 1 changed by others since\n")
        assert shell.node.kernel.contents() == before

    def test_leaves_what_others_changed_and_says_so(self, shell: Shell) -> None:
        shell.memqos("apply", shell.saved(FEW), "--yes")
        shell.node.kernel.set(BUSY, MIN, "4096")
        done = shell.memqos("rollback")
        assert done.code == 2
        assert done.err == (
            f"conflict: {BUSY}/memory.min: {MI} was written, now it is 4096 – --force restores 0\n"
        )
        assert done.out == "2 restored\n1 changed by others since\n"
        assert shell.memqos("rollback", "--force") == (0, "1 restored\n", "")

    @pytest.mark.parametrize("listing", [(), ("--list",)])
    def test_is_data_for_scripts_too(self, shell: Shell, listing: tuple[str, ...]) -> None:
        shell.memqos("apply", shell.saved(FEW), "--yes")
        shell.node.kernel.set(BUSY, MIN, "4096")
        data = json.loads(shell.memqos("rollback", *listing, "-o", "json").out)
        (conflict,) = [each for each in data["values"] if each["state"] == "conflict"]
        assert (conflict["before"], conflict["ours"], conflict["now"]) == ("0", [str(MI)], "4096")
        if not listing:
            assert {result["end"] for result in data["results"]} == {"written"}

    def test_says_when_a_part_of_the_journal_is_lost(self, shell: Shell) -> None:
        shell.memqos("apply", shell.saved(FEW), "--yes")
        shell.node.journal.write_bytes(shell.node.journal.read_bytes() + b"nonsense\n")
        done = shell.memqos("rollback")
        assert (done.code, done.out) == (1, "3 restored\n")
        assert "damaged from its record 8 on" in done.err

    def test_says_when_the_writer_was_killed_and_is_fine_with_it(self, shell: Shell) -> None:
        shell.memqos("apply", shell.saved(FEW), "--yes")
        shell.node.journal.write_bytes(shell.node.journal.read_bytes()[:-9])
        done = shell.memqos("rollback")
        assert (done.code, done.out) == (0, "3 restored\n")
        assert "if the file was truncated otherwise, values remain" in done.err

    @pytest.mark.parametrize("left", [0, 10, 60])
    def test_says_that_values_are_left_where_the_journal_was_cut_short(
        self, shell: Shell, left: int
    ) -> None:
        shell.memqos("apply", shell.saved(FEW), "--yes")
        applied = shell.node.kernel.contents()
        shell.node.journal.write_bytes(shell.node.journal.read_bytes()[:left])
        done = shell.memqos("rollback")
        assert done.code == 1
        assert done.out == "nothing to restore in the part of the journal that can be read\n"
        assert "damaged from its record 1 on" in done.err
        assert "values written after that remain" in done.err
        assert shell.node.kernel.contents() == applied
        assert len(list(shell.node.journal.parent.glob("journal.damaged-*"))) == 1

    def test_says_that_a_journal_of_an_earlier_boot_is_of_no_use(self, shell: Shell) -> None:
        shell.node.apply(shell.node.steps(FEW))
        done = shell.memqos("rollback")
        assert (done.code, done.out) == (0, "nothing to restore\n")
        assert "from an earlier boot" in done.err


def on_recorded(shell: Shell, name: str) -> dict[str, Any]:
    """The shell on the tree, pods and kubelet of a recorded node."""
    recorded: dict[str, Any] = json.loads((NODES / f"{name}.json").read_text())
    kernel = shell.node.kernel
    for path in ("/kubepods", "/other"):
        if (kernel.folder / path[1:]).exists():
            kernel.remove(path)
    for path, files in recorded["cgroups"].items():
        if path.startswith("/kubepods"):
            kernel.make(path, {name: text.rstrip("\n") for name, text in files.items()})
    pods, kubelet = (kernel.folder.with_name(name) for name in ("pods.json", "kubelet.yaml"))
    pods.write_text(json.dumps(recorded["pods"]))
    kubelet.write_text(recorded["kubelet_configuration"])
    flags = ("--pods", str(pods), "--kubelet", str(kubelet), "--release", "1.38")
    shell.options = (*shell.options, *flags)
    return recorded


class TestARecordedNode:
    """From the pods to the files and back, with nothing saved in between."""

    def test_is_converged_after_apply_and_as_before_after_rollback(self, shell: Shell) -> None:
        on_recorded(shell, "cgroupfs")
        kernel = shell.node.kernel
        before = kernel.contents()
        applied = shell.memqos("apply", "--yes", "--policy", "HardReservation")
        assert applied.code == 0
        assert kernel.contents() != before
        again = shell.memqos("apply", "--policy", "HardReservation")
        assert (again.code, again.out) == (0, "converged: nothing to change\n")
        shell.options = shell.options[:4]
        assert shell.memqos("rollback").code == 0
        assert kernel.contents() == before

    def test_has_its_containers_bound_to_numa_nodes_and_set_free_again(self, shell: Shell) -> None:
        recorded = on_recorded(shell, "numa")
        kernel = shell.node.kernel
        state = kernel.folder.with_name("memory_manager_state")
        state.write_text(recorded["memory_manager_state"])
        bound = [path for path in recorded["cgroups"] if kernel.read(path, "cpuset.mems")]
        shell.memqos("apply", "--yes")
        as_assigned = kernel.contents()
        for path in bound:
            kernel.set(path, "cpuset.mems", "")
        applied = shell.memqos("apply", "--yes", "--numa", "state", "--state", str(state))
        assert (applied.code, applied.out.splitlines()[-1]) == (0, f"{len(bound)} written")
        assert kernel.contents() == as_assigned
        shell.options = shell.options[:4]
        assert shell.memqos("rollback").code == 0
        assert [kernel.read(path, "cpuset.mems") for path in bound] == [""] * len(bound) != []
