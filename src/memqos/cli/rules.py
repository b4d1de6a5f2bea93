"""`memqos rules`: what audit and doctor look for, why, and what helps."""

import click
import msgspec

from memqos.cli.help_sections import SectionedCommand
from memqos.cli.output import OutputFormat, emit, output_option, print_lines
from memqos.draw.text.findings import rule_text, rules_text
from memqos.findings.catalogue import RULES_BY_ID, unknown_rule


@click.command(cls=SectionedCommand)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@output_option()
def command(ids: tuple[str, ...], output: OutputFormat) -> int:
    """List the rules of audit and doctor, or explain some of them.

    An ID may also be a group, such as pod or machine.
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
        for index, rule in enumerate(selected):
            print_lines([*([""] if index else ()), *rule_text(rule)])
    else:
        print_lines([rules_text(selected)])
    return 0
