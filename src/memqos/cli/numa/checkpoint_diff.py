"""`memqos numa checkpoint diff`: what two state files say otherwise."""

import click
import msgspec

from memqos.cli.numa.sources import text_from
from memqos.cli.output import Form, complain, emit, output_option
from memqos.draw.numa_words import by_so_much, exact
from memqos.draw.table import table
from memqos.kernel.nodelists import node_list
from memqos.numa.checkpoint import Unreadable
from memqos.numa.diffs import Differing, Value, differing
from memqos.numa.repair import salvaged
from memqos.numa.state import State
from memqos.numa.unreadable import unreadable_error

DIFFERENT = 2


@click.command("diff")
@click.argument("one", metavar="FILE")
@click.argument("other", metavar="FILE")
@output_option()
def diff(one: str, other: str, output: Form) -> int:
    """Compare two state files value by value, whatever their formats.

    Exit code 2 if they differ.
    """
    found = differing(_state(one), _state(other))
    if output != "table":
        emit({"same": not found, "differences": msgspec.to_builtins(found)}, output)
    elif found:
        rows = [["", "", one, other, ""], *[_row(each) for each in found]]
        print("\n".join(table(rows, left=2)))
    else:
        print("both say the same")
    return DIFFERENT if found else 0


def _state(path: str) -> State:
    found = salvaged(text_from(path))
    if isinstance(found, Unreadable):
        raise unreadable_error(found, path)
    if found.how != "whole":
        complain(f"{path}: no kubelet would take this file; compared as far as it can be read")
    return found.loaded.state


def _row(each: Differing) -> list[str]:
    both = isinstance(each.one, int) and isinstance(each.other, int) and each.is_size
    change = by_so_much(each.one, each.other) if both else ""  # type: ignore[arg-type]
    return [each.where, each.what, _cell(each, each.one), _cell(each, each.other), change]


def _cell(each: Differing, value: Value | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, tuple):
        return node_list(value)
    return exact(value) if isinstance(value, int) and each.is_size else str(value)
