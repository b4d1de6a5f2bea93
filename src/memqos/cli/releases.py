"""The options that say which Kubernetes release is asked about, and what they come to."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from memqos.release import DEFAULT_MINOR, Release

_F = TypeVar("_F", bound=Callable[..., Any])


def release_options(command: _F) -> _F:
    """--release and --gate."""
    for option in (
        click.option(
            "--gate",
            "gates",
            multiple=True,
            metavar="NAME=BOOL",
            help="Set a feature gate; may be repeated.",
        ),
        click.option(
            "--release",
            metavar="VERSION",
            help=f"Kubernetes release.  [default: the node's if it is known, else "
            f"1.{DEFAULT_MINOR}]",
        ),
    ):
        command = option(command)
    return command


def parse_gates(texts: Iterable[str]) -> dict[str, bool]:
    """The gates set with --gate."""
    return dict(map(_parse_gate, texts))


def resolve_release(
    release: str | None, gates: Iterable[str], node_version: str | None = None
) -> tuple[Release, list[str]]:
    """The release asked for, else that of the node, and what a person should know about it."""
    notes = []
    if release is None and node_version is not None:
        notes.append(f"the release is that of the node's kubelet, {node_version}")
    return Release.of(release or node_version or DEFAULT_MINOR, parse_gates(gates)), notes


def resolve_server_release(version: str, gates: Iterable[str]) -> tuple[Release, list[str]]:
    """The release of a live cluster's API server, and that it is."""
    note = f"the release is that of the API server, {version}"
    return Release.of(version, parse_gates(gates)), [note]


def _parse_gate(text: str) -> tuple[str, bool]:
    name, _, value = text.partition("=")
    if value.lower() not in ("true", "false"):
        raise click.BadParameter(f"{text!r} is not NAME=true or NAME=false", param_hint="--gate")
    return name, value.lower() == "true"
