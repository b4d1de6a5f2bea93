"""What commands print: the option that asks for a form, lines, and plain data as JSON or YAML."""

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, TextIO, TypeVar, cast

import click
import msgspec

from memqos.draw.text.terminal import message_lines, visible, visible_lines
from memqos.errors import InputError

_F = TypeVar("_F", bound=Callable[..., Any])
OutputFormat = Literal["table", "json", "yaml"]


def output_option(*more: str, table: str = "table") -> Callable[[_F], _F]:
    """-o: a table, data, or `more`; `table` says what a table is where that needs words."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json", "yaml", *more]),
        default="table",
        help=f"What to print.  [default: {table}]",
    )


def emit(data: Any, output_format: Literal["json", "yaml"]) -> None:
    """Print data in the form asked for."""
    if output_format == "json":
        print(msgspec.json.format(msgspec.json.encode(data)).decode())
    else:
        print(_as_yaml(msgspec.to_builtins(data)), end="")


def _as_yaml(data: Any) -> str:
    import yaml

    fast = getattr(yaml, "CSafeDumper", None)

    class Dumper(fast or yaml.SafeDumper):  # type: ignore[misc]
        """Quotes text that is not visible, so that its escapes mean the same."""

    def represent_text(dumper: Any, text: str) -> Any:
        style = None if text.replace("\n", "").isprintable() else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, represent_text)
    text: str = yaml.dump(
        data,
        Dumper=Dumper,
        sort_keys=False,
        # Only libyaml escapes what is beyond the first plane, for which JSON has other escapes.
        allow_unicode=fast is not None,
        default_flow_style=False,
    )
    return text


def print_lines(lines: Iterable[str]) -> None:
    """Print lines, each of which stays one whatever is in it."""
    print("\n".join(map(visible, lines)))


def check_output_file(file: str | None) -> None:
    """Refuse a file of --out that cannot be replaced, before there is anything to write to it."""
    if file is None:
        return
    # /dev/stdout is such a link. It leads to a plain file where output is redirected to one, and
    # root would replace it for all programs.
    is_stream = os.path.islink(file) and os.readlink(file).startswith("/proc/")
    if is_stream or (os.path.exists(file) and not os.path.isfile(file)):
        raise InputError("this is not a plain file", file=file, hint="give another name with --out")


def write_output_file(file: str, data: bytes) -> int:
    """Write JSON to a file of --out: all of it or nothing, readable to its owner alone. Its size.

    Whoever shows the file on a terminal is no worse off than with standard output.
    """
    from memqos.host.durable import replace

    check_output_file(file)
    data = visible_lines(data.decode()).encode()
    try:
        replace(file, data)
    except OSError as error:
        raise InputError(
            f"it cannot be written: {(error.strerror or str(error)).lower()}",
            file=file,
            hint="give another place with --out",
        ) from None
    return len(data)


def complain(error: object, before: str = "") -> None:
    """One line to standard error, and the snippet of an error."""
    sys.stdout.flush()
    print("\n".join(message_lines(error, before)), file=sys.stderr)


_RAW: Final = ("buffer", "detach")
"""What of a stream takes bytes, past `write`. A stream need not have them."""


class VisibleStream:
    """A stream whose terminal obeys nothing of what is written: names may be anybody's."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(visible_lines(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        if name in _RAW:
            raise AttributeError(f"{type(self).__name__} has no {name!r}: write text")
        return getattr(self.stream, name)


def guard_streams() -> None:
    """Have all that this process writes to standard output and error be visible."""
    sys.stdout = cast(TextIO, VisibleStream(sys.stdout))
    if sys.stderr is not None:
        sys.stderr = cast(TextIO, VisibleStream(sys.stderr))


def raw_stream(stream: TextIO) -> TextIO:
    """A stream for what its terminal should obey, which is memqos's own words alone."""
    return stream.stream if isinstance(stream, VisibleStream) else stream


def show_status(text: str) -> None:
    """Have one line of a terminal say something else; nothing takes it away."""
    terminal = raw_stream(sys.stderr)
    terminal.write(f"\r\033[K{visible(text)[:120]}")
    terminal.flush()
