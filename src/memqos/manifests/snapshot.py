"""Snapshots: a whole node in one JSON object, with its pods, cgroups and processes."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

from memqos.errors import InputError
from memqos.kernel.file_formats import memory_of
from memqos.kernel.machine import CgroupLayout, Machine, NumaTexts, cgroup_layout, mounts_of
from memqos.kernel.process import Process
from memqos.kube.pod import Pod
from memqos.manifests.agent_state import AgentState
from memqos.manifests.documents import Document, decoding_error, read_documents

OMITTED_FIELDS: Final = "kubelet_configuration: left out, as of no use here: "
"""Before the fields of a kubelet's configuration that a snapshot does not carry."""


class PodList(msgspec.Struct, frozen=True):
    """The response of a kubelet's pods endpoint."""

    items: tuple[Pod, ...] | None = None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A node at one moment. Keys that are not listed here are skipped.

    A text that could not be read is empty, and `notes` has the reason.
    """

    driver: Literal["cgroupfs", "systemd"]
    kernel: str
    runtime: str
    kubelet: str
    """Its version."""
    meminfo: str
    """/proc/meminfo."""
    numa: dict[str, NumaTexts]
    mount: tuple[str, ...]
    """The cgroup mounts with their options."""
    kubelet_configuration: str
    """A KubeletConfiguration in YAML."""
    pods: PodList
    cgroups: dict[str, dict[str, str]]
    """Path → file → content."""
    processes: dict[str, tuple[Process, ...]]
    """Path → the processes there."""
    memory_manager_state: str | None
    """The kubelet's checkpoint."""
    metrics: tuple[str, ...]
    version: int | str | None = None
    memqos: str | None = None
    """The version that took it."""
    taken_at: str | None = None
    boot_id: str | None = None
    page_size: int | None = None
    hugepages: dict[str, dict[str, str]] = {}
    """hugepages-2048kB → file → content."""
    pressure: dict[str, str] = {}
    """memory, cpu, io → content of /proc/pressure."""
    swaps: str = ""
    """/proc/swaps."""
    layout: CgroupLayout | None = None
    """How cgroups are mounted."""
    records: dict[str, str] = {}
    """Files of the agent's recorder → content in base64."""
    agent: AgentState | None = None
    """The state of the agent of memqos on the node."""
    own_values: dict[str, tuple[str, ...]] = {}
    """Path → files whose value in place is memqos's own, by its journal."""
    notes: tuple[str, ...] = ()
    """What is missing, and why; what was omitted on purpose has `OMITTED_FIELDS` before it."""

    @property
    def machine(self) -> Machine:
        """The machine alone."""
        return Machine(
            kernel=self.kernel or None,
            page_size=self.page_size,
            meminfo=self.meminfo or None,
            numa=self.numa,
            mount=self.mount,
            hugepages=self.hugepages,
            pressure=self.pressure,
            swaps=self.swaps,
            layout=self.layout or cgroup_layout(mounts_of(self.mount)),
            boot_id=self.boot_id,
            runtime=self.runtime or None,
            kubelet=self.kubelet or None,
        )

    @property
    def gaps(self) -> tuple[str, ...]:
        """The notes that a reader of the node needs: fields omitted on purpose are no gaps."""
        return tuple(note for note in self.notes if not note.startswith(OMITTED_FIELDS))

    @property
    def running(self) -> tuple[Pod, ...]:
        return self.pods.items or ()

    @property
    def memory(self) -> int:
        """Bytes of RAM."""
        return memory_of(self.meminfo, "MemTotal")

    @property
    def swap(self) -> int:
        return memory_of(self.meminfo, "SwapTotal")

    @property
    def all_processes(self) -> Iterator[Process]:
        """Every process, with its cgroup and the one that is killed with it."""
        for path, processes in self.processes.items():
            group = self._oom_group(path)
            for process in processes:
                yield msgspec.structs.replace(process, cgroup=path, oom_group=group)

    def _oom_group(self, path: str) -> str | None:
        parts = path.strip("/").split("/")
        for depth in range(1, len(parts) + 1):
            above = "/" + "/".join(parts[:depth])
            if self.cgroups.get(above, {}).get("memory.oom.group") == "1":
                return above
        return None


FORM: Final = 1
"""The newest form of snapshots that this version reads."""
_REQUIRED_KEYS: Final = frozenset({"driver", "cgroups", "pods", "processes"})
_decoder: Final = msgspec.json.Decoder(Snapshot)


def is_snapshot(data: Mapping[str, Any]) -> bool:
    """Whether an object without a kind is a snapshot."""
    return "kind" not in data and data.keys() >= _REQUIRED_KEYS


def read_snapshot(data: bytes, file: str) -> Snapshot:
    """The snapshot in a file; one of a newer form is refused."""
    try:
        return check_form(_decoder.decode(data), file)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Read again for the place of what is wrong.
        document = next(iter(read_documents(data, file)))
    if isinstance(document, InputError):
        raise document
    if not is_snapshot(document.data):
        kind = f"a {document.kind}" if document.kind else "something else"
        raise document.error(
            f"the file has {kind}, not a snapshot of a node",
            hint=f"a snapshot has {', '.join(sorted(_REQUIRED_KEYS))} and more",
        )
    try:
        return check_form(msgspec.convert(document.data, Snapshot), file)
    except msgspec.ValidationError as error:
        raise decoding_error(error, document.data, document) from None


def check_form(snapshot: Snapshot, file: str) -> Snapshot:
    """The snapshot; refuses one of a newer form."""
    if isinstance(snapshot.version, int) and snapshot.version > FORM:
        raise InputError(
            f"this snapshot has format {snapshot.version}, and this memqos supports up to {FORM}",
            file=file,
            field="version",
            hint=f"read it with memqos {snapshot.memqos or 'of a newer version'}",
        )
    return snapshot


def pods_in(document: Document) -> Document:
    """The pods of a snapshot as a document of their own; any other document is left as it is."""
    if not is_snapshot(document.data) or not isinstance(document.data["pods"], dict):
        return document
    return Document(
        document.file, document.index, document.data["pods"], document.root.children["pods"]
    )
