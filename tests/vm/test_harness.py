"""The promises of the harness itself."""

import importlib.metadata
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.eventually import eventually
from tests.overlays import pod_specs
from tests.vm.harness import deployment
from tests.vm.harness import tools as installing
from tests.vm.harness.declared import DEFAULT, Undeclared, in_suites, machines_of, shared
from tests.vm.harness.jobs import job_of
from tests.vm.harness.junit import Case, cases

from memqos.lab.vm import image as images
from memqos.lab.vm import tools
from memqos.lab.vm.image import PROJECT, MachineImage
from memqos.lab.vm.initrd import make_initrd
from memqos.lab.vm.machine import VM, Outcome
from memqos.lab.vm.topology import SUITES, Suite, Topology


def module(folder: Path, text: str) -> Path:
    path = folder / "test_it.py"
    path.write_text(text)
    return path


def test_a_module_says_which_machines_it_wants_without_being_imported(tmp_path: Path) -> None:
    declared = """
raise SystemExit("imported")
MACHINES = {"plain": Topology(), "swapping": Topology(nodes=(512, 256), swap=64)}
"""
    assert machines_of(module(tmp_path, declared)) == {
        "plain": Topology(),
        "swapping": Topology(nodes=(512, 256), swap=64),
    }


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "MACHINES"),
        ("MACHINES = {name: Topology()}", "plain strings"),
        ('MACHINES = {"a": small}', r"Topology\("),
        ('MACHINES = {"a": Topology(memory=1)}', "memory"),
        ('MACHINES = {"a": Topology(swap=size)}', "malformed"),
    ],
)
def test_a_module_that_does_not_say_so_is_refused_by_name(
    text: str, complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(Undeclared, match=rf"test_it\.py.*{complaint}|{complaint}.*test_it\.py"):
        machines_of(module(tmp_path, text))


def test_other_systems_run_a_smoke_set_or_everything() -> None:
    one, two = Path("test_one.py"), Path("test_two.py")
    groups = [([one, two], Topology()), ([two], Topology(suite="forky"))]
    assert in_suites(groups, [DEFAULT], ("test_one",)) == [
        ([one, two], Topology()),
        ([one], Topology(suite="trixie")),
        ([one], Topology(suite="forky")),
        ([two], Topology(suite="forky")),
    ]
    everywhere = in_suites(groups, SUITES, ())
    assert everywhere[:3] == [([one, two], Topology(suite=suite)) for suite in SUITES]


def test_modules_that_want_the_same_machine_share_one(tmp_path: Path) -> None:
    wanted = {
        "test_a.py": 'MACHINES = {"one": Topology(), "two": Topology(swap=64)}',
        "test_b.py": 'MACHINES = {"other": Topology()}',
        "test_c.py": 'MACHINES = {"systemd": Topology(init="systemd")}',
        "test_d.py": 'MACHINES = {"systemd": Topology(init="systemd")}',
    }
    for name, text in wanted.items():
        (tmp_path / name).write_text(text)
    found = [
        ([module.stem for module in modules], topology)
        for modules, topology in shared(sorted(tmp_path.iterdir()))
    ]
    assert found == [
        (["test_a", "test_b"], Topology()),
        (["test_a"], Topology(swap=64)),
        (["test_c"], Topology(init="systemd")),
        (["test_d"], Topology(init="systemd")),
    ]


def test_the_owners_are_mounted_once_their_comment_is_taken_away(tmp_path: Path) -> None:
    made = dict(deployment.overlays(tmp_path / "kustomize"))
    mounts = {}
    for name in ("enforce", "owners"):
        (spec,) = pod_specs(made[name])
        mounts[name] = {mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
    assert mounts["owners"] - mounts["enforce"] == {"/run/dbus", "/run/systemd", "/run/containerd"}


def test_the_image_is_built_again_when_what_goes_into_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployment, "PROJECT", tmp_path)
    for name in deployment.INGREDIENTS:
        (tmp_path / name).mkdir(parents=True)
    source = tmp_path / "src" / "module.py"
    source.write_text("one = 1\n")
    before = deployment.built()
    source.with_suffix(".pyc").write_bytes(b"compiled")
    assert deployment.built() == before
    source.write_text("one = 2\n")
    assert deployment.built() != before


def test_a_report_tells_what_failed_and_what_it_printed() -> None:
    report = b"""<testsuites><testsuite>
        <testcase name="good" />
        <testcase name="bad"><failure message="short">long</failure><system-out>
---- Captured Out ----
printed</system-out><system-err>---- Captured Err ----
</system-err></testcase>
        <testcase name="broken"><error>at teardown</error></testcase>
        <testcase name="unfit"><skipped message="why" /></testcase>
    </testsuite></testsuites>"""
    assert cases(report) == [
        Case("good", "passed", ""),
        Case("bad", "failed", "long\n---- Captured Out ----\nprinted"),
        Case("broken", "failed", "at teardown"),
        Case("unfit", "skipped", "why"),
    ]


def test_a_machine_that_never_reported_has_no_cases() -> None:
    assert cases(b"") == []


@pytest.mark.parametrize(
    ("progress", "timed_out", "lost"),
    [
        ([], False, True),
        ([], True, True),
        (["started"], False, True),
        (["started"], True, False),
        (["started", "exited 1"], False, False),
    ],
)
def test_only_a_machine_that_failed_itself_is_tried_again(
    progress: list[str], timed_out: bool, lost: bool
) -> None:
    assert Outcome(progress, "", b"", "", "", timed_out).lost is lost


@pytest.fixture
def without_mke2fs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "find_program", lambda name: None if name == "mke2fs" else name)


COMMAND = "as root run: apt-get install --no-install-recommends e2fsprogs"


@pytest.mark.usefixtures("without_mke2fs")
def test_missing_tools_are_named_with_the_command_that_gets_them() -> None:
    assert tools.missing_packages() == ["e2fsprogs"]
    assert tools.obstacle_to_booting() == f"virtual machines need e2fsprogs – {COMMAND}"


@pytest.mark.usefixtures("without_mke2fs")
def test_who_may_not_install_them_is_told_who_may(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert installing.install() == 1
    assert capsys.readouterr().err == f"missing: e2fsprogs\n  next: {COMMAND}\n"


@pytest.mark.parametrize(
    "module", ["tests.vm.harness.tools", "tests.browser.chromium", "tests.terminal.tmux"]
)
def test_a_machine_with_no_package_installed_can_install_the_tools(module: str) -> None:
    """As the Makefile runs them on a new machine: with the system's own Python."""
    environment = {**os.environ, "PYTHONPATH": f"{images.PROJECT / 'src'}:{images.PROJECT}"}
    command = [sys.executable, "-S", "-c", f"import {module}"]
    assert subprocess.run(command, env=environment, check=False).returncode == 0


def test_who_may_not_build_the_image_is_told_who_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("MEMQOS_VM_CACHE", "/home/me/.cache/memqos-vm")
    obstacle = images.obstacle_to_building("forky")
    assert obstacle is not None
    assert obstacle.endswith(
        "as root run, once: MEMQOS_VM_CACHE=/home/me/.cache/memqos-vm "
        "memqos lab run throttling --debian testing"
    )


def test_outside_a_source_tree_the_guest_gets_the_versions_that_run_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "PROJECT", tmp_path)
    pins = images.guest_requirements().splitlines()
    assert f"msgspec=={importlib.metadata.version('msgspec')}" in pins
    assert not any(pin.startswith("pytest") for pin in pins)


def test_the_guest_gets_the_pinned_packages_that_tests_need_and_no_more() -> None:
    pins = images.guest_requirements().splitlines()
    names = {pin.partition("==")[0] for pin in pins if "==" in pin}
    assert {"msgspec", "click", "pyyaml", "pytest"} <= names
    assert "mypy" not in names
    assert any("--hash=sha256:" in pin for pin in pins)


def test_kernel_modules_load_after_those_they_need(tmp_path: Path) -> None:
    for name, needs in {"disk": "ring,bus-lib", "ring": "", "bus-lib": "ring"}.items():
        (tmp_path / f"{name}.ko").write_bytes(b"\0depends=%s\0" % needs.encode())
    archive = make_initrd(
        busybox=tmp_path / "ring.ko",
        init=tmp_path / "ring.ko",
        kernel_modules=tmp_path,
        wanted=("disk", "ring"),
    )
    assert b"ring.ko\nbus-lib.ko\ndisk.ko\n" in archive


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    """A cache of its own, and a build that only leaves a trace."""
    made: list[Path] = []

    def build(folder: Path, suite: Suite) -> Path:
        made.append(folder)
        kept = folder / "image"
        kept.mkdir()
        (kept / "root.ext4").touch()
        return kept

    monkeypatch.setenv("MEMQOS_VM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(images, "_build", build)
    return made


def test_two_who_ask_for_the_image_at_once_get_the_same_one(
    builds: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    got: list[MachineImage] = []
    asking: list[None] = []
    build = images._build

    def build_when_both_ask(folder: Path, suite: Suite) -> Path:
        eventually("the other asks, too", lambda: len(asking) == 2)
        return build(folder, suite)

    def ask() -> None:
        asking.append(None)
        got.append(images.machine_image())

    monkeypatch.setattr(images, "_build", build_when_both_ask)
    askers = [threading.Thread(target=ask) for _ in range(2)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert len(builds) == 1
    assert got[0] == got[1]
    assert got[0].root.exists()


def test_a_build_that_fails_leaves_nothing_that_passes_for_an_image(
    builds: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Path, suite: Suite) -> Path:
        (folder / "image").mkdir()
        raise RuntimeError

    with monkeypatch.context() as broken:
        broken.setattr(images, "_build", fail)
        with pytest.raises(RuntimeError):
            images.machine_image()
    assert images.built_image() is None
    assert images.machine_image() == images.built_image()


def test_images_of_old_recipes_and_killed_builds_are_removed(builds: list[Path]) -> None:
    old = [f"old-{each}" for each in range(images.KEPT_IMAGES)]
    for name in (*old, "building-killed"):
        (images.image_cache() / name / "image").mkdir(parents=True)
    images.machine_image()
    left = [path for path in images.image_cache().iterdir() if path.is_dir()]
    assert len(left) == images.KEPT_IMAGES
    assert images.image_cache() / "building-killed" not in left


ENDLESS = Topology(
    nodes=(256,), cpus=1, kernel_arguments=("memqos.init=/bin/cat",), seconds_in_all=1
)
"""Its first process waits for what nobody types."""


def test_a_machine_that_takes_too_long_is_ended(
    image: MachineImage, payload: Path, tmp_path: Path
) -> None:
    with VM(job_of(("tests/vm/guest",), ENDLESS, image, payload), tmp_path) as machine:
        eventually("it runs", lambda: emulators(tmp_path))
        outcome = machine.outcome()
        assert not emulators(tmp_path)
    assert outcome.timed_out
    assert outcome.exit_code is None
    assert "took too long" in outcome.story()


def test_a_machine_ends_with_the_block_that_it_lives_in(
    image: MachineImage, payload: Path, tmp_path: Path
) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        VM(job_of(("tests/vm/guest",), Topology(), image, payload), tmp_path),
    ):
        raise KeyboardInterrupt
    assert not emulators(tmp_path)


def test_a_machine_does_not_outlive_tests_that_are_killed(
    image: MachineImage, payload: Path, tmp_path: Path
) -> None:
    script = f"""
from pathlib import PosixPath
from memqos.lab.vm.image import MachineImage
from memqos.lab.vm.machine import VM
from memqos.lab.vm.topology import Topology
from tests.vm.harness.jobs import job_of
with VM(job_of(("tests/vm/guest",), Topology(), {image!r}, {payload!r}), {tmp_path!r}) as machine:
    print("started", flush=True)
    machine.outcome()
"""
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE) as tests:
        assert tests.stdout is not None
        assert tests.stdout.readline() == b"started\n"
        eventually("it runs", lambda: emulators(tmp_path))
        tests.kill()
    eventually("it is gone", lambda: not emulators(tmp_path))


def emulators(folder: Path) -> list[Path]:
    """The processes whose command line speaks of the folder's console."""
    console = bytes(folder / "console.log")
    return [path.parent for path in Path("/proc").glob("[0-9]*/cmdline") if console in read(path)]


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the process has just ended
        return b""
