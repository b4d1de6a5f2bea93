"""What the values of options and arguments complete to, by what the help text calls them."""

import re
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Literal

import click
from click.shell_completion import CompletionItem

from memqos.cli.cluster_access import KINDS_BY_ALIAS, LiveCluster, chosen_kubeconfig

_SECONDS: Final = 2.0
"""For all requests to a cluster: a person waits for the completion."""

Words = Sequence[str]
"""What may be completed to; or else `file` or `dir`, which the shell completes by itself."""
Complete = Callable[[click.Context, str], Words | Literal["file", "dir"]]


class CompletedText(click.ParamType[str]):
    """A text that completes to words, to files or to folders."""

    name = "text"

    def __init__(self, complete: Complete) -> None:
        self._complete = complete

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        try:
            found = self._complete(ctx, incomplete)
            if isinstance(found, str):
                return [CompletionItem(incomplete, type=found)]
            return [CompletionItem(word) for word in found if word.startswith(incomplete)]
        except Exception:  # Whatever fails, a person who presses TAB sees no trace of it.
            return []


def complete_values(command: click.Command) -> None:
    """Give every text that a command takes the type that completes it."""
    for parameter in command.params:
        metavar = parameter.metavar or ""
        complete = _BY_NAME.get(parameter.name or "") or _BY_METAVAR.get(metavar)
        if complete is None and re.fullmatch(r"\w+(\|\w+)+", metavar):
            complete = partial(_choices, metavar.split("|"))
        if complete is not None and isinstance(parameter.type, click.types.StringParamType):
            parameter.type = CompletedText(complete)
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        complete_values(each)


def _choices(words: Words, _context: click.Context, incomplete: str) -> Words:
    return words


def _files(_context: click.Context, incomplete: str) -> Literal["file"]:
    return "file"


def _folders(_context: click.Context, incomplete: str) -> Literal["dir"]:
    return "dir"


def _objects_or_files(context: click.Context, incomplete: str) -> Words | Literal["file"]:
    """Objects of the cluster after a kind and a slash, such as pod/; otherwise files."""
    alias, slash, _ = incomplete.partition("/")
    if not slash or alias not in KINDS_BY_ALIAS:
        return "file"
    group, plural = KINDS_BY_ALIAS[alias]
    return [f"{alias}/{name}" for name in _object_names(context, group, plural)]


def _pods(context: click.Context, incomplete: str) -> Words:
    return [f"pod/{name}" for name in _object_names(context, "", "pods")]


def _namespaces(context: click.Context, incomplete: str) -> Words:
    return _object_names(context, "", "namespaces", is_namespaced=False)


def _nodes(context: click.Context, incomplete: str) -> Words:
    return _object_names(context, "", "nodes", is_namespaced=False)


def _object_names(
    context: click.Context, group: str, plural: str, *, is_namespaced: bool = True
) -> list[str]:
    import msgspec

    from memqos.host.apiserver.pager import list_raw_pages
    from memqos.host.apiserver.resources import ApiResource, Selection

    live = LiveCluster(
        context.params.get("context"), context.params.get("namespace") if is_namespaced else None
    )
    resource = ApiResource(group, "v1", plural, dict, is_namespaced)
    names: list[str] = []
    with _time_limit():
        selection = Selection(live.namespace if is_namespaced else None)
        for page in list_raw_pages(live.server, resource, selection):
            items: list[dict[str, Any]] = msgspec.json.decode(page).get("items") or []
            names += [item["metadata"]["name"] for item in items]
    return names


@contextmanager
def _time_limit() -> Iterator[None]:
    """Raise TimeoutError when it has taken too long, wherever it waits."""

    def end(_signal: int, _frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, _SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _contexts(_context: click.Context, incomplete: str) -> Words:
    from memqos.host.apiserver.kubeconfig import context_names

    return context_names(chosen_kubeconfig())


def _releases(_context: click.Context, incomplete: str) -> Words:
    from memqos.release.releases import NEWEST, OLDEST

    return [f"1.{minor}" for minor in range(OLDEST, NEWEST + 1)]


def _several_releases(context: click.Context, incomplete: str) -> Words:
    before, comma, _ = incomplete.rpartition(",")
    return [f"{before}{comma}{release}" for release in _releases(context, "")]


def _gates(_context: click.Context, incomplete: str) -> Words:
    from memqos.release.gates import gate_names

    return [f"{name}={value}" for name in gate_names() for value in ("true", "false")]


def _rules(_context: click.Context, incomplete: str) -> Words:
    from memqos.findings.catalogue import RULES_BY_ID

    groups = dict.fromkeys(id.partition("/")[0] for id in RULES_BY_ID)
    return [*groups, *RULES_BY_ID] if "/" not in incomplete else list(RULES_BY_ID)


_BY_METAVAR: Final[dict[str, Complete]] = {
    "DIR": _folders,
    "DIR|FILE": _files,
    "FILE": _files,
    "FILE…": _objects_or_files,
    "ID": _rules,
    "NAME=BOOL": _gates,
    "NEW": _objects_or_files,
    "OLD": _objects_or_files,
    "SOCKET": _files,
    "SOURCE": _files,
    "VERSION": _releases,
    "VERSION,…": _several_releases,
    "[DUMP]...": _files,
    "[FILE]": _files,
    "[ID]...": _rules,
    "[PLAN]": _files,
    "[POD|WORKLOAD|FILE]…": _objects_or_files,
    "[POD | KIND/NAME]": _objects_or_files,
    "pod/NAME": _pods,
}
_BY_NAME: Final[dict[str, Complete]] = {
    "context": _contexts,
    "namespace": _namespaces,
    "node_name": _nodes,
}
"""Parameters whose metavar, NAME, says too little."""
