"""`memqos rules`: what audit and doctor look for, why, and what helps."""

import click
import msgspec

from memqos.cli.output import OutputFormat, emit, output_option
from memqos.draw.text.findings import rule_text, rules_text
from memqos.findings.catalogue import RULES_BY_ID, unknown_rule


@click.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@output_option()
def command(ids: tuple[str, ...], output: OutputFormat) -> int:
    """List the rules by which audit judges a cluster and doctor a node, or explain some.

    An ID may also be that of a group, such as pod or machine.
    """
    for id in ids:
        if problem := unknown_rule(id, RULES_BY_ID):
            raise click.UsageError(problem)
    selected = [
        rule
        for rule in RULES_BY_ID.values()
        if not ids or rule.id in ids or rule.id.partition("/")[0] in ids
    ]
    if output != "table":
        emit([msgspec.to_builtins(rule) for rule in selected], output)
    elif ids:
        print("\n\n".join("\n".join(rule_text(rule)) for rule in selected))
    else:
        print("\n".join(rules_text(selected)))
    return 0
