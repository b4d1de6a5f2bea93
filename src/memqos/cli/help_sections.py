"""The headings that --help lists options under: shared options name theirs where they are declared.

A command's own options have none, and come first.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, Final, Literal, TypeVar, get_args

import click

_D = TypeVar("_D", bound=Callable[..., Any])

Heading = Literal[
    "Options",
    "Pods it manages",
    "Cluster",
    "Node",
    "Kubelet endpoint",
    "Agent",
    "Snapshots and records",
    "History",
    "Settings",
    "Safety limits",
    "Guard",
    "Flight recorder",
    "Metrics, events and log",
    "Writing",
    "Output",
]
_ORDER: Final[tuple[Heading, ...]] = get_args(Heading)

_headings: Final[dict[click.Parameter, Heading]] = {}


def help_section(heading: Heading) -> Callable[[_D], _D]:
    """List the options that a decorator declares under `heading`, but those that have one."""

    def decorate(declare: _D) -> _D:
        @wraps(declare)
        def declare_under(command: Any, *arguments: Any, **options: Any) -> Any:
            before = len(_parameters(command))
            declared = declare(command, *arguments, **options)
            for parameter in _parameters(declared)[before:]:
                _headings.setdefault(parameter, heading)
            return declared

        return declare_under  # type: ignore[return-value]

    return decorate


def _parameters(command: Any) -> Sequence[click.Parameter]:
    """Those declared so far: click keeps them at a function until that is a command."""
    if isinstance(command, click.Command):
        return command.params
    return getattr(command, "__click_params__", ())


_UNBROKEN_HYPHEN: Final = "\u2011"


class _HelpFormatter(click.HelpFormatter):
    """Wraps no option, path or name at its hyphens, so that they can be copied."""

    def write_text(self, text: str) -> None:
        super().write_text(text.replace("-", _UNBROKEN_HYPHEN))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        unbroken = [(name, text.replace("-", _UNBROKEN_HYPHEN)) for name, text in rows]
        super().write_dl(unbroken, col_max, col_spacing)

    def getvalue(self) -> str:
        return super().getvalue().replace(_UNBROKEN_HYPHEN, "-")


class _HelpContext(click.Context):
    formatter_class = _HelpFormatter


class SectionedCommand(click.Command):
    """A command that lists its options under their headings."""

    context_class = _HelpContext

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[Heading, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                own: Heading = "Output" if "--help" in parameter.opts else "Options"
                sections.setdefault(_headings.get(parameter, own), []).append(record)
        for heading in _ORDER:
            if heading in sections:
                with formatter.section(heading):
                    formatter.write_dl(sections[heading])
