"""Take a snapshot of a node, redact it, add the recorder's files, and encode it in JSON."""

import os
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from memqos.converge.observation import (
    ObservedNode,
    observe_live,
    observe_snapshot,
    with_agent,
)
from memqos.converge.pod_sources import PodSource
from memqos.converge.running_kubelet import KubeletFacts, KubeletSources, kubelet_of_source
from memqos.errors import InputError, Unreachable
from memqos.host.cgroups import CgroupFs
from memqos.host.machine import SYSTEM, Roots, read_machine
from memqos.host.processes import read_processes
from memqos.host.record_files import list_record_files, read_record_file
from memqos.host.snapshots import load_snapshot
from memqos.host.versions import kubelet_version, own_version, runtime_version
from memqos.kernel.file_formats import lines_about
from memqos.kernel.process import Process
from memqos.kube.kubelet import ATTRIBUTES, CgroupDriver
from memqos.kube.kubelet.decoding import KUBELET_API_VERSION, KUBELET_KIND
from memqos.kube.pod import (
    Container,
    ContainerStatus,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    is_memory_backed,
)
from memqos.manifests.agent_state import AgentState
from memqos.manifests.snapshot import FORM, OMITTED_FIELDS, PodList, Snapshot
from memqos.record.format import HALF_SUFFIXES, NODE_SUBJECT, record_file_name
from memqos.settings.facts import RawKubeletConfig
from memqos.settings.resolver import configuration_document

_ANNOTATIONS: Final = "kubernetes.io/config."
_TYPE_META: Final = ("apiVersion", "kind")
_STATISTICS: Final = frozenset(
    {
        "anon",
        "file",
        "shmem",
        "inactive_file",
        "active_file",
        "unevictable",
        "slab_reclaimable",
        "slab_unreclaimable",
    }
)


def redact_pod(pod: Pod, *, images: bool) -> Pod:
    """A pod without its annotations, except those that name its source."""
    annotations = {
        name: value
        for name, value in (pod.metadata.annotations or {}).items()
        if name.startswith(_ANNOTATIONS)
    }
    return msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(pod.metadata, annotations=annotations or None),
        spec=_redact_spec(pod.spec, images=images),
        status=_redact_pod_status(pod.status),
    )


def redact_configuration(data: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The fields of a KubeletConfiguration that concern memory, and the names of the others."""
    about_memory = {
        name: value for name, value in data.items() if name in (*_TYPE_META, *ATTRIBUTES)
    }
    return about_memory, [name for name in data if name not in about_memory]


def redact_cgroup(files: Mapping[str, str]) -> dict[str, str]:
    """A cgroup's files; of memory.stat only the lines that memqos uses."""
    return {
        file: lines_about(content, _STATISTICS) if file == "memory.stat" else content
        for file, content in files.items()
    }


def redact_agent(agent: AgentState | None) -> AgentState | None:
    """An agent's state without its last error, which may quote anything."""
    return None if agent is None else msgspec.structs.replace(agent, failing=None)


def _redact_pod_status(status: PodStatus | None) -> PodStatus | None:
    """A message may quote anything; only that of an eviction, from the kubelet, is about memory."""
    if status is None:
        return None

    def redacted(
        statuses: tuple[ContainerStatus, ...] | None,
    ) -> tuple[ContainerStatus, ...] | None:
        return statuses and tuple(map(_redact_status, statuses))

    return msgspec.structs.replace(
        status,
        message=status.message if status.reason == "Evicted" else None,
        container_statuses=redacted(status.container_statuses),
        init_container_statuses=redacted(status.init_container_statuses),
        ephemeral_container_statuses=redacted(status.ephemeral_container_statuses),
        resources=_without_claims(status.resources),
    )


def _redact_spec(spec: PodSpec, *, images: bool) -> PodSpec:
    """What decides about memory: where the pod may run, and volumes on disk, do not."""

    def redacted(containers: tuple[Container, ...] | None) -> tuple[Container, ...] | None:
        return containers and tuple(
            msgspec.structs.replace(
                container,
                image=container.image if images else None,
                ports=None,
                resources=_without_claims(container.resources),
            )
            for container in containers
        )

    return msgspec.structs.replace(
        spec,
        containers=redacted(spec.containers),
        init_containers=redacted(spec.init_containers),
        ephemeral_containers=redacted(spec.ephemeral_containers),
        resources=_without_claims(spec.resources),
        resource_claims=None,
        node_selector=None,
        affinity=spec.affinity and msgspec.structs.replace(spec.affinity, node_affinity=None),
        volumes=tuple(filter(is_memory_backed, spec.volumes or ())) or None,
    )


def _redact_status(status: ContainerStatus) -> ContainerStatus:
    return msgspec.structs.replace(status, resources=_without_claims(status.resources))


def _without_claims(resources: ResourceRequirements | None) -> ResourceRequirements | None:
    """Claims of devices decide nothing about memory, and their names are the user's."""
    return resources and msgspec.structs.replace(resources, claims=None)


SNAPSHOT_FILES: Final = (
    "cgroup.controllers",
    "cgroup.subtree_control",
    "memory.min",
    "memory.low",
    "memory.high",
    "memory.max",
    "memory.oom.group",
    "memory.swap.max",
    "memory.current",
    "memory.swap.current",
    "memory.stat",
    "memory.events",
    "memory.events.local",
    "memory.pressure",
    "cpu.weight",
    "cpu.max",
    "cpuset.mems",
    "cpuset.cpus",
    "pids.max",
)
"""The files that are read of every cgroup, besides a limit for each size of huge pages."""


def take_snapshot(
    source: PodSource,
    *,
    may_be_unreachable: bool = False,
    roots: Roots = SYSTEM,
    configuration: RawKubeletConfig | None = None,
    images: bool = True,
    agent: tuple[str | None, str | None] = (None, None),
    step: Callable[[str], None] = lambda what: None,
) -> Snapshot:
    """A snapshot of this machine without secrets; `step` is called before each part of it.

    Its notes say what is missing, and why a source that `may_be_unreachable` did not answer. Any
    other input that cannot be read is an error. `agent` is the path of the agent's socket, and
    the folder of its journal.
    """
    notes: list[str] = []
    step(f"reading pods from {source.describe()}")
    pods = _pods(source, notes, may_be_unreachable)
    sources = KubeletSources(roots)
    node, endpoint = kubelet_of_source(None if pods is None else source)
    kubelet = sources.read_facts(node, endpoint, configuration=configuration is None)
    step("reading the machine and its cgroups")
    machine = read_machine(roots)
    observation = observe_live(
        None,
        (*SNAPSHOT_FILES, *(f"hugetlb.{pages.name}.max" for pages in machine.huge_pages)),
        roots=roots,
        configuration=configuration,
        machine=machine,
        kubelet=kubelet,
    )
    observation = with_agent(observation, roots.cgroup, *agent)
    step("reading processes")
    notes += observation.notes
    running = _processes(roots, notes)
    redacted = _configuration(observation.configuration, notes, given=configuration is not None)
    return Snapshot(
        version=FORM,
        memqos=own_version(),
        taken_at=_now(),
        boot_id=machine.boot_id,
        driver=observation.driver or _driver_in(redacted, notes),
        kernel=machine.kernel or "",
        runtime=_or_note(runtime_version(), "no runtime: neither containerd nor crio found", notes),
        kubelet=kubelet.version or _note_unknown_version(kubelet, notes),
        meminfo=machine.meminfo or "",
        numa=machine.numa,
        mount=machine.mount,
        kubelet_configuration=_yaml(redacted),
        pods=PodList(tuple(redact_pod(pod, images=images) for pod in pods or ())),
        cgroups={path: redact_cgroup(files) for path, files in observation.cgroups.items()},
        processes=running,
        memory_manager_state=observation.memory_manager_state,
        metrics=sources.endpoint_facts.metrics,
        page_size=machine.page_size,
        hugepages=machine.hugepages,
        pressure=machine.pressure,
        swaps=machine.swaps,
        layout=machine.layout,
        agent=redact_agent(observation.agent),
        own_values=observation.own_values,
        notes=tuple(notes),
    )


SNAPSHOT_RECORD_BYTES: Final = 4 << 20
"""Bytes of files; in a snapshot, as base64, they take a third more."""
_NODE_FILE: Final = record_file_name(NODE_SUBJECT)


def add_records(snapshot: Snapshot, folder: str, most: int = SNAPSHOT_RECORD_BYTES) -> Snapshot:
    """The snapshot with the recordings in a folder; its notes say how many are missing."""
    try:
        records, notes = _newest_records(folder, most)
    except PermissionError as error:
        file = error.filename or folder
        records, notes = {}, (f"no records: {file}: permission denied – run as root",)
    return msgspec.structs.replace(snapshot, records=records, notes=(*snapshot.notes, *notes))


def _newest_records(folder: str, most: int) -> tuple[dict[str, str], tuple[str, ...]]:
    """Files of recordings in base64, and a note on those there is no room for."""
    records: dict[str, str] = {}
    names = _latest_first(folder)
    for count, name in enumerate(names):
        files = {
            name + suffix: read_record_file(os.path.join(folder, name + suffix))
            for suffix in HALF_SUFFIXES
        }
        most -= sum(map(len, files.values()))
        if most < 0:
            return records, (f"records: the newest {count} of {len(names)}",)
        records |= {file: b64encode(data).decode() for file, data in files.items() if data}
    return records, ()


def _latest_first(folder: str) -> list[str]:
    """The names of recordings, the last written to first; the node's own before all others."""
    written: dict[str, float] = {}
    for name, when in list_record_files(folder):
        written[name] = max(when, written.get(name, 0.0))
    return sorted(written, key=lambda name: (name != _NODE_FILE, -written[name], name))


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The snapshot in JSON, its pods as a PodList, like a kubelet's answer."""
    data = msgspec.to_builtins(snapshot)
    pods = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": data["pods"]["items"]}
    ordered = {"version": data.pop("version"), **data, "pods": pods}
    return msgspec.json.format(msgspec.json.encode(ordered), indent=1) + b"\n"


def observe_snapshot_file(file: str) -> ObservedNode:
    """The node in a snapshot's file."""
    return observe_snapshot(load_snapshot(file), file)


def _pods(source: PodSource, notes: list[str], may_be_unreachable: bool) -> list[Pod] | None:
    try:
        found = source.pods()
    except Unreachable as error:
        if not may_be_unreachable:
            raise
        notes.append(f"no pods: {error}")
        return None
    # The text of an error may quote the manifest, and so a secret: only its place is noted.
    notes += [f"{each.where}: no pod can be read here" for each in source.faults]
    return found


def _processes(roots: Roots, notes: list[str]) -> dict[str, tuple[Process, ...]]:
    """Path of a cgroup → its processes."""
    try:
        listed = read_processes(roots.proc, CgroupFs(roots.cgroup))
    except Unreachable as error:
        notes.append(f"no processes: {error.what}")
        return {}
    if listed.unreadable:
        notes.append(f"processes: {listed.unreadable} cannot be read – run as root")
    if not listed.complete:
        notes.append("processes: only those of this PID namespace")
    found: dict[str, list[Process]] = {}
    for process in listed.processes:
        # Not stored: the cgroup follows from where the process is listed, its OOM group from the
        # tree.
        alone = msgspec.structs.replace(process, cgroup=None, oom_group=None)
        found.setdefault(process.cgroup or "/", []).append(alone)
    return {path: tuple(found[path]) for path in sorted(found)}


def _configuration(
    found: RawKubeletConfig | None, notes: list[str], *, given: bool
) -> dict[str, Any]:
    """The kubelet's configuration without secrets; empty where it cannot be read."""
    if found is None:
        notes.append("no kubelet_configuration: none found – give one with --kubelet")
        return {}
    try:
        data = configuration_document(found).data
    except InputError as error:
        if given:
            raise
        # As above: the text of the error may quote a secret.
        notes.append(f"{found.name}: line {error.line}: not a configuration that can be read")
        return {}
    about_memory, omitted = redact_configuration(data)
    if omitted:
        notes.append(OMITTED_FIELDS + ", ".join(omitted))
    return {"apiVersion": KUBELET_API_VERSION, "kind": KUBELET_KIND, **about_memory}


def _driver_in(configuration: dict[str, Any], notes: list[str]) -> CgroupDriver:
    notes.append("driver: no kubelet has created cgroups here, so it is the configured one")
    return "systemd" if configuration.get("cgroupDriver") == "systemd" else "cgroupfs"


def _yaml(data: dict[str, Any]) -> str:
    import yaml

    return yaml.safe_dump(data, sort_keys=False) if data else ""


def _note_unknown_version(kubelet: KubeletFacts, notes: list[str]) -> str:
    """No version: that of a program on PATH, which may not be the one running, is a guess."""
    found = kubelet_version()
    other = "" if found is None else f"; the one on PATH is {found}"
    notes.append(f"no kubelet: the running version is unknown, {kubelet.why_unknown}{other}")
    return ""


def _or_note(found: str | None, note: str, notes: list[str]) -> str:
    if found is None:
        notes.append(note)
    return found or ""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
