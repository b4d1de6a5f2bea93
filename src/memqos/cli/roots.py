"""The option that says where the cgroups are."""

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from memqos.host.cgroups import SYSTEM_ROOT

_F = TypeVar("_F", bound=Callable[..., Any])


def cgroup_root_option(command: _F) -> _F:
    """--cgroup-root, as an absolute path: saved plans and journals are held against it."""
    return click.option(
        "--cgroup-root",
        default=SYSTEM_ROOT,
        metavar="DIR",
        callback=lambda _context, _option, value: os.path.abspath(value),
        help=f"Where the cgroups are.  [default: {SYSTEM_ROOT}]",
    )(command)
