"""`memqos snapshot`: everything memqos reads of this node, in one file without secrets."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from memqos.cli.help_sections import SectionedCommand, help_section
from memqos.cli.node_agent import agent_options, agent_paths
from memqos.cli.options import (
    PodSourceOptions,
    cgroup_root_option,
    collect_options,
    pod_source_from,
    pod_source_options,
)
from memqos.cli.output import check_output_file, complain, write_output_file
from memqos.cli.streams import show_status
from memqos.converge.observation import load_kubelet_config
from memqos.converge.pod_sources import KubeletPods
from memqos.converge.snapshots import add_records, encode_snapshot, take_snapshot
from memqos.errors import InputError
from memqos.host.kubelet import READ_ONLY_URL, KubeletEndpoint
from memqos.host.machine import Roots
from memqos.host.record_files import RECORDS_FOLDER
from memqos.manifests.snapshot import OMITTED_FIELDS
from memqos.units import format_bytes, pluralize


@click.command(cls=SectionedCommand)
@click.option("--out", metavar="FILE", help="The file to write.  [default: standard output]")
@pod_source_options
@help_section("Node")(
    click.option("--kubelet", metavar="FILE", help="The kubelet's configuration.")
)
@cgroup_root_option
@agent_options
@click.option(
    "--records",
    metavar="DIR",
    help=f"The records folder of an agent.  [default: {RECORDS_FOLDER}, if it is there]",
)
@click.option("--without-images", is_flag=True, help="Omit the names of images.")
@click.option("--without-records", is_flag=True, help="Omit the agent's records.")
@collect_options(PodSourceOptions)
def command(
    pods: PodSourceOptions,
    *,
    out: str | None,
    kubelet: str | None,
    cgroup_root: str,
    agent: str | None,
    journal: str | None,
    records: str | None,
    without_images: bool,
    without_records: bool,
) -> int:
    """Save the state of this node to one JSON file, without secrets.

    It omits all secrets: environments, commands, volumes and annotations of pods, and the fields
    of the kubelet's configuration that do not affect memory. Give the file to any command that
    reads a node with --snapshot. What is missing is reported, and listed in the file's `notes`.

    \b
    memqos snapshot --out node.json --pods https://127.0.0.1:10250 \\
      --token-file token --ca-file /etc/kubernetes/pki/ca.crt
    """
    check_output_file(out)
    source = pod_source_from(pods)
    with _progress() as step:
        snapshot = take_snapshot(
            source or KubeletPods(KubeletEndpoint(READ_ONLY_URL)),
            may_be_unreachable=source is None,
            roots=Roots(cgroup=cgroup_root),
            configuration=load_kubelet_config(kubelet),
            images=not without_images,
            agent=agent_paths(cgroup_root, agent, journal),
            step=step,
        )
        if not without_records:
            step("reading records")
            snapshot = add_records(snapshot, _records_folder(records))
    for note in map(_note_summary, snapshot.notes):
        complain(f"note: {note}")
    if out is None:
        print(encode_snapshot(snapshot).decode(), end="")
    else:
        size = write_output_file(out, encode_snapshot(snapshot))
        running, cgroups = len(snapshot.running), len(snapshot.cgroups)
        content = f"{pluralize(running, 'pod')} and {pluralize(cgroups, 'cgroup')}"
        print(f"{out}: {content} in {format_bytes(size)}")
    faults = () if source is None else source.faults
    for fault in faults:
        complain(fault)
    return 1 if faults else 0


def _note_summary(note: str) -> str:
    """A note for the terminal: of a real kubelet 65 fields are omitted, too many to list."""
    if not note.startswith(OMITTED_FIELDS):
        return note
    fields = pluralize(note.removeprefix(OMITTED_FIELDS).count(",") + 1, "field")
    return f"{OMITTED_FIELDS}{fields}, listed in the file's notes"


def _records_folder(given: str | None) -> str:
    if given is not None and not os.path.isdir(given):
        raise InputError("there are no records here", file=given, hint="memqos agent writes them")
    return given or RECORDS_FOLDER


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Show on a terminal what is being done, and clear the line in the end."""
    if not sys.stderr.isatty():
        yield lambda what: None
        return
    try:
        yield lambda what: show_status(f"{what} …")
    finally:
        show_status("")
