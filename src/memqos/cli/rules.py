"""`memqos rules`: what audit and doctor look for, why, and what helps."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Literal

import click
import msgspec

from memqos.cli.output import emit
from memqos.draw.text.findings import rule_text, rules_text
from memqos.findings.catalogue import RULES_BY_ID


@click.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    help="What to print.  [default: table]",
)
def command(ids: tuple[str, ...], output: Literal["table", "json", "yaml"]) -> int:
    """List the rules by which audit judges a cluster and doctor a node, or explain some.

    An ID may also be that of a group, such as pod or machine.
    """
    for id in ids:
        check_rule(id, RULES_BY_ID)
    asked = [
        rule
        for rule in RULES_BY_ID.values()
        if not ids or rule.id in ids or rule.id.partition("/")[0] in ids
    ]
    if output != "table":
        emit([msgspec.to_builtins(rule) for rule in asked], output)
    elif ids:
        print("\n\n".join("\n".join(rule_text(rule)) for rule in asked))
    else:
        print("\n".join(rules_text(asked)))
    return 0


def check_rule(id: str, known: Iterable[str]) -> None:
    """Refuse the name of a rule, or of a group of rules, that there is none of."""
    known = tuple(known)
    names = {*known, *[each.partition("/")[0] for each in known]}
    if id in names:
        return
    near = get_close_matches(id, names, 1)
    hint = f": did you mean {near[0]}?" if near else ": memqos rules lists them"
    raise click.UsageError(f"there is no rule {id!r}{hint}")
