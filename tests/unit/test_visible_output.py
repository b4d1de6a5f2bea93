"""Whatever names and messages hold, a terminal shows it and obeys nothing of it."""

import io
import json
import sys
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import msgspec
import pytest
import yaml
from tests.commands import ROOT, Done, memqos, memqos_at_terminal
from tests.fakes.apiserver import fake_api_server
from tests.fakes.kubeconfig import lead_to

from memqos.cli.streams import VisibleStream
from memqos.draw.text.lines import Table, display_width
from memqos.draw.text.render import render
from memqos.draw.text.terminal import message_lines, visible, visible_lines
from memqos.errors import InputError
from memqos.host.machine import SYSTEM, read_machine
from memqos.host.record_files import RecordWriter
from memqos.lab.events import LabMachine
from memqos.lab.page import lab_page
from memqos.lab.report import HypothesisReport, LabReport, ScenarioReport, VariantReport
from memqos.lab.scenario import LabMeasure
from memqos.lab.text import report_lines
from memqos.record.format import (
    EvictionRecord,
    GapRecord,
    KillRecord,
    LevelRecord,
    LifeRecord,
    Subject,
    WriteRecord,
)

HOSTILE: Final = (
    "\x1b[2K\x1b[1A\x9b2J\u202e\u2066\x07\x08\r\nFORGED\tline\x7f\x85\u2028\u200b\U000e0041"
)
"""Moves the cursor and wipes lines (C0 and C1), reorders, rings, begins lines, hides."""
NAME: Final = f"web{HOSTILE}"
RULE: Final = "    - apiGroups: [apps]\n      resources: [secrets]\n      verbs: [get, list]"
SNAPSHOT: Final = ROOT / "tests" / "nodes" / "systemd.json"


def pod(number: int, limit: str = "128Mi") -> dict[str, Any]:
    names = ("app", "sidecar")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{number}{NAME}",
            "namespace": NAME,
            "labels": {NAME: NAME},
            "annotations": {NAME: NAME},
        },
        "spec": {
            "nodeName": NAME,
            "containers": [
                {
                    "name": name,  # of a container, nothing else is accepted
                    "image": NAME,
                    "resources": {"requests": {"memory": "64Mi"}, "limits": {"memory": limit}},
                }
                for name in names
            ],
        },
    }


NODE: Final = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": NAME},
    "status": {
        "capacity": {"memory": "8Gi", "cpu": "4", "pods": "110"},
        "allocatable": {"memory": "7Gi", "cpu": "4", "pods": "110"},
        "nodeInfo": {"kubeletVersion": "v1.36.0"},
    },
}
QUOTA: Final = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": NAME, "namespace": NAME},
    "spec": {"hard": {"requests.memory": "1Mi", "limits.memory": "1Mi"}},
}
RANGE: Final = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": NAME, "namespace": NAME},
    "spec": {"limits": [{"type": "Container", "max": {"memory": "1Mi"}}]},
}


HISTORY: Final = {
    "status": "success",
    "data": {
        "resultType": "matrix",
        "result": [
            {
                "metric": {"namespace": NAME, "pod": NAME, "container": NAME},
                "values": [
                    [1_700_000_000 + number * 300, str(200_000_000 + number % 7 * 1_000_000)]
                    for number in range(900)
                ],
            }
        ],
    },
}
"""As Prometheus answers."""
RECORDS: Final = (
    LevelRecord(1000, current=1 << 27, max=1 << 28),
    WriteRecord(2000, "memory.high", "max", "134217728", NAME, NAME, NAME),
    KillRecord(3000, comm=NAME, pid=1, constraint="memcg", oom_cgroup=f"/{NAME}"),
    EvictionRecord(4000, NAME, NAME),
    GapRecord(5000, 4500, NAME, 1),
    LifeRecord(6000, "vanished", NAME),
)


def write_records(folder: str) -> None:
    recorder = RecordWriter(folder)
    recorder.add(Subject(0, NAME, NAME, "uid", NAME), *RECORDS)
    recorder.flush()


def lab_report(figure: str) -> LabReport:
    """As a file of it could say; `figure` tells two of them apart."""
    machine = LabMachine(
        kernel=NAME,
        system=NAME,
        memory=1,
        swap=0,
        numa_nodes=1,
        processors=1,
        python=NAME,
        recursive_protection=True,
    )
    variant = VariantReport(
        title=NAME, summary={NAME: NAME + figure}, runs=(), seconds=(), planned=()
    )
    scenario = ScenarioReport(
        name=NAME,
        title=NAME,
        about=NAME,
        source=NAME,
        machine=machine,
        measures={NAME: LabMeasure(NAME, "count")},
        variants={NAME: variant},
        hypotheses=(HypothesisReport(NAME, "refuted" if figure == "one" else "mixed", NAME),),
    )
    return LabReport(
        made=NAME, command=NAME, memqos=NAME, place="here", seconds=1, scenarios=(scenario,)
    )


def live_snapshot() -> dict[str, Any]:
    """Of a node whose containers use memory."""
    snapshot: dict[str, Any] = json.loads((SNAPSHOT.parent / "k138-none.json").read_text())
    for each in snapshot["pods"]["items"]:
        for field in ("name", "namespace"):
            each["metadata"][field] += HOSTILE
        containers = (*each["spec"]["containers"], *each["status"].get("containerStatuses", ()))
        for container in containers:
            container["name"] += HOSTILE
    return snapshot | {"notes": [NAME], "kernel": NAME, "runtime": NAME}


def in_list(*items: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    snapshot = json.loads(SNAPSHOT.read_text())
    for each in snapshot["pods"]["items"]:
        each["metadata"]["name"] += HOSTILE
    snapshot |= {"notes": [NAME], "kernel": NAME, "runtime": NAME}
    tree = tmp_path / "cgroup" / "kubepods"
    tree.mkdir(parents=True)
    (tree / "memory.min").write_text("0\n")
    change = {
        "path": "/kubepods",
        "file": "memory.min",
        "old": "0",
        "new": "4096",
        "cgroup": tree.stat().st_ino,
        "level": "kubepods",
        "rule": NAME,
        "pod": NAME,
        "container": NAME,
    }
    plan = {
        "format": 1,
        "memqos": NAME,
        "boot": read_machine(SYSTEM).boot_id,
        "root": str(tree.parent),
        "changes": [change],
    }
    contents = {
        "pod.json": pod(1),
        "larger.json": pod(1, "256Mi"),
        "broken.json": pod(1, f"1Gi{HOSTILE}"),
        "dump.json": in_list(pod(1), pod(2), pod(3, f"1Gi{HOSTILE}"), NODE, QUOTA, RANGE),
        "pods.json": in_list(pod(1), pod(2)),
        "nodes.json": in_list(NODE, pod(2)),
        "state.json": in_list(QUOTA, RANGE),
        "snapshot.json": snapshot,
        "plan.json": plan,
        "elsewhere.json": plan | {"root": NAME},
        "live.json": live_snapshot(),
        "history.json": HISTORY,
        "kind.json": {"apiVersion": NAME, "kind": NAME},
    }
    write_records(str(tmp_path / "records"))
    for name, command in (("report.json", "one"), ("other-report.json", "two")):
        (tmp_path / name).write_bytes(msgspec.json.encode(lab_report(command)))
    for name, content in contents.items():
        (tmp_path / name).write_text(json.dumps(content))
    return tmp_path


def run(files: Path, command: str) -> Done:
    return memqos(*[word.replace("@", f"{files}/") for word in command.split()])


def check_visible(done: Done, *, data: bool = False) -> None:
    for text in (done.out, done.err):
        assert text.replace("\n", "").isprintable()
    for text in (done.err,) if data else (done.out, done.err):
        assert not [line for line in text.splitlines() if line.lstrip().startswith("FORGED")]
    assert "Traceback" not in done.err


APPLY: Final = "apply @plan.json --yes --cgroup-root @cgroup --journal @run"
SHOWN: Final = (
    "explain @dump.json",
    "audit @dump.json",
    "admit @pod.json --namespace-state @state.json",
    "fit @pod.json --nodes @nodes.json",
    "resize @pod.json @larger.json",
    "plan --snapshot @snapshot.json",
    "doctor --snapshot @snapshot.json",
    "rank eviction --snapshot @snapshot.json",
    "rank oom --snapshot @snapshot.json",
    "size --history @history.json",
    "backtest --history @history.json --limit 1Gi --request 512Mi",
    "top --once --snapshot @live.json",
    "status --seconds 0.1 --snapshot @live.json",
    "audit @dump.json --history @history.json",
    APPLY,
)
SHOWN_TO_PEOPLE: Final = (
    "explain @dump.json --why",
    "explain @dump.json --compare 1.22,1.36",
    "admit @pod.json --namespace-state @state.json --why",
    "fit @pod.json --nodes @nodes.json --why",
    "resize @pod.json @larger.json --why",
    "plan --snapshot @snapshot.json --why --policy None",
    "rank eviction --snapshot @snapshot.json --why",
    "rank oom --snapshot @snapshot.json --why",
    "numa show --snapshot @snapshot.json",
    "size --history @history.json --why",
    "top --once --play @records",
    "why --records @records",
    "lab compare @report.json @other-report.json",
)


@pytest.mark.parametrize("command", [*SHOWN, *SHOWN_TO_PEOPLE])
def test_a_table_moves_no_cursor_and_has_no_row_of_somebody_else(files: Path, command: str) -> None:
    done = run(files, command)
    assert done.out
    check_visible(done)


@pytest.mark.parametrize(
    "command",
    [
        "explain @dump.json -o svg",
        "explain @dump.json -o junit",
        "audit @dump.json -o html",
        "audit @dump.json -o junit",
        "audit @dump.json --history @history.json -o html",
        "admit @pod.json --namespace-state @state.json -o junit",
        "size --history @history.json -o svg",
        "backtest --history @history.json --limit 1Gi --request 512Mi -o html",
        "numa show --snapshot @live.json -o svg",
    ],
)
def test_a_picture_or_a_page_does_neither(files: Path, command: str) -> None:
    done = run(files, command)
    assert done.out.startswith("<")
    check_visible(done)
    if not done.out.lower().startswith("<!doctype"):
        ElementTree.fromstring(done.out)


@pytest.mark.parametrize(
    "command",
    ["explain @dump.json", "audit @dump.json", "admit @pod.json --namespace-state @state.json"],
)
def test_sarif_is_as_visible(files: Path, command: str) -> None:
    done = run(files, f"{command} -o sarif")
    check_visible(done, data=True)
    assert json.loads(done.out)["runs"][0]["results"]


@pytest.mark.parametrize("form", ["text", "json", "svg"])
def test_a_story_is_as_visible(files: Path, form: str) -> None:
    command = ("why", NAME, NAME, "-n", NAME, "--records", f"{files}/records", "-o", form)
    done = memqos(*command)
    assert done.code == 0, done.err
    check_visible(done, data=form == "json")


@pytest.mark.parametrize("command", SHOWN)
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_data_can_be_read_by_programs_and_shown_to_people(
    files: Path, command: str, form: str
) -> None:
    done = run(files, f"{command} -o {form}")
    check_visible(done, data=True)
    assert HOSTILE in "".join(_texts(_loaded(done, form)))


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_data_loses_nothing(files: Path, form: str) -> None:
    (result,) = _loaded(run(files, f"{APPLY} -o {form}"), form)["results"]
    assert (result["pod"], result["container"]) == (NAME, NAME)


def test_a_file_of_out_is_as_visible_and_loses_as_little(files: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    run(files, "snapshot --pods @pods.json --out @out.json --cgroup-root @cgroup")
    assert out.read_text().replace("\n", "").isprintable()
    names = [each["metadata"]["name"] for each in json.loads(out.read_text())["pods"]["items"]]
    assert names == [f"{number}{NAME}" for number in (1, 2)]


def _loaded(done: Done, form: str) -> Any:
    return json.loads(done.out) if form == "json" else yaml.safe_load(done.out)


def _texts(data: Any) -> list[str]:
    if isinstance(data, dict):
        return [text for pair in data.items() for each in pair for text in _texts(each)]
    if isinstance(data, list):
        return [text for each in data for text in _texts(each)]
    return [str(data)]


@pytest.mark.parametrize(
    "command",
    [
        "explain @broken.json",
        "explain @kind.json",
        "apply @elsewhere.json --yes --cgroup-root @cgroup --journal @run",
    ],
)
def test_an_error_about_a_file_is_one_line(files: Path, command: str) -> None:
    done = run(files, command)
    assert done.code == 1
    check_visible(done)
    assert r"\u202e" in done.err
    assert len(done.err.splitlines()) == 1


def test_a_name_that_was_typed_is_shown_as_it_was(tmp_path: Path) -> None:
    for arguments in (("explain", f"{tmp_path}/{NAME}"), ("explain", f"--{NAME}"), (NAME,)):
        done = memqos(*arguments)
        assert done.code in (1, 64)
        check_visible(done)


def test_what_an_api_server_says_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memqos.host.apiserver.client.time.sleep", lambda seconds: None)
    with fake_api_server() as server:
        lead_to(server.url, tmp_path, monkeypatch)
        server.answers["/version"] = 200, {}, b'{"gitVersion": "v1.36.0"}'
        message = {"kind": "Status", "code": 500, "message": NAME}
        server.answers["/api/v1/namespaces/shop/pods/web"] = 500, {}, json.dumps(message).encode()
        done = memqos("explain", "pod/web")
    assert done.code == 1
    check_visible(done)
    assert "it answered 500 to get pods/web in shop: web" in done.err


@pytest.mark.parametrize("code", [403, 500])
@pytest.mark.parametrize(
    "command", ["explain pod/web", "audit", "audit -o html", "why web -n shop"]
)
def test_no_rule_that_an_api_server_asks_to_grant_has_lines_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, command: str
) -> None:
    message = {"kind": "Status", "code": code, "message": f'User "jane\n{RULE}" may:\n{RULE}'}
    refusal = code, {"Retry-After": "60"}, json.dumps(message).encode()
    with fake_api_server() as server:
        lead_to(server.url, tmp_path, monkeypatch)
        server.answers["/version"] = 200, {}, b'{"gitVersion": "v1.36.0"}'
        names = ("pods/web", "pods", "events", "limitranges")
        for path in [
            *[f"namespaces/shop/{name}" for name in names],
            "limitranges",
            "resourcequotas",
        ]:
            server.answers[f"/api/v1/{path}"] = refusal
        server.answers["/apis/metrics.k8s.io/v1beta1/pods"] = refusal
        done = memqos(*command.split())
    assert "secrets" in done.out + done.err
    check_visible(done)
    lines = [line for line in (done.out + done.err).splitlines() if "secrets" in line]
    assert all(r"\n    - apiGroups" in line for line in lines)
    own = [line for line in done.err.splitlines() if line.startswith("    - apiGroups")]
    assert bool(own) == (code == 403)


def test_what_an_exec_plugin_says_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = tmp_path / "plugin"
    plugin.write_text(f"#!{sys.executable}\nimport sys\nsys.exit({NAME!r})\n")
    plugin.chmod(0o700)
    lead_to("https://127.0.0.1:1", tmp_path, monkeypatch)
    config = json.loads((tmp_path / "config").read_text())
    version = "client.authentication.k8s.io/v1"
    run_it = {"command": str(plugin), "apiVersion": version, "interactiveMode": "Never"}
    config["users"] = [{"name": "u", "user": {"exec": run_it}}]
    config["contexts"][0]["context"]["user"] = "u"
    (tmp_path / "config").write_text(json.dumps(config))
    done = memqos("explain", "pod/web")
    assert done.code == 1
    assert "failed (1): web" in done.err
    check_visible(done)


def test_no_row_of_a_saved_plan_is_hidden_before_apply_asks(files: Path) -> None:
    places = ("--cgroup-root", str(files / "cgroup"), "--journal", str(files / "run"))
    plan = str(files / "plan.json")
    code, text = memqos_at_terminal("apply", plan, *places, "--color", "never", typed="n\n")
    assert code == 2
    assert "Write this value?" in text
    assert r"\u001b[2K" in text
    assert text.replace("\n", "").isprintable()
    assert not [line for line in text.splitlines() if line.lstrip().startswith("FORGED")]


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain – 漢字 ünïcode 😀", None),
        ("\x1b[31m", r"\u001b[31m"),
        ("\x9b31m", r"\u009b31m"),
        ("\x00\x07\x7f\x85", r"\u0000\u0007\u007f\u0085"),
        ("a\r\n\tb", r"a\r\n\tb"),
        ("\u202eabc\u2069", r"\u202eabc\u2069"),
        ("\u2028\u200b\ufeff", r"\u2028\u200b\ufeff"),
        ("\U000e0041", r"\udb40\udc41"),
        ("\ud800", r"\ud800"),
    ],
)
def test_what_a_terminal_would_obey_becomes_an_escape(text: str, seen: str | None) -> None:
    assert visible(text) == (text if seen is None else seen)
    assert visible(visible(text)) == visible(text)
    assert visible_lines(f"{text}x\n\ty") == visible(text).replace(r"\n\t", "\n\t") + "x\n\ty"


def test_a_message_is_one_line_and_only_a_snippet_has_others() -> None:
    assert message_lines(f"jane\n may not:\n{RULE}") == [visible(f"jane\n may not:\n{RULE}")]
    error = InputError(
        f"jane\n{RULE}", file="f\nx", hint=f"do\n{RULE}", snippet=("  a: 1", "b\x1b\n")
    )
    assert message_lines(error, "note: ") == [
        visible(f"note: f\nx: jane\n{RULE} – do\n{RULE}"), "  a: 1", r"b\u001b\n",
    ]  # fmt: skip
    assert str(error).endswith(f"{error.advice}")


def test_no_way_into_a_stream_goes_past_what_makes_it_visible() -> None:
    raw = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="")
    stream = VisibleStream(raw)
    stream.writelines([f"{NAME}\n", "plain\n"])
    stream.flush()
    assert raw.buffer.getvalue().decode() == visible_lines(f"{NAME}\n") + "plain\n"
    for name in ("buffer", "detach"):
        assert not hasattr(stream, name)


def test_the_report_of_the_lab_is_as_visible() -> None:
    text = "\n".join(render(report_lines(lab_report("one"))))
    check_visible(Done(0, text, ""))
    assert visible_lines(lab_page(lab_report("one"))) == lab_page(lab_report("one"))


def test_columns_stay_in_line_whatever_a_cell_holds() -> None:
    lines = list(render([Table([["a", "1"], [NAME, "2"]])]))
    assert [display_width(line) for line in lines] == [display_width(lines[0])] * 2
