"""Whatever users read uses plain words, those that they know and search for: help, rules, metrics,
messages, alerts, dashboards."""

import ast
import json
import re
from collections.abc import Iterator
from typing import Any, Final

import click
import pytest
import yaml
from tests.commands import ROOT
from tests.unit.test_names import modules

from memqos.agent.configuration.schema import configuration_schema
from memqos.agent.metric_catalogue import ALL_METRICS
from memqos.cli.main import cli
from memqos.findings.catalogue import RULES_BY_ID
from memqos.plan.rules import RULES

_UNCLEAR: Final = {
    r"\banew\b": "again",
    r"\bgive(s|n)? back\b|\bput(s)? back\b|\btakes? back\b": "restore, reset",
    r"\bgives them back\b": "restores them",
    r"\bwhat tells so\b|\btold by\b|\btells (who|what|all)\b|\bas told\b": "shows, source",
    r"\blook(s|ed)? after\b": "manages",
    r"\bheld against\b|\bhold .* against\b": "compared with",
    r"\bnever asked\b|\basks? for\b|\basked\b": "request",
    r"\bwho (holds|goes|is evicted|is killed|signed|claims)\b|\bwhom\b": "which pod, assigned to",
    r"\bnobody\b|\bsomebody\b": "the field's word for who it is",
    r"\bthings? to know\b": "note",
    r"\ball the same\b": "anyway",
    r"\bfor good\b|\bfor ever\b": "permanently",
    r"\bmend(s|ed)?\b": "fix, correct",
    r"\bwould have it be\b": "would set",
    r"\bout of (a|the) (file|snapshot|history)\b": "from",
    r"\bthe word cluster\b": "'cluster'",
    r"\blet(s)? (go|on)\b": "resume",
    r"\bin vain\b": "not honoured",
}
"""What reads like a riddle → what to write instead."""


def _help_texts(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    yield name, f"{command.help or ''} {command.short_help or ''}"
    for parameter in command.params:
        yield f"{name} {parameter.name}", getattr(parameter, "help", None) or ""
    if isinstance(command, click.Group):
        with click.Context(command) as context:
            yield name, command.get_help(context)
            for each in command.list_commands(context):
                found = command.get_command(context, each)
                assert found is not None
                yield from _help_texts(found, f"{name} {each}")


def _descriptions(schema: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, each in schema["properties"].items():
        yield f"configuration {name}", each.get("description", "")
        if "properties" in each:
            yield from _descriptions(each)


def _texts() -> Iterator[tuple[str, str]]:
    yield from _help_texts(cli, "memqos")
    yield from _descriptions(configuration_schema())
    for info in RULES_BY_ID.values():
        yield info.id, f"{info.summary} | {info.why} | {info.fix}"
    for rule in RULES.values():
        yield rule.id, rule.text
    for metric in ALL_METRICS.values():
        yield metric.name, metric.help


@pytest.mark.parametrize("unclear", _UNCLEAR)
def test_texts_are_in_plain_words(unclear: str) -> None:
    found = [
        f"{name}: {match[0]!r}; write: {_UNCLEAR[unclear]}"
        for name, text in _texts()
        if (match := re.search(unclear, " ".join(text.split()), re.IGNORECASE))
    ]
    assert found == []


NOT_A_MESSAGE: Final = frozenset(
    {
        # "ask for confirmation" is what users search for.
        "cli/apply.py",
        # Reads what agents of earlier versions wrote.
        "kube/events.py",
    }
)


def _messages() -> Iterator[tuple[str, str]]:
    """The texts in the code, but docstrings and what is one word."""
    for name, tree in modules().items():
        docstrings = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree) if name not in NOT_A_MESSAGE else ():
            if isinstance(node, ast.Constant) and id(node) not in docstrings:
                text = node.value
                if isinstance(text, str) and " " in text.strip():
                    yield f"{name}:{node.lineno}", text


def _deployed() -> Iterator[tuple[str, str]]:
    """What Prometheus and Grafana show, and the comments in the files that an operator edits."""
    dashboard = json.loads((ROOT / "deploy/grafana/memqos.json").read_text())
    for panel in dashboard["panels"]:
        for each in (panel, *panel.get("panels", ())):
            yield f"dashboard {each['title']}", f"{each['title']} | {each.get('description', '')}"
    alerts = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text())
    for group in alerts["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], " | ".join(rule["annotations"].values())
    for file in sorted((ROOT / "deploy").rglob("*.yaml")):
        for number, line in enumerate(file.read_text().splitlines(), 1):
            _, is_comment, text = line.partition("# ")
            if is_comment:
                yield f"{file.relative_to(ROOT)}:{number}", text


@pytest.mark.parametrize("unclear", _UNCLEAR)
def test_messages_and_what_is_deployed_are_in_plain_words(unclear: str) -> None:
    found = [
        f"{name}: {match[0]!r}; write: {_UNCLEAR[unclear]}"
        for name, text in (*_messages(), *_deployed())
        if (match := re.search(unclear, " ".join(text.split()), re.IGNORECASE))
    ]
    assert found == []


def _metavars(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    with click.Context(command) as context:
        for parameter in command.params:
            if not getattr(parameter, "is_flag", False):
                yield f"{name} {parameter.name}", parameter.make_metavar(context)
        if isinstance(command, click.Group):
            for each in command.list_commands(context):
                found = command.get_command(context, each)
                assert found is not None
                yield from _metavars(found, f"{name} {each}")


def test_the_value_of_an_option_has_a_name_and_not_a_type() -> None:
    types = re.compile(r"\b(TEXT|INTEGER|FLOAT|RANGE|PATH|BOOLEAN)\b")
    found = [name for name, metavar in _metavars(cli, "memqos") if types.search(metavar)]
    assert found == []


def test_every_kind_of_text_is_read() -> None:
    names = {name for name, text in _texts() if text.strip(" |")}
    assert {"memqos plan", "memqos numa show", "memqos plan why"} <= names
    assert {"configuration mode", "memqos_converged", *RULES_BY_ID, *RULES} <= names
