"""The node a `numa` command looks at: its machine, its state file, its pods and its kubelet."""

import os
import re
from collections.abc import Mapping
from typing import Final

import click
import msgspec

from memqos.cli.help_sections import help_section
from memqos.errors import InputError
from memqos.host.local_kubelet import pod_names
from memqos.host.machine import Roots, read_machine
from memqos.host.manifest_files import load_file
from memqos.kube.kubelet import STATE_FILE
from memqos.kube.pod import Pod
from memqos.manifests.documents import read_documents
from memqos.manifests.snapshot import is_snapshot, read_snapshot
from memqos.numa.checkpoint import LoadedCheckpoint, load_checkpoint
from memqos.numa.machines import (
    NumaMachine,
    machine_from_file,
    machine_from_kernel,
    machine_from_state,
    with_page_sizes,
)
from memqos.settings.facts import NodeFacts, facts_of_snapshot

LIVE_MACHINE: Final = "this machine"
_NUMA_KEY: Final = re.compile(rb"""^\s*(\{\s*)?["']?numa["']?\s*:""", re.MULTILINE)
_MACHINE_FILE_HINT: Final = (
    "one lists NUMA nodes, as numa: [{id: 0, memory: 64Gi}] does; "
    "memqos numa show -o yaml prints that of a machine"
)


class NumaNodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the node that is looked at."""

    machine: NumaMachine
    source: str
    """Where the machine was found, as a person would call it."""
    loaded: LoadedCheckpoint | None = None
    state_file: str | None = None
    names: Mapping[str, str] = {}
    """UID → namespace/name of a pod."""
    pods: tuple[Pod, ...] = ()
    node: NodeFacts = NodeFacts()
    """What the settings of its kubelet follow from."""
    notes: tuple[str, ...] = ()


machine_option = help_section("Node")(
    click.option(
        "--machine",
        metavar="FILE",
        help="NUMA nodes in a file, a snapshot, or a sysfs folder.  [default: this machine]",
    )
)
snapshot_option = help_section("Node")(
    click.option(
        "--snapshot", metavar="FILE", help="A snapshot of a node: machine, state, pods, kubelet."
    )
)
state_option = help_section("Node")(
    click.option(
        "--state",
        metavar="FILE",
        help="The kubelet's memory_manager_state.  [default: this machine's, if there is one]",
    )
)


def read_node_facts(
    machine: str | None, state: str | None, snapshot: str | None, *, with_state: bool = True
) -> NumaNodeFacts:
    """The node that options name; a state file alone describes the machine it was written on.

    Without `with_state` no state is read, so that a broken one does not matter.
    """
    if snapshot is not None:
        return _facts_of_snapshot(snapshot, machine, state, with_state=with_state)
    if machine is None and state is None:
        return _facts_of_this_machine(with_state=with_state)
    loaded = None if state is None else load_checkpoint(read_state_text(state), state)
    if machine is not None:
        return NumaNodeFacts(
            machine=read_machine_beside(machine, loaded),
            source=machine,
            loaded=loaded,
            state_file=state,
        )
    assert loaded is not None
    assert state is not None
    if not loaded.state.nodes:
        raise InputError(
            "the state has no NUMA node", file=state, hint="name the machine with --machine"
        )
    return NumaNodeFacts(
        machine=machine_from_state(loaded.state), source=state, loaded=loaded, state_file=state
    )


def read_numa_machine(path: str) -> NumaMachine:
    """The machine in a file, a snapshot or a sysfs folder."""
    if os.path.isdir(path):
        return _machine_of_kernel_files(Roots(sys=path), path)
    name, data = load_file(path)
    document = next(iter(read_documents(data, name)))
    if isinstance(document, InputError):
        raise document if _NUMA_KEY.search(data) else _not_a_machine_error(document)
    if is_snapshot(document.data):
        return _facts_of_snapshot(path, None, None, with_state=False).machine
    if "numa" not in document.data:
        what = f"it holds a {document.kind}" if document.kind else "it has no key numa"
        raise _not_a_machine_error(document.error(what))
    return machine_from_file(document)


def _not_a_machine_error(error: InputError) -> InputError:
    """A file that is something else; what is wrong with it as YAML is of little use then."""
    return InputError(
        f"not a machine file: {error.what}",
        file=error.file,
        line=error.line,
        column=error.column,
        hint=_MACHINE_FILE_HINT,
    )


def read_machine_beside(path: str, loaded: LoadedCheckpoint | None) -> NumaMachine:
    """The same beside a state, which has page sizes that files leave out."""
    found = read_numa_machine(path)
    if loaded is None or os.path.isdir(path):
        return found
    return with_page_sizes(found, loaded.state)


def read_state_text(path: str) -> str:
    """The text of a state file."""
    name, data = load_file(path)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError("not UTF-8", file=name, line=1, column=error.start + 1) from None


def kubelet_state_path() -> str:
    """The file of this machine's kubelet with its state."""
    return f"{Roots().kubelet}/{STATE_FILE}"


def _facts_of_this_machine(*, with_state: bool) -> NumaNodeFacts:
    machine = _machine_of_kernel_files(Roots(), LIVE_MACHINE)
    path = kubelet_state_path()
    if not with_state:
        return NumaNodeFacts(machine=machine, source=LIVE_MACHINE)
    notes: tuple[str, ...] = ()
    loaded = None
    if os.access(path, os.R_OK):
        loaded = load_checkpoint(read_state_text(path), path)
    elif os.path.exists(path):
        notes = (f"{path} exists, but this user may not read it",)
    names = {} if loaded is None else pod_names()
    return NumaNodeFacts(
        machine=machine,
        source=LIVE_MACHINE,
        loaded=loaded,
        state_file=None if loaded is None else path,
        names=names,
        notes=notes,
    )


def _machine_of_kernel_files(roots: Roots, source: str) -> NumaMachine:
    found = read_machine(roots)
    machine = machine_from_kernel(found)
    if machine is None:
        raise InputError(
            "no NUMA node is visible",
            file=source,
            hint=found.missing.get("numa", "name a machine with --machine"),
        )
    return machine


def _facts_of_snapshot(
    file: str, machine: str | None, state: str | None, *, with_state: bool
) -> NumaNodeFacts:
    name, data = load_file(file)
    snapshot = read_snapshot(data, name)
    found = machine_from_kernel(snapshot.machine) if machine is None else read_numa_machine(machine)
    if found is None:
        raise InputError("no NUMA node in this snapshot", file=name, field="numa")
    loaded, state_file = None, f"{name} ({STATE_FILE})" if state is None else state
    if state is not None:
        loaded = load_checkpoint(read_state_text(state), state)
    elif with_state and snapshot.memory_manager_state:
        loaded = load_checkpoint(snapshot.memory_manager_state, state_file)
    if loaded is not None:
        found = with_page_sizes(found, loaded.state)
    pods = snapshot.running
    return NumaNodeFacts(
        machine=found,
        source=name if machine is None else machine,
        loaded=loaded,
        state_file=state_file if loaded is not None else None,
        names={
            pod.metadata.uid: f"{pod.metadata.namespace or 'default'}/{pod.metadata.name}"
            for pod in pods
            if pod.metadata.uid is not None
        },
        pods=pods,
        node=facts_of_snapshot(snapshot, name),
    )
