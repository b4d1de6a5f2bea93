"""-o sarif and -o junit of the commands that check something, the hooks and the action of them."""

import json
import os
import subprocess
import sysconfig
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from tests.commands import ROOT, memqos

from memqos.cli.main import cli


def results(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
    done = memqos(*arguments, "-o", "sarif")
    (run,) = done.data["runs"]
    assert run["tool"]["driver"]["name"] == "memqos"
    return done.code, run["results"]


def place(result: dict[str, Any]) -> tuple[str, int, int]:
    physical = result["locations"][0]["physicalLocation"]
    region = physical["region"]
    return physical["artifactLocation"]["uri"], region["startLine"], region["startColumn"]


def test_explain_reports_a_misspelt_field_where_it_is() -> None:
    code, found = results("explain", "examples/broken/misspelt.yaml")
    assert code == 1
    assert place(found[0]) == ("examples/broken/misspelt.yaml", 11, 11)
    assert (found[0]["level"], found[0]["ruleId"]) == ("error", "input")


def test_what_is_reported_is_not_printed_as_well() -> None:
    done = memqos("explain", "examples/broken/pods.yaml", "-o", "sarif")
    assert done.err == ""


def test_explain_reports_notes_that_fail_nothing(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: big}\nspec:\n  containers:\n"
        "  - {name: c, image: i, resources: {requests: {memory: 64Gi}}}\n"
    )
    code, found = results("explain", str(file), "--capacity", "16Gi")
    assert code == 0
    (note,) = [each for each in found if "never run" in each["message"]["text"]]
    assert (note["level"], note["ruleId"]) == ("note", "note")


def test_admit_reports_the_rule_of_a_policy() -> None:
    code, found = results("admit", "examples/shop.yaml", "--policy", "examples/webhook/policy.yaml")
    assert code == 2
    assert {each["ruleId"].partition("/")[0] for each in found} == {"policy"}
    assert {place(each)[0] for each in found} == {"examples/shop.yaml"}
    assert "error" in {each["level"] for each in found}


def test_admit_reports_a_quota_and_a_limit_range(tmp_path: Path) -> None:
    state = tmp_path / "state.yaml"
    state.write_text(
        "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: small, namespace: default}\n"
        "spec: {hard: {requests.memory: 1Gi}}\n"
        "status: {hard: {requests.memory: 1Gi}, used: {requests.memory: 1Gi}}\n"
        "---\napiVersion: v1\nkind: LimitRange\nmetadata: {name: bounds, namespace: bounded}\n"
        "spec: {limits: [{type: Container, max: {memory: 64Mi}}]}\n"
    )
    pods = tmp_path / "pods.yaml"
    pods.write_text(
        "---\n".join(
            "apiVersion: v1\nkind: Pod\n"
            f"metadata: {{name: p, namespace: {namespace}}}\nspec:\n  containers:\n  - name: c\n"
            "    image: i\n    resources: {requests: {memory: 1Gi}, limits: {memory: 1Gi}}\n"
            for namespace in ("default", "bounded")
        )
    )
    code, found = results("admit", str(pods), "--namespace-state", str(state))
    assert code == 2
    assert [each["ruleId"] for each in found] == ["quota", "limit-range"]
    assert place(found[1])[1:] == (15, 5)


def test_audit_reports_findings_by_rule_and_level() -> None:
    code, found = results("audit", "examples/cluster/dump.json")
    assert code == 0
    assert "namespace/no-limit-range" in {each["ruleId"] for each in found}
    assert {each["level"] for each in found} <= {"error", "warning", "note"}


def test_every_finding_has_a_file_as_github_asks_for_one() -> None:
    _, found = results("audit", "examples/cluster/dump.json", "examples/one.yaml")
    (first,) = {
        location["physicalLocation"]["artifactLocation"]["uri"]
        for each in found
        for location in each["locations"]
    }
    assert first == "examples/cluster/dump.json"
    assert len({json.dumps(each["locations"]) for each in found}) > 1, "the objects' names"


def test_audit_reports_faults_of_a_dump_with_their_line() -> None:
    code, found = results("audit", "examples/broken/dump.ndjson")
    assert code == 1
    assert place(found[0])[0] == "examples/broken/dump.ndjson"


def test_config_check_reports_every_fault() -> None:
    code, found = results("config", "check", "examples/broken/memqos.yaml")
    assert code == 2
    assert found
    assert {each["ruleId"] for each in found} == {"input"}


@pytest.mark.parametrize(
    ("arguments", "failures"),
    [
        (["explain", "examples/shop.yaml", "examples/broken/pods.yaml"], 1),
        (["config", "check", "examples/agent/memqos.yaml", "examples/broken/memqos.yaml"], 1),
        (["audit", "examples/cluster/dump.json"], 0),
    ],
)
def test_junit_has_a_case_for_each_file(arguments: list[str], failures: int) -> None:
    root = ElementTree.fromstring(memqos(*arguments, "-o", "junit").out)
    files = [each for each in arguments if each.startswith("examples/")]
    assert [each.get("name") for each in root.iter("testcase")] == files
    assert root.get("failures") == str(failures)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("explain examples/one.yaml --capacity 16Gi", 0),
        ("explain examples/broken/misspelt.yaml", 1),
        (
            "admit examples/cluster/refused.yaml --namespace-state examples/cluster/namespace.yaml",
            2,
        ),
        ("audit examples/cluster/dump.json", 0),
        ("audit examples/cluster/dump.json --fail-on warning", 2),
        ("config check examples/broken/memqos.yaml", 2),
        ("explain --nope", 64),
        ("admit --nope", 64),
        ("audit --nope", 64),
        ("config check --nope", 64),
    ],
)
def test_exit_codes_are_those_of_the_page(arguments: str, code: int) -> None:
    done = memqos(*arguments.split())
    assert done.code == code
    name = "config check" if arguments.startswith("config") else arguments.split(maxsplit=1)[0]
    page = (ROOT / "docs" / "ci.md").read_text().split("## Exit codes")[1].split("##")[0]
    (row,) = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
    cells = dict(zip((0, 1, 2), (cell.strip() for cell in row.split("|")[2:5]), strict=True))
    if code == 64:
        assert "64 means that the command line is wrong" in page
        assert "command line" not in row
    else:
        assert cells[code] != "–"


def test_hooks_are_commands_that_exist() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert [each["id"] for each in hooks] == ["memqos-explain", "memqos-admit", "memqos-audit"]
    for each in hooks:
        program, command, *_ = each["entry"].split()
        assert (program, each["id"]) == ("memqos", f"memqos-{command}")
        assert command in cli.list_commands(None)  # type: ignore[arg-type]


def test_no_hook_reads_a_cluster_where_nothing_is_named() -> None:
    """As audit does without a file; admit is refused without one."""
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    named = {each["id"]: each.get("args") for each in hooks}
    assert named == {"memqos-explain": ["."], "memqos-admit": None, "memqos-audit": ["."]}


@pytest.mark.parametrize(
    ("command", "arguments", "code", "has_results"),
    [
        ("explain", "examples/broken/misspelt.yaml", 1, True),
        ("config check", "\nexamples/agent/memqos.yaml\n", 0, True),
        ("explain", "$(touch pwned)", 1, True),
        ("admit", "examples/shop.yaml\n--policy\nnone.yaml", 1, False),
        ("explain", "--nope", 64, False),
    ],
)
def test_the_action_runs_what_its_inputs_say(
    command: str, arguments: str, code: int, has_results: bool, tmp_path: Path
) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    (script,) = [each["run"] for each in action["runs"]["steps"] if each["name"] == "Check"]
    output = tmp_path / "output"
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=ROOT,
        env={
            "PATH": f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}",
            "COMMAND": command,
            "ARGUMENTS": arguments,
            "SARIF": str(tmp_path / "memqos.sarif"),
            "GITHUB_OUTPUT": str(output),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert f"exit-code={code}\n" in output.read_text()
    # An upload of an empty file would fail, and hide why.
    assert ("sarif=" in output.read_text()) == has_results
    assert not (ROOT / "pwned").exists()
