"""The options that set an agent's configuration: one for every field, and where the file is."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

import click

from memqos.agent.configuration.fields import FIELDS, GATES, Field
from memqos.agent.configuration.reading import CONFIG_VARIABLE
from memqos.converge.sources import is_url

F = TypeVar("F", bound=Callable[..., Any])

_FILES: Final = "pods.files"
_KUBELET: Final = "pods.kubelet"


def configuration_options(command: F) -> F:
    """--config, and a flag for every field that wins over the file and the environment."""
    for field in reversed(FIELDS.values()):
        if _name(field) != _KUBELET:
            command = _option(field)(command)
    return click.option(
        "--config", metavar="FILE", envvar=CONFIG_VARIABLE, help="An AgentConfiguration."
    )(command)


def flags_given(options: Mapping[str, Any]) -> dict[str, object]:
    """The flags that were given, by their field; takes those of other options for nothing."""
    given = {
        _name(field): options[_parameter(field)]
        for field in FIELDS.values()
        if options.get(_parameter(field)) not in (None, ())
    }
    source = given.pop(_FILES, None)
    if source is not None:
        given |= {_KUBELET: source} if is_url(str(source)) else {_FILES: (source,)}
    return given


def _option(field: Field) -> Callable[[F], F]:
    if field.path == ("pods", "files"):
        return click.option(
            "--pods",
            _parameter(field),
            metavar="SOURCE",
            help="A file, a folder, or a kubelet's address such as https://127.0.0.1:10250.",
        )
    if field.plain is bool:
        return click.option(
            f"{field.flag}/--no-{field.flag[2:]}",
            _parameter(field),
            default=None,
            help=field.description,
        )
    return click.option(
        field.flag,
        _parameter(field),
        metavar=_metavar(field),
        multiple=field.path == GATES,
        help=field.description,
    )


def _metavar(field: Field) -> str:
    if field.path == GATES:
        return "NAME=BOOL"
    if get_origin(field.plain) is Literal:
        return "|".join(get_args(field.plain))
    if get_origin(field.plain) is tuple:
        return "NAME,…"
    return "DURATION" if field.is_duration else _METAVARS.get(field.plain, "TEXT")


_METAVARS: Final[dict[Any, str]] = {int: "NUMBER", float: "NUMBER"}


def _name(field: Field) -> str:
    return ".".join(field.path)


def _parameter(field: Field) -> str:
    return "field_" + "_".join(field.path)
