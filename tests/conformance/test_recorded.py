"""Every recorded case of real Kubernetes is answered as Kubernetes answered it."""

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from memqos.cli.conformance import command
from memqos.cli.replay import AREAS

CASES = Path(__file__).parent / "cases"


@pytest.mark.parametrize("area", sorted(AREAS))
def test_every_recorded_case_is_answered_as_kubernetes_does(area: str) -> None:
    result = CliRunner().invoke(command, [str(CASES / f"{area}.jsonl")], standalone_mode=False)
    assert result.output.splitlines()[-1].endswith(" passed, 0 failed"), result.output[:5000]
    assert not result.output.startswith("0 passed")
    assert result.return_value == 0


def test_every_recorded_file_has_an_area() -> None:
    assert {path.name.split(".")[0] for path in CASES.iterdir()} == set(AREAS)


def test_a_difference_is_shown_with_its_path_and_fails(tmp_path: Path) -> None:
    case = {"id": "x", "input": {"a": "1Gi", "b": "1Mi"}, "expect": {"add": "1Gi", "cmp": 1}}
    file = tmp_path / "quantity_arith.extra.jsonl"
    file.write_text(json.dumps(case) + "\n")
    result = CliRunner().invoke(command, [str(file)], standalone_mode=False)
    assert "x: add: expected '1Gi', got '1025Mi'" in result.output
    assert "x: sub: expected 'nothing', got '1023Mi'" in result.output
    assert result.output.endswith("0 passed, 1 failed\n")
    assert result.return_value == 1


def test_emit_writes_one_line_a_case_and_compares_nothing(tmp_path: Path) -> None:
    file = tmp_path / "quantity.jsonl.gz"
    with gzip.open(file, "wt") as cases:
        for number, text in enumerate(["1Gi", "nonsense"]):
            cases.write(json.dumps({"id": str(number), "input": {"text": text}}) + "\n")
    result = CliRunner().invoke(command, ["--emit", str(file)], standalone_mode=False)
    lines = [json.loads(line) for line in result.output.splitlines()]
    assert [line["id"] for line in lines] == ["0", "1"]
    assert lines[0]["actual"]["value"] == 1 << 30
    assert lines[1]["actual"] == {"ok": False, "json_ok": False}


def test_a_case_of_another_form_does_not_end_the_others(tmp_path: Path) -> None:
    good = {"eviction_hard": {"memory.available": "1Gi"}, "observations": {}}
    odd = {"eviction_hard": {"memory.available": 1.5}, "observations": {}}
    file = tmp_path / "eviction_thresholds.jsonl"
    cases = [{"id": str(number), "input": case} for number, case in enumerate([odd, good])]
    file.write_text("".join(json.dumps(case) + "\n" for case in cases))
    result = CliRunner().invoke(command, ["--emit", str(file)], standalone_mode=False)
    answers = [json.loads(line)["actual"] for line in result.stdout.splitlines()]
    assert answers[0] == {"refused": "input not understood"}
    assert "refused" not in answers[1]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("weather.jsonl", "", "no area is called 'weather'"),
        ("quantity.jsonl", "{", "line"),
        ("quantity.jsonl.gz", "not gzip", "cannot be unpacked"),
    ],
)
def test_what_cannot_be_replayed_is_refused_with_its_place(
    tmp_path: Path, name: str, text: str, says: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    result = CliRunner().invoke(command, [str(file)], standalone_mode=False)
    message = str(result.exception)
    assert message.startswith(str(file))
    assert says in message or ":1" in message
