"""Read dumps into a census: find every object, its position in its file, and duplicate UIDs."""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec

from memqos.audit.census import BlockPosition, Census, ClusterObjects, MeasuredUsage
from memqos.audit.pod_counter import CountRequest
from memqos.audit.totals import ClusterTotals
from memqos.cluster.eviction_signals import working_set
from memqos.cluster.usage_report import read_usage_report
from memqos.errors import InputError
from memqos.host.census_workers import CensusWorkers, QuickResult
from memqos.host.dumps import DumpBlock, DumpSource, Restart, YamlFile, block_text, dump_of
from memqos.host.manifest_files import load_files
from memqos.host.snapshots import snapshot_cgroup_names
from memqos.kube.resources import storable
from memqos.manifests.documents import Document, read_documents
from memqos.manifests.dumps.text import DumpedText, DumpLayout, Scanner
from memqos.manifests.objects import SNAPSHOT, objects
from memqos.manifests.snapshot import is_snapshot, read_snapshot
from memqos.plan.owners import SANDBOX_NAME, Owners

ReadProgress = Callable[[int, int], None]
"""Called with how many bytes and objects were read since the last call."""

FAULTS_LISTED: Final = 1000
_USAGE_HINT: Final = "give the answer of the metrics API, or a kubelet's /stats/summary"


class _BlockStart(NamedTuple):
    """A block that was read, and the position at which it starts."""

    block: DumpBlock
    line: int
    before: int


class CensusReader:
    """Reads dumps, and counts their pods under given settings."""

    def __init__(self, jobs: int, usage: dict[str, MeasuredUsage], progress: ReadProgress) -> None:
        self.faults: list[InputError] = []
        self.more_faults = 0
        self._progress = progress
        self._workers = CensusWorkers(jobs, usage)
        self._uids: dict[str, int] = {}
        """UID → the number of the block in which it was found first."""
        self._duplicates: dict[BlockPosition, str] = {}
        self._blocks: dict[int, _BlockStart] = {}
        self._places: dict[BlockPosition, tuple[str, int, int]] = {}

    def __enter__(self) -> "CensusReader":
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.close()

    def read(self, sources: Iterable[DumpSource]) -> None:
        """Read all sources, one after the other."""
        for source in sources:
            scanner: Scanner | None = None
            first: int | None = None
            faults = len(self.faults), self.more_faults
            for number, part, quick in self._workers.read_parts(source.blocks()):
                first = number if first is None else first
                if isinstance(part, Restart):
                    self._discard_from(first)
                    self.faults, self.more_faults = self.faults[: faults[0]], faults[1]
                    scanner = None
                elif isinstance(part, InputError):
                    self.add_fault(part)
                elif isinstance(part, YamlFile):
                    self._read_yaml(number, part)
                else:
                    scanner = scanner or Scanner(part.file, part.layout)
                    self._read_block(number, part, quick, scanner)

    def cluster_objects(self) -> ClusterObjects:
        """All objects that were read, other than pods, by this process and the workers."""
        return self._workers.cluster_objects()

    def count_pods(self, request: CountRequest) -> ClusterTotals:
        """All pods added up, but those whose UID another one has."""
        return self._workers.count_pods(
            msgspec.structs.replace(request, duplicates=self._duplicates)
        )

    def report_duplicates(self) -> None:
        """Add a fault for each pod whose UID was read before."""
        for place, uid in sorted(self._duplicates.items()):
            self.add_fault_at(place, f"the UID {uid} is used by an earlier pod too: not counted")

    def add_fault(self, error: InputError) -> None:
        """Record that something could not be read."""
        if len(self.faults) < FAULTS_LISTED:
            self.faults.append(error)
        else:
            self.more_faults += 1

    def add_fault_at(self, place: BlockPosition, what: str, field: str | None = None) -> None:
        """Record a fault of a pod that was read, with its position in its file."""
        if len(self.faults) >= FAULTS_LISTED:
            self.more_faults += 1
            return
        file, line, column = self._position_of(place)
        self.add_fault(InputError(what, file=file, line=line, column=column, field=field))

    def _discard_from(self, number: int) -> None:
        """Discard what was read from this block and all after it."""
        self._workers.discard_from(number)
        self._uids = {uid: first for uid, first in self._uids.items() if first < number}
        self._duplicates = {
            place: uid for place, uid in self._duplicates.items() if place[0] < number
        }

    def _read_block(
        self, number: int, block: DumpBlock, quick: QuickResult | None, scanner: Scanner
    ) -> None:
        line, before = scanner.position
        self._blocks[number] = _BlockStart(msgspec.structs.replace(block, text=None), line, before)
        if quick is None:
            try:
                found = list(scanner.feed(block_text(block), is_last=block.is_last))
            except InputError as error:
                found = [error]
            self._add_objects(number, block.file, found)
            self._progress(block.end - block.start, len(found))
            return
        result, size = quick
        # A block that decodes as a whole starts with an object: the text before it was incomplete.
        self._add_objects(number, block.file, scanner.abandon(), first=result.objects)
        scanner.skip_block(size)
        if block.is_last:
            self._add_objects(number, block.file, scanner.feed(b"", is_last=True))
        self._identify_all(number, result.uids)
        self._progress(block.end - block.start, result.objects)

    def _add_objects(
        self, number: int, file: str, found: Iterable[DumpedText | InputError], first: int = 0
    ) -> None:
        for index, each in enumerate(found, first):
            if isinstance(each, InputError):
                self.add_fault(each)
                continue
            try:
                self._add_object((number, index), file, each)
            except InputError as error:
                self.add_fault(error)

    def _add_object(self, place: BlockPosition, file: str, found: DumpedText) -> None:
        self._places[place] = (file, found.line, found.column)
        for where, uid in self._workers.own.read_object(place, found, file):
            self._places.setdefault(where, self._places[place])
            self._identify(where, uid)

    def _read_yaml(self, number: int, file: YamlFile) -> None:
        """Read YAML, the slow way: each object is written as JSON and read from that."""
        layout = DumpLayout(form="lines", start=0, opening=None)
        whole = DumpBlock(file=file.file, layout=layout, end=0, is_last=True)
        self._blocks[number] = _BlockStart(whole, 1, 0)
        index = 0
        for document in read_documents(file.text, file.file):
            for item in (document,) if isinstance(document, InputError) else objects(document):
                if isinstance(item, InputError):
                    self.add_fault(item)
                    continue
                line, column = item.document.position(item.path)
                kind = {} if item.kind == SNAPSHOT else {"kind": item.kind}
                text = msgspec.json.encode(item.data | kind)
                try:
                    self._add_object((number, index), file.file, DumpedText(text, line, column))
                except InputError as error:
                    # A position in the JSON means nothing: the field gives one in the YAML.
                    self.add_fault(item.error(error.what, error.field or "", error.hint))
                index += 1
        self._progress(len(file.text), index)

    def _identify_all(self, number: int, uids: list[str | None]) -> None:
        fresh = {uid: number for uid in uids if uid is not None}
        if len(fresh) + uids.count(None) == len(uids) and self._uids.keys().isdisjoint(fresh):
            self._uids.update(fresh)
            return
        for index, uid in enumerate(uids):
            if uid is not None:
                self._identify((number, index), uid)

    def _identify(self, place: BlockPosition, uid: str) -> None:
        if uid in self._uids:
            self._duplicates[place] = uid
        else:
            self._uids[uid] = place[0]

    def _position_of(self, place: BlockPosition) -> tuple[str, int | None, int | None]:
        if place in self._places:
            return self._places[place]
        block, line, before = self._blocks[place[0]]
        if block.is_text:
            return block.file, None, None
        layout = msgspec.structs.replace(block.layout, lines=line - 1, before=before)
        found = Scanner(block.file, layout).feed(block_text(block), is_last=False)
        for index, each in enumerate(found):
            if index == place[1] and isinstance(each, DumpedText):
                return block.file, each.line, each.column
        return block.file, None, None


def read_usage(files: Iterable[str]) -> tuple[dict[str, MeasuredUsage], list[InputError]]:
    """Usage by namespace/name, the highest of several files; and what could not be read."""
    found = Census()
    faults: list[InputError] = []
    for file in files:
        if _is_metrics(file):
            faults += _read_metrics_list(file, found)
            continue
        try:
            _read_usage_file(file, found)
        except InputError as error:
            faults.append(error)
    return found.usage, faults


def _read_metrics_list(file: str, found: Census) -> list[InputError]:
    """Add the usage in a list of the metrics API; what could not be read."""
    counts: list[int] = []
    with CensusReader(1, {}, lambda _, objects: counts.append(objects)) as reader:
        reader.read([dump_of(file)])
        usage = reader.cluster_objects().usage
        for key, used in usage.items():
            found.merge_usage(key, used)
        if any(counts) and not usage and not reader.faults:
            return [InputError("it has no usage of pods", file=file, hint=_USAGE_HINT)]
        return reader.faults


def _is_metrics(file: str) -> bool:
    """Whether a file starts like a list of the metrics API, which may be large."""
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
