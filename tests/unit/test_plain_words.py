"""Help, rules, metrics and the schema use plain words: those that users know and search for."""

import re
from collections.abc import Iterator
from typing import Any, Final

import click
import pytest

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
