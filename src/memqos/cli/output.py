"""What commands print: the option that asks for a form, and plain data as JSON or YAML."""

import os
import sys
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import click
import msgspec

from memqos.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])
Form = Literal["table", "json", "yaml"]


def output_option(*more: str, table: str = "table") -> Callable[[F], F]:
    """-o: a table, data, or `more`; `table` says what a table is where that needs words."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json", "yaml", *more]),
        default="table",
        help=f"What to print.  [default: {table}]",
    )


def emit(data: Any, form: Literal["json", "yaml"]) -> None:
    """Print data in the form asked for."""
    if form == "json":
        print(msgspec.json.format(msgspec.json.encode(data)).decode())
    else:
        import yaml

        dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
        yaml.dump(
            msgspec.to_builtins(data),
            sys.stdout,
            Dumper=dumper,
            sort_keys=False,
            allow_unicode=True,
            default_flow_style=False,
        )


def check_out(file: str | None) -> None:
    """Refuse a file of --out that cannot be replaced, before there is anything to write to it."""
    if file is not None and os.path.exists(file) and not os.path.isfile(file):
        raise InputError("this is not a plain file", file=file, hint="give another name with --out")


def write_out(file: str, data: bytes) -> None:
    """Write a file of --out: all of it or nothing, readable to its owner alone."""
    from memqos.host.durable import replace

    check_out(file)
    try:
        replace(file, data)
    except OSError as error:
        raise InputError(
            f"it cannot be written: {(error.strerror or str(error)).lower()}",
            file=file,
            hint="give another place with --out",
        ) from None


def complain(error: object) -> None:
    """One line to standard error."""
    sys.stdout.flush()
    print(error, file=sys.stderr)
