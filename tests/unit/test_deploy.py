"""What is shipped for Prometheus and Grafana speaks of metrics that there are."""

import json
import re
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.commands import ROOT
from tests.eventually import PATIENCE
from tests.vm.harness.tools import CHECKERS

from memqos.agent.metric_catalogue import ALL_METRICS, CADVISOR_METRICS, KEP_METRICS, Metric
from memqos.lab.vm.tools import find_program
from memqos.serve.exposition import Family, Histogram, MetricSample, exposition, labels

ALERTS: Final = ROOT / "deploy" / "prometheus" / "alerts.yaml"
ALERTS_TEST: Final = ROOT / "deploy" / "prometheus" / "alerts_test.yaml"
DASHBOARD: Final = ROOT / "deploy" / "grafana" / "memqos.json"

NAME: Final = re.compile(r"\b((?:memqos|kubelet_memory_qos)_[a-z_]+)(?:\{([^}]*)\})?")
LABEL: Final = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
GROUPING: Final = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)")
OF_SCRAPES: Final = {"instance", "job"}
SUFFIXES: Final = ("_bucket", "_sum", "_count")

with_promtool = pytest.mark.skipif(
    find_program("promtool") is None,
    reason=f"promtool is not here; it comes with Debian's {CHECKERS['promtool']}, and a server",
)


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def rules() -> list[dict[str, Any]]:
    return [
        rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
    ]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[str]:
    """All that is asked of Prometheus."""
    yield from (rule["expr"] for rule in rules())
    yield from shown()
    for test in yaml.safe_load(ALERTS_TEST.read_text())["tests"]:
        yield from (series["series"] for series in test["input_series"])


def shown() -> Iterator[str]:
    for panel in panels():
        yield from (target["expr"] for target in panel["targets"])
    for variable in dashboard()["templating"]["list"]:
        yield from [variable["definition"]] if "definition" in variable else []


def metric(name: str) -> Metric:
    if name in ALL_METRICS:
        assert ALL_METRICS[name].kind != "histogram", f"{name} needs one of {SUFFIXES}"
        return ALL_METRICS[name]
    stem = next(name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix))
    assert ALL_METRICS[stem].kind == "histogram"
    return ALL_METRICS[stem]


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_only_metrics_and_labels_that_there_are_are_asked_for(expression: str) -> None:
    found = NAME.findall(expression)
    assert found
    known = set(OF_SCRAPES)
    for name, matchers in found:
        of_metric = {*metric(name).labels, *OF_SCRAPES, "le"}
        assert set(LABEL.findall(matchers)) <= of_metric
        known |= of_metric
    for grouping in GROUPING.findall(expression):
        assert {label.strip() for label in grouping.split(",")} <= known


def test_a_counter_is_never_shown_as_it_is() -> None:
    for expression in [rule["expr"] for rule in rules()] + list(shown()):
        for name, _ in NAME.findall(expression):
            if metric(name).kind != "gauge":
                assert re.search(rf"(rate|increase)\({name}\b", expression), expression


def test_every_alert_says_how_grave_it_is_and_what_to_do() -> None:
    for rule in rules():
        assert rule["alert"].startswith("Memqos")
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description"}


def test_a_page_says_what_to_do_on_each_alert() -> None:
    page = (ROOT / "docs" / "alerts.md").read_text()
    listed = re.findall(r"^\| (Memqos\w+) \|", page, re.MULTILINE)
    assert sorted(listed) == sorted(rule["alert"] for rule in rules())


def test_every_alert_is_tested_to_fire_and_to_be_silent() -> None:
    tests = [
        case
        for test in yaml.safe_load(ALERTS_TEST.read_text())["tests"]
        for case in test["alert_rule_test"]
    ]
    alerts = {rule["alert"] for rule in rules()}
    assert {case["alertname"] for case in tests if case.get("exp_alerts")} == alerts
    assert {case["alertname"] for case in tests if not case.get("exp_alerts")} == alerts


def test_alerts_are_expected_with_the_texts_of_their_rules() -> None:
    """What promtool checks, on machines without it; whatever it makes of a value is accepted."""
    texts = {rule["alert"]: rule["annotations"] for rule in rules()}
    expected = [
        (texts[case["alertname"]][key], alert["exp_labels"], text)
        for test in yaml.safe_load(ALERTS_TEST.read_text())["tests"]
        for case in test["alert_rule_test"]
        for alert in case.get("exp_alerts", ())
        for key, text in alert["exp_annotations"].items()
    ]
    assert len(expected) >= 2 * len(texts)
    for template, values, text in expected:
        filled = template
        for name, value in values.items():
            filled = filled.replace(f"{{{{ $labels.{name} }}}}", value)
        parts = re.split(r"{{ \$value.*?}}", filled)
        assert re.fullmatch(".+".join(map(re.escape, parts)), text), (template, text)


def test_metrics_are_named_as_prometheus_wants_them() -> None:
    for name, found in ALL_METRICS.items():
        assert name.startswith("memqos_") or found in (*KEP_METRICS, *CADVISOR_METRICS)
        assert name.endswith("_total") == (found.kind == "counter")
        assert found.help.endswith(".")


def test_the_page_of_metrics_has_them_all() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    listed = [line for line in page.splitlines() if line.startswith("| `")]
    assert listed == [
        f"| `{name}` | {kind} | {', '.join(named)} | {text} |"
        for name, kind, named, text in ALL_METRICS.values()
    ]


def test_the_panels_have_names_of_their_own_and_do_not_overlap() -> None:
    held = dashboard()["panels"]
    assert len({panel["id"] for panel in held}) == len(held)
    assert all(panel["title"] for panel in held)
    for one, other in combinations([panel["gridPos"] for panel in held], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above
        assert one["x"] + one["w"] <= 24


def test_every_panel_asks_the_prometheus_that_was_chosen() -> None:
    for panel in panels():
        for asking in (panel, *panel["targets"]):
            assert asking["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def promtool(*arguments: str, stdin: bytes = b"") -> str:
    command = find_program("promtool")
    assert command is not None
    done = subprocess.run(
        [command, *arguments], input=stdin, capture_output=True, check=False, timeout=PATIENCE
    )
    output = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, output
    return output


@with_promtool
def test_prometheus_takes_the_alerts() -> None:
    assert f"{len(rules())} rules found" in promtool("check", "rules", str(ALERTS))


@with_promtool
def test_the_alerts_fire_when_they_should_and_only_then() -> None:
    assert "SUCCESS" in promtool("test", "rules", str(ALERTS_TEST))


@with_promtool
def test_prometheus_takes_what_the_dashboard_asks(tmp_path: Path) -> None:
    asked = [target["expr"] for panel in panels() for target in panel["targets"]]
    recorded = [
        {"record": f"panel:{index}", "expr": expr.replace("$__rate_interval", "5m")}
        for index, expr in enumerate(asked)
    ]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": recorded}]}))
    assert f"{len(asked)} rules found" in promtool("check", "rules", str(file))


@with_promtool
def test_prometheus_finds_nothing_to_say_about_the_metrics() -> None:
    families = []
    for name, kind, named, text in ALL_METRICS.values():
        held = labels(**dict.fromkeys(named, 'any "thing"\\\n'))
        histogram = Histogram([0.1, 1])
        histogram.observe(0.5)
        samples = list(histogram.samples(held)) if kind == "histogram" else [MetricSample(held, 1)]
        families.append(Family(name, kind, text, samples))
    assert promtool("check", "metrics", stdin=exposition(families)) == ""
