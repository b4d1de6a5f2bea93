"""Which node `top`, `status` and `web` look at: this machine, a snapshot, records, a cluster."""

import os
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from memqos.cli.agent_access import AgentAccessOptions, agent_access_options, agent_endpoints
from memqos.cli.cluster_access import LiveCluster
from memqos.cli.help_sections import help_section
from memqos.cli.node_agent import agent_options, agent_paths
from memqos.cli.node_plan import NodeOptions, node_options, observe_node, with_given_files
from memqos.cli.options import pod_source_from
from memqos.converge.cluster_nodes import ClusterNodes
from memqos.converge.live_node import LiveNode
from memqos.converge.node_sources import NodeSource, PlaybackNode, SnapshotNode
from memqos.converge.observed_rows import OBSERVED_FILES
from memqos.errors import InputError
from memqos.host.cgroups import SYSTEM_ROOT
from memqos.host.record_files import RECORDS_FOLDER, read_recordings
from memqos.kube.pod_history import milliseconds
from memqos.monitor.instant import NodeInstant

if TYPE_CHECKING:
    from memqos.record.recordings import Recording

_F = TypeVar("_F", bound=Callable[..., Any])
_LIVE_MS: Final = 60_000
"""What was read longer ago is no reading of now."""


class WatchOptions(NodeOptions, frozen=True, kw_only=True):
    """What is looked at."""

    snapshot: str | None
    records: str | None
    play: str | None
    speed: float
    start: str | None
    agent: str | None
    journal: str | None
    agent_namespace: str
    agent_address: str | None
    agent_ca: str | None
    agent_token: str | None

    @property
    def is_cluster(self) -> bool:
        """Whether they name a cluster, and no node of it."""
        return self.context is not None and self.pods is None and self.node_name is None


@help_section("Snapshots and records")
def watch_options(command: _F) -> _F:
    """The options of `WatchOptions`."""
    for option in (
        click.option(
            "--from",
            "start",
            metavar="TIME",
            help="Where --play starts: 2026-03-02T09:00:00Z.  [default: the first record; for "
            "status the last]",
        ),
        click.option(
            "--speed",
            type=click.FloatRange(0.1, 3600),
            default=10.0,
            metavar="FACTOR",
            help="How much faster than real time --play is.  [default: 10]",
        ),
        click.option(
            "--play",
            metavar="DIR|FILE",
            help="Play back the records in a folder, or in a snapshot.",
        ),
        click.option(
            "--records",
            metavar="DIR",
            help=f"Where the agent here keeps its records.  [default: {RECORDS_FOLDER}]",
        ),
        click.option("--snapshot", metavar="FILE", help="The node of a snapshot, not this one."),
        agent_access_options,
        agent_options,
        node_options,
    ):
        command = option(command)
    return command


def open_source(options: WatchOptions) -> NodeSource:
    """The source that the options name; with --context alone, all nodes of that cluster."""
    if options.snapshot is not None and options.play is not None:
        raise click.UsageError("--snapshot shows one instant, and --play many: give one of them")
    if options.play is not None:
        options.require_no_source(options.play)
        return _open_playback(options)
    if options.snapshot is not None:
        options.require_no_source(options.snapshot)
        adjust = partial(with_given_files, options=options)
        return SnapshotNode(options.snapshot, options.plan_options(agent=True), adjust)
    if options.is_cluster:
        return _open_cluster(options)
    root = options.cgroup_root
    socket, _ = agent_paths(root, options.agent, None)
    records = options.records or (RECORDS_FOLDER if root == SYSTEM_ROOT else None)
    # Made once: in a thread click does not know which --kubeconfig was given.
    pods = pod_source_from(options)
    observe = partial(observe_node, options, OBSERVED_FILES, pods)
    return LiveNode(
        observe(),
        pods,
        options.plan_options(agent=not options.overrides_plan),
        root=root,
        socket=socket,
        records=records,
        observe=observe,
    )


def is_live(instant: NodeInstant) -> bool:
    """Whether later readings tell more; nothing changes in a snapshot or where a playback is."""
    return instant.playback is None and abs(time.time() * 1000 - instant.at) < _LIVE_MS


def _open_cluster(options: WatchOptions) -> ClusterNodes:
    live = LiveCluster(options.context)
    access = msgspec.convert(options, AgentAccessOptions, from_attributes=True)
    agents = agent_endpoints(live, access)
    return ClusterNodes(agents, live.server.where)


def _open_playback(options: WatchOptions) -> PlaybackNode:
    assert options.play is not None
    start = None
    if options.start is not None:
        start = milliseconds(options.start)
        if start is None:
            raise click.BadParameter(
                f"{options.start!r} is not a time such as 2026-03-02T09:00:00Z",
                param_hint="--from",
            )
    recordings = _recordings_in(options.play)
    if not any(each.records for each in recordings):
        raise InputError(
            "there are no records here",
            file=options.play,
            hint=f"memqos agent keeps them in {RECORDS_FOLDER}",
        )
    return PlaybackNode(recordings, options.play, speed=options.speed, start=start)


def _recordings_in(place: str) -> "list[Recording]":
    if os.path.isdir(place):
        return list(read_recordings(place))
    from memqos.host.snapshots import load_snapshot
    from memqos.record.snapshot_story import snapshot_recordings

    return list(snapshot_recordings(load_snapshot(place)))
