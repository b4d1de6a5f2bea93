"""Results of checks as SARIF and JUnit: what other programs read of them."""

from typing import Any, Final
from xml.etree import ElementTree

import pytest
from jsonschema import Draft7Validator

from memqos.draw.text.check_report import CheckLevel, CheckResult, input_result, junit, sarif
from memqos.errors import InputError

SARIF_PART: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["version", "runs"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["tool"],
                "additionalProperties": False,
                "properties": {
                    "tool": {
                        "type": "object",
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "type": "object",
                                "required": ["name"],
                                "additionalProperties": False,
                                "properties": {
                                    "name": {"type": "string"},
                                    "version": {"type": "string"},
                                    "rules": {
                                        "type": "array",
                                        "uniqueItems": True,
                                        "items": {"type": "object", "required": ["id"]},
                                    },
                                },
                            }
                        },
                    },
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "results": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["message"],
                            "additionalProperties": False,
                            "properties": {
                                "ruleId": {"type": "string"},
                                "ruleIndex": {"type": "integer", "minimum": -1},
                                "level": {"enum": ["none", "note", "warning", "error"]},
                                "message": {"type": "object", "required": ["text"]},
                                "locations": {
                                    "type": "array",
                                    "items": {
                                        "type": "object",
                                        "additionalProperties": False,
                                        "properties": {
                                            "physicalLocation": {
                                                "type": "object",
                                                "properties": {
                                                    "artifactLocation": {"type": "object"},
                                                    "region": {
                                                        "type": "object",
                                                        "additionalProperties": False,
                                                        "properties": {
                                                            "startLine": {"minimum": 1},
                                                            "startColumn": {"minimum": 1},
                                                        },
                                                    },
                                                },
                                            },
                                            "logicalLocations": {"type": "array"},
                                        },
                                    },
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}
"""The part of SARIF 2.1.0 that memqos writes, as the standard states it."""

RESULTS: Final = (
    CheckResult(
        rule="pod/throttled",
        level="warning",
        message="it is <throttled> & slow",
        subject="shop/web",
    ),
    input_result(
        InputError("must be positive", file="a folder/pod.yaml", line=9, column=19, field="spec.x")
    ),
)


def test_a_log_is_valid_sarif() -> None:
    log = sarif(RESULTS, ["a folder"], "1.0", {"pod/throttled": "A container is throttled"})
    Draft7Validator(SARIF_PART).validate(log)


def test_a_result_of_sarif_names_rule_file_line_and_column() -> None:
    (run,) = sarif(RESULTS, [], "1.0", {"pod/throttled": "A container is throttled"})["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["input", "pod/throttled"]
    named, positioned = run["results"]
    assert (named["ruleIndex"], named["level"]) == (1, "warning")
    assert named["locations"] == [{"logicalLocations": [{"fullyQualifiedName": "shop/web"}]}]
    assert positioned["message"] == {"text": "spec.x: must be positive"}
    assert positioned["locations"] == [
        {
            "physicalLocation": {
                "artifactLocation": {"uri": "a%20folder/pod.yaml"},
                "region": {"startLine": 9, "startColumn": 19},
            }
        }
    ]


def test_a_junit_report_fails_what_has_an_error_and_passes_the_rest() -> None:
    text = junit(RESULTS, ["a folder/pod.yaml", "fine.yaml"], "memqos explain")
    root = ElementTree.fromstring(text)
    assert (root.get("tests"), root.get("failures")) == ("3", "1")
    cases = {case.get("name"): case for case in root.iter("testcase")}
    failure = cases["a folder/pod.yaml"].find("failure")
    assert failure is not None
    assert failure.text == "a folder/pod.yaml:9:19: spec.x: must be positive [input]"
    assert list(cases["fine.yaml"]) == []
    (output,) = cases["shop/web"]
    assert output.tag == "system-out"
    assert output.text == "warning: shop/web: it is <throttled> & slow"


def test_a_hostile_name_cannot_break_the_xml() -> None:
    hostile = CheckResult(rule="x", level="error", message='"]]><a>\x00\x1b[2J\ud800', file="\x07")
    root = ElementTree.fromstring(junit([hostile], [], "s").encode(errors="surrogatepass"))
    (case,) = root.iter("testcase")
    assert case.get("name") == r"\u0007"


@pytest.mark.parametrize("level", ["error", "warning"])
def test_no_name_begins_a_line_of_its_own(level: CheckLevel) -> None:
    message = "shop/web\nERROR: forged\u2028ERROR: too\tok"
    text = junit([CheckResult(rule="x", level=level, message=message, subject="a\nb")], [], "s")
    (case,) = ElementTree.fromstring(text).iter("testcase")
    (details,) = case
    assert "\n" not in (details.text or "")
    assert r"shop/web\nERROR: forged\u2028ERROR: too\tok" in (details.text or "")
    assert case.get("name") == r"a\nb"
