"""The owners of cgroups, for the commands that write: which are asked, and what is told of it."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from memqos.plan.changes import Change

if TYPE_CHECKING:
    from memqos.converge.routing import Route, Router, WriteVia

_F = TypeVar("_F", bound=Callable[..., Any])

_ROUTE_WORDS: Final[dict["WriteVia", str]] = {
    "systemd": "through systemd",
    "runtime": "through the runtime",
    "direct": "directly",
}


def owner_options(command: _F) -> _F:
    """Who is asked to write."""
    for option in (
        click.option(
            "--direct", is_flag=True, help="Write past systemd and the runtime, to the files."
        ),
        click.option(
            "--cri-socket",
            metavar="PATH",
            help="The container runtime's socket.  [default: containerd's or CRI-O's]",
        ),
    ):
        command = option(command)
    return command


def route_lines(changes: Iterable[Change], router: "Router") -> Iterator[str]:
    """How many values are written by whom, and why; nothing of a tree that is a copy."""
    from memqos.converge.routing import count_routes

    if router.owners.is_copy:
        return
    for route, count in count_routes(map(router.route, changes)):
        values = "1 value" if count == 1 else f"{count} values"
        yield f"{_ROUTE_WORDS[route.through]}: {values} – {route.because}"


def with_route(data: dict[str, Any], route: "Route") -> dict[str, Any]:
    """A change as plain data, and who would write it."""
    return {**data, "through": route.through, "through_because": route.because}
