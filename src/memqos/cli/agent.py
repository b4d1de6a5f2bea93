"""`memqos agent`: keeps a node as planned while pods come and go."""

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

import click

from memqos.agent.configuration import AgentConfiguration
from memqos.agent.configuration.fields import CONFIG_FIELDS, GATES_PATH, ConfigField
from memqos.agent.configuration.sources import CONFIG_VARIABLE, load_configuration
from memqos.cli.help_sections import Heading, SectionedCommand, help_section
from memqos.converge.pod_sources import PODS_API, is_url, pods_api_socket

_F = TypeVar("_F", bound=Callable[..., Any])

FlagValue = str | bool | tuple[str, ...] | None
"""What click gives for a flag: () or None where it was not used."""

_FILES: Final = "pods.files"
_KUBELET: Final = "pods.kubelet"


def configuration_options(command: _F) -> _F:
    """--config, and a flag for every field that wins over the file and the environment."""
    for field in reversed(CONFIG_FIELDS.values()):
        if _field_name(field) != _KUBELET:
            command = help_section(_heading(field))(_option(field))(command)
    return click.option(
        "--config", metavar="FILE", envvar=CONFIG_VARIABLE, help="An AgentConfiguration."
    )(command)


def flag_values(options: Mapping[str, FlagValue]) -> dict[str, object]:
    """The flags that were used, by their field; other options are ignored."""
    given: dict[str, object] = {
        _field_name(field): options[_parameter_name(field)]
        for field in CONFIG_FIELDS.values()
        if options.get(_parameter_name(field)) not in (None, ())
    }
    source = given.pop(_FILES, None)
    return given if source is None else given | _named_source(str(source))


def _named_source(text: str) -> dict[str, object]:
    """The fields that --pods stands for."""
    if pods_api_socket(text) is None:
        return {_KUBELET: text} if is_url(text) else {_FILES: (text,)}
    _, _, path = text.partition(":")
    return {"pods.source": PODS_API, **({"pods.socket": path} if path else {})}


def _option(field: ConfigField) -> Callable[[_F], _F]:
    if field.path == ("pods", "files"):
        return click.option(
            "--pods",
            _parameter_name(field),
            metavar="SOURCE",
            help="A file, a folder, a kubelet's address such as https://127.0.0.1:10250, or "
            "podsapi[:SOCKET]: the kubelet's PodsAPI.",
        )
    if field.bare_type is bool:
        return click.option(
            f"{field.flag}/--no-{field.flag[2:]}",
            _parameter_name(field),
            default=None,
            help=field.description,
        )
    return click.option(
        field.flag,
        _parameter_name(field),
        metavar=_metavar(field),
        multiple=field.path == GATES_PATH,
        help=field.description + _GROUP_HELP.get(field.path[0], ""),
    )


def _heading(field: ConfigField) -> Heading:
    if _field_name(field) in _KUBELET_ENDPOINT:
        return "Kubelet endpoint"
    return _HEADINGS.get(field.path[0], "Options")


_KUBELET_ENDPOINT: Final = frozenset(
    f"pods.{name}" for name in ("tokenFile", "caFile", "clientCert", "clientKey", "serverName")
)
_FIELDS_BY_HEADING: Final[dict[Heading, str]] = {
    "Pods it manages": "select canary allowNamespaces",
    "Node": "pods cgroupRoot",
    "Settings": "release gates policy factor allowOldKernel placement numa memoryManagerState "
    "kubeletConfig",
    "Safety limits": "minShare ramp fight",
    "Guard": "guard",
    "Flight recorder": "recorder",
    "Metrics, events and log": "events listen endpoint stateSocket kepMetrics cadvisorMetrics "
    "logFormat",
    "Writing": "rollbackOnExit journal criSocket nri nriSocket nriDeadline direct",
}
_HEADINGS: Final[dict[str, Heading]] = {
    name: heading for heading, names in _FIELDS_BY_HEADING.items() for name in names.split()
}
"""The heading of a field's flag, by the first part of its name."""

_GROUP_HELP: Final = {
    "canary": " The agent observes the others, and writes nothing to them.",
}
"""What a selector is for, which its fields do not say."""


def _metavar(field: ConfigField) -> str:
    if field.path == GATES_PATH:
        return "NAME=BOOL"
    if get_origin(field.bare_type) is Literal:
        return "|".join(get_args(field.bare_type))
    if get_origin(field.bare_type) is tuple:
        return "NAME,…"
    if field.is_duration:
        return "DURATION"
    return _METAVARS.get(field.bare_type) or _TEXTS.get(field.path[-1], "FILE")


_METAVARS: Final[dict[Any, str]] = {int: "NUMBER", float: "NUMBER"}
_TEXTS: Final = {
    "release": "VERSION",
    "labels": "SELECTOR",
    "serverName": "NAME",
    "nodeName": "NAME",
    "folder": "DIR",
    "journal": "DIR",
    "cgroupRoot": "DIR",
    "listen": "ADDRESS:PORT",
    "socket": "SOCKET",
    "stateSocket": "SOCKET",
    "criSocket": "SOCKET",
    "nriSocket": "SOCKET",
}
"""What a text names, by the last part of its field; another one names a file."""


def _field_name(field: ConfigField) -> str:
    return ".".join(field.path)


def _parameter_name(field: ConfigField) -> str:
    return "field_" + "_".join(field.path)


@click.command(cls=SectionedCommand)
@configuration_options
def command(config: str | None, **flags: FlagValue) -> int:
    """Run the agent: keep the cgroup values of this node as planned.

    By default it only observes: it computes and reports, and writes nothing. With --mode enforce
    it writes the values that memqos plan shows, saves the previous ones in a journal, and restores
    values that something else changes. Every setting can be in a file, in the environment, or a
    flag.

    If the kubelet has MemoryQoS on, it manages the files above the pods. The agent then plans the
    kubelet's values there, and writes them only to close the gap after a restart of the kubelet.

    SIGHUP reloads the configuration. SIGTERM stops the agent: values stay, unless
    --rollback-on-exit is given.

    Exit code 0: stopped by a signal, 1: something failed.
    """
    given = flag_values(flags)

    def load() -> AgentConfiguration:
        return load_configuration(config, os.environ, given)

    configuration = load()
    # The loop costs a fifth of a second to import: what is wrong is reported before.
    import asyncio

    from memqos.agent.events import EventLog
    from memqos.agent.loop import Agent
    from memqos.agent.node_reader import NodeReader
    from memqos.agent.node_writer import NodeWriter
    from memqos.agent.sampler import sampler_of
    from memqos.host.cgroups import CgroupFs
    from memqos.host.sd_notify import ServiceNotifier

    log = EventLog(configuration.log_format, to_journal="JOURNAL_STREAM" in os.environ)
    fs = CgroupFs(configuration.cgroup_root)
    with ExitStack() as stack:
        # First the writer: its lock ends a second agent before that has started anything.
        writer = NodeWriter(configuration, fs)
        stack.callback(writer.close)
        reader = NodeReader(configuration, fs)
        stack.callback(reader.close)
        sampler, unread = sampler_of(configuration, fs, reader.roots.proc)
        if unread is not None:
            log.log("info", f"the kernel's log is not read: {unread}")

        async def run() -> int:
            agent = Agent(
                reader,
                writer,
                load=load,
                log=log,
                service=ServiceNotifier(),
                version=_version(),
                sampler=sampler,
            )
            return await agent.run()

        return asyncio.run(run())


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("memqos")
    except PackageNotFoundError:
        return "unknown"
