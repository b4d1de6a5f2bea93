"""`memqos agent`: keeps a node as planned while pods come and go."""

import os
from typing import Any

import click

from memqos.agent.configuration import AgentConfiguration
from memqos.agent.configuration.reading import load_configuration
from memqos.cli.agent_options import configuration_options, flag_values


@click.command()
@configuration_options
def command(config: str | None, **options: Any) -> int:
    """Keep this node as planned while pods come and go.

    By default it only observes: it computes and reports, and writes nothing. With --mode enforce
    it writes what memqos plan would show, keeps what was there before in a journal, and puts back
    what others change. Every setting can stand in a file, in the environment, or be a flag.

    Beside a kubelet with MemoryQoS on, the files above the pods are the kubelet's: the agent plans
    what it keeps there, and only closes the hole that a restart of the kubelet opens.

    SIGHUP has it read its configuration anew. SIGTERM stops it: values stay, unless
    --rollback-on-exit is given.

    Exit code 0: stopped as told, 1: something failed.
    """
    flags = flag_values(options)

    def load() -> AgentConfiguration:
        return load_configuration(config, os.environ, flags)

    configuration = load()
    # The loop costs a fifth of a second to import: what is wrong is said before.
    import asyncio

    from memqos.agent.hand import NodeWriter
    from memqos.agent.log import EventLog
    from memqos.agent.loop import Agent
    from memqos.agent.sampler import sampler_of
    from memqos.host.service import ServiceNotifier

    log = EventLog(configuration.log_format, to_journal="JOURNAL_STREAM" in os.environ)
    node_writer = NodeWriter(configuration)

    sampler, unread = sampler_of(configuration, node_writer.fs, node_writer.roots.proc)
    if unread is not None:
        log.log("info", f"the kernel's log is not read: {unread}")

    async def run() -> int:
        return await Agent(node_writer, load, log, ServiceNotifier(), _version(), sampler).run()

    try:
        return asyncio.run(run())
    finally:
        node_writer.close()


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("memqos")
    except PackageNotFoundError:
        return "unknown"
