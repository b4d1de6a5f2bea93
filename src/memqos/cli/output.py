"""What commands print: the option -o, lines, plain data as JSON or YAML, and progress."""

import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, TextIO, TypeVar, cast

import click
import msgspec

from memqos.draw.text.terminal import message_lines, visible, visible_lines
from memqos.errors import InputError

_F = TypeVar("_F", bound=Callable[..., Any])
OutputFormat = Literal["table", "json", "yaml"]


def output_option(*more: str, table: str = "table") -> Callable[[_F], _F]:
    """-o: a table, data, or `more`; `table` describes the table in the help text."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json", "yaml", *more]),
        default="table",
        help=f"What to print.  [default: {table}]",
    )


def emit(data: Any, output_format: Literal["json", "yaml"]) -> None:
    """Print data as JSON or YAML."""
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
    """Print lines; control characters and line breaks in them are made visible."""
    print("\n".join(map(visible, lines)))


def print_notes(notes: Iterable[str]) -> None:
    """Print what a person should know about the output that follows."""
    for note in notes:
        print_lines([f"note: {note}"])


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

    Control characters are made visible, as on standard output.
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
"""Attributes of a stream that take bytes and so bypass `write`."""


class VisibleStream:
    """A stream that makes control characters visible: names in manifests are untrusted."""

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
    """Make control characters visible in all that this process prints."""
    sys.stdout = cast(TextIO, VisibleStream(sys.stdout))
    if sys.stderr is not None:
        sys.stderr = cast(TextIO, VisibleStream(sys.stderr))


def raw_stream(stream: TextIO) -> TextIO:
    """The stream below, for terminal control sequences of memqos's own."""
    return stream.stream if isinstance(stream, VisibleStream) else stream


def show_status(text: str) -> None:
    """Replace the last line of the terminal; an empty text clears it."""
    terminal = raw_stream(sys.stderr)
    terminal.write(f"\r\033[K{visible(text)[:120]}")
    terminal.flush()


_BAR_WIDTH: Final = 30
_BAR_INTERVAL: Final = 0.1
"""Seconds between two drawings."""


class ProgressBar:
    """Bytes and objects read so far, of as many as are known to come."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._objects = 0
        self._expected = 0
        self._shown = 0.0
        self._is_watched = sys.stderr.isatty()

    def advance(self, size: int, objects: int) -> None:
        """Count bytes and objects that were read."""
        self._done += size
        self._objects += objects
        if self._is_watched and time.monotonic() - self._shown > _BAR_INTERVAL:
            self._shown = time.monotonic()
            show_status(self._line())

    def expect(self, objects: int) -> None:
        """Measure by objects from here on: so many are to come."""
        self._expected = self._objects + objects

    def end(self) -> None:
        """Clear the line."""
        if self._is_watched:
            show_status("")

    def _line(self) -> str:
        counts = f"{self._objects:,} objects, {self._done >> 20:,} MiB"
        if self._expected:
            share = min(1.0, self._objects / self._expected)
        elif self._total:
            share = min(1.0, self._done / self._total)
        else:
            return counts
        full = round(_BAR_WIDTH * share)
        return f"{'█' * full}{'░' * (_BAR_WIDTH - full)} {share:4.0%}  {counts}"
