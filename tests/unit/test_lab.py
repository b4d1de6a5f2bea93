"""Experiments: how verdicts come about, what a report keeps, what is refused beforehand."""

import errno
import json
import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator
from tests.eventually import eventually
from tests.unit.test_json_schemas import schema_of

from memqos.cli.main import cli
from memqos.draw.text.render import render
from memqos.errors import InputError, LabError
from memqos.lab import in_vm
from memqos.lab.catalogue import SCENARIOS
from memqos.lab.cgroup import ScratchCgroup
from memqos.lab.events import (
    LabEvent,
    LabMachine,
    RunFailed,
    RunMeasured,
    RunStarted,
    decode_event,
    encode_event,
)
from memqos.lab.guest import parse_selection, selection_words
from memqos.lab.here import check_computer
from memqos.lab.page import lab_page
from memqos.lab.report import LabReport, Spread, compare_reports, decode_report, report_scenarios
from memqos.lab.runner import Selected
from memqos.lab.scenario import MIB, Figures, Hypothesis, Scenario, Workbench, judge
from memqos.lab.scenarios.throttling import (
    UsageSample,
    counted_sleep,
    formula_sleep,
    predicted_sleep,
)
from memqos.lab.text import comparison_lines, format_figure, report_lines
from memqos.lab.throttled import ThrottledRun
from memqos.lab.vm import image as images
from memqos.lab.vm import machine as machines
from memqos.lab.vm.building import building_folder, remove_tree
from memqos.lab.vm.tools import missing_packages

MACHINE = LabMachine(
    kernel="6.1.0",
    system="Debian GNU/Linux 12",
    memory=512 * MIB,
    swap=0,
    numa_nodes=1,
    processors=2,
    python="3.11.2",
    recursive_protection=True,
)
HARD = SCENARIOS["hard-reservation"]


def hypothesis(**more: Any) -> Hypothesis:
    return Hypothesis(
        text="more is more",
        variants=("a", "b"),
        holds=lambda by: float(by["b"]["x"]) > float(by["a"]["x"]),
        **more,
    )


def run_of(a: float, b: float) -> dict[str, Figures]:
    return {"a": {"x": a}, "b": {"x": b}}


@pytest.mark.parametrize(
    ("runs", "verdict"),
    [
        ([run_of(1, 2), run_of(1, 3)], "confirmed"),
        ([run_of(2, 1), run_of(2, 2)], "refuted"),
        ([run_of(1, 2), run_of(2, 1)], "mixed"),
        ([], "not tested"),
        ([{"a": {"x": 1.0}}], "not tested"),
    ],
)
def test_a_hypothesis_is_judged_run_by_run(runs: Any, verdict: str) -> None:
    assert judge(hypothesis(), runs, "emulated")[0] == verdict


def test_a_hypothesis_is_not_tested_where_it_cannot_be() -> None:
    limited = hypothesis(untestable={"emulated": "nothing is fast"})
    assert judge(limited, [run_of(1, 2)], "emulated") == ("not tested", "nothing is fast")
    assert judge(limited, [run_of(1, 2)], "kvm")[0] == "confirmed"


def test_no_virtual_machine_can_tell_what_remote_memory_costs() -> None:
    [cost] = [each for each in SCENARIOS["numa"].hypotheses if "longer" in each.text]
    run: dict[str, Figures] = {"local": {"lap": 1.0}, "remote": {"lap": 2.0}}
    assert judge(cost, [run], "emulated")[0] == judge(cost, [run], "kvm")[0] == "not tested"
    assert judge(cost, [run], "here")[0] == "confirmed"


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_every_scenario_is_complete_and_within_its_machine(scenario: Scenario) -> None:
    assert scenario.hypotheses
    assert scenario.memory + 128 * MIB <= sum(scenario.machine.nodes) * MIB
    assert scenario.swap <= scenario.machine.swap * MIB
    for each in scenario.hypotheses:
        assert set(each.variants) <= scenario.variants.keys()
    for name in (scenario.name, *scenario.variants):
        # They are words of a kernel's command line.
        assert not set(name) & set(" ,:+")


class ProgramStarted(Exception):
    """An experiment has planned its node, and would now start a program in it."""


@pytest.mark.parametrize(
    ("scenario", "name"),
    [(each, name) for each in SCENARIOS.values() for name in each.variants],
    ids=lambda part: part if isinstance(part, str) else part.name,
)
def test_every_variant_has_values_of_the_planner(
    scenario: Scenario, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object, **__: object) -> None:
        raise ProgramStarted

    def create(path: Path) -> None:
        os.mkdir(path)
        for file in ("memory.min", "memory.low", "memory.high", "memory.max", "memory.oom.group"):
            (path / file).touch()
        (path / "cgroup.controllers").touch()

    monkeypatch.setattr(Path, "mkdir", create)
    for method in ("program", "workload", "cache", "idle"):
        monkeypatch.setattr(ScratchCgroup, method, start)
    bench = Workbench(ScratchCgroup(tmp_path / "scratch"), tmp_path, [])
    with pytest.raises(ProgramStarted):
        scenario.measure(bench, scenario.variants[name])
    assert any(planned.file == "memory.max" and planned.rule for planned in bench.planned)
    assert all(
        (tmp_path / f"scratch/node{planned.cgroup}" / planned.file).read_text() == planned.value
        for planned in bench.planned
    )


def verdict_of(scenario: str, beginning: str, **variants: Figures) -> str:
    run = {name.replace("_", "-"): figures for name, figures in variants.items()}
    [found] = [each for each in SCENARIOS[scenario].hypotheses if each.text.startswith(beginning)]
    return judge(found, [run], "emulated")[0]


@pytest.mark.parametrize(
    ("order", "verdict"),
    [("over, best", "confirmed"), ("best, over", "refuted"), ("", "refuted")],
)
def test_an_order_is_confirmed_only_by_pods_that_were_evicted(order: str, verdict: str) -> None:
    figures: Figures = {"order": order, "predicted": "over, best, grower"}
    assert verdict_of("eviction-order", "Pods go", evictions=figures) == verdict


@pytest.mark.parametrize("killed", ["kills", "kubelet_kills", "hangs"])
def test_a_budget_does_not_help_where_the_kubelet_is_killed(killed: str) -> None:
    calm: Figures = {"kills": 0, "kubelet_kills": 0, "hangs": 0}
    beyond: Figures = {**calm, "kills": 2}
    verdicts = [
        verdict_of("stability", "At 110 %", tiered_110=beyond, tiered_110_budget=within)
        for within in (calm, {**calm, killed: 1})
    ]
    assert verdicts == ["confirmed", "refuted"]


@pytest.mark.parametrize(
    ("events", "kills"),
    [
        # Two containers of two processes each, as 6.1 counts them.
        ("oom 2\noom_kill 6\noom_group_kill 2\n", 2),
        ("oom 1\noom_kill 1\n", 1),
    ],
)
def test_a_container_is_killed_once_however_many_processes_it_has(
    events: str, kills: int, tmp_path: Path
) -> None:
    cgroup = ScratchCgroup(tmp_path / "pod")
    (tmp_path / "pod" / "memory.events").write_text(events)
    assert cgroup.kills() == kills


@pytest.mark.parametrize("asleep", [0.5, 10.0])
def test_a_program_that_is_slow_is_not_one_that_is_throttled(
    asleep: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ThrottledRun(
        end="still throttled",
        steps=1,
        high_events=0,
        kills=0,
        guard_steps=0,
        seconds=120.0,
        asleep=asleep,
        highest=0,
    )
    scenario = SCENARIOS["throttling"]
    monkeypatch.setattr(ScratchCgroup, "program", lambda *_: None)
    monkeypatch.setattr(ScratchCgroup, "number", lambda *_: 0)
    monkeypatch.setattr("memqos.lab.scenarios.throttling.follow_program", lambda *_, **__: run)
    monkeypatch.setattr("memqos.lab.cgroup.enable_controllers", lambda _: None)
    bench = Workbench(ScratchCgroup(tmp_path / "scratch"), tmp_path, [])
    if asleep < 10:
        with pytest.raises(LabError, match=r"not finished, and slept 0\.5 of 120 s"):
            scenario.measure(bench, scenario.variants["0.5"])
    else:
        assert scenario.measure(bench, scenario.variants["0.5"])["end"] == "still throttled"


def test_a_selection_survives_the_command_line() -> None:
    selection = [Selected(HARD, ("none", "hard")), Selected(SCENARIOS["numa"], ("local",))]
    assert parse_selection(selection_words(selection)) == selection


def test_the_formula_sleeps_as_documented() -> None:
    # docs/guard.md: 64 × x² seconds for every 256 KiB.
    assert predicted_sleep(int(121.6 * MIB), 128 * MIB) == pytest.approx(2, abs=0.6)
    assert predicted_sleep(96 * MIB, 128 * MIB) == pytest.approx(180, rel=0.25)
    assert predicted_sleep(64 * MIB, 64 * MIB) == 0


def test_sleeps_are_counted_by_high_events_and_not_by_growth() -> None:
    # As seen on 6.1 with another cgroup on the same processor: 17 events for every page.
    high, usage = 64 * MIB, 68 * MIB
    samples = [UsageSample(usage, 0), UsageSample(usage, 170), UsageSample(usage + 4096, 340)]
    assert counted_sleep(high, samples) == pytest.approx(20 * 64 / 16**2, rel=0.01)
    assert predicted_sleep(high, usage) == pytest.approx(1.2, abs=0.1)
    assert counted_sleep(high, samples[:1]) == 0
    assert counted_sleep(high, [UsageSample(high, 0), UsageSample(high, 1000)]) == 0
    assert formula_sleep(high, 2 * high) == 2


def measured(variant: str, run: int, kept: float, *, hog: int = 1) -> RunMeasured:
    figures: Figures = {
        "min": 0,
        "low": 0,
        "kept": kept,
        "low_events": 0,
        "hog_lives": hog,
        "kills": 1 - hog,
    }
    return RunMeasured(HARD.name, variant, run, 2.0, figures)


def report(*events: LabEvent, place: Any = "emulated") -> LabReport:
    return LabReport(
        made="2026-03-02T10:00:00+00:00",
        command="memqos lab run hard-reservation",
        memqos="0.1.0",
        place=place,
        seconds=12.5,
        scenarios=report_scenarios([MACHINE, *events], place),
    )


WHOLE = report(
    *(measured("tiered", run, run / 4) for run in (1, 2, 3)),
    *(measured("hard", run, 0.97, hog=0) for run in (1, 2, 3)),
)


def test_a_report_has_medians_with_their_spread_and_a_verdict_each() -> None:
    [scenario] = WHOLE.scenarios
    assert scenario.variants["tiered"].summary["kept"] == Spread(0.5, 0.25, 0.75)
    assert len(scenario.variants["tiered"].runs) == 3
    assert [each.verdict for each in scenario.hypotheses] == ["confirmed", "confirmed"]


def test_a_report_can_be_read_back() -> None:
    assert decode_report(msgspec.json.encode(WHOLE), "report.json") == WHOLE
    deep = b'{"scenarios": ' + b"[" * 100_000
    for data in (b"", b"{}", b'{"format": 1}', b"\xff", msgspec.json.encode(WHOLE)[:-100], deep):
        with pytest.raises(InputError, match=r"report\.json: this is no report of the lab"):
            decode_report(data, "report.json")


def test_a_report_of_another_version_is_refused_whatever_is_in_it() -> None:
    with pytest.raises(InputError, match=r"its format is memqos-lab/2, and memqos-lab/1 is known"):
        decode_report(b'{"format": "memqos-lab/2", "experiments": []}', "report.json")


def test_runs_that_failed_are_told_and_the_rest_is_reported() -> None:
    partial = report(measured("tiered", 1, 0.5), RunFailed(HARD.name, "hard", 1, "in vain"))
    text = "\n".join(render(report_lines(partial)))
    assert "not measured: hard, run 1: in vain" in text
    assert "not tested: memory.min does not" in text


def test_a_measure_that_makes_no_sense_in_a_variant_is_a_dash_and_no_zero() -> None:
    hung = measured("hard", 1, 0.5)
    del hung.figures["kills"]
    shown = report(measured("tiered", 1, 0.5), hung)
    assert shown.scenarios[0].variants["hard"].summary["kills"] == ""
    line = next(line for line in render(report_lines(shown)) if "  kills" in line)
    assert line.split() == ["kills", "0", "–"]
    page = lab_page(shown)
    assert page.count("<title>HardReservation: –</title>") == 1
    assert "<td>–</td>" in page


def test_events_are_lines_of_json() -> None:
    for event in (MACHINE, measured("hard", 1, 0.5)):
        line = encode_event(event)
        assert b"\n" not in line
        assert decode_event(line) == event


def test_two_reports_differ_where_their_runs_do_not_overlap() -> None:
    other = report(*(measured("tiered", run, 0.1 + run / 100, hog=0) for run in (1, 2, 3)))
    comparison = compare_reports(WHOLE, other)
    apart = {each.measure for each in comparison.measures if each.is_apart}
    assert apart == {"memory kept", "the hog got its memory", "kills"}
    verdicts = [(each.first, each.second) for each in comparison.verdicts]
    assert verdicts == [("confirmed", "refuted"), ("confirmed", "not tested")]
    lines = list(render(comparison_lines(comparison)))
    assert any(line.startswith("hard-reservation: confirmed → refuted") for line in lines)


def test_variants_of_one_report_can_be_compared() -> None:
    comparison = compare_reports(WHOLE, WHOLE, ("tiered", "hard"))
    assert {each.variant for each in comparison.measures} == {"tiered → hard"}
    kept = next(each for each in comparison.measures if each.measure == "memory kept")
    assert kept.is_apart
    assert kept.ratio == pytest.approx(0.97 / 0.5)


@pytest.mark.parametrize("variants", [("hard", None), (None, "hard")])
def test_a_variant_that_one_report_is_limited_to_is_meant_for_both(variants: Any) -> None:
    comparison = compare_reports(WHOLE, WHOLE, variants)
    assert {each.variant for each in comparison.measures} == {"hard"}


def test_the_page_needs_nothing_else_and_escapes_what_it_quotes() -> None:
    page = lab_page(msgspec.structs.replace(WHOLE, command="memqos lab run <script>"))
    assert "<script" not in page
    assert "memqos lab run &lt;script&gt;" in page
    assert "http" not in page
    assert "Seconds of an emulated machine mean nothing alone" in page
    assert "Raw data of 6 runs" in page


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3 * MIB, "bytes", "3Mi"),
        (4096, "bytes", "4Ki"),
        (0.5, "share", "50%"),
        (1234, "count", "1,234"),
    ],
)
def test_figures_have_their_unit(value: float, unit: Any, text: str) -> None:
    assert format_figure(value, unit) == text


def lab(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["lab", *arguments], standalone_mode=False)


def test_the_list_names_every_scenario() -> None:
    assert {line.split()[0] for line in lab("list").output.splitlines()[1:]} == SCENARIOS.keys()
    data = json.loads(lab("list", "-o", "json").output)
    assert [each["name"] for each in data] == list(SCENARIOS)
    assert all(each["hypotheses"] for each in data)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["run", "nothing"], "there is no scenario 'nothing'; there are throttling,"),
        (["run", "numa", "--variant", "far"], "there is no variant 'far'; there are local, remote"),
        (
            ["run", "numa", "oom-order", "--variant", "local"],
            "oom-order has none of these variants; it has usual, large",
        ),
        (["run", "numa", "--runs", "0"], "not in the range"),
        (["run", "numa", "--here", "--debian", "13"], "--debian and --accel are about the virtual"),
        (["run", "numa", "--here", "--accel", "tcg"], "--debian and --accel are about the virtual"),
    ],
)
def test_what_does_not_exist_is_refused_with_what_does(
    arguments: list[str], complaint: str
) -> None:
    assert complaint in str(lab(*arguments).exception)


def test_reports_are_compared_by_the_command(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_bytes(msgspec.json.encode(WHOLE))
    assert "no measure differs" in lab("compare", str(file), str(file)).output
    assert "one run has no spread" not in lab("compare", str(file), str(file)).stderr
    once = tmp_path / "once.json"
    once.write_bytes(msgspec.json.encode(report(measured("tiered", 1, 0.5))))
    assert "one run has no spread" in lab("compare", str(file), str(once)).stderr
    assert "times of an emulated machine" in lab("compare", str(file), str(once)).stderr
    here = tmp_path / "here.json"
    here.write_bytes(msgspec.json.encode(msgspec.structs.replace(WHOLE, place="here")))
    assert "times of an emulated machine" not in lab("compare", str(here), str(here)).stderr
    apart = lab("compare", f"{file}:tiered", f"{file}:hard").output
    data = json.loads(lab("compare", f"{file}:tiered", f"{file}:hard", "-o", "json").stdout)
    assert data["schemaVersion"] == 1
    Draft202012Validator(schema_of("lab compare")).validate(data)
    assert "tiered → hard  memory kept" in apart
    assert "it has no variant 'soft'" in str(lab("compare", f"{file}:soft", str(file)).exception)
    assert "no such file" in str(lab("compare", "missing.json", str(file)).exception)


def test_a_report_has_somewhere_to_go_before_anything_runs(tmp_path: Path) -> None:
    missing = tmp_path / "missing" / "report.html"
    for out in (str(missing), f"{tmp_path}/", ""):
        failure = lab("run", "numa", "--out", out).exception
        assert isinstance(failure, InputError)
    assert f"{missing}: it cannot be written: no such file or directory" in str(
        lab("run", "numa", "--out", str(missing)).exception
    )


def run_with(monkeypatch: pytest.MonkeyPatch, *events: LabEvent, more: tuple[str, ...]) -> Result:
    """Run the command as if the machine reported these events."""
    monkeypatch.setattr(in_vm, "check_host", lambda *_: None)
    monkeypatch.setattr(in_vm, "run_in_vm", lambda *_, **__: iter([MACHINE, *events]))
    return lab("run", HARD.name, *more)


@pytest.mark.parametrize(
    ("events", "code"),
    [
        ([measured("tiered", 1, 0.5), measured("hard", 1, 0.97, hog=0)], 0),
        ([measured("tiered", 1, 0.5), measured("hard", 1, 0.5)], 2),
        ([measured("tiered", 1, 0.5), RunFailed(HARD.name, "hard", 1, "in vain")], 1),
    ],
)
def test_the_exit_code_tells_what_came_of_it(
    events: list[LabEvent], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_with(monkeypatch, *events, more=()).return_value == code


@pytest.mark.parametrize(("handler", "code"), [(signal.SIG_IGN, 0), (signal.SIG_DFL, None)])
def test_a_run_goes_on_after_its_terminal_with_nohup(
    handler: signal.Handlers, code: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def events(*_: object, **__: object) -> Iterator[LabEvent]:
        yield MACHINE
        os.kill(os.getpid(), signal.SIGHUP)
        yield from (measured("tiered", 1, 0.5), measured("hard", 1, 0.97, hog=0))

    monkeypatch.setattr(in_vm, "check_host", lambda *_: None)
    monkeypatch.setattr(in_vm, "run_in_vm", events)
    before = signal.signal(signal.SIGHUP, handler)
    try:
        assert lab("run", HARD.name).return_value == code
        assert signal.getsignal(signal.SIGHUP) == handler
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("to_file", [True, False])
def test_a_report_is_in_the_format_that_was_asked_for(
    to_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "report"
    for output in ("json", "yaml"):
        more = ("-o", output, *(["--out", str(file)] if to_file else []))
        done = run_with(monkeypatch, measured("tiered", 1, 0.5), more=more)
        text = file.read_text() if to_file else done.stdout
        assert text.startswith("{") == (output == "json")
        found = msgspec.json.decode(text) if output == "json" else msgspec.yaml.decode(text)
        assert found["scenarios"][0]["machine"]["numaNodes"] == 1
        assert msgspec.convert(found, LabReport).scenarios[0].name == HARD.name
        Draft202012Validator(schema_of("lab run")).validate(found)


def test_a_report_that_cannot_be_written_in_the_end_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("memqos.host.durable.replace", fail)
    more = ("-o", "json", "--out", str(tmp_path / "report.json"))
    done = run_with(monkeypatch, measured("tiered", 1, 0.5), more=more)
    assert "it cannot be written: no space left on device" in str(done.exception)
    assert msgspec.json.decode(done.stdout, type=LabReport).scenarios[0].name == HARD.name


def test_an_estimate_for_kvm_is_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    event = measured("tiered", 1, 0.5)
    assert "in an emulated machine" in run_with(monkeypatch, event, more=()).stderr
    bound = run_with(monkeypatch, event, more=("--accel", "kvm")).stderr
    assert re.search(r"at most \d min with KVM", bound)


class TestThisComputer:
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
        (tmp_path / "cgroup.subtree_control").write_text("cpuset memory\n")
        return tmp_path

    @pytest.fixture
    def proc(self, tmp_path: Path) -> Path:
        folder = tmp_path / "proc"
        folder.mkdir()
        (folder / "meminfo").write_text("MemAvailable:  4194304 kB\n")
        return folder

    @pytest.fixture(autouse=True)
    def as_root(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("os.geteuid", lambda: 0)

    def refusal(self, root: Path, proc: Path, name: str = "throttling") -> str:
        with pytest.raises(LabError) as caught:
            check_computer([Selected(SCENARIOS[name], ())], root, proc)
        return str(caught.value)

    def test_may_be_used_where_nothing_can_be_harmed(self, root: Path, proc: Path) -> None:
        check_computer([Selected(SCENARIOS["throttling"], ())], root, proc)

    def test_is_not_used_without_root(
        self, root: Path, proc: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("os.geteuid", lambda: 1000)
        assert "takes root" in self.refusal(root, proc)

    def test_is_not_used_without_cgroup_v2(self, tmp_path: Path, proc: Path) -> None:
        assert "is not cgroup v2" in self.refusal(tmp_path / "none", proc)

    def test_is_not_used_without_the_memory_controller(self, root: Path, proc: Path) -> None:
        (root / "cgroup.subtree_control").write_text("cpu\n")
        assert "does not enable the memory controller" in self.refusal(root, proc)

    def test_is_not_used_for_numa_without_the_cpuset_controller(
        self, root: Path, proc: Path
    ) -> None:
        (root / "cgroup.subtree_control").write_text("memory\n")
        assert "does not enable the cpuset controller" in self.refusal(root, proc, "numa")

    @pytest.mark.parametrize("name", ["kubepods", "kubepods.slice"])
    def test_is_not_used_where_pods_are(self, name: str, root: Path, proc: Path) -> None:
        (root / name).mkdir()
        assert "this is a node" in self.refusal(root, proc)

    @pytest.mark.parametrize("name", ["kubelet", "k3s-server"])
    def test_is_not_used_where_a_kubelet_runs(self, name: str, root: Path, proc: Path) -> None:
        process = proc / "77"
        process.mkdir()
        (process / "comm").write_text(f"{name}\n")
        (process / "status").write_text("Uid:\t0\t0\t0\t0\nNSpid:\t77\n")
        (process / "cgroup").write_text("0::/system.slice/kubelet.service\n")
        (process / "cmdline").write_text(f"/usr/bin/{name}\0")
        (process / "stat").write_text(f"77 ({name}) S 1 77 77 0 -1 0 " + "0 " * 40)
        assert "never run beside pods" in self.refusal(root, proc)

    def test_is_not_used_with_too_little_memory(self, root: Path, proc: Path) -> None:
        (proc / "meminfo").write_text("MemAvailable:  65536 kB\n")
        assert "64Mi of memory are available, and 384Mi are needed" in self.refusal(root, proc)

    def test_is_not_used_for_swap_that_it_does_not_have(self, root: Path, proc: Path) -> None:
        """The program of 0.5-swap would be throttled as that of 0.5, and swap be refuted."""
        swapping = [Selected(SCENARIOS["throttling"], ("0.5", "0.5-swap"))]
        for more in ("", "SwapFree:  8192 kB\n"):
            (proc / "meminfo").write_text(f"MemAvailable:  4194304 kB\n{more}")
            with pytest.raises(LabError, match=r"of swap are free, and 160Mi are needed"):
                check_computer(swapping, root, proc)
            check_computer([Selected(SCENARIOS["throttling"], ("0.5",))], root, proc)
        (proc / "meminfo").write_text("MemAvailable: 4194304 kB\nSwapFree: 4194304 kB\n")
        check_computer(swapping, root, proc)

    def test_may_be_used_where_the_kernel_knows_no_numa(
        self, root: Path, proc: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Path, "glob", lambda *_: iter([]))
        check_computer([Selected(SCENARIOS["throttling"], ())], root, proc)
        assert "has 1 NUMA nodes of 2 needed" in self.refusal(root, proc, "numa")

    def test_is_not_used_with_too_few_numa_nodes(
        self, root: Path, proc: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Path, "glob", lambda *_: iter([Path("node0")]))
        assert "has 1 NUMA nodes of 2 needed" in self.refusal(root, proc, "numa")


EMULATOR = """#!/bin/sh
# The emulator's place is taken by a program that runs on, and sends nothing or no event.
eval "$SENDS" >"$TMPDIR/result.log"
echo $$ >"$TMPDIR/started"
exec sleep 86400
"""


@pytest.mark.skipif(bool(missing_packages()), reason="needs the tools of virtual machines")
class TestAMachineThatSendsNoEvent:
    @pytest.fixture(autouse=True)
    def emulator(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        program = tmp_path / "bin" / "qemu-system-x86_64"
        program.parent.mkdir()
        program.write_text(EMULATOR)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        folder = tmp_path / "tmp"
        folder.mkdir()
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        monkeypatch.setenv("MEMQOS_VM_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("TMPDIR", str(folder))
        monkeypatch.setattr(tempfile, "tempdir", None)
        image = images._image_in(images._folder("bookworm"))
        image.root.parent.mkdir(parents=True)
        for file in image:
            file.touch()
        yield folder
        assert list(folder.iterdir()) == []

    def test_is_given_up_with_a_word(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(in_vm, "SILENCE", 0.5)
        failure = lab("run", "numa").exception
        assert isinstance(failure, LabError)
        assert failure.what.startswith("the virtual machine sent nothing for too long")

    @pytest.mark.parametrize(
        ("sends", "message"),
        [
            ("echo nonsense", "sent what is no event of an experiment: JSON is malformed"),
            ("""echo '{"type":"other"}'""", "sent what is no event of an experiment: Invalid"),
            ("head -c 3000000 /dev/zero", "sent a line that has no end"),
        ],
    )
    def test_is_refused_with_what_it_sent(
        self, sends: str, message: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SENDS", sends)
        failure = lab("run", "numa").exception
        assert isinstance(failure, LabError)
        assert failure.what.startswith(f"the virtual machine {message}")

    def test_takes_nothing_along_that_was_measured(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It dies in its second run."""
        events = [MACHINE, RunStarted(HARD.name, "tiered", 1), measured("tiered", 1, 0.5)]
        events.append(RunStarted(HARD.name, "hard", 1))
        lines = "".join(f"{encode_event(each).decode()}\n" for each in events)
        monkeypatch.setenv("SENDS", f"cat <<'END'\n{lines}END\nexit")
        done = lab("run", HARD.name, "-o", "json")
        assert done.return_value == 1
        assert "the virtual machine ended too early" in done.stderr
        [scenario] = msgspec.json.decode(done.stdout, type=LabReport).scenarios
        assert scenario.variants.keys() == {"tiered"}
        [failure] = scenario.failures
        assert (failure.variant, failure.run) == ("hard", 1)
        assert failure.why.startswith("the virtual machine ended too early")

    @pytest.mark.parametrize("log", ["result", "console"])
    def test_is_ended_where_it_sends_without_end(
        self, log: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(machines, "MOST_SENT", 1 << 20)
        line = encode_event(RunStarted(HARD.name, "tiered", 1)).decode()
        size = "head -c 4000000"
        monkeypatch.setenv("SENDS", f"yes '{line}' | {size} | tee \"$TMPDIR/{log}.log\" >&2")
        failure = lab("run", HARD.name).exception
        assert isinstance(failure, LabError)
        assert failure.what == "the virtual machine sent more than 1Mi"

    def test_is_ended_where_the_disk_is_full(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(machines, "LEAST_DISK", 1 << 62)
        failure = lab("run", "numa").exception
        assert isinstance(failure, LabError)
        assert failure.what.startswith("the virtual machine has no disk left in ")

    @pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
    def test_is_ended_with_the_command(self, ending: signal.Signals, emulator: Path) -> None:
        command = [sys.executable, "-m", "memqos", "lab", "run", "numa"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as lab_process:
            started: list[Path] = []

            def is_started() -> bool:
                started[:] = emulator.glob("*/machine-0/started")
                return bool(started and started[0].read_text()) or lab_process.poll() is not None

            eventually("the machine has started", is_started)
            pid = int(started[0].read_text())
            lab_process.send_signal(ending)
            _, errors = lab_process.communicate()
        assert lab_process.returncode == 130
        assert errors.endswith("memqos: interrupted\n")
        eventually("its process is gone", lambda: not Path(f"/proc/{pid}").exists())


def test_a_build_that_is_still_dying_does_not_keep_its_folder(tmp_path: Path) -> None:
    """Processes of a killed mmdebstrap write for some moments more."""
    with building_folder("building-", tmp_path) as folder:
        writes = 'while [ $i -lt 300 ]; do i=$((i+1)); mkdir -p "$0/a/$i"; : >"$0/a/$i/b"; done'
        with subprocess.Popen(["sh", "-c", f"i=0; {writes}", str(folder)]) as writer:
            eventually("it writes", (folder / "a").exists)
            remove_tree(folder)
            writer.wait()
    assert list(tmp_path.iterdir()) == []


def test_a_killed_bootstrap_takes_its_mounts_processes_and_keyring_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(images, "run_tool", lambda *words: commands.append(words))
    images._bootstrap(tmp_path / "root", "bookworm", kernel_to=tmp_path)
    [command] = commands
    before = command[: command.index("mmdebstrap")]
    assert {"unshare", "--mount", "--pid", "--kill-child", f"TMPDIR={tmp_path}"} <= set(before)


class TestAHostThatLacksSomething:
    def refusal(self, tmp_path: Path) -> str:
        with pytest.raises(LabError) as caught:
            in_vm.check_host([Selected(HARD, ())], "bookworm", tmp_path)
        return str(caught.value)

    def test_is_told_which_packages_and_how_to_get_them(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("memqos.lab.vm.tools.find_program", lambda name: "apt-get" in name)
        assert self.refusal(tmp_path) == (
            "virtual machines need dpkg, e2fsprogs, mmdebstrap, qemu-system-x86, util-linux – as "
            "root run: apt-get install --no-install-recommends dpkg e2fsprogs mmdebstrap "
            "qemu-system-x86 util-linux"
        )

    @pytest.fixture
    def bootable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        image = images.MachineImage(Path("k"), Path("i"), Path("r"))
        monkeypatch.setattr(in_vm, "obstacle_to_booting", lambda: None)
        monkeypatch.setattr(in_vm, "built_image", lambda suite: image)

    @pytest.mark.usefixtures("bootable")
    def test_is_told_how_much_disk_is_needed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(in_vm, "_RUN_DISK", 1 << 62)
        assert f"{tmp_path} has " in self.refusal(tmp_path)

    @pytest.mark.usefixtures("bootable")
    def test_is_told_how_much_memory_is_needed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(in_vm, "_BESIDE", 1 << 50)
        assert "a virtual machine of 512Mi needs" in self.refusal(tmp_path)
