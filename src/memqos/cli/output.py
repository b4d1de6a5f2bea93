"""What commands print: the option -o, lines, plain data as JSON or YAML, and progress."""

import errno
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, TypeVar

import click

from memqos.cli.help_sections import help_section
from memqos.cli.streams import (
    is_utf8,
    raw_stream,
    screen_of,
    show_all_columns,
    show_status,
)
from memqos.draw.text.lines import Line, Style, Styled
from memqos.draw.text.render import render
from memqos.draw.text.terminal import escape_beyond_ascii, message_lines, visible_lines
from memqos.errors import InputError, os_reason
from memqos.units import format_bytes

_F = TypeVar("_F", bound=Callable[..., Any])
OutputFormat = Literal["table", "json", "yaml"]


def output_option(*more: str, table: str = "table") -> Callable[[_F], _F]:
    """-o: a table, data, or `more`; `table` describes the table in the help text.

    `wide` is a table as well, with all its columns on a narrow terminal.
    """
    return help_section("Output")(
        click.option(
            "-o",
            "--output",
            type=click.Choice(["table", "wide", "json", "yaml", *more]),
            default="table",
            callback=_take_wide,
            help=f"Output format.  [default: {table}]",
        )
    )


def _take_wide(context: click.Context, _option: click.Parameter, value: str) -> str:
    if value != "wide":
        return value
    show_all_columns(context)
    return "table"


SCHEMA_VERSION: Final = 1
"""Of what all commands print for scripts: docs/schemas has a schema a command."""


def emit(data: Any, output_format: Literal["json", "yaml"]) -> None:
    """Print the data of a command as JSON or YAML; an object says which version of it this is."""
    if isinstance(data, dict):
        data = {"schemaVersion": SCHEMA_VERSION, **data}
    print_data(_with_camel_case(data), output_format)


_OLD_NAMES: Final = frozenset(
    [
        "api_admission",
        "by_enablement",
        "by_release",
        "classes_after",
        "classes_before",
        "cpu_period",
        "cpu_quota",
        "days_to_limit",
        "decided_by",
        "defaults_request",
        "evicted_first",
        "growth_per_day",
        "hugepage_sizes",
        "killed_first",
        "limit_now",
        "lost_low",
        "memory_allocatable",
        "memory_capacity",
        "on_one",
        "on_several",
        "oom_group",
        "nodes_now",
        "nodes_then",
        "over_request",
        "protected_bytes",
        "protected_seconds",
        "page_size",
        "page_tables",
        "request_now",
        "single_process_oom_kill",
        "still_pending",
        "swap_behavior",
        "swap_capacity",
        "through_because",
        "throttled_days",
        "told_by",
        "unasked_low",
        "unasked_min",
    ]
)
"""Keys from before all were camelCase: deprecated, and printed beside the new ones in version 1."""


def _with_camel_case(data: Any) -> Any:
    if isinstance(data, list):
        return [_with_camel_case(each) for each in data]
    if not isinstance(data, dict):
        return data
    named = {}
    for key, value in data.items():
        named[key] = _with_camel_case(value)
        if key in _OLD_NAMES:
            first, *rest = key.split("_")
            named[first + "".join([word.title() for word in rest])] = named[key]
    return named


def camel_case(data: Any) -> Any:
    """Data with keys in camelCase; names of the kernel's files and values stay as they are."""
    if isinstance(data, list):
        return [camel_case(each) for each in data]
    if not isinstance(data, dict):
        return data
    return {_camel_case_key(key): camel_case(value) for key, value in data.items()}


def _camel_case_key(key: str) -> str:
    if "." in key or key in _KERNEL_NAMES:
        return key
    first, *rest = key.split("_")
    return first + "".join([word.title() for word in rest])


_KERNEL_NAMES: Final = frozenset(["oom_score", "oom_score_adj"])


def print_data(data: Any, output_format: Literal["json", "yaml"]) -> None:
    """Print data that has a form of its own, such as a manifest, as JSON or YAML."""
    text = data_text(data, output_format)
    if output_format == "json" and not is_utf8(sys.stdout):
        text = escape_beyond_ascii(text)
    print(text, end="")


def data_text(data: Any, output_format: Literal["json", "yaml"]) -> str:
    """Data as JSON or YAML, with a line break at its end."""
    import msgspec

    if output_format == "json":
        return msgspec.json.format(msgspec.json.encode(data)).decode() + "\n"
    return _as_yaml(msgspec.to_builtins(data))


def _as_yaml(data: Any) -> str:
    import yaml

    fast = getattr(yaml, "CSafeDumper", None)

    class Dumper(fast or yaml.SafeDumper):  # type: ignore[misc] # the base is a value
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
        allow_unicode=fast is not None and is_utf8(sys.stdout),
        default_flow_style=False,
    )
    return text


def print_markup(text: str) -> None:
    """Print a picture or a page; what the terminal's encoding may lack as references."""
    print(text if is_utf8(sys.stdout) else text.encode("ascii", "xmlcharrefreplace").decode())


def print_lines(lines: Iterable[Line]) -> None:
    """Print lines and tables as the terminal has columns and colours for them.

    Control characters and line breaks in them are made visible.
    """
    screen, hidden = screen_of(sys.stdout), dict[str, None]()
    text = "\n".join(render(lines, screen, hidden))
    if screen.paint is None:
        print(text)
    else:
        raw_stream(sys.stdout).write(f"{text}\n")
    if hidden:
        _note_at_end(hidden)


_HIDDEN: Final = "memqos.hidden"


def _note_at_end(hidden: dict[str, None]) -> None:
    """Say once, when the command is done, which columns the terminal had no space for."""
    context = click.get_current_context()
    if _HIDDEN not in context.meta:
        context.meta[_HIDDEN] = dict[str, None]()
        context.call_on_close(_print_hidden)
    context.meta[_HIDDEN].update(hidden)


def _print_hidden() -> None:
    names = ", ".join(click.get_current_context().meta[_HIDDEN])
    complain(f"note: the terminal is too narrow for {names}; -o wide prints all columns")


def print_notes(notes: Iterable[str]) -> None:
    """Print what a person should know about the output that follows."""
    for note in notes:
        print_lines([Styled(f"note: {note}", "info", len("note:"))])


def check_output_file(file: str | None) -> None:
    """Refuse a file that cannot be replaced, before there is anything to write to it."""
    if file is None:
        return
    # /dev/stdout is such a link. It leads to a plain file where output is redirected to one, and
    # root would replace it for all programs.
    is_stream = os.path.islink(file) and os.readlink(file).startswith("/proc/")
    is_plain = os.path.basename(file) and (os.path.isfile(file) or not os.path.exists(file))
    if is_stream or not is_plain:
        raise InputError("this is not a plain file", file=file, hint="give another name")
    # The file is replaced, so what counts is its folder.
    folder = os.path.dirname(file) or "."
    if not os.path.isdir(folder):
        raise _unwritable(file, os.strerror(errno.ENOENT))
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _unwritable(file, os.strerror(errno.EACCES))


def _unwritable(file: str, why: str) -> InputError:
    return InputError(f"it cannot be written: {why.lower()}", file=file, hint="give another place")


def write_output_file(file: str, data: bytes) -> int:
    """Write all of a file or nothing, readable to its owner alone; returns its size.

    Control characters are made visible, as on standard output.
    """
    from memqos.host.durable import replace

    check_output_file(file)
    data = visible_lines(data.decode()).encode()
    try:
        replace(file, data)
    except OSError as error:
        raise _unwritable(file, os_reason(error)) from None
    return len(data)


_PREFIXES: Final[dict[str, Style]] = {"memqos:": "error", "warning:": "warning", "note:": "info"}


def complain(error: object, before: str = "") -> None:
    """A sentence to standard error, and the snippet of an error, which is never wrapped."""
    sys.stdout.flush()
    if sys.stderr is None:  # memqos … 2>&-
        return
    sentence, *snippet = message_lines(error, before)
    prefix = sentence.partition(" ")[0]
    if prefix in _PREFIXES:
        sentence = Styled(sentence, _PREFIXES[prefix], len(prefix))
    stream = raw_stream(sys.stderr)
    print("\n".join([*render([sentence], screen_of(sys.stderr)), *snippet]), file=stream)


_BAR_WIDTH: Final = 30
_BAR_INTERVAL: Final = 0.1
"""Seconds between two updates."""


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
        counts = f"{self._objects:,} objects, {format_bytes(self._done)}"
        if self._expected:
            share = min(1.0, self._objects / self._expected)
        elif self._total:
            share = min(1.0, self._done / self._total)
        else:
            return counts
        full = round(_BAR_WIDTH * share)
        return f"{'█' * full}{'░' * (_BAR_WIDTH - full)} {share:4.0%}  {counts}"
