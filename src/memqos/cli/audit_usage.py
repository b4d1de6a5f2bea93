"""What pods use, out of files: the metrics API's answers, snapshots, or a mapping."""

from collections.abc import Iterable

from memqos.cli.audit_reading import CensusReader
from memqos.cli.snapshots import snapshot_cgroup_names
from memqos.cluster.node_memory import working_set
from memqos.cluster.usage_reading import read_usage_report
from memqos.errors import InputError
from memqos.findings.census import Census
from memqos.findings.others import MeasuredUsage
from memqos.host.dumps import DumpBlock, dump_of
from memqos.host.manifests import load_files
from memqos.kube.resources import storable
from memqos.manifests.documents import Document, read_documents
from memqos.manifests.snapshot import is_snapshot, read_snapshot
from memqos.plan.owners import SANDBOX_NAME, Owners


def read_usage(files: Iterable[str]) -> tuple[dict[str, MeasuredUsage], list[InputError]]:
    """Usage by namespace/name; of several files, the most of each; and what is wrong with them."""
    found = Census()
    faults: list[InputError] = []
    for file in files:
        if _is_metrics(file):
            with CensusReader(1, {}, lambda size, objects: None) as survey:
                survey.read([dump_of(file)])
                faults += survey.faults
                for key, used in survey.cluster_objects().usage.items():
                    found.merge_usage(key, used)
            continue
        try:
            _read_usage_file(file, found)
        except InputError as error:
            faults.append(error)
    return found.usage, faults


def _is_metrics(file: str) -> bool:
    """Whether a file starts like an answer of the metrics API, which may be a large one."""
    for block in dump_of(file).blocks():
        if not isinstance(block, DumpBlock):
            return False
        if block.layout.form == "items":
            return True
        text = block.text
        if text is None:
            with open(file, "rb") as opened:
                text = opened.read(4096)
        return b"PodMetrics" in text[:4096]
    return False


def _read_usage_file(file: str, found: Census) -> None:
    for name, data in load_files([file]):
        if isinstance(data, InputError):
            raise data
        document: Document | InputError
        for document in read_documents(data, name):
            if isinstance(document, InputError):
                raise document
            if is_snapshot(document.data):
                _read_snapshot_usage(data, name, found)
                continue
            for key, usage in read_usage_report(document).pods.items():
                containers = {
                    each: storable(used) for each, used in usage.containers.items() if used
                }
                found.add_usage(key, containers, storable(usage.working_set or 0))


def _read_snapshot_usage(data: bytes, file: str, found: Census) -> None:
    """The working sets of the containers of a node."""
    snapshot = read_snapshot(data, file)
    owners = Owners([snapshot_cgroup_names(snapshot, file)], snapshot.running)
    pods: dict[str, dict[str, int]] = {}
    totals: dict[str, int] = {}
    for path, files in snapshot.cgroups.items():
        owner, used = owners.of(path), working_set(files)
        if owner is None or used is None:
            continue
        if owner.container is None:
            totals[owner.pod] = used
        elif owner.container != SANDBOX_NAME:
            containers = pods.setdefault(owner.pod, {})
            containers[owner.container] = max(used, containers.get(owner.container, 0))
    for key in {*pods, *totals}:
        found.add_usage(key, pods.get(key, {}), totals.get(key))
